"""The checkpoint from which a run goes on that was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from loader.machine.arguments import as_size


class StepCheckpoint(Checkpoint):
    """Keeps one checkpoint up to date, in the middle of an epoch too: after step 1, 2, 4, 8 and so on, then regularly.

    So there is one from the first step on, however long a step takes and however few there are. The file is replaced
    at once: whoever reads it finds a whole one. Which steps are saved depends on their number only, and all processes
    of a run save together without having to agree.

    Args:
        path: of the file.
        every_n_train_steps: optimiser steps between two checkpoints, at least 1.

    Attributes:
        saved: the step of the last checkpoint that this process wrote; 0 before the first.

    Raises:
        TypeError, ValueError: `every_n_train_steps` is no integer of at least 1.
    """

    def __init__(self, path: str | Path, every_n_train_steps: int = 1000) -> None:
        self.path = Path(path)
        self.every_n_train_steps = as_size("every_n_train_steps", every_n_train_steps)
        self.saved = 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any) -> None:
        step = trainer.global_step
        if step == self.saved or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return  # no step of the optimiser, where gradients are accumulated
        early = step < self.every_n_train_steps and step & (step - 1) == 0
        if early or step % self.every_n_train_steps == 0:
            self.saved = step
            trainer.save_checkpoint(self.path)
