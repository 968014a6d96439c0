"""The edges of a relation by id, and which of them are each other's reverse."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import HeteroGraph
from loader.graph.edge_ends import EdgeEnds, require_edge_ids

TO, BACK = ("a", "to", "b"), ("b", "back", "a")


def made(seed: int, counts: tuple[int, int], times: tuple[bool, bool], sizes: tuple[int, int] = (3, 4)) -> HeteroGraph:
    g = torch.Generator().manual_seed(seed)
    edges = {
        key: torch.stack([torch.randint(sizes[i if key == TO else 1 - i], (count,), generator=g) for i in (0, 1)])
        for key, count in zip((TO, BACK), counts, strict=True)
    }
    drawn = {
        key: torch.randint(3, (count,), generator=g)
        for key, count, timed in zip((TO, BACK), counts, times, strict=True)
        if timed
    }
    return HeteroGraph.from_edges(edges, {"a": sizes[0], "b": sizes[1]}, edge_times=drawn or None)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    counts=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    times=st.tuples(st.booleans(), st.booleans()),
)
def test_equal_edges_have_reverses_in_turn(seed: int, counts: tuple[int, int], times: tuple[bool, bool]) -> None:
    to, back = (EdgeEnds.of(made(seed, counts, times), key) for key in (TO, BACK))
    assert (to.sources.numel(), back.sources.numel()) == counts
    there = defaultdict(list)

    def key_of(edges: EdgeEnds, e: int) -> tuple[int, int, int | None]:
        at = None if to.times is None or back.times is None or edges.times is None else int(edges.times[e])
        return int(edges.sources[e]), int(edges.targets[e]), at

    for e in range(counts[1]):
        u, v, at = key_of(back, e)
        there[v, u, at].append(e)
    wanted = [(there[key_of(to, e)] or [-1]).pop(0) for e in range(counts[0])]
    assert to.reverses(back, 4).tolist() == wanted


def test_edges_that_are_flipped_have_their_own_ids() -> None:
    to = EdgeEnds.of(made(3, (25, 0), (True, False)), TO)
    flipped = EdgeEnds(to.targets, to.sources, to.times)
    assert to.reverses(flipped, 4).tolist() == list(range(25))
    order = torch.randperm(25, generator=torch.Generator().manual_seed(1))
    shuffled = EdgeEnds(*(of[order] for of in flipped))
    found = to.reverses(shuffled, 4)
    assert sorted(found.tolist()) == list(range(25))
    assert all(
        torch.equal(of[found], own) for of, own in zip(shuffled, (to.targets, to.sources, to.times), strict=True)
    )
    gap = EdgeEnds(*(torch.cat([of, of.new_full((1,), -1)]) for of in to))  # an id that no edge has
    assert gap.reverses(EdgeEnds(gap.targets, gap.sources, gap.times), 4).tolist() == [*range(25), -1]


def test_edges_are_seen_by_their_ends_and_times() -> None:
    edges = EdgeEnds.of(made(1, (12, 0), (True, False)), TO)
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(9))  # some targets are beyond all nodes
    known = {*zip(edges.sources.tolist(), edges.targets.tolist(), strict=True)}
    assert edges.seen(*pairs.t(), None).tolist() == [tuple(pair) in known for pair in pairs.tolist()]
    timed = {*zip(edges.sources.tolist(), edges.targets.tolist(), edges.times.tolist(), strict=True)}
    for at in range(4):
        found = edges.seen(*pairs.t(), torch.full((len(pairs),), at))
        assert found.tolist() == [(*pair, at) in timed for pair in pairs.tolist()]
    assert edges.seen(*pairs[:0].t(), None).numel() == 0


def test_ids_that_are_not_kept_are_asked_for() -> None:
    require_edge_ids(made(0, (3, 3), (False, False)))
    graph = HeteroGraph.from_edges({TO: torch.tensor([[0], [1]])}, {"a": 3, "b": 4}, keep_edge_ids=False)
    with pytest.raises(ValueError, match="the graph keeps no edge ids; make it with keep_edge_ids=True"):
        require_edge_ids(graph)
