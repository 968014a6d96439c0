"""What Lightning's training loop does around a step, made cheaper."""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.profilers import PassThroughProfiler


class LeanLoop(Callback):
    """Takes host time off Lightning's training loop, whose results stay the same.

    A step by CUDA graphs takes the GPU about a millisecond, and the host has to have launched the next one by then.
    Two things that Lightning's loop costs can be had for less (benchmarks/pipeline_gpu.py measures it):

    - Without a profiler, it still enters and leaves two dozen generators a step. While training, an object without
      any takes the place of its `PassThroughProfiler`; a profiler that was asked for stays.
    - It leaves cycles to Python's garbage collector, which then looks through all that was imported, too. While
      training, what is there at the start is left out of that (`gc.freeze`).
    """

    def __init__(self) -> None:
        self._before: Any = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if type(trainer.profiler) is PassThroughProfiler:  # type: ignore[attr-defined]
            self._before = trainer.profiler  # type: ignore[attr-defined]
            trainer.profiler = _Unprofiled()  # type: ignore[attr-defined]
        gc.collect()
        gc.freeze()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._end(trainer)

    def _end(self, trainer: Trainer) -> None:
        gc.unfreeze()
        if self._before is not None:
            trainer.profiler, self._before = self._before, None  # type: ignore[attr-defined]


class _Unprofiled(PassThroughProfiler):
    _nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager[Any]:  # type: ignore[override]
        return self._nothing
