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


@given(epoch=epochs, hotness=hotnesses, rows=st.integers(1, NUM_NODES - 1), window=st.integers(1, 10))
def test_misses_are_those_of_a_plain_loop(epoch: list[list[int]], hotness: list[int], rows: int, window: int) -> None:
    cached = set(sorted(range(NUM_NODES), key=lambda v: -hotness[v])[:rows])
    misses = 0
    ambiguous = False
    for number, ids in enumerate(epoch):
        misses += len(set(ids) - cached)
        coming = epoch[number + 1 : number + 1 + window]

        def key(v: int, coming: list[list[int]] = coming) -> tuple[int, int]:
            soon = [i for i, later in enumerate(coming) if v in later]
            return (0, soon[0]) if soon else (1, -hotness[v])

        order = sorted(cached | set(ids), key=key)
        # Of rows that are needed in the same mini-batch any may be kept.
        ambiguous |= len(order) > rows and key(order[rows - 1]) == key(order[rows])
        cached = set(order[:rows])
    if not ambiguous:
        assert lookahead_misses(arrays(epoch), np.array(hotness), rows, window) == misses


@given(epoch=epochs, rows=st.integers(1, NUM_NODES - 1))
def test_no_other_constant_cache_misses_fewer(epoch: list[list[int]], rows: int) -> None:
    inputs = arrays(epoch)
    visits = count_visits(map(torch.from_numpy, inputs), NUM_NODES).numpy()
    best = static_misses(inputs, visits, rows)
    for first in range(NUM_NODES):
        others = {(first + i) % NUM_NODES for i in range(rows)}
        assert best <= sum(len(set(ids) - others) for ids in epoch)


@pytest.mark.parametrize(("window", "misses"), [(1, 5), (2, 3)])
def test_a_wider_window_keeps_what_comes_later(window: int, misses: int) -> None:
    inputs = arrays([[3], [2], [3], [2], [3]])
    assert lookahead_misses(inputs, np.array([9, 8, 1, 0]), 1, window) == misses
