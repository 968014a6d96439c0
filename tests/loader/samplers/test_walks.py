"""Walks on the CPU: the oracle, threads, shapes and failures. Their laws: test_walks_laws.py."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from forks import in_forked_child, needs_fork
from graphs import WIDTHS, chain, messy_graph, star, widen
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_walks import negatives, walks
from statistics_of_counts import LEVEL, p_equal

from loader.graph import Graph
from loader.samplers import Request, WalkSampler, walked_graph

LAWS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "stop": {"stop": 0.15},
    "restart": {"restart": 0.3},
    "stop and restart": {"stop": 0.1, "restart": 0.2},
    "node2vec": {"p": 2, "q": 0.5},
    "node2vec, back": {"p": 0.25, "q": 4},
    "node2vec, q alone": {"q": 3},
    "node2vec, p alone": {"p": 0.1},
    "node2vec, scanning": {"p": 1e6, "q": 1e-3},
    "node2vec, too even to scan": {"q": 16},
    "node2vec, barely scanning": {"q": 16.01},
    "node2vec, stop and restart": {"p": 0.5, "q": 2, "stop": 0.1, "restart": 0.2},
}


def sampled(graph: Graph, starts: list[int], length: int, **options: Any) -> tuple[list[list[int]], list[list[int]]]:
    """Nodes, and places of the edges."""
    position = {name: options.pop(name) for name in ("epoch", "batch") if name in options}
    sample = WalkSampler(length, edge_ids=True, num_threads=1, **options).sample(
        graph, torch.tensor(starts), **position
    )
    assert sample.edge_ids is not None
    return sample.nodes.tolist(), sample.edge_ids.tolist()


@pytest.mark.parametrize("sifts_from", [0, 1e9])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("law", LAWS)
def test_walks_are_those_of_the_reference(
    law: str, width: str, sifts_from: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a filter of the edges, and without."""
    monkeypatch.setattr(walked_graph, "SIFTS_FROM", sifts_from)
    graph = widen(messy_graph(60, 500, seed=1), width)
    starts = [*range(60), 7, 7, 7]
    found = sampled(graph, starts, 21, seed=2**63 + 11, epoch=2**33, batch=3, **LAWS[law])
    expected = walks(graph, starts, 21, seed=2**63 + 11, epoch=2**33, batch=3, **LAWS[law])
    assert found == expected


WEIGHTED: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop and restart": {"stop": 0.1, "restart": 0.2},
    "node2vec": {"p": 2, "q": 0.5},
    "node2vec, stop": {"p": 0.25, "q": 4, "stop": 0.1},
}


def with_weights(plain: Graph, kind: torch.dtype = torch.float32) -> Graph:
    """Some are 0, also all of a list; some are many times larger than the others."""
    g = torch.Generator().manual_seed(5)
    weights = torch.rand(plain.num_edges, generator=g) ** 4 * 10
    weights[torch.rand(plain.num_edges, generator=g) < 0.2] = 0
    weights[torch.rand(plain.num_edges, generator=g) < 0.05] = 1e6
    weights[int(plain.indptr[7]) : int(plain.indptr[9])] = 0
    ids = torch.arange(plain.num_edges)
    return Graph(plain.indptr, plain.indices, edge_weights=weights.to(kind), edge_ids=ids)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("law", WEIGHTED)
def test_weighted_walks_are_those_of_the_reference(law: str, width: str) -> None:
    graph = widen(with_weights(messy_graph(60, 500, seed=1), torch.float64), width)
    starts = [*range(60), 7, 7, 7]
    found = sampled(graph, starts, 21, weights="edge_weights", seed=3, **WEIGHTED[law])
    assert found == walks(graph, starts, 21, weighted=True, seed=3, **WEIGHTED[law])
    assert found[0][7][1] == -1  # all its edges have weight 0


