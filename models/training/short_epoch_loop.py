"""Lightning's loop over the mini-batches of an epoch, past its hooks where these would do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.profilers import PassThroughProfiler

from loader import GraphDataModule
from loader.datamodules.base import DatasetModule
from models.training.callbacks import (
    Curves,
    ProgressBar,
    RandomState,
    RunSummary,
    StageTimes,
    StepCheckpoint,
    TimelineRecord,
)
from models.training.profiler import NoProfiler
from models.training.whole_step import WholeStep, overrides

# Callbacks that change nothing that a step reads, and log nothing amid an epoch.
_KNOWN = (Curves, ProgressBar, RandomState, RunSummary, StageTimes, StepCheckpoint, TimelineRecord)
_START, _END = "on_train_batch_start", "on_train_batch_end"
_TRANSFER = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


class Around(NamedTuple):
    """What is called around a short step."""

    whole: WholeStep
    starts: list[Callable[..., None]]
    ends: list[Callable[..., None]]


class ShortEpochLoop(_TrainingEpochLoop):
    """Lightning's loop over mini-batches, with short steps as long as nobody could tell the difference.

    Lightning calls some hundred hooks and functions around a step, which take the host about as long as launching a
    step that is replayed (`WholeStep`). After such a step, the next one is short if everything that Lightning would
    call is known to do nothing: it takes the mini-batch, calls the callbacks of this package, and replays. The module
    looks at its loss as after any step (`CHECKED_EVERY`).

    Steps are Lightning's own where an epoch, a validation or the training ends, where a callback or a module has a hook
    of its own, with learning rates that change by step, a profiler, or a mini-batch that no graph holds.

    Args:
        like: the loop that it takes the place of.

    Attributes:
        short: steps that were short.
    """

    def __init__(self, trainer: Trainer, like: _TrainingEpochLoop) -> None:
        super().__init__(trainer, like.min_steps, like.max_steps)
        self.short = 0
        self._around: Around | None = None  # of the next step, if that may be short
        self._was_short = False

    @property
    def restarted_on_train_batch_end(self) -> bool:
        """Whether the checkpoint is of a step before its end. Lightning, which asks before the loaders say where they
        stand, takes an epoch for over if that was its last step, so its validation would be left out.
        """
        ours = isinstance(self.trainer.datamodule, DatasetModule)  # type: ignore[attr-defined]
        return super().restarted_on_train_batch_end and not (ours and self.batch_progress.is_last_batch)

    def reset(self) -> None:
        self._around = None
        super().reset()

    def advance(self, data_fetcher: Any) -> None:
        around, self._around, self._was_short = self._around, None, False
        if around is not None and not self._ends_something(data_fetcher):
            drawn = next(data_fetcher)
            if not data_fetcher.done and around.whole.repeats(drawn[0]):
                self._step(around, drawn[0])
                self._around, self._was_short = around, True
                return
            data_fetcher = _Drawn(drawn, data_fetcher.done)
        whole: Any = getattr(self.trainer.lightning_module, "whole_step", None)
        before = whole.taken if isinstance(whole, WholeStep) else 0
        super().advance(data_fetcher)
        if isinstance(whole, WholeStep) and whole.taken > before and whole.is_steady:
            self._around = around_of(self.trainer, whole)

    def on_advance_end(self, data_fetcher: Any) -> None:
        if self._was_short and not self.trainer.should_stop and not self.trainer.received_sigterm:
            self._batches_that_stepped += 1
            return
        if self._around is not None and self._should_check_val_fx(data_fetcher):
            self._around = None  # a validation comes in between
        super().on_advance_end(data_fetcher)

    def _ends_something(self, data_fetcher: Any) -> bool:
        """Whether epoch or training end with the next mini-batch, or a validation may follow it."""
        trainer, progress = self.trainer, self.batch_progress
        ready = progress.current.ready + 1
        if data_fetcher.length is None or data_fetcher.fetched + 1 >= data_fetcher.length:
            return True
        if ready >= trainer.num_training_batches or self.global_step + 1 == self.max_steps:
            return True
        every: Any = trainer.val_check_batch
        return every != float("inf") and (ready % every == 0 or (progress.total.ready + 1) % every == 0)

    def _step(self, around: Around, batch: Any) -> None:
        """A step, in the order of Lightning's."""
        trainer, progress, number = self.trainer, self.batch_progress, self.batch_idx + 1
        module, optimizer = trainer.lightning_module, self.automatic_optimization.optim_progress.optimizer
        progress.is_last_batch = False
        progress.increment_ready()
        for start in around.starts:
            start(trainer, module, batch, number)
        progress.increment_started()
        optimizer.step.increment_ready()
        loss = around.whole.repeat(batch, trainer.strategy)
        optimizer.step.increment_completed()
        progress.increment_processed()
        for end in around.ends:
            end(trainer, module, {"loss": loss}, batch, number)
        # It looks at the loss in some steps, and processes do that together, also one whose step is Lightning's.
        module.on_train_batch_end({"loss": loss}, batch, number)
        progress.increment_completed()
        self.short += 1


class _Drawn:
    """A fetcher whose next mini-batch was drawn already."""

    def __init__(self, drawn: Any, done: bool) -> None:
        self._drawn, self.done = drawn, done

    def __next__(self) -> Any:
        return self._drawn


def around_of(trainer: Any, whole: WholeStep) -> Around | None:
    """What a short step has to call; None if it must not be short, since somebody could tell."""
    module, datamodule = trainer.lightning_module, trainer.datamodule
    if trainer.accumulate_grad_batches != 1 or trainer.fast_dev_run:
        return None
    if getattr(trainer, "_val_check_time_interval", None) is not None:
        return None
    if type(trainer.profiler) not in (NoProfiler, PassThroughProfiler):
        return None
    if any(config.interval == "step" for config in trainer.lr_scheduler_configs):
        return None
    if any(overrides(module, whole.plain, name) for name in (_START, _END, "optimizer_step", *_TRANSFER)):
        return None
    if datamodule is not None and any(_transfers(datamodule, name) for name in _TRANSFER):
        return None
    around = Around(whole, [], [])
    for callback in trainer.callbacks:
        for name, hooks in ((_START, around.starts), (_END, around.ends)):
            if not overrides(callback, Callback, name) or _saves_by_epoch(callback):
                continue
            if type(callback) not in _KNOWN:
                return None
            hooks.append(getattr(callback, name))
    return around


def _transfers(datamodule: Any, name: str) -> bool:
    """Whether it has a hook of its own; that of `GraphDataModule` moves nothing that lies on the device."""
    return overrides(datamodule, LightningDataModule, name) and overrides(datamodule, GraphDataModule, name)


def _saves_by_epoch(callback: Any) -> bool:
    """Whether it is Lightning's callback that saves checkpoints, and has nothing to do amid an epoch."""
    if type(callback) is not ModelCheckpoint:
        return False
    return callback._every_n_train_steps < 1 and callback._train_time_interval is None
