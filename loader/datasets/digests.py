"""Digests by which a checkpoint knows the data that it was trained on."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

_DIGESTED = 2**12  # values of each array that are read
_SUMMED = 2**6  # rows of features that are read, at least
_CLOSE = 1e-3  # sums of equal features differ by less: computed on another machine, these differ in their last bits


def digest_of(*arrays: Tensor | None) -> str:
    """A digest of evenly spaced values of each array; None says which arrays there are not."""
    digest = sha256()
    for array in arrays:
        if array is None:
            digest.update(b"none")
            continue
        step = max(1, array.numel() // _DIGESTED)
        if array.is_contiguous() or not array.numel():
            some = array.reshape(-1)[::step]
        else:  # without a copy of the whole
            places = np.unravel_index(np.arange(0, array.numel(), step), array.shape)
            some = array[tuple(torch.from_numpy(of).to(array.device) for of in places)]
        copy = torch.empty(some.shape, dtype=some.dtype).copy_(some)  # whose strides can be viewed as bytes
        digest.update(copy.view(torch.uint8).numpy().tobytes())  # NumPy lacks some types
    return digest.hexdigest()[:16]


def sums_of(features: Tensor) -> list[float]:
    """Sums over evenly spaced rows of features, by which `are_alike` tells other features: scaled, or of other columns.

    Columns have weights of their own. Large numbers count as their logarithms, and NaN as 0.5, so that they hide no
    others.
    """
    some = features[:: max(1, len(features) // _SUMMED)].cpu().double().nan_to_num(0.5).asinh()
    sums: list[float] = (some @ torch.linspace(1, 2, some.shape[1], dtype=torch.float64)).tolist()
    return sums


def are_alike(one: Any, other: Any) -> bool:
    """Whether two entries of identities are equal; lists of floats, see `sums_of`, but for a small part."""
    if not (isinstance(one, list) and isinstance(other, list) and any(isinstance(x, float) for x in one)):
        return bool(one == other)
    if len(one) != len(other):
        return False
    a, b = (torch.tensor(sums, dtype=torch.float64) for sums in (one, other))
    return torch.allclose(a, b, rtol=0, atol=_CLOSE * float(a.abs().max()))
