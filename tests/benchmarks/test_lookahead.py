"""Counts of a cache with look-ahead: as a plain loop over sets has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lookahead import lookahead_misses, static_misses

from loader.stores import count_visits

NUM_NODES = 12
epochs = st.lists(st.sets(st.integers(0, NUM_NODES - 1), max_size=8).map(sorted), min_size=1, max_size=8)
hotnesses = st.permutations(range(NUM_NODES))  # no two rows are equally hot: there is one answer


def arrays(epoch: list[list[int]]) -> list[np.ndarray]:
    return [np.array(ids, np.int64) for ids in epoch]


@given(epoch=epochs, hotness=hotnesses, rows=st.integers(1, NUM_NODES - 1), together=st.integers(1, 5))
def test_misses_are_those_of_a_plain_loop(epoch: list[list[int]], hotness: list[int], rows: int, together: int) -> None:
    hot = set(sorted(range(NUM_NODES), key=lambda v: -hotness[v])[:rows])
    cached, misses, ambiguous = hot, 0, False
    for number, ids in enumerate(epoch):
        misses += len(set(ids) - cached)
        # The first mini-batch is a group of its own.
        end = 1 if number == 0 else (number - 1) // together * together + 1 + together
        coming = epoch[number + 1 : end]

        def worth(v: int, coming: list[list[int]] = coming, cached: set[int] = cached) -> tuple[int, bool]:
            soon = [i for i, later in enumerate(coming) if v in later]
            return (soon[0] if soon else 100 + (v not in hot)), v not in cached

        order = sorted(cached | set(ids), key=worth)
        # Of equal rows any may be kept.
        ambiguous |= len(order) > rows and worth(order[rows - 1]) == worth(order[rows])
        cached = set(order[:rows])
    if not ambiguous:
        assert lookahead_misses(arrays(epoch), np.array(hotness), rows, together) == misses


@given(epoch=epochs, rows=st.integers(1, NUM_NODES - 1))
def test_no_other_constant_cache_misses_fewer(epoch: list[list[int]], rows: int) -> None:
    inputs = arrays(epoch)
    visits = count_visits(map(torch.from_numpy, inputs), NUM_NODES).numpy()
    best = static_misses(inputs, visits, rows)
    for first in range(NUM_NODES):
        others = {(first + i) % NUM_NODES for i in range(rows)}
        assert best <= sum(len(set(ids) - others) for ids in epoch)


@pytest.mark.parametrize(("together", "misses"), [(1, 6), (2, 4), (4, 4)])
def test_a_larger_group_keeps_what_comes_later(together: int, misses: int) -> None:
    inputs = arrays([[3], [2], [2], [1], [1], [3]])
    assert lookahead_misses(inputs, np.array([9, 8, 1, 0]), 1, together) == misses
