"""Tests of hypotheses about counts. All samples here come from fixed seeds: a test passes always or never."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

# So small that no correct sampler is refused in the some hundred tests of this kind, whatever its seeds; a wrong one
# misses it by many orders of magnitude at these sample sizes (samplers/test_core_uniform.py).
LEVEL = 1e-6


def p_equal(counts: NDArray[np.int64]) -> float:
    """Chi-square: all cells are equally probable; one independent observation a count."""
    return float(stats.chisquare(np.ravel(counts)).pvalue)


def p_expected(counts: NDArray[np.int64], probability: NDArray[np.float64]) -> float:
    """As `p_equal`, where the cells have these probabilities."""
    return float(stats.chisquare(counts, probability / probability.sum() * counts.sum()).pvalue)


def p_equal_subsets(counts: NDArray[np.int64], picks: int) -> float:
    """As `p_equal`, where each observation is `picks` different cells.

    The counts are then less scattered than independent ones, by (d - k) / (d - 1) for k of d cells.
    """
    d = counts.size
    expected = counts.sum() / d
    statistic = float(((counts - expected) ** 2).sum() / expected) * (d - 1) / (d - picks)
    return float(stats.chi2.sf(statistic, d - 1))


def p_same(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Chi-square: two lists of counts come from the same distribution over the cells."""
    table = np.stack([a, b])
    return float(stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue)
