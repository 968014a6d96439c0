"""How far a training is: one line per epoch, and below it a bar on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from loader.machine.arguments import as_size
from models.training.callbacks.epoch_metrics import EpochMetrics
from models.training.metric_names import SPLITS


class ProgressBar(EpochMetrics, RichProgressBar):
    """One line at the end of an epoch. On a terminal it stays above Lightning's rich progress bar.

    It is silent in tests: layer-wise inference has a bar of its own there.

    Args:
        refresh_rate: mini-batches between two updates; 0 shows no bar, and no lines.
    """

    def __init__(self, refresh_rate: int = 1) -> None:
        as_size("refresh_rate", refresh_rate, least=0)
        terminal = sys.stdout.isatty()
        super().__init__(refresh_rate=refresh_rate if terminal else 0)
        self._lines = refresh_rate > 0
        self._began = 0.0

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)  # the logger's folder, always the same here
        # The line of an epoch has those of a split, for which a bar on 80 columns has no room.
        return {name: value for name, value in metrics.items() if name.partition("/")[0] not in SPLITS}

    def _get_train_description(self, current_epoch: int) -> str:
        """Lightning counts epochs from 0."""
        most = self.trainer.max_epochs
        shown = f"Epoch {current_epoch + 1}" + ("" if most in (None, -1) else f"/{most}")
        return shown.ljust(len(self.validation_description))  # as Lightning: another length would flicker

    def on_train_start(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        super().on_train_start(trainer, *args, **kwargs)
        self._began = time.perf_counter()  # an epoch resumed in the middle need not start, see `StageTimes`

    def on_train_epoch_start(self, trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        super().on_train_epoch_start(trainer, *args, **kwargs)
        self._began = time.perf_counter()

    def on_epoch_logged(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics = self.metrics_of_epoch(trainer)
        if not self._lines or not trainer.is_global_zero:
            return
        seconds = time.perf_counter() - self._began
        values = [f"{name} {value:.4f}" for name, value in sorted(metrics.items())]
        line = f"epoch {trainer.current_epoch + 1}, {seconds:.3g} s: {', '.join(values)}"
        if self.is_enabled and self.progress is not None:
            self.progress.console.print(line, markup=False, highlight=False)
        else:
            print(line, flush=True)

    def on_test_start(self, *_: Any, **__: Any) -> None:
        pass

    def on_test_batch_start(self, *_: Any, **__: Any) -> None:
        pass

    def on_test_batch_end(self, *_: Any, **__: Any) -> None:
        pass
