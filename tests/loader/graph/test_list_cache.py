"""Copies of lists: which ones, and where they lie. Their device is the CPU here."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loader.graph import Graph, ListCache, list_cache
from loader.graph.list_cache import hottest_lists

CPU = torch.device("cpu")


def graph_of(seed: int, nodes: int = 60, edges: int = 400) -> Graph:
    g = torch.Generator().manual_seed(seed)
    return Graph.from_edges(
        torch.randint(nodes, (edges,), generator=g), torch.randint(nodes, (edges,), generator=g) // 2, nodes
    )


@given(seed=st.integers(0, 100), fraction=st.floats(0, 1), chunk=st.integers(1, 500))
def test_copies_are_the_lists(seed: int, fraction: float, chunk: int) -> None:
    graph = graph_of(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(list_cache, "_CHUNK", chunk)
        cache = ListCache(graph, hottest_lists(graph, fraction, None, "degree"), CPU)
    assert cache.num_edges <= fraction * graph.num_edges
    assert cache.nbytes == 4 * (graph.num_nodes + cache.num_edges)
    cached = set(cache.nodes.tolist())
    for v in range(graph.num_nodes):
        begin, end = graph.indptr[v : v + 2].tolist()
        at = int(cache.begins[v])
        assert (at >= 0) == (v in cached)
        if at >= 0:
            assert torch.equal(cache.entries[at : at + end - begin], graph.indices[begin:end])


def test_hottest_lists_are_long_or_as_scored() -> None:
    graph = Graph(torch.tensor([0, 3, 3, 4, 9]), torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 3]))
    assert hottest_lists(graph, 1, None, "degree").tolist() == [3, 0, 2]
    assert hottest_lists(graph, 0.6, None, "degree").tolist() == [3]
    scores = torch.tensor([1.0, 9, 5, 2])
    assert hottest_lists(graph, 1, None, scores).tolist() == [2, 3, 0]
    assert hottest_lists(graph, None, (4 * 4 + 4 * 6) / 2**30, scores).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "fraction is None and budget_gib is None; give exactly one of them"),
        ({"fraction": 0.5, "budget_gib": 1.0}, "give exactly one of them"),
        ({"fraction": 1.5}, "fraction is 1.5; it must be in 0 to 1"),
        ({"budget_gib": 1e-9}, "places of 60 lists take; give more, or leave the lists in pinned memory"),
        ({"fraction": 0.5, "hotness": "age"}, "hotness is 'age'; it must be 'degree' or a tensor of scores"),
        ({"fraction": 0.5, "hotness": torch.ones(3)}, r"hotness has shape \[3\]; it must have one score for 60 lists"),
        (
            {"fraction": 0.5, "nodes": torch.arange(3)},
            "nodes and fraction are given; give nodes, or the others",
        ),
        ({"hotness": "degree", "nodes": torch.arange(3)}, "nodes and hotness are given"),
        ({"nodes": torch.tensor([1, 60])}, "nodes holds node 60; valid ids are 0 to 59"),
        ({"nodes": torch.tensor([1, 2, 1])}, "nodes holds one more than once; a list is cached once"),
        ({"nodes": torch.arange(3)}, r"indices lies on cpu; lists are cached of a graph in pinned memory"),
        ({"fraction": 0.5}, r"indices lies on cpu; lists are cached of a graph in pinned memory \(graph.pin_memory"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph_of(0).cache_lists(**options)


def test_copies_of_lists_of_before_are_refused() -> None:
    graph = graph_of(1)
    graph.list_cache = ListCache(graph, torch.arange(5), CPU)
    graph.edge_weights = torch.ones(graph.num_edges)  # the lists are the same
    graph.require_sound()
    last = int(graph.indptr[5])
    graph.indices[last] = (graph.indices[last] + 1) % 60  # of a list that is not cached
    graph.require_sound()
    before = int(graph.indices[0])
    graph.indices[0] = (before + 1) % 60
    with pytest.raises(ValueError, match="written to or replaced after cache_lists"):
        graph.require_sound()
    with pytest.raises(ValueError, match="cache_lists again"):
        graph.place("cpu").require_sound()
    graph.indices[0] = before
    graph.require_sound()
    graph.indptr[1] += 1
    with pytest.raises(ValueError, match="written to or replaced after cache_lists"):
        graph.require_sound()


def test_copies_of_a_graph_have_no_cached_lists() -> None:
    graph = graph_of(1)
    graph.list_cache = ListCache(graph, torch.arange(5), CPU)
    assert copy.copy(graph).list_cache is graph.list_cache
    assert pickle.loads(pickle.dumps(graph)).list_cache is None
    assert copy.deepcopy(graph).list_cache is None
