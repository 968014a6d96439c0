"""Breadth-first search and k-hop neighborhoods on the CPU."""

from __future__ import annotations

import copy

import pytest
import reference_traverse as reference
import torch
from graphs import WIDTHS, chain, messy_graph, star, widen
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import Graph
from loader.traverse import bfs, k_hop


@settings(deadline=None, max_examples=60)
@given(reference.graphs(), st.data())
def test_bfs_equals_networkx(graph: Graph, data: st.DataObject) -> None:
    sources = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=3))
    expected = reference.distances(graph, sources)
    for turns in (True, False):
        found = bfs(graph, sources, direction_optimizing=turns, num_threads=data.draw(st.integers(1, 3)))
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.int32
        assert found.tolist() == expected
    assert torch.equal(bfs(graph, sources, symmetric=False), found)


@settings(deadline=None, max_examples=60)
@given(reference.graphs(), st.data())
def test_k_hop_equals_networkx_against_edges(graph: Graph, data: st.DataObject) -> None:
    seeds = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=3))
    k = data.draw(st.integers(0, 4))
    assert k_hop(graph, seeds, k, num_threads=2).tolist() == reference.distances(graph, seeds, k, against=True)


@settings(deadline=None, max_examples=40)
@given(reference.graphs(), st.data())
def test_predecessors_are_the_smallest_possible(graph: Graph, data: st.DataObject) -> None:
    source = data.draw(st.integers(0, graph.num_nodes - 1))
    distances, before = bfs(graph, source, return_predecessors=True)
    src, dst = (ends.tolist() for ends in reference.edges_of(graph))
    for v, (d, p) in enumerate(zip(distances.tolist(), before.tolist(), strict=True)):
        possible = [a for a, b in zip(src, dst, strict=True) if b == v and d > 0 and distances[a] == d - 1]
        assert p == min(possible, default=-1)


@pytest.mark.parametrize("width", WIDTHS)
def test_bfs_takes_every_width_of_ids(width: str) -> None:
    narrow = messy_graph(300, 2000, seed=1)
    wide = widen(copy.copy(narrow), width)
    first, second = (bfs(graph, 7, return_predecessors=True, num_threads=3) for graph in (narrow, wide))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1].to(first[1].dtype))
    assert second[1].dtype == wide.indices.dtype


@pytest.mark.parametrize(
    ("graph", "sources"),
    [
        (star(40_000), 5),
        (chain(3000), 2999),
        (reference.power_law_graph(20_000, 200_000, seed=3), [11, 7]),
        (reference.grid_graph(70), 0),
    ],
    ids=["star", "chain", "power law", "grid"],
)
def test_large_frontiers_equal_scipy(graph: Graph, sources: int | list[int]) -> None:
    first = [sources] if isinstance(sources, int) else sources
    expected = reference.lengths(graph, first[0], torch.ones(graph.num_edges))
    for source in first[1:]:
        expected = expected.clip(max=reference.lengths(graph, source, torch.ones(graph.num_edges)))
    expected[expected == float("inf")] = -1
    for threads in (1, 4):
        assert bfs(graph, sources, num_threads=threads).tolist() == expected.tolist()


def test_a_changed_graph_is_looked_at_again() -> None:
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 3)
    assert bfs(graph, 0).tolist() == [0, 1, -1]
    graph.indices[0] = 2  # 2 -> 0 and 0 -> 1: it was symmetric
    assert bfs(graph, 2).tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"source": 10}, ValueError, "source holds node 10; valid ids are 0 to 9"),
        ({"source": -1}, ValueError, "source holds node -1"),
        ({"source": []}, TypeError, r"source is \[\]"),
        ({"source": torch.zeros(0, dtype=torch.int64)}, ValueError, "source holds no node"),
        ({"source": torch.ones(10) > 0}, TypeError, r"source has dtype torch\.bool; turn a mask .* mask\.nonzero"),
        ({"source": 1.5}, TypeError, "source is 1.5"),
        ({"source": ["a"]}, TypeError, r"source is \['a'\]; it must be a node or a vector of nodes"),
        ({"graph": "no graph"}, TypeError, "graph is a str"),
        ({"schedule": "node"}, TypeError, "schedule of bfs was removed in 0.2: .* decides; leave it out"),
        ({"access": "naive"}, TypeError, "access of bfs was removed in 0.2: .* decides; leave it out"),
        ({"num_threads": 0}, ValueError, "num_threads is 0"),
        ({"symmetric": "no"}, TypeError, "symmetric is 'no'"),
        ({"device": "gpu"}, ValueError, "device is 'gpu'"),
        ({"direction_optimizing": "no"}, TypeError, "direction_optimizing is 'no'"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bfs(**{"graph": chain(10), "source": 0, **change})


def test_k_hop_refuses_negative_k() -> None:
    with pytest.raises(ValueError, match="k is -1; it must be at least 0"):
        k_hop(chain(4), 0, -1)


def test_a_bipartite_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="a traversal wants a graph of one set of nodes"):
        bfs(Graph(torch.tensor([0, 1]), torch.tensor([2]), num_src=3), 0)
