"""Random numbers of a mini-batch have the law that they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from statistics_of_counts import LEVEL, p_equal, p_expected

from loader.samplers.drawn_numbers import drawn_below, drawn_by

POSITION = {"seed": 3, "epoch": 1, "batch": 2}


@pytest.mark.parametrize("below", [1, 2, 7, 1000])
def test_small_numbers_are_equally_likely(below: int) -> None:
    drawn = drawn_below(below, 200_000, **POSITION)
    counts = np.bincount(drawn.numpy(), minlength=below)
    assert counts.size == below
    assert below == 1 or p_equal(counts) > LEVEL


@pytest.mark.parametrize("below", [2**31 - 1, 2**31, 2**31 + 1, 3 * 2**40 + 12345, 2**61])
def test_large_numbers_are_equally_likely(below: int) -> None:
    drawn = drawn_below(below, 100_000, **POSITION).numpy()
    assert 0 <= drawn.min() <= drawn.max() < below
    counts = np.histogram(drawn.astype(np.float64) / below, bins=64, range=(0, 1))[0]
    assert p_equal(counts) > LEVEL
    assert np.unique(drawn).size > 99_000
    assert p_equal(np.bincount(drawn % 64, minlength=64)) > LEVEL  # the last digits


def test_numbers_are_products_of_random_bits() -> None:
    bits = drawn_below(2**61, 1000, **POSITION)  # the 62 bits but the last one
    for below in (10, 2**31 + 7, 2**50 + 3):
        exact = [(int(b) * 2 * below >> 62, (int(b) * 2 + 1) * below >> 62) for b in bits]
        assert all(int(x) in pair for x, pair in zip(drawn_below(below, 1000, **POSITION), exact, strict=True))


def test_each_position_has_numbers_of_its_own() -> None:
    one = drawn_below(2**40, 50, **POSITION)
    assert torch.equal(one, drawn_below(2**40, 60, **POSITION)[:50])
    for name in POSITION:
        assert not torch.equal(one, drawn_below(2**40, 50, **{**POSITION, name: 7}))


def test_places_are_drawn_in_proportion() -> None:
    weights = torch.tensor([0, 3, 0, 1, 6, 0])
    drawn = drawn_by(weights.cumsum(0), 100_000, **POSITION)
    counts = np.bincount(drawn.numpy(), minlength=6)
    assert counts[[0, 2, 5]].sum() == 0
    assert p_expected(counts[[1, 3, 4]], np.array([3.0, 1.0, 6.0])) > LEVEL


def test_nothing_to_draw_is_refused() -> None:
    for sums in (torch.tensor([0, 0]), torch.empty(0, dtype=torch.int64)):
        with pytest.raises(ValueError, match="a random number below 0 was asked for; it must be 1 to"):
            drawn_by(sums, 3, **POSITION)
