"""The metrics of each epoch beside the seconds of training that they took."""

from __future__ import annotations

import time
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from models.training.callbacks.epoch_metrics import EpochMetrics


class EpochRecord(EpochMetrics):
    """Remembers what an epoch ended with, through a resume too.

    Attributes:
        epochs: one row per epoch: `epoch` (from 0), `seconds` (of training so far, validation excluded), and the
            loss and accuracy on train and, if the epoch was validated, on validation.
    """

    METRICS = ("train/loss", "val/loss", "train/acc", "val/acc")

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []
        self._seconds = 0.0
        self._since = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._since = time.perf_counter()  # an epoch resumed in the middle need not start, see `StageTimes`

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._since = time.perf_counter()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._pause(pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        self._since = time.perf_counter()

    def on_epoch_logged(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._pause(pl_module)
        self._since = time.perf_counter()
        row = {"epoch": float(trainer.current_epoch), "seconds": self._seconds}
        row.update({k: v for k, v in self.metrics_of_epoch(trainer).items() if k in self.METRICS})
        self.epochs.append(row)

    def _pause(self, pl_module: LightningModule) -> None:
        if pl_module.device.type == "cuda":
            # The steps of an epoch run on after the host has launched them; their time belongs to training.
            torch.cuda.synchronize(pl_module.device)
        self._seconds += time.perf_counter() - self._since

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "seconds": self._seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # A test loads the best checkpoint, which must not take back the epochs that came after it.
        if len(state_dict["epochs"]) > len(self.epochs):
            self.epochs = list(state_dict["epochs"])
            self._seconds = state_dict["seconds"]