@given(
    num_nodes=st.integers(1, 12),
    num_edges=st.integers(0, 60),
    length=st.integers(0, 30),
    p=st.sampled_from([0.1, 1.0, 3.0]),
    q=st.sampled_from([0.2, 1.0, 1e4]),
    stop=st.sampled_from([0.0, 0.2]),
    restart=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 2**64 - 1),
)
@settings(max_examples=60)
def test_any_graph_and_law_follow_the_reference(
    num_nodes: int, num_edges: int, length: int, p: float, q: float, stop: float, restart: float, seed: int
) -> None:
    g = torch.Generator().manual_seed(num_nodes * 1000 + num_edges)
    ends = torch.randint(num_nodes, (2, num_edges), generator=g)
    graph = Graph.from_edges(ends[0], ends[1], num_nodes)
    law = {"p": p, "q": q, "stop": stop, "restart": restart, "seed": seed}
    starts = list(range(num_nodes)) * 2
    assert sampled(graph, starts, length, **law) == walks(graph, starts, length, **law)


@pytest.mark.parametrize("law", [{}, {"stop": 0.2}])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_metapath_is_that_of_the_reference(law: dict[str, Any], width: str) -> None:
    graph = messy_graph(60, 900, seed=1)
    types = torch.randint(4, (graph.num_edges,), generator=torch.Generator().manual_seed(0))
    graph = widen(Graph(graph.indptr, graph.indices, edge_types=types), width)
    for path in ([2], [0, 3, 0], [1, 2, 3, 0, 1]):
        found = sampled(graph, list(range(60)), 11, metapath=path, **law)
        assert found == walks(graph, list(range(60)), 11, metapath=path, **law)
        assert any(edge >= 0 for row in found[1] for edge in row)
    assert all(row[1:] == [-1] * 5 for row in sampled(graph, list(range(60)), 5, metapath=[9])[0])


@pytest.mark.parametrize("law", LAWS)
def test_threads_change_nothing(law: str, random_graph: Callable[..., Graph]) -> None:
    graph = with_weights(random_graph(2000, 20_000))
    starts = torch.randint(2000, (3000,), generator=torch.Generator().manual_seed(0))
    for options in ({}, {"weights": "edge_weights"}):
        if options and "scanning" in law:
            continue
        arguments: dict[str, Any] = {**LAWS[law], **options}
        digests = {WalkSampler(30, num_threads=t, **arguments).sample(graph, starts).digest() for t in (1, 2, 5)}
        assert len(digests) == 1


def test_unsorted_lists_are_searched_in_a_copy() -> None:
    graph = messy_graph(60, 500, seed=1)
    shuffled = graph.indices.clone()
    for v in range(60):
        begin, end = int(graph.indptr[v]), int(graph.indptr[v + 1])
        shuffled[begin:end] = shuffled[begin:end].flip(0)
    other = Graph(graph.indptr, shuffled)
    before = other.indices.clone()
    assert sampled(other, list(range(60)), 20, p=2, q=0.5) == walks(other, list(range(60)), 20, p=2, q=0.5)
    assert torch.equal(other.indices, before)


def test_walks_end_at_nodes_without_neighbors() -> None:
    walk, edges = sampled(chain(5), [0, 3, 4], 6)
    assert walk == [[0, 1, 2, 3, 4, -1, -1], [3, 4, -1, -1, -1, -1, -1], [4, -1, -1, -1, -1, -1, -1]]
    assert edges == [[0, 1, 2, 3, -1, -1], [3, -1, -1, -1, -1, -1], [-1] * 6]


def test_a_leaf_takes_its_only_edge_at_once() -> None:
    walk, _ = sampled(star(100), [5, 6], 50, p=1e4, q=1e-4)
    assert all(row[1::2] == [0] * 25 for row in walk)


def test_a_hub_is_left_in_bounded_time() -> None:
    """The way back is all but forbidden, and it is the one neighbor of the hub many times over."""
    copies = 5000
    graph = Graph.from_edges(
        torch.cat([torch.ones(copies, dtype=torch.int64), torch.tensor([2, 0, 0])]),
        torch.cat([torch.zeros(copies, dtype=torch.int64), torch.tensor([0, 1, 2])]),
        3,
    )
    walk, _ = sampled(graph, [1] * 50, 4, p=2.0**30, q=1.0)
    assert all(row == [1, 0, 2, 0, 1] for row in walk)


