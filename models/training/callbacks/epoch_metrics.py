"""Which of a trainer's metrics are those of the epoch that ends."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping

from models.training.trainer_callbacks import callbacks_of


class EpochMetrics(Callback):
    """Is told of the end of an epoch once all its metrics are logged, and whether the model was validated in it.

    Lightning keeps the values of the last validation, which may be that of an earlier epoch
    (`trainer.check_val_every_n_epoch`).
    """

    _validated = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        callbacks = callbacks_of(trainer)
        if not any(isinstance(callback, _AfterTheModule) for callback in callbacks):
            # Lightning has those that save last.
            before = sum(not isinstance(callback, Checkpoint) for callback in callbacks)
            callbacks.insert(before, _AfterTheModule())

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        self._validated = not trainer.sanity_checking

    def on_epoch_logged(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Called at the end of an epoch, after the module's own `on_train_epoch_end`."""

    def metrics_of_epoch(self, trainer: Trainer) -> dict[str, float]:
        """Name -> value of the metrics of the epoch that ends, once for each epoch."""
        validated, self._validated = self._validated, False
        metrics = trainer.callback_metrics.items()
        return {name: float(value) for name, value in metrics if validated or not name.startswith("val/")}


class _AfterTheModule(EarlyStopping):
    """Tells of the end of an epoch after the module, which may log its metrics only then, and before a checkpoint is
    saved. Lightning calls no callbacks that late but those that stop or save, so it is one that stops, but never does.
    """

    def __init__(self) -> None:
        super().__init__("", check_on_train_epoch_end=True)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for callback in callbacks_of(trainer):
            if isinstance(callback, EpochMetrics):
                callback.on_epoch_logged(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        return {}
