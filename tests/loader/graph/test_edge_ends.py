"""The edges of a relation by id."""

from __future__ import annotations

import pytest
import torch

from loader.graph import Graph, HeteroGraph
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


@pytest.mark.parametrize("ids", [[2, 0, 1], [0, 2, 0], [7, 7, 9], [2**62, 1, 5], [-4, 2, 2]], ids=str)
def test_any_ids_find_all_edges(ids: list[int]) -> None:
    lists = Graph(
        torch.tensor([0, 1, 2, 3]),
        torch.tensor([1, 0, 0]),
        edge_ids=torch.tensor(ids),
        edge_times=torch.tensor([5, 6, 7]),
    )
    graph = HeteroGraph.of(lists)
    edges = EdgeEnds.of(graph, graph.edge_types[0])
    sources, targets = torch.tensor([1, 0, 0, 2]), torch.tensor([0, 1, 2, 0])
    assert edges.seen(sources, targets, None).tolist() == [True, True, True, False]
    assert edges.seen(sources, targets, torch.tensor([5, 6, 6, 5])).tolist() == [True, True, False, False]
    asked = torch.tensor([*ids, ids[0]])
    assert edges.have(asked, sources, targets).tolist() == [True, True, True, False]
    for edge, at in zip(ids, (5, 6, 7), strict=True):
        assert ids.count(edge) > 1 or edges.times[edges.rows(torch.tensor([edge]))].tolist() == [at]
    edges.check_ids(asked.clamp(min=-1), graph.edge_types[0])
    with pytest.raises(ValueError, match=r"edge_ids holds 6, which no edge of .* has; its ids are -?\d+ to \d+"):
        edges.check_ids(torch.tensor([6]), graph.edge_types[0])


def test_ids_that_are_not_kept_are_asked_for() -> None:
    require_edge_ids(made(0, (3, 3), (False, False)))
    graph = HeteroGraph.from_edges({TO: torch.tensor([[0], [1]])}, {"a": 3, "b": 4}, keep_edge_ids=False)
    with pytest.raises(ValueError, match="the graph keeps no edge ids; make it with keep_edge_ids=True"):
        require_edge_ids(graph)
