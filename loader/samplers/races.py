"""Races among nodes in torch's integers, with the same bytes on the CPU and on a GPU: those of csrc/sampler/race.h."""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = 2**32 - 1
_LAST = torch.finfo(torch.float64).max  # nothing that has a weight arrives later
# Of the polynomial that csrc/sampler/race.h has for 2^28 * -log2(1 - f) / f, the highest power first.
_QUOTIENT = (
    *(671376768, -952283399, 759000059, -228523948, 131961057),
    *(67943036, 97575434, 129059894, 193635715, 387270500),
)


def node_words(nodes: Tensor, key: int, step: int) -> tuple[Tensor, Tensor]:
    """The lower and the upper 32 bits, `[n]` int64 each, of random numbers that are a pure function of (key, step,
    node).

    They are words 0 and 1 of Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011),
    the numbers that LABOR has of sources (csrc/sampler/labor.h).

    Args:
        nodes: `[n]` int64.
        key: of the mini-batch, `_core.batch_key`.
        step: the hop.
    """
    w = [nodes & _WORD, (nodes >> 32) & _WORD, torch.full_like(nodes, step), torch.zeros_like(nodes)]
    k0, k1 = key & _WORD, key >> 32
    for _ in range(10):
        first, second = w[0] * 0xD2511F53, w[2] * 0xCD9E8D57  # all 64 bits count, that of the sign, too
        w = [(second >> 32) & _WORD ^ w[1] ^ k0, second & _WORD, (first >> 32) & _WORD ^ w[3] ^ k1, first & _WORD]
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return w[0], w[1]


def arrivals(low: Tensor, high: Tensor, weights: Tensor) -> Tensor:
    """`[n]` float64, when each entry arrives: an exponential variate divided by its weight. The first to arrive are
    drawn without replacement, with probabilities in proportion to the weights (Efraimidis and Spirakis, IPL 2006).

    Args:
        low, high: `[n]` int64, 32 random bits each.
        weights: `[n]` float64, above 0.
    """
    # With 1 - y / 2^64 = (1 - f) / 2^halvings, f at most 1/2, it is 2^57 * (halvings - log2(1 - f)).
    y = (high << 32) | low
    rest = torch.where(y < 0, -y, torch.ones_like(y))  # 2^64 - y, of y from 2^63 on
    halvings = torch.where(y < 0, 64 - _bit_lengths(rest), 0)
    fraction = torch.where(y < 0, -(rest << halvings), y)
    above, below = (fraction >> 32) & _WORD, fraction & _WORD
    quotient = torch.full_like(y, _QUOTIENT[0])
    for coefficient in _QUOTIENT[1:]:
        quotient = coefficient + ((quotient * above) >> 32)
    times = (halvings << 57) + ((above * quotient * 4 + ((below * quotient) >> 30)) >> 5)
    return (times.double().abs() / weights).clamp(max=_LAST)  # the largest, 2^63, is negative as an int64


def _bit_lengths(x: Tensor) -> Tensor:
    """Of `x` `[n]` int64, not 0, taken as 64 bits without a sign."""
    above = (x >> 32) & _WORD
    length: Tensor = torch.frexp(torch.where(above > 0, above, x & _WORD).double())[1].long()
    return length + 32 * (above > 0)
