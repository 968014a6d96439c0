"""Which elements dropout on a GPU keeps, in NumPy: no line in common with the kernels.

The random numbers are Philox 2x32 (Salmon et al., SC 2011), 16 bits per element.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ROUNDS = 7
WORD = 1 << 32

Words = NDArray[np.uint64]


def philox2(low: Words, high: Words, key: int, rounds: int = ROUNDS) -> tuple[Words, Words]:
    """Two words for each counter of two words and a key of one."""
    for number in range(rounds):
        product = low * np.uint64(0xD256D193)
        low = (product >> np.uint64(32)) ^ high ^ np.uint64((key + number * 0x9E3779B9) % WORD)
        high = product % np.uint64(WORD)
    return low, high


def draws(rows: Words, quads: Words, key: int, rounds: int = ROUNDS) -> Words:
    """Numbers below 65536 of each row's four columns from 4 * quad on: [4, rows]."""
    first, second = philox2(rows, quads, key, rounds)
    half = np.uint64(1 << 16)
    return np.stack([first % half, first // half, second % half, second // half])


def kept(num_rows: int, num_columns: int, key: int, threshold: int) -> Tensor:
    """[num_rows, num_columns], bool: True where 16 random bits are at least `threshold`."""
    rows = np.arange(num_rows, dtype=np.uint64)
    quads = [draws(rows, np.full_like(rows, quad), key) for quad in range(-(-num_columns // 4))]
    return torch.from_numpy(threshold <= np.concatenate(quads)[:num_columns].T)
