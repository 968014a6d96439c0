"""The progress bar of training and validation."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar


class ProgressBar(RichProgressBar):
    """Lightning's rich progress bar, silent in tests: layer-wise inference has a bar of its own there.

    Args:
        refresh_rate: mini-batches between two updates; 0 shows no bar.
    """

    def __init__(self, refresh_rate: int = 1) -> None:
        super().__init__(refresh_rate=refresh_rate)

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)  # the logger's folder, always the same here
        return metrics

    def on_test_start(self, *_: Any, **__: Any) -> None:
        pass

    def on_test_batch_start(self, *_: Any, **__: Any) -> None:
        pass

    def on_test_batch_end(self, *_: Any, **__: Any) -> None:
        pass
