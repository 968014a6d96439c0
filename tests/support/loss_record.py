"""The loss of each step of each process of a run, written down at once."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class LossRecord(Callback):
    """Writes one line per step, "epoch number-of-the-mini-batch loss", to `folder/<rank>-<process id>`.

    Args:
        folder: of the files.
        seconds: that a step takes at least, from epoch 1 on.
    """

    def __init__(self, folder: str, seconds: float = 0.0) -> None:
        self.folder = Path(folder)
        self.seconds = seconds

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f"{trainer.global_rank}-{os.getpid()}", "a") as file:
            file.write(f"{trainer.current_epoch} {batch.index} {outputs['loss'].item()!r}\n")
        if trainer.current_epoch:
            time.sleep(self.seconds)
