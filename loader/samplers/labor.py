"""LABOR by weights and by importance, of one hop on the CPU: what only a look at all lists of the hop tells.

LABOR-0 without weights is of the core (csrc/sampler/labor.h), whose random numbers these are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from loader.samplers.races import node_words

_LEAST = 1e-150  # what is smaller has no chance, and its square would be 0
_CONVERGED = 1 - 1e-4  # of the expected number of neighbors, as in DGL


class LaborPicks(NamedTuple):
    """What the lists pick.

    Attributes:
        places: `[n]`, of the picked entries, ascending.
        weights: `[n]` float64, what an aggregation weighs their messages by; the mean over a list is 1.
    """

    places: NDArray[np.int64]
    weights: NDArray[np.float64]


def source_numbers(sources: NDArray[np.int64], key: int, step: int) -> NDArray[np.uint64]:
    """`[n]` random numbers of 64 bits, each a pure function of (key, step, source): those of csrc/sampler/labor.h.

    Args:
        key: of the mini-batch, `_core.batch_key`.
        step: the hop.
    """
    low, high = node_words(torch.from_numpy(sources.astype(np.int64)), key, step)
    return (high << 32 | low).numpy().view(np.uint64)


def labor_picks(
    degrees: NDArray[np.int64],
    sources: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    fanout: int,
    iterations: int,
    key: int,
    step: int = 0,
) -> LaborPicks:
    """Picks about `fanout` entries of each list: LABOR-i of Balin and Catalyurek, "Layer-Neighbor Sampling", NeurIPS
    2023.

    A source t has one random number r_t in [0, 1). List s picks its entry of t if r_t < c_s pi_t. First pi is the
    weight of the entry, and the same for all if there are none. Each iteration multiplies pi_t by the largest c_s of
    the lists that have t, so that these lists pick more of the same sources. The c_s is the one with which an estimate
    of the weighted mean has the variance of `fanout` uniform picks (equation 22), found exactly: the entries that are
    always picked are those with c_s pi_t >= 1. A list of at most `fanout` entries is picked whole.

    Sums are made in the order of the entries, so equal arguments give equal bytes on every machine.

    Args:
        degrees: `[lists]`, entries of each list.
        sources: `[sum of degrees]`.
        weights: of the entries, positive; or None.
        fanout: at least 1.
        iterations: of importance sampling; a negative number goes on until the expected number of sources falls by less
            than a ten-thousandth.
        key, step: of the random numbers, see `source_numbers`.
    """
    distinct, of = np.unique(sources, return_inverse=True)
    lists = _Hop(degrees, weights, fanout)
    chances = lists.chances(of, len(distinct), iterations)
    draws = (source_numbers(distinct, key, step) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    places = np.flatnonzero(draws[of] < chances)
    found, rows = lists.importance[places] / chances[places], lists.rows[places]
    sums = np.bincount(rows, found, minlength=len(degrees))
    return LaborPicks(places, found * (np.bincount(rows, minlength=len(degrees))[rows] / sums[rows]))


class _Hop:
    """The lists of a hop.

    Args:
        degrees, weights, fanout: see `labor_picks`.
    """

    def __init__(self, degrees: NDArray[np.int64], weights: NDArray[np.float64] | None, fanout: int) -> None:
        self.rows = np.repeat(np.arange(len(degrees)), degrees)
        self.weighted = weights is not None
        self.importance = np.ones(len(self.rows))
        if weights is not None:  # in each list those beside the largest, which is what the law depends on
            largest = np.zeros(len(degrees))
            np.maximum.at(largest, self.rows, weights)
            self.importance = np.maximum(weights / largest[self.rows], _LEAST)
        self._fanout, self._degrees = fanout, np.maximum(degrees, 1)
        self._squares = self.importance**2
        self._whole = self._degrees <= fanout
        self._whole_entry = self._whole[self.rows]
        self._sums = np.where(degrees > 0, self._sum(self.importance), 1)
        wanted = self._sums**2 / np.minimum(fanout, self._degrees) - self._sums**2 / self._degrees
        self._variance = wanted + self._sum(self._squares)

    def _sum(self, of_entries: NDArray[np.float64]) -> NDArray[np.float64]:
        sums: Any = np.bincount(self.rows, of_entries, minlength=len(self._degrees))  # in the order of the entries
        return sums

    def chances(self, of: NDArray[np.int64], num_sources: int, iterations: int) -> NDArray[np.float64]:
        """The probability of each entry.

        Args:
            of: which of the `num_sources` sources each entry is.
        """
        scale, pi = self._fanout / self._sums, self.importance
        by_source: NDArray[np.float64] | None = None
        expected = float(self._degrees.max(initial=1) * len(self._degrees))
        number = 0
        while iterations < 0 or number < iterations + self.weighted:
            if number or not self.weighted:
                largest = np.zeros(num_sources)
                np.maximum.at(
                    largest, of, scale[self.rows] * (self.importance if self.weighted and number == 1 else 1.0)
                )
                by_source = largest if by_source is None else by_source * largest
                by_source = by_source.clip(_LEAST, 1 / _LEAST)
                pi = by_source[of]
            scale = self._scale(pi)
            if by_source is not None:
                before, expected = expected, float(np.add.accumulate(np.append(0.0, np.minimum(by_source, 1)))[-1])
                if expected >= before * _CONVERGED:
                    break
            number += 1
        return np.where(self._whole_entry, 1.0, np.minimum(scale[self.rows] * pi, 1))

    def _scale(self, pi: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[lists]`, the c of each list."""
        scale = np.zeros(len(self._degrees))
        np.maximum.at(scale, self.rows, 1 / pi)  # with which all entries are always picked
        always, shares = np.zeros(len(pi), dtype=bool), self._squares / pi
        while True:  # c grows, and with it what is always picked: by at least one entry of a list each time
            rest = self._sum(np.where(always, 0, shares))
            found = rest / np.where(self._whole, 1, self._variance - self._sum(np.where(always, self._squares, 0)))
            scale = np.where(self._whole, scale, found)
            more = (scale[self.rows] * pi >= 1) & ~self._whole_entry & ~always
            if not more.any():
                return scale
            always |= more
