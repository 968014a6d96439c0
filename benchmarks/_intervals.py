"""Means, intervals and the test of equivalence that the comparisons of accuracies use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Difference:
    """The difference of two means.

    Attributes:
        value: mean of the first less mean of the second.
        low, high: its confidence interval.
        p_equivalent: of two one-sided tests (Schuirmann 1987): the chance of a difference as near to 0 as this one
            if the true one were `margin` or more; the larger of the two tests' p.
        equivalent: `p_equivalent` is below 1 - level.
    """

    value: float
    low: float
    high: float
    p_equivalent: float
    equivalent: bool


def half_width(values: Sequence[float], level: float = 0.95) -> float:
    """Half of the confidence interval of the mean, by Student's t; nan for a single value."""
    n = len(values)
    if n < 2:
        return math.nan
    return float(stats.t.ppf((1 + level) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def compare(a: Sequence[float], b: Sequence[float], margin: float, level: float = 0.95) -> Difference:
    """Compares the means of two independent samples, by Welch's t with unequal variances.

    Args:
        a, b: at least two values each.
        margin: differences smaller than this do not matter; in the values' unit, greater than 0.
        level: of the confidence interval and of the test.

    Raises:
        ValueError: fewer than two values, or a margin that is not positive.
    """
    if len(a) < 2 or len(b) < 2:
        raise ValueError(f"{len(a)} and {len(b)} values are compared; give at least 2 of each (more seeds)")
    if margin <= 0:
        raise ValueError(f"margin is {margin}; it must be greater than 0")
    va, vb = (float(np.var(x, ddof=1)) / len(x) for x in (a, b))
    spread = va**2 / (len(a) - 1) + vb**2 / (len(b) - 1)
    freedom = (va + vb) ** 2 / spread if spread else 1.0
    return _difference(float(np.mean(a) - np.mean(b)), math.sqrt(va + vb), freedom, margin, level)


def compare_pairs(a: Sequence[float], b: Sequence[float], margin: float, level: float = 0.95) -> Difference:
    """Compares the means of two samples whose values belong together in pairs, by Student's t of the differences.

    Args:
        a, b: at least two values each, of equal number; `a[i]` belongs to `b[i]`.
        margin, level: see `compare`.

    Raises:
        ValueError: fewer than two pairs, other numbers of values, or a margin that is not positive.
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"{len(a)} and {len(b)} values are compared; give at least 2 of each, in pairs (more seeds)")
    if margin <= 0:
        raise ValueError(f"margin is {margin}; it must be greater than 0")
    apart = np.subtract(a, b)
    error = float(np.std(apart, ddof=1)) / math.sqrt(len(a))
    return _difference(float(apart.mean()), error, len(a) - 1, margin, level)


def _difference(value: float, error: float, freedom: float, margin: float, level: float) -> Difference:
    if error == 0:  # every run ended the same
        p = 0.0 if abs(value) < margin else 1.0
        return Difference(value, value, value, p, p == 0)
    width = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    p = float(max(stats.t.sf((value + margin) / error, freedom), stats.t.cdf((value - margin) / error, freedom)))
    return Difference(value, value - width, value + width, p, bool(p < 1 - level))
