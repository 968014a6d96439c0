"""Negative samples of walks by the frequency of nodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from graphs import WIDTHS, messy_graph, widen
from hypothesis import given
from hypothesis import strategies as st
from reference_walks import negatives
from statistics_of_counts import LEVEL, p_expected

from loader import random_walk
from loader.graph import Graph
from loader.samplers import WalkSampler
from loader.samplers.walk_frequencies import EXPONENTS, Frequencies

MOST = 2**31 - 1


def listed(entries: list[int], num_nodes: int, **more: Any) -> Graph:
    """A graph whose only list, that of node 0, has these nodes."""
    indptr = torch.full((num_nodes + 1,), len(entries))
    indptr[0] = 0
    return Graph(indptr, torch.tensor(entries, dtype=torch.int64), **more)


def places_of(counts: list[int], exponent: float) -> list[int]:
    """The places of each node, one by one, in Python's own numbers."""
    roots = {0.25: lambda c: math.sqrt(math.sqrt(c)), 0.5: math.sqrt, 1.0: float, 0.0: lambda c: 1.0}
    roots[0.75] = lambda c: math.sqrt(c) * math.sqrt(math.sqrt(c))
    powers = [roots[exponent](c) if c else 0.0 for c in counts]
    shares = [max(1, round(p / max(powers) * 2**32)) if p else 0 for p in powers]
    known = sum(s > 0 for s in shares)
    return [max(1, s * (MOST - known) // sum(shares)) if s else 0 for s in shares]


@given(st.lists(st.integers(0, 2**33), min_size=1, max_size=40).filter(any), st.sampled_from(EXPONENTS))
def test_places_are_those_of_the_definition(counts: list[int], exponent: float) -> None:
    """By weights, for frequencies that no list of a test would have."""
    heaviest = max(counts)
    weighed = [max(1, round(c / heaviest * (2**32 - 1))) if c else 0 for c in counts]
    weights = torch.tensor(counts, dtype=torch.float64)
    graph = listed(list(range(len(counts))), len(counts), edge_weights=weights)
    found = Frequencies(graph, exponent, weighted=True)
    places = places_of(weighed, exponent)
    assert found.num_places == sum(places) <= MOST
    first = 0
    for v, count in enumerate(places):
        if count:
            ends = torch.tensor([first, first + count - 1])
            assert found.nodes(ends).tolist() == [v, v]
        first += count


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_negatives_are_drawn_by_frequency(exponent: float, width: str) -> None:
    graph = widen(messy_graph(60, 500, seed=1), width)
    starts = torch.arange(60).repeat(20)
    options: dict[str, Any] = {"num_negatives": 3, "negative_exponent": exponent, "seed": 3}
    sample = WalkSampler(5, **options).sample(graph, starts, epoch=2, batch=7)
    assert sample.negatives is not None
    assert sample.negatives.shape == (1200, 3, 5)
    assert sample.negatives.dtype == graph.indices.dtype
    assert torch.equal(sample.nodes, WalkSampler(5, seed=3).sample(graph, starts, epoch=2, batch=7).nodes)
    if exponent == 0:
        return
    counts = np.bincount(graph.indices.numpy(), minlength=60)
    found = np.bincount(sample.negatives.flatten().numpy(), minlength=60)
    assert not found[counts == 0].any()
    assert p_expected(found[counts > 0], counts[counts > 0] ** exponent) > LEVEL
    ends = np.cumsum(places_of(counts.tolist(), exponent))
    drawn = negatives(11, 15, int(ends[-1]), seed=3, epoch=2, batch=7)
    assert sample.negatives[11].flatten().tolist() == np.searchsorted(ends, drawn, side="right").tolist()
    again = WalkSampler(5, num_threads=3, **options).sample(graph, starts, epoch=2, batch=7)
    assert again.digest() == sample.digest()


def test_walks_by_weight_draw_by_weight() -> None:
    weights = torch.tensor([8.0, 0.0, 1.0, 1.0])
    graph = listed([1, 2, 3, 3], 5, edge_weights=weights)
    sampler = WalkSampler(6, weights="edge_weights", num_negatives=50, negative_exponent=1)
    drawn = sampler.sample(graph, torch.arange(5).repeat(20)).negatives
    assert drawn is not None
    found = np.bincount(drawn.flatten().numpy(), minlength=5)
    assert found[[0, 2, 4]].tolist() == [0, 0, 0]
    assert p_expected(found[[1, 3]], np.array([8.0, 2.0])) > LEVEL


def test_a_metapath_draws_among_its_types() -> None:
    graph = listed([1, 2, 3], 5, edge_types=torch.tensor([4, 0, 7]))
    drawn = WalkSampler(3, metapath=[7, 4], num_negatives=4, negative_exponent=0.75).sample(graph, torch.arange(5))
    assert drawn.negatives is not None
    assert set(drawn.negatives.flatten().tolist()) == {1, 3}


def test_the_exponent_is_part_of_the_spec() -> None:
    """And the spec of samplers without it stays, so that their runs resume."""
    plain, drawn = WalkSampler(4, num_negatives=1), WalkSampler(4, num_negatives=1, negative_exponent=0.75)
    assert "negative_exponent" not in plain.spec()
    assert drawn.spec() == plain.spec() | {"negative_exponent": 0.75}
    assert "negative_exponent=0.75" in repr(drawn)


def test_bad_exponents_are_refused() -> None:
    for value, error in ((0.7, ValueError), (-1, ValueError), (float("nan"), ValueError), ("x", TypeError)):
        with pytest.raises(error, match="negative_exponent is"):
            WalkSampler(4, num_negatives=1, negative_exponent=value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_negatives is 0; draw some"):
        WalkSampler(4, negative_exponent=0.75)
    weightless = Graph(
        torch.zeros(6, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), edge_weights=torch.zeros(0)
    )
    with pytest.raises(ValueError, match="so no node has a frequency"):
        WalkSampler(4, num_negatives=1, negative_exponent=0.75, weights="edge_weights").sample(
            weightless, torch.tensor([0])
        )
    empty = listed([], 5)
    with pytest.raises(ValueError, match="so no node has a frequency"):
        WalkSampler(4, num_negatives=1, negative_exponent=0.75).sample(empty, torch.arange(5))
    with pytest.raises(TypeError, match="random_walk draws no negatives"):
        random_walk(empty, torch.arange(5), 4, negative_exponent=0.75)
