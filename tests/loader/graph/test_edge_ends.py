"""The edges of a relation by id."""

from __future__ import annotations

import pytest
import torch

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
