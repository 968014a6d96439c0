"""Arithmetic with subnormal numbers, also in a thread that takes them as zeros (`torch.set_flush_denormal`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

_LEAST_NORMAL = sys.float_info.min


@contextmanager
def with_subnormals() -> Iterator[None]:
    """Within, this thread computes with subnormal numbers, as csrc/subnormals.h does. That is so of NumPy; torch has
    threads of its own.
    """
    flushes = not _LEAST_NORMAL / 2 > 0
    if flushes:
        torch.set_flush_denormal(False)
    try:
        yield
    finally:
        if flushes:
            torch.set_flush_denormal(True)


def as_doubles(numbers: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Integers or floats as float64, a copy on the CPU; no number becomes 0."""
    given = numbers.detach().cpu()
    if given.is_floating_point() and given.element_size() < 4:
        given = given.float()  # moves bits, which no mode changes
    with with_subnormals():
        return given.numpy().astype(np.float64)
