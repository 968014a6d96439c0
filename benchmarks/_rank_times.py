"""Callbacks of `scaling_gpu.py`, which its runs of `train.py` get by their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer


class Hook(Callback):
    """Has a hook between steps, so that all steps are Lightning's own."""

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        pass


class RankTimes(Callback):
    """Takes how long the GPU of this rank is in each exchange of gradients: moving bytes, and waiting for the others.

    Args:
        path: of a JSON file; the rank is put before its suffix. It holds `bytes`, of one exchange, and `epochs`, the
            microseconds of each exchange by epoch.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._events: list[tuple[int, torch.cuda.Event, torch.cuda.Event]] = []

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        strategy: Any = trainer.strategy
        exchange = strategy.exchange_gradients

        def timed() -> None:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            exchange()
            end.record()
            self._events.append((trainer.current_epoch, begin, end))

        strategy.exchange_gradients = timed

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        torch.cuda.synchronize(pl_module.device)
        epochs: dict[int, list[float]] = {}
        for epoch, begin, end in self._events:
            epochs.setdefault(epoch, []).append(round(1e3 * begin.elapsed_time(end), 1))
        exchanged = sum(p.nbytes for p in pl_module.parameters() if p.requires_grad)
        path = self._path.with_suffix(f".{trainer.global_rank}{self._path.suffix}")
        path.write_text(json.dumps({"bytes": exchanged, "epochs": list(epochs.values())}))