def test_walkers_that_meet_walk_independently(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 1000)
    sample = WalkSampler(20).sample(graph, torch.full((64,), 7))
    assert len({tuple(row) for row in sample.nodes.tolist()}) == 64


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5])
def test_a_longer_walk_continues_a_shorter_one(length: int, random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 1000)
    starts = torch.arange(50)
    long = WalkSampler(9, p=2, q=0.5).sample(graph, starts).nodes
    assert torch.equal(WalkSampler(length, p=2, q=0.5).sample(graph, starts).nodes, long[:, : length + 1])


def test_walkers_and_edges_may_be_missing() -> None:
    graph = Graph(torch.zeros(4, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    assert WalkSampler(3).sample(graph, torch.zeros(0, dtype=torch.int64)).nodes.shape == (0, 4)
    sample = WalkSampler(3, edge_ids=True).sample(graph, torch.tensor([2]))
    assert sample.nodes.tolist() == [[2, -1, -1, -1]]


def test_edge_ids_are_the_users(random_graph: Callable[..., Graph]) -> None:
    plain = random_graph(50, 400)
    ids = torch.randperm(400, generator=torch.Generator().manual_seed(0)) + 1000
    graph = Graph(plain.indptr, plain.indices, edge_ids=ids, edge_types=torch.arange(400) % 2)
    for options in ({}, {"stop": 0.2}, {"metapath": [0, 1]}):
        sample = WalkSampler(10, edge_ids=True, **options).sample(graph, torch.arange(50))  # type: ignore[arg-type]
        assert sample.edge_ids is not None
        assert sample.edge_ids.dtype == torch.int64
        at = (sample.edge_ids[..., None] == ids).int().argmax(-1)
        went = sample.edge_ids >= 0
        assert went.any()
        assert torch.equal(went, sample.nodes[:, 1:] >= 0)
        assert torch.equal(graph.indices[at][went], sample.nodes[:, 1:][went])
        ends = torch.searchsorted(graph.indptr, at, right=True) - 1
        assert torch.equal(ends[went], sample.nodes[:, :-1][went].long())
        if "metapath" in options:
            turn = (torch.arange(10) % 2).expand(50, 10)
            assert torch.equal(at[went] % 2, turn[went])


@needs_fork
def test_a_forked_child_walks(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 1000)
    sampler = WalkSampler(2000, num_threads=2)
    expected = sampler.sample(graph, torch.arange(50)).digest()

    def walk() -> None:
        assert sampler.sample(graph, torch.arange(50)).digest() == expected

    in_forked_child(walk)


def test_sessions_and_copies_walk_alike(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 1000)
    sampler = WalkSampler(5, p=2, seed=3)
    expected = sampler.sample(graph, torch.arange(50), epoch=1).digest()
    for other in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert other.spec() == sampler.spec()
        assert other.sample(graph, torch.arange(50), epoch=1).digest() == expected
    session = sampler.open(graph)
    first, second = session.begin([Request(torch.arange(50), 1, 0), Request(torch.arange(9), 1, 1)])
    assert first().digest() == expected
    assert second().nodes.shape == (9, 6)
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.begin([Request(torch.arange(50), 1, 0)])
    sampler.close()
    with pytest.raises(RuntimeError, match="closed"):
        sampler.open(graph)
    assert repr(sampler) == "WalkSampler(5, p=2.0, seed=3)"


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"walk_length": -1}, ValueError, "walk_length is -1"),
        ({"walk_length": 2**24}, ValueError, "at most 16777215"),
        ({"walk_length": 2.5}, TypeError, "walk_length is 2.5"),
        ({"p": 0}, ValueError, "p is 0"),
        ({"q": float("inf")}, ValueError, "q is inf"),
        ({"q": float("nan")}, ValueError, "q is nan"),
        ({"p": "2"}, TypeError, "p is '2'"),
        ({"p": True}, TypeError, "p is True"),
        ({"p": 1e6, "q": 1e-6}, ValueError, r"less than 2\*\*33 times"),
        ({"stop": 1.0}, ValueError, "stop is 1.0"),
        ({"stop": 1 - 1e-12}, ValueError, "stop is 0.9"),
        ({"restart": -0.1}, ValueError, "restart is -0.1"),
        ({"stop": 0.6, "restart": 0.5}, ValueError, "together"),
        ({"weights": "times"}, ValueError, "weights is 'times'"),
        ({"weights": "edge_weights", "metapath": [0]}, ValueError, "all edges of a type alike"),
        ({"weights": "edge_weights", "p": 2000}, ValueError, "at most 1024 times"),
        ({"metapath": []}, ValueError, "metapath has 0 types"),
        ({"metapath": [0] * 65}, ValueError, "metapath has 65 types"),
        ({"metapath": 0}, TypeError, "metapath is 0; it must be a list of integers"),
        ({"metapath": "01"}, TypeError, "metapath is '01'; it must be a list of integers"),
        ({"edge_ids": "no"}, TypeError, "edge_ids is 'no'; it must be True or False"),
        ({"device": "gpu"}, ValueError, "device is 'gpu'; it must be cpu, cuda or cuda:N"),
        ({"weights": 3}, ValueError, "weights is 3"),
        ({"metapath": [0.5]}, TypeError, "metapath holds 0.5"),
        ({"metapath": [-1]}, ValueError, "metapath holds -1"),
        ({"metapath": [0], "p": 2}, ValueError, "no second order"),
        ({"metapath": [0], "restart": 0.2}, ValueError, "use stop"),
        ({"num_negatives": -1}, ValueError, "num_negatives is -1"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"num_threads": 0}, ValueError, "num_threads is 0"),
        ({"schedule": "grouped"}, ValueError, "must be one of"),
        ({"schedule": "transit"}, ValueError, "it walks on the CPU; leave it out"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        WalkSampler(**{"walk_length": 4, **options})


def test_bad_graphs_and_starts_are_refused(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(50, 400)
    sampler = WalkSampler(4)
    for start, says in ((50, "holds node 50"), (-1, "holds node -1"), (2**40, "holds node 1099511627776")):
        with pytest.raises(ValueError, match=says):
            sampler.sample(graph, torch.tensor([1, start]))
        with pytest.raises(ValueError, match=says):
            sampler.sample(widen(random_graph(50, 400), "int64"), torch.tensor([1, start]))
    with pytest.raises(TypeError, match=r"dtype torch\.float32"):
        sampler.sample(graph, torch.rand(3))
    with pytest.raises(ValueError, match="1 dimension"):
        sampler.sample(graph, torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="epoch is -1"):
        sampler.sample(graph, torch.tensor([1]), epoch=-1)
    with pytest.raises(ValueError, match="but the graph has none"):
        WalkSampler(4, weights="edge_weights").sample(graph, torch.tensor([1]))
    with pytest.raises(ValueError, match="give it edge_types"):
        WalkSampler(4, metapath=[0]).sample(graph, torch.tensor([1]))
    bipartite = Graph(torch.tensor([0, 1]), torch.tensor([3]), num_src=5)
    with pytest.raises(ValueError, match="one set of nodes"):
        sampler.sample(bipartite, torch.tensor([0]))


@pytest.mark.parametrize("width", WIDTHS)
def test_negatives_are_drawn_from_all_nodes(width: str) -> None:
    graph = widen(messy_graph(60, 500, seed=1), width)
    starts = torch.arange(60).repeat(20)
    plain = WalkSampler(5, seed=3).sample(graph, starts, epoch=2, batch=7)
    sample = WalkSampler(5, num_negatives=3, seed=3).sample(graph, starts, epoch=2, batch=7)
    assert torch.equal(sample.nodes, plain.nodes)
    assert plain.negatives is None
    assert sample.negatives is not None
    assert sample.negatives.shape == (1200, 3, 5)
    assert sample.negatives.dtype == graph.indices.dtype
    assert sample.negatives[11].flatten().tolist() == negatives(11, 15, 60, seed=3, epoch=2, batch=7)
    assert p_equal(np.bincount(sample.negatives.flatten().numpy(), minlength=60)) > LEVEL
    assert WalkSampler(5, num_negatives=3, seed=3, num_threads=3).sample(graph, starts, epoch=2, batch=7).digest() == (
        sample.digest()
    )
