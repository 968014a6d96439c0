"""Intervals and tests, against scipy's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from _intervals import compare, compare_pairs, half_width
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

# Never all equal: there scipy warns, and gives up.
SAMPLE = st.lists(st.integers(-1000, 1000).map(lambda x: x / 10), min_size=2, max_size=12).filter(
    lambda x: len(set(x)) > 1
)


@given(SAMPLE, SAMPLE, st.floats(0.01, 10), st.sampled_from([0.9, 0.95]))
def test_difference_is_welchs(a, b, margin, level) -> None:
    found = compare(a, b, margin, level)
    theirs = stats.ttest_ind(a, b, equal_var=False)
    interval = theirs.confidence_interval(level)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    above = stats.ttest_ind(np.array(a) + margin, b, equal_var=False, alternative="greater").pvalue
    below = stats.ttest_ind(np.array(a) - margin, b, equal_var=False, alternative="less").pvalue
    assert found.p_equivalent == pytest.approx(max(above, below), abs=1e-12)
    assert found.equivalent == (found.p_equivalent < 1 - level)


def test_equivalence_needs_a_small_difference_and_enough_values() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(70, 0.3, (2, 10))
    assert compare(list(a), list(b), 0.5).equivalent
    assert not compare(list(a), list(b + 0.6), 0.5).equivalent
    assert not compare(list(a[:2]), list(b[:2] + 0.3), 0.5).equivalent


@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), min_size=2, max_size=12), st.floats(0.01, 10))
def test_difference_of_pairs_is_students(pairs, margin) -> None:
    a, b = map(np.array, zip(*pairs, strict=True))
    if len(set((a - b).tolist())) == 1:
        assert compare_pairs(list(a), list(b), margin).equivalent == (abs(a[0] - b[0]) < margin)
        return
    found = compare_pairs(list(a), list(b), margin)
    interval = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    above = stats.ttest_rel(a + margin, b, alternative="greater").pvalue
    below = stats.ttest_rel(a - margin, b, alternative="less").pvalue
    assert found.p_equivalent == pytest.approx(max(above, below), abs=1e-12)


def test_unpaired_values_are_refused() -> None:
    for a, b, margin, message in (([1.0, 2.0], [1.0], 1.0, "2 and 1 values"), ([1.0], [1.0], 1.0, "1 and 1"),
                                  ([1.0, 2.0], [1.0, 2.0], 0.0, "margin is 0.0")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            compare_pairs(a, b, margin)


def test_constant_values_have_an_interval_of_width_zero() -> None:
    assert compare([1, 1], [1, 1], 0.5).equivalent
    far = compare([1, 1], [2, 2], 0.5)
    assert (far.value, far.low, far.high, far.equivalent) == (-1, -1, -1, False)


def test_half_width_is_students() -> None:
    values = [1.0, 2.0, 4.0, 4.5]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2)
    assert math.isnan(half_width([1.0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(([1], [1, 2], 0.5), "1 and 2 values are compared"), (([1, 2], [1, 2], 0), "margin is 0")],
)
def test_samples_that_cannot_be_compared_are_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        compare(*arguments)
