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
    given = numbers.detach().cpu().resolve_neg()
    if given.is_floating_point() and given.element_size() < 4:
        given = given.float()  # moves bits, which no mode changes
    with with_subnormals():
        return given.numpy().astype(np.float64)


def shares_of_largest(weights: Tensor, most: int) -> Tensor:
    """`[n]` int64 on the CPU: weights in proportion to the largest one, which becomes `most`; at least 1 unless a
    weight is 0.
    """
    given = as_doubles(weights)
    with with_subnormals():
        shares = np.rint(given / (given.max(initial=0.0) or 1.0) * most).astype(np.int64)
        shares[(shares == 0) & (given > 0)] = 1
    return torch.from_numpy(shares)
