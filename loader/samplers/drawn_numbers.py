"""Random numbers of a mini-batch: uniform, and in proportion to integers."""

from __future__ import annotations

import torch
from torch import Tensor

from loader import _core

_HALF = 2**31


def drawn_below(below: int, count: int, *, seed: int, epoch: int, batch: int) -> Tensor:
    """`[count]` int64 on the CPU: independent numbers in `[0, below)`, each a pure function of (seed, epoch,
    mini-batch, place).

    Each is the upper half of the product of `below` with 62 random bits, so a number's probability is 1/below up to
    2**-62. The bits are those of the ends of negative links, see csrc/links/negatives.h.

    Raises:
        ValueError: `below` is not 1 to 2**61.
    """
    if not 1 <= below <= 2**61:
        raise ValueError(f"a random number below {below} was asked for; it must be 1 to 2**61")
    high, low = torch.empty(count, dtype=torch.int64), torch.empty(count, dtype=torch.int64)
    _core.negatives(_HALF, _HALF, False, seed, epoch, batch, None, high, low, None, None, False)
    above, rest = divmod(below, _HALF)
    # By halves, since the product has up to 123 bits: all of these stay below 2**63.
    return high * above + ((high * rest + low * above + ((low * rest) >> 31)) >> 31)


def drawn_by(sums: Tensor, count: int, *, seed: int, epoch: int, batch: int) -> Tensor:
    """`[count]` int64 on the device of `sums`: independent places, each in proportion to its integer.

    Args:
        sums: `[n]` int64, the integers, at least 0, summed up to each place and with it; the last sum is 1 to 2**61.

    Raises:
        ValueError: there is no place, or the last sum is out of range.
    """
    drawn = drawn_below(int(sums[-1]) if sums.numel() else 0, count, seed=seed, epoch=epoch, batch=batch)
    return torch.searchsorted(sums, drawn.to(sums.device), right=True)
