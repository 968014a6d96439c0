"""Connected components on the CPU."""

from __future__ import annotations

import copy

import pytest
import reference_traverse as reference
import torch
from graphs import WIDTHS, chain, equal_degrees, star, widen
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import Graph
from loader.traverse import connected_components


@settings(deadline=None, max_examples=80)
@given(reference.graphs(), st.integers(1, 3))
def test_labels_equal_scipy(graph: Graph, threads: int) -> None:
    expected = reference.components(graph)
    assert connected_components(graph, num_threads=threads).tolist() == expected
    assert connected_components(graph, symmetric=False).tolist() == expected


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "graph",
    [star(20_000), chain(20_000), equal_degrees(5000, 4), reference.power_law_graph(30_000, 30_000, seed=8)],
    ids=["star", "chain", "circle", "power law"],
)
def test_threads_and_widths_change_no_label(graph: Graph, width: str) -> None:
    graph = widen(copy.copy(graph), width)
    alone, many = (connected_components(graph, num_threads=threads) for threads in (1, 4))
    assert torch.equal(alone, many)
    assert alone.dtype == graph.indices.dtype
    assert bool((alone <= torch.arange(graph.num_nodes)).all())
    assert torch.equal(alone[graph.indices.long()], alone.repeat_interleave(graph.in_degrees().long()))


def test_a_graph_without_edges_is_its_nodes() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    assert connected_components(Graph.from_edges(empty, empty, 4)).tolist() == [0, 1, 2, 3]
    assert connected_components(Graph.from_edges(empty, empty, 0)).tolist() == []
