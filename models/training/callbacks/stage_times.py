"""Where the time of an epoch goes."""

from __future__ import annotations

import statistics
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class StageTimes(Callback):
    """Takes the time of epochs and of their stages, validation excluded.

    The stages of the train loader are what its `stats` say (busy seconds; with prefetch they overlap `train`), `move`
    together with the datamodule's `move_seconds`, `train` the time between a batch's arrival and the end of its
    step, `waiting` how long the training thread stood still for want of a batch. On a GPU the host only launches
    work; there the stages are the times of their streams instead, and `waiting` is how long the stream of training
    stood still between two mini-batches. A loader or datamodule without these attributes leaves its stages out.

    Attributes:
        epoch_seconds: of each complete epoch (one that a resume began in the middle is left out).
        training_seconds: of all epochs together, complete or not.
        stage_seconds: stage -> seconds, summed over all training of this process.
        host_waiting: seconds that the training thread stood still for want of a batch; None where nobody says.
        moved_bytes: bytes by the stage that read or moved them.
        placement: stage -> where it runs, see `GraphDataModule.placement`.
        max_bytes: about those of the mini-batches that existed at one time; 0 where nobody says.
    """

    def __init__(self) -> None:
        self.epoch_seconds: list[float] = []
        self.training_seconds = 0.0
        self.stage_seconds: dict[str, float] = {}
        self.host_waiting: float | None = None
        self.moved_bytes: dict[str, int] = {}
        self.placement: dict[str, str] = {}
        self.max_bytes = 0
        self._train = 0.0
        self._validation = 0.0
        self._move = self._move_start = 0.0
        self._batches = 0
        self._epoch_start = self._batch_start = self._validation_start = 0.0

    @property
    def median_epoch(self) -> float | None:
        """Seconds of the median epoch; None before the first complete one."""
        return statistics.median(self.epoch_seconds) if self.epoch_seconds else None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._batches = 0
        self._validation = 0.0
        self._move_start = _move_seconds(trainer)
        self._epoch_start = time.perf_counter()

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        self._batch_start = time.perf_counter()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        self._train += time.perf_counter() - self._batch_start
        self._batches += 1

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._move += _move_seconds(trainer) - self._move_start
        self._validation_start = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._validation += time.perf_counter() - self._validation_start
        self._move_start = _move_seconds(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        seconds = time.perf_counter() - self._epoch_start - self._validation
        self.training_seconds += seconds
        self._move += _move_seconds(trainer) - self._move_start
        if self._batches == trainer.num_training_batches:
            self.epoch_seconds.append(seconds)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        placement = getattr(getattr(trainer, "datamodule", None), "placement", None)
        self.placement = placement() if placement is not None else {}
        # Not every release of Lightning starts an epoch that it resumes in the middle: without this its time would
        # count from the start of the machine.
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        loader = trainer.train_dataloader
        stats = getattr(loader, "stats", None)
        self.max_bytes = getattr(loader, "max_bytes", 0)
        self.stage_seconds = {}
        if stats is not None:
            self.host_waiting = stats.waiting
            self.moved_bytes = dict(getattr(stats, "moved", {}))
            if getattr(stats, "gpu_items", 0):
                scale = stats.items / stats.gpu_items  # they are a sample
                self.stage_seconds = {name: scale * seconds for name, seconds in stats.gpu_busy.items()}
                self.stage_seconds["waiting"] = scale * stats.gpu_waiting
                return
            self.stage_seconds = dict(stats.busy)
        if hasattr(getattr(trainer, "datamodule", None), "move_seconds"):
            self.stage_seconds["move"] = self.stage_seconds.get("move", 0.0) + self._move
        self.stage_seconds["train"] = self._train
        if stats is not None:
            self.stage_seconds["waiting"] = stats.waiting


def _move_seconds(trainer: Trainer) -> float:
    return getattr(getattr(trainer, "datamodule", None), "move_seconds", 0.0)
