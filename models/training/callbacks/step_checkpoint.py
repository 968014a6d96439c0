"""The checkpoint from which a run goes on that was killed or interrupted."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException

from loader.machine.arguments import as_size


class StepCheckpoint(Checkpoint):
    """Keeps one checkpoint up to date, in the middle of an epoch too: after step 1, 2, 4, 8 and so on, then regularly.

    So there is one soon, however long a step takes and however few there are. The file is replaced at once: whoever
    reads it finds a whole one. Which steps are saved depends on their number only, and all processes of a run save
    together without having to agree.

    A step is saved before the next mini-batch, or when training ends. What follows a step, a validation or the end of
    an epoch, is over then: a run that goes on from the checkpoint misses none of it.

    Ctrl-C and SIGTERM save, too, if there is one process: several stand at different steps. Ctrl-C in a step ends that
    step first, since a step that is done by half cannot be repeated. A second one ends it at once, and saves nothing.

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
        self._step = 0  # the last one that was seen
        self._due = False
        self._in_step = False
        self._interrupted = False
        self._handles = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        resumed = trainer.ckpt_path is not None and self.path.exists() and self.path.samefile(trainer.ckpt_path)
        self._step, self._due = trainer.global_step, False
        self.saved = self._step if resumed else 0
        self._in_step = self._interrupted = False
        main = threading.current_thread() is threading.main_thread()
        self._handles = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._handles:
            signal.signal(signal.SIGINT, self._interrupt)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        if self._due:
            self._save(trainer)
        self._in_step = True

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any) -> None:
        self._in_step = False
        step = trainer.global_step
        if step == self._step or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return  # no step of the optimiser, where gradients are accumulated
        self._step = step
        early = step < self.every_n_train_steps and step & (step - 1) == 0
        self._due = self._due or early or step % self.every_n_train_steps == 0
        if self._due and step == trainer.max_steps:
            self._save(trainer)  # now: Lightning takes the epoch for complete afterwards

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._due:
            self._save(trainer)
        if self._interrupted:
            raise KeyboardInterrupt
        self._handle_no_more()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._handle_no_more()
        asked_to_end = isinstance(exception, (KeyboardInterrupt, SIGTERMException)) and trainer.world_size == 1
        saved = trainer.global_step == self.saved or trainer.fast_dev_run  # type: ignore[attr-defined]
        if asked_to_end and not saved and not self._in_step:
            if trainer.validating:
                trainer.fit_loop.epoch_loop.val_loop.batch_progress.reset_on_run()  # it is repeated as a whole
            self._save(trainer)

    def _interrupt(self, *_: Any) -> None:
        if self._interrupted or not self._in_step:
            raise KeyboardInterrupt
        self._interrupted = True

    def _handle_no_more(self) -> None:
        if self._handles and signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._handles = False

    def _save(self, trainer: Trainer) -> None:
        trainer.save_checkpoint(self.path)
        self.saved, self._due = trainer.global_step, False  # not before: Ctrl-C may come while it is written
