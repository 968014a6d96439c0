"""Which of a trainer's metrics are those of the epoch that ends."""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer


class Validated(Callback):
    """Knows whether the model was validated in this epoch.

    Lightning keeps the values of the last validation, which may be that of an earlier epoch
    (`trainer.check_val_every_n_epoch`).
    """

    _validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        self._validated = not trainer.sanity_checking

    def metrics_of_epoch(self, trainer: Trainer) -> dict[str, float]:
        """Name -> value of the metrics of the epoch that ends, once for each epoch, in all processes."""
        validated, self._validated = self._validated, False
        # Lightning tells callbacks of the end first: without this, an epoch that a validation in its middle, or
        # `trainer.max_time`, cuts short would have the values of the epoch before.
        log_cut_epoch = getattr(getattr(trainer, "lightning_module", None), "log_cut_epoch", None)
        if log_cut_epoch is not None:
            log_cut_epoch()
        metrics = trainer.callback_metrics.items()
        return {name: float(value) for name, value in metrics if validated or not name.startswith("val/")}
