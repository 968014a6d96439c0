"""The training loss of an epoch, summed where the model computes, and the end of a run whose loss is not finite."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from loader.loaders.lightning_resume import FitLoopCount

CHECKED_EVERY = 1000  # steps, after which a loss that is not finite ends the run at the latest


def check_finite(module: LightningModule, name: str, value: Tensor | float) -> None:
    """Ends a run whose loss is not finite. It waits for the device, so it is called a few times an epoch.

    One loss that is NaN or infinite makes the sum over an epoch so, on the device and in whatever order the losses came
    (from a CUDA graph, from several processes): the sum is the flag.

    Args:
        module: of the run.
        name: of the metric.
        value: of the metric, over all processes, each of which has to call this: all end together.

    Raises:
        ValueError: it is NaN or infinite.
    """
    value = float(value)
    if math.isfinite(value):
        return
    raise ValueError(
        f"{name} is {value} in epoch {module.current_epoch + 1}, after {module.global_step} steps; it must be finite, "
        "so the run ends here and writes no checkpoint of it: lower model.lr, or replace features that are NaN, "
        "infinite or very large, e.g. by numpy.nan_to_num"
    )


def check_watched(module: LightningModule, values: Mapping[str, Tensor]) -> None:
    """Ends a run if a callback watches one of these scores and it is NaN, as is the AUC of a split with one class.

    Lightning would stop the training after this epoch without a word, and take this checkpoint for the best one.

    Args:
        module: of the run.
        values: of the scores by their names, over all processes, each of which has to call this.

    Raises:
        ValueError: it is so.
    """
    trainer: Any = module._trainer  # whose class does not declare `callbacks`
    if trainer is None or trainer.sanity_checking:
        return
    watched = {getattr(callback, "monitor", None) for callback in trainer.callbacks}
    for name, value in values.items():
        if name in watched and math.isnan(value):
            raise ValueError(
                f"{name} is nan in epoch {module.current_epoch + 1}, since the labels of its split do not decide it, "
                "such as those of one class only; the run watches it: choose other items for that split, or another "
                "callbacks.best.monitor and callbacks.early_stopping.monitor"
            )


def sums_of_all(module: LightningModule, sums: Tensor) -> Tensor:
    """The sum over all processes, each of which has to call this."""
    trainer = module._trainer
    if trainer is None or trainer.world_size == 1:
        return sums
    reduced = trainer.strategy.reduce(sums.to(module.device, copy=True), reduce_op="sum")
    assert isinstance(reduced, Tensor)
    return reduced


def was_interrupted_with_others(module: LightningModule) -> bool:
    """Whether processes cannot add up for a checkpoint: those that go on, or are gone, would not take part. Warns."""
    trainer = module._trainer
    if trainer is None or trainer.world_size == 1 or not trainer.interrupted:
        return False
    warnings.warn(
        f"the checkpoint of an interrupted run of {trainer.world_size} processes has no scores: train/loss and "
        "train/acc of the epoch that it resumes are of its rest; an earlier checkpoint has them all",
        stacklevel=3,
    )
    return True


class SumsInWeights:
    """The sums of an epoch without those mini-batches whose gradients are only accumulated.

    A run that goes on from a checkpoint repeats these, and would count them twice.
    """

    def __init__(self) -> None:
        self._begin: tuple[int, int] | None = None  # epoch and mini-batch of the first gradient that is accumulated
        self._before: Tensor | None = None

    def note(self, module: LightningModule, sums: Callable[[], Tensor]) -> None:
        """Is told of each mini-batch, with what gives the sums before it is counted."""
        trainer = module._trainer
        if trainer is None or trainer.accumulate_grad_batches == 1:
            return
        begin = self._place(module)
        if begin != self._begin:
            self._begin, self._before = begin, sums().clone()

    def of(self, module: LightningModule, sums: Tensor) -> Tensor:
        """The part of the sums that a checkpoint keeps."""
        if self._before is None or module._trainer is None or self._begin != self._place(module):
            return sums
        return self._before

    @staticmethod
    def _place(module: LightningModule) -> tuple[int, int]:
        return module.current_epoch, FitLoopCount(module.trainer.fit_loop)()


class EpochLoss(LightningModule):
    """A module that logs `train/loss`, the mean over the mini-batches of an epoch.

    It is summed on the device and read once an epoch and every `CHECKED_EVERY` steps: a step neither waits for a GPU
    nor calls the logger. A run resumed in the middle of an epoch goes on with the sums that it had. If a loss is not
    finite, the run ends before a checkpoint of it is written.

    A subclass calls `count_loss` in its training step.
    """

    def __init__(self) -> None:
        super().__init__()
        self._losses: Tensor | None = None  # [2] float64: their sum over the epoch so far, and that of their weights
        self._in_weights = SumsInWeights()
        self._resumed: dict[str, Any] | None = None
        self._resumed_epoch = self._logged_epoch = -1

    def count_loss(self, loss: Tensor, weight: int) -> None:
        """Adds the loss of one mini-batch; a weight of 0 for one that another process counts."""
        if self._losses is None:
            self._losses = torch.zeros(2, dtype=torch.float64, device=loss.device)
        self._in_weights.note(self, self._here)
        if weight:
            self._losses[0].add_(loss.detach(), alpha=weight)
            self._losses[1].add_(weight)

    def on_train_start(self) -> None:
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            # They are those of all processes together.
            sums = resumed["losses"] if self.trainer.is_global_zero else [0.0, 0.0]
            self._losses = torch.tensor(sums, dtype=torch.float64, device=self.device)
            self._resumed_epoch = resumed["epoch"]  # Lightning may take it for over, before it ends it

    def on_train_epoch_start(self) -> None:
        # Not every release of Lightning calls this in an epoch that it resumes in the middle.
        if self._resumed_epoch != self.current_epoch:
            self._losses = None
        self._resumed_epoch = -1

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        # With the last batch, not with the epoch's end: callbacks are told of that before the module is.
        if self.trainer.is_last_batch or self.global_step == self.trainer.max_steps:
            self._log_loss(self._sums())
        elif (batch_idx + 1) % CHECKED_EVERY == 0:
            check_finite(self, "train/loss", self._sums()[0])

    def _log_cut_epoch(self) -> None:
        """Logs an epoch that ends before its last mini-batch, once."""
        if self._logged_epoch != self.current_epoch:
            sums = self._sums()  # whatever this process counted: all have to take part
            if sums[1] > 0:
                self._log_loss(sums)

    def on_train_epoch_end(self) -> None:
        self._log_cut_epoch()
        self._losses = None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the loss of the epoch so far, over all processes, which Lightning has all call this."""
        if was_interrupted_with_others(self):
            return
        sums = sums_of_all(self, self._in_weights.of(self, self._here()))
        check_finite(self, "train/loss", sums[0])
        checkpoint["train_losses"] = {"epoch": self.current_epoch, "losses": sums.tolist()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._resumed = checkpoint.get("train_losses")

    def _sums(self) -> Tensor:
        return sums_of_all(self, self._here())

    def _here(self) -> Tensor:
        """The sums of this process."""
        return torch.zeros(2, dtype=torch.float64, device=self.device) if self._losses is None else self._losses

    def _log_loss(self, sums: Tensor) -> None:
        self._logged_epoch = self.current_epoch
        mean = (sums[0] / sums[1].clamp(min=1)).float()
        check_finite(self, "train/loss", mean)
        self.log("train/loss", mean, on_step=False, on_epoch=True, prog_bar=True, sync_dist=True, batch_size=1)
