"""The precision of float32 matrix products while a trainer runs, and of what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from models.training.trainer_callbacks import callbacks_of

_PRECISIONS = ("highest", "high", "medium")


@contextmanager
def at_least_float32() -> Iterator[None]:
    """Within this, torch's own type is not of 16 bits, as with trainer.precision=bf16-true: measures of counts would be
    rounded to it.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(before if before.itemsize >= 4 else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class MatmulPrecision(LightningModule):
    """A module that sets the precision of float32 matrix products on a GPU while its trainer runs.

    A subclass calls `use_precision`, and `super()` in its own `setup` and `teardown`.
    """

    matmul_precision: str = "highest"
    _precision_before: str | None = None

    def use_precision(self, matmul_precision: str) -> None:
        """Takes the precision: "highest", "high" (tf32) or "medium", see `torch.set_float32_matmul_precision`.

        Raises:
            ValueError: it is none of these.
        """
        if not isinstance(matmul_precision, str) or matmul_precision not in _PRECISIONS:
            raise ValueError(f"matmul_precision is '{matmul_precision}'; it must be one of {', '.join(_PRECISIONS)}")
        self.matmul_precision = matmul_precision

    def setup(self, stage: str) -> None:
        if self._precision_before is None and _is_on_gpu(self.trainer):
            self._precision_before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(self.matmul_precision)
            # Lightning's class does not declare them.
            callbacks = callbacks_of(self.trainer)
            if not any(isinstance(one, _AfterAnError) for one in callbacks):
                callbacks.append(_AfterAnError())

    def teardown(self, stage: str) -> None:
        if self._precision_before is not None:
            torch.set_float32_matmul_precision(self._precision_before)
            self._precision_before = None


class _AfterAnError(Callback):
    """Gives torch its precision back if a run ends in an error: Lightning then calls no `teardown`."""

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if isinstance(pl_module, MatmulPrecision):
            MatmulPrecision.teardown(pl_module, "")


def _is_on_gpu(trainer: Trainer) -> bool:
    return trainer.strategy.root_device.type == "cuda"
