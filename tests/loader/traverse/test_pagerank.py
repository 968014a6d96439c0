"""PageRank on the CPU."""

from __future__ import annotations

import copy
import math

import networkx as nx
import numpy as np
import pytest
import reference_traverse as reference
import torch
from graphs import WIDTHS, chain, star, widen
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import Graph
from loader.traverse import pagerank


@settings(deadline=None, max_examples=60)
@given(reference.graphs(), st.data())
def test_ranks_equal_networkx(graph: Graph, data: st.DataObject) -> None:
    alpha = data.draw(st.sampled_from([0.0, 0.5, 0.85]))
    own = None
    if data.draw(st.booleans()):
        numbers = st.lists(st.floats(0, 10), min_size=graph.num_nodes, max_size=graph.num_nodes)
        own = torch.tensor(data.draw(numbers), dtype=torch.float64)
        own[data.draw(st.integers(0, graph.num_nodes - 1))] += 1
    found = pagerank(graph, alpha, tol=1e-9, max_iter=500, personalization=own, num_threads=2)
    given_own = None if own is None else dict(enumerate(own.tolist()))
    expected = nx.pagerank(reference.to_networkx(graph), alpha, given_own, tol=1e-10, max_iter=500)
    assert found.dtype == torch.float64
    assert np.allclose(found.numpy(), [expected[v] for v in range(graph.num_nodes)], rtol=0, atol=1e-8)
    assert float(found.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("width", WIDTHS)
def test_threads_and_widths_change_no_bit(width: str) -> None:
    graph = reference.power_law_graph(5000, 40_000, seed=6)
    expected = pagerank(graph, num_threads=1)
    assert torch.equal(pagerank(widen(copy.copy(graph), width), num_threads=4), expected)


@settings(deadline=None, max_examples=20)
@given(reference.graphs())
def test_reverse_ranks_are_those_of_the_reverse(graph: Graph) -> None:
    assert torch.equal(pagerank(graph, reverse=True), pagerank(graph.reverse()))
    assert torch.equal(pagerank(graph, reverse=True, symmetric=False), pagerank(graph.reverse()))


def test_threads_of_torch_change_no_bit() -> None:
    graph = reference.power_law_graph(200_000, 100_000, seed=1)
    own = torch.rand(200_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found, before = [], torch.get_num_threads()
    try:
        for number in (1, 2, 3, 5):
            torch.set_num_threads(number)
            found.append(pagerank(graph, personalization=own, num_threads=2))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(ranks, found[0]) for ranks in found)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_subnormal_personalization_counts_in_flushing_threads(dtype: torch.dtype) -> None:
    own = torch.tensor([0, 1, 3, 4]).to(dtype)
    expected = pagerank(chain(4), personalization=own)
    tiny = own * (torch.finfo(dtype).smallest_normal / 64)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        assert torch.equal(pagerank(chain(4), personalization=tiny), expected)
    finally:
        torch.set_flush_denormal(False)


def test_no_convergence_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"after 2 iterations the ranks still change by .*raise max_iter or tol"):
        pagerank(star(100), tol=1e-12, max_iter=2)


def test_a_graph_without_nodes_has_no_ranks() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    assert pagerank(Graph.from_edges(empty, empty, 0)).tolist() == []


def test_any_change_is_within_an_infinite_tol() -> None:
    assert float(pagerank(chain(5), tol=math.inf, max_iter=1).sum()) == pytest.approx(1)


def test_a_sum_beyond_float64_is_no_matter() -> None:
    own = torch.tensor([1e308, 1e308, 0, 5e307, 0], dtype=torch.float64)
    found, wanted = (pagerank(chain(5), personalization=numbers) for numbers in (own, own / 1e308))
    assert torch.allclose(found, wanted)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"reverse": "no"}, TypeError, "reverse is 'no'"),
        ({"symmetric": True}, ValueError, "symmetric is True, but only reverse=True"),
        ({"alpha": 1.5}, ValueError, "alpha is 1.5; it must be at least 0 and at most 1"),
        ({"alpha": float("nan")}, ValueError, "alpha is nan"),
        ({"tol": 0}, ValueError, "tol is 0; it must be above 0"),
        ({"max_iter": 0}, ValueError, "max_iter is 0"),
        ({"personalization": [1, 2]}, TypeError, "personalization is a list"),
        ({"personalization": torch.arange(5)}, TypeError, "personalization is torch.int64"),
        ({"personalization": torch.ones(4)}, ValueError, r"personalization has shape \[4\]; it must be \[5\]"),
        ({"personalization": torch.full((5,), math.inf)}, ValueError, "finite, at least 0 and not all 0"),
        ({"personalization": torch.zeros(5)}, ValueError, "personalization has the sum 0.0"),
        ({"personalization": torch.tensor([1.0, -1, 3, 0, 0])}, ValueError, "finite, at least 0 and not all 0"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pagerank(chain(5), **change)
