"""LABOR by weights and by importance: beside an oracle in plain Python, as a law, and beside the core's LABOR-0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_labor import chances_of
from reference_picks import Numbers
from statistics_of_counts import LEVEL

from loader import _core
from loader.graph import Graph
from loader.samplers import FusedSampler
from loader.samplers.labor import LaborPicks, labor_picks, source_numbers

KEY = _core.batch_key(3, 1, 2)
WEIGHTS = [0.5, 1.0, 1.0, 3.0, 40.0]


def picks_of(
    lists: list[list[tuple[int, float]]], fanout: int, iterations: int, weighted: bool, **how: Any
) -> LaborPicks:
    degrees = np.array([len(entries) for entries in lists], dtype=np.int64)
    entries = [entry for of_list in lists for entry in of_list]
    sources = np.array([u for u, _ in entries], dtype=np.int64)
    weights = np.array([w for _, w in entries]) if weighted else None
    return labor_picks(degrees, sources, weights, fanout, iterations, how.get("key", KEY), how.get("step", 0))


@settings(max_examples=200, deadline=None)
@given(
    sources=st.lists(st.lists(st.integers(0, 2**40), max_size=12), max_size=6),
    chosen=st.lists(st.sampled_from(WEIGHTS), min_size=72, max_size=72),
    fanout=st.integers(1, 8),
    iterations=st.integers(0, 1),
    weighted=st.booleans(),
    step=st.integers(0, 7),
)
def test_picks_are_those_of_an_oracle(sources, chosen, fanout, iterations, weighted, step) -> None:
    left = iter(chosen)
    lists = [[(u, next(left) if weighted else 1.0) for u in of_list] for of_list in sources]
    made = picks_of(lists, fanout, iterations, weighted, step=step)
    number = Numbers(3, 1, 2)
    chances = chances_of(lists, fanout, iterations, weighted)
    place, expected, weights = 0, [], []
    for entries, of_list in zip(lists, chances, strict=True):
        amounts = []
        for (u, w), p in zip(entries, of_list, strict=True):
            r = number(u, step) / 2**64
            if abs(r - p) < 1e-9:
                return  # rounding decides
            if r < p:
                expected.append(place)
                amounts.append(w / p)
            place += 1
        weights += [a * len(amounts) / sum(amounts) for a in amounts]
    assert made.places.tolist() == expected
    assert made.weights.tolist() == pytest.approx(weights, rel=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("iterations", [0, 1, 2, -1])
def test_sources_are_picked_as_often_as_they_should(iterations: int, weighted: bool) -> None:
    rng = np.random.default_rng(4)
    lists = [
        [(int(u), float(w)) for u, w in zip(rng.choice(20, 12, replace=False), rng.random(12) ** 2 + 0.05, strict=True)]
        for _ in range(4)
    ]
    if not weighted:
        lists = [[(u, 1.0) for u, _ in entries] for entries in lists]
    batches, counts = 4000, np.zeros(48)
    for batch in range(batches):
        counts[picks_of(lists, 3, iterations, weighted, key=_core.batch_key(7, 0, batch)).places] += 1
    rounds = 8 if iterations < 0 else iterations  # more than it takes to converge
    found = [np.concatenate(chances_of(lists, 3, n, weighted)) for n in range(rounds + 1)]
    chances = found[iterations]
    if iterations < 0:  # the first after which the number of sources hardly falls
        sizes = [sum(max_by_source(lists, of).values()) for of in found]
        assert min(abs(counts.sum() / batches - of.sum()) for of in found[2:]) < 0.1
        assert sizes[-1] <= sizes[0]
        return
    sure = chances > 1 - 1e-9
    assert (counts[sure] == batches).all()
    z = (counts - batches * chances)[~sure] / np.sqrt(batches * (chances * (1 - chances))[~sure])
    # The sources of a mini-batch are independent, their entries are not: each entry has a test of its own.
    assert np.abs(z).max() < 5
    assert np.abs(z).max() > 0.5


def max_by_source(lists: list[list[tuple[int, float]]], chances: Any) -> dict[int, float]:
    found: dict[int, float] = {}
    for (u, _), p in zip((entry for entries in lists for entry in entries), chances, strict=True):
        found[u] = max(found.get(u, 0.0), p)
    return found


def test_independent_sources_pass_a_chi_square() -> None:
    """Of one list, the number of picks has the law of a sum of independent ones."""
    from scipy import stats

    weights = [0.2, 0.5, 1.0, 1.0, 2.0, 3.0, 8.0]
    entries = list(enumerate(weights))
    (chances,) = chances_of([entries], 3, 0, True)
    law = np.ones(1)
    for p in chances:
        law = np.convolve(law, [1 - p, p])
    counts = np.zeros(len(law))
    for batch in range(6000):
        counts[len(picks_of([entries], 3, 0, True, key=_core.batch_key(1, 0, batch)).places)] += 1
    usual = law * 6000 > 5
    assert counts[~usual].sum() < 20
    found, expected = counts[usual], law[usual] / law[usual].sum() * counts[usual].sum()
    assert stats.chisquare(found, expected).pvalue > LEVEL


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_equal_weights_give_the_picks_of_the_core(weight: float) -> None:
    g = torch.Generator().manual_seed(1)
    graph = Graph.from_edges(*torch.randint(500, (2, 9000), generator=g), 500)
    seeds = torch.arange(0, 500, 3)
    made = FusedSampler([4], labor=True, edge_ids=True, seed=5).sample(graph, seeds, epoch=2, batch=9)
    degrees = graph.in_degrees()[seeds].long()
    places = torch.cat([torch.arange(*graph.indptr[v : v + 2].tolist()) for v in seeds.tolist()])
    sources, key = graph.indices[places].long().numpy(), _core.batch_key(5, 2, 9)
    for weights in (None, np.full(len(places), weight)):
        found = labor_picks(degrees.numpy(), sources, weights, 4, 0, key, step=1)
        picked = places[torch.from_numpy(found.places)]
        picked = picked if graph.edge_ids is None else graph.edge_ids[picked]
        assert torch.equal(picked.long(), made.blocks[0].edge_ids.long())
        assert np.allclose(found.weights, 1)


def test_numbers_are_those_of_the_core() -> None:
    sources = np.array([0, 1, 77, 2**31, 2**40 + 5, 2**62], dtype=np.int64)
    for batch, step in ((0, 0), (2**33, 3)):
        number = Numbers(9, 4, batch)
        assert source_numbers(sources, _core.batch_key(9, 4, batch), step).tolist() == [
            number(int(u), step) for u in sources
        ]


def test_importance_finds_fewer_sources() -> None:
    rng = np.random.default_rng(5)
    lists = [[(int(u), 1.0) for u in rng.integers(0, 400, 10 + i)] for i in range(100)]
    sources = np.array([u for entries in lists for u, _ in entries])
    sizes = [
        np.mean([
            len(np.unique(sources[picks_of(lists, 5, i, False, key=_core.batch_key(0, 0, b)).places]))
            for b in range(20)
        ])
        for i in (0, 1, -1)
    ]  # fmt: skip
    assert sizes[0] > 1.05 * sizes[1] > 1.05 * sizes[2]


def test_messages_are_weighed_without_bias() -> None:
    """Before they are scaled to a mean of 1, the weights are those of Horvitz and Thompson."""
    entries = [(u, float(w)) for u, w in enumerate([0.5, 1, 2, 4, 1, 1, 3])]
    (chances,) = chances_of([entries], 3, 0, True)
    for batch in range(50):
        made = picks_of([entries], 3, 0, True, key=_core.batch_key(2, 0, batch))
        if len(made.places):
            raw = np.array([entries[i][1] / chances[i] for i in made.places])
            assert np.allclose(made.weights, raw / raw.mean())


def test_uneven_weights_end() -> None:
    entries = [(u, 2.0**-u) for u in range(900)]
    made = picks_of([entries, entries[::-1], []], 500, 0, True)
    assert len(made.places) > 0
    assert np.isfinite(made.weights).all()
    heavy = picks_of([[(0, 1e-300), (1, 1e150), (2, 1.0)]], 1, 1, True)
    assert np.isfinite(heavy.weights).all()
    assert len(picks_of([], 3, -1, True).places) == len(picks_of([[]], 3, 2, False).places) == 0
