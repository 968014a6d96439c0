"""The laws of walks by chi-square; what a walk of these bytes is, is tested in test_walks.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from statistics_of_counts import LEVEL, p_equal, p_expected

from loader.graph import Graph
from loader.samplers import WalkSampler

WALKERS = 60_000


def walked(graph: Graph, start: int, length: int, **options: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    starts = torch.full((WALKERS,), start)
    return WalkSampler(length, num_threads=2, **options).sample(graph, starts).nodes.long().numpy()


def undirected(pairs: list[tuple[int, int]], num_nodes: int) -> Graph:
    ends = torch.tensor(pairs + [(b, a) for a, b in pairs])
    return Graph.from_edges(ends[:, 0], ends[:, 1], num_nodes)


@pytest.mark.parametrize("degree", [1, 2, 3, 7, 100, 1000])
def test_every_neighbor_is_as_likely_as_the_others(degree: int) -> None:
    """At each of the four places of a word in its block, and in the blocks that follow."""
    graph = Graph.from_edges(
        torch.arange(degree).repeat(degree), torch.arange(degree).repeat_interleave(degree), degree
    )
    walk = walked(graph, 0, 6)
    for step in range(1, 7):
        if degree > 1:
            assert p_equal(np.bincount(walk[:, step], minlength=degree)) > LEVEL
    if degree in (2, 3, 7):  # consecutive steps are independent
        pairs = walk[:, 1:-1] * degree + walk[:, 2:]
        for step in range(5):
            assert p_equal(np.bincount(pairs[:, step], minlength=degree**2)) > LEVEL


def test_a_parallel_edge_counts_by_itself() -> None:
    graph = Graph.from_edges(torch.tensor([1, 1, 1, 2]), torch.tensor([0, 0, 0, 0]), 3)
    counts = np.bincount(walked(graph, 0, 1)[:, 1], minlength=3)[1:]
    assert p_expected(counts, np.array([3.0, 1.0])) > LEVEL


def _second_order(graph: Graph, before: int, at: int, p: float, q: float) -> dict[int, float]:
    """Grover and Leskovec's weights, from the definition."""
    lists = [graph.indices[int(graph.indptr[v]) : int(graph.indptr[v + 1])].tolist() for v in range(graph.num_nodes)]
    weights: dict[int, float] = {}
    for x in lists[at]:
        weight = 1 / p if x == before else 1.0 if x in lists[before] else 1 / q
        weights[x] = weights.get(x, 0.0) + weight
    return weights


# 0 - 1 is where the walk comes along; from 1 back to 0, to 2 and 3 near 0, to 4, 5 and 6 far from it, and to 7 twice.
HOUSE = [(0, 1), (1, 2), (1, 3), (0, 2), (0, 3), (1, 4), (1, 5), (1, 6), (4, 5), (1, 7), (1, 7), (2, 6)]


def crowded(near: int) -> list[tuple[int, int]]:
    """The same with node 0 a hub."""
    return HOUSE + [(0, v) for v in range(8, 8 + near)]


@pytest.mark.parametrize("near", [0, 3000])
@pytest.mark.parametrize(
    ("p", "q"), [(2, 0.5), (0.5, 2), (0.25, 0.25), (4, 4), (1, 3), (3, 1), (1, 0.2), (1e3, 1), (1, 1e-3), (1e6, 1e-2)]
)
def test_the_second_order_follows_p_and_q(near: int, p: float, q: float) -> None:
    """Every class of distance; where the node before is a hub, too; by rejection and, at the extremes, by a scan."""
    graph = undirected(crowded(near), 8 + near)
    checked = 0
    for start, before, at in ((0, 0, 1), (2, 2, 1), (4, 4, 1), (1, 1, 0)):
        walk = walked(graph, start, 2, p=p, q=q)
        third = walk[walk[:, 1] == at][:, 2]
        weights = _second_order(graph, before, at, p, q)
        ends = sorted(weights)
        share = np.array([weights[x] for x in ends]) / sum(weights.values())
        counts = np.array([(third == x).sum() for x in ends])
        assert counts.sum() == len(third)
        expected = share * len(third)
        rare = expected < 5
        if rare.any():  # together; so few that they cannot be tested are left out
            counts, expected = (np.append(a[~rare], a[rare].sum()) for a in (counts, expected))
            if expected[-1] < 5:
                assert counts[-1] < 30
                counts, expected = counts[:-1], expected[:-1]
        if len(counts) > 1:
            assert p_expected(counts, expected) > LEVEL
            checked += 1
    assert checked >= 1


def test_later_steps_follow_the_second_order() -> None:
    """In both halves of a block, given any nodes before."""
    graph = undirected(HOUSE, 8)
    p, q = 0.5, 3
    walk = walked(graph, 0, 9, p=p, q=q)
    for step in range(2, 10):
        for before, at in ((0, 1), (3, 1), (5, 1), (1, 2)):
            third = walk[(walk[:, step - 2] == before) & (walk[:, step - 1] == at)][:, step]
            weights = _second_order(graph, before, at, p, q)
            ends = sorted(weights)
            counts = np.array([(third == x).sum() for x in ends])
            if counts.sum() > 200:
                assert p_expected(counts, np.array([weights[x] for x in ends])) > LEVEL


def test_the_second_orders_first_step_is_uniform() -> None:
    counts = np.bincount(walked(undirected(HOUSE, 8), 1, 1, p=0.1, q=5)[:, 1], minlength=8)
    assert p_expected(np.delete(counts, 1), np.array([1.0, 1, 1, 1, 1, 1, 2])) > LEVEL


@pytest.mark.parametrize("weights", [[1, 2, 3, 4], [1e-3, 1, 0, 1000], [5.0], [1, 1, 1, 1, 1, 1, 97]])
def test_steps_are_proportional_to_weight(weights: list[float]) -> None:
    degree = len(weights)
    dst, src = torch.arange(degree).repeat_interleave(degree), torch.arange(degree).repeat(degree)
    graph = Graph.from_edges(src, dst, degree, edge_weights=torch.tensor(weights).double().repeat(degree))
    walk = walked(graph, 0, 6, weights="edge_weights")
    for step in range(1, 7):
        counts = np.bincount(walk[:, step], minlength=degree)
        share = np.array(weights) / sum(weights)
        assert counts[share == 0].sum() == 0
        likely = share * WALKERS >= 5
        if likely.sum() > 1:
            assert p_expected(counts[likely], share[likely]) > LEVEL


@pytest.mark.parametrize(("p", "q"), [(2, 0.5), (0.25, 4), (1, 3)])
def test_the_second_order_follows_the_weights(p: float, q: float) -> None:
    plain = undirected(HOUSE, 8)
    g = torch.Generator().manual_seed(3)
    graph = Graph(plain.indptr, plain.indices, edge_weights=torch.rand(plain.num_edges, generator=g) + 0.1)
    assert graph.edge_weights is not None
    walk = walked(graph, 0, 2, p=p, q=q, weights="edge_weights")
    third = walk[walk[:, 1] == 1][:, 2]
    places = range(int(graph.indptr[1]), int(graph.indptr[2]))
    near = graph.indices[int(graph.indptr[0]) : int(graph.indptr[1])].tolist()
    weights: dict[int, float] = {}
    for e in places:
        x = int(graph.indices[e])
        alpha = 1 / p if x == 0 else 1.0 if x in near else 1 / q
        weights[x] = weights.get(x, 0.0) + alpha * float(graph.edge_weights[e])
    counts = np.array([(third == x).sum() for x in sorted(weights)])
    assert p_expected(counts, np.array([weights[x] for x in sorted(weights)])) > LEVEL


def test_walks_that_stop_have_geometric_lengths(random_graph: Callable[..., Graph]) -> None:
    ring = Graph(torch.arange(11), (torch.arange(10) + 1) % 10)
    length, stop = 30, 0.2
    steps = (walked(ring, 0, length, stop=stop) >= 0).sum(1) - 1
    share = [stop * (1 - stop) ** k for k in range(length)] + [(1 - stop) ** length]
    assert p_expected(np.bincount(steps, minlength=length + 1), np.array(share)) > LEVEL


def test_restarts_follow_their_probability() -> None:
    """The lengths of the ways between two restarts; the node that a walk with restart stands on."""
    ring = Graph(torch.arange(101), (torch.arange(100) + 1) % 100)
    length, restart = 40, 0.3
    walk = walked(ring, 5, length, restart=restart)
    away = (walk[:, -1] - 5) % 100  # steps since the last restart
    share = [restart * (1 - restart) ** k for k in range(length)] + [(1 - restart) ** length]
    assert p_expected(np.bincount(away, minlength=length + 1), np.array(share)) > LEVEL
    assert (walk >= 0).all()


def test_stop_and_restart_share_a_coin() -> None:
    ring = Graph(torch.arange(101), (torch.arange(100) + 1) % 100)
    first = walked(ring, 5, 1, stop=0.2, restart=0.3)[:, 1]
    counts = np.array([(first == x).sum() for x in (-1, 5, 6)])
    assert p_expected(counts, np.array([0.2, 0.3, 0.5])) > LEVEL


def test_a_restart_forgets_the_node_before() -> None:
    """After it all neighbors are alike again."""
    one_way = Graph.from_edges(torch.tensor([1, 2, 3, 1, 2]), torch.tensor([0, 0, 0, 2, 3]), 4)
    walk = walked(one_way, 0, 3, p=1e3, q=1e-3, restart=0.4)
    back = (walk[:, 1] > 0) & (walk[:, 2] == 0)
    onward = walk[back][:, 3]
    assert p_equal(np.bincount(onward[onward > 0], minlength=4)[1:]) > LEVEL


@pytest.mark.parametrize("options", [{}, {"stop": 0.3}])
def test_a_metapath_takes_its_types_edges_uniformly(options: dict[str, float]) -> None:
    sources = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9])
    ends = torch.tensor([0, 0, 0, 0, 0, 2, 2, 2, 4])
    types = torch.tensor([0, 1, 1, 0, 1, 3, 3, 0, 3])
    graph = Graph.from_edges(sources, ends, 10, edge_types=types)
    walk = walked(graph, 0, 2, metapath=[1, 3], **options)
    first = np.array([(walk[:, 1] == x).sum() for x in (2, 3, 5)])
    assert p_equal(first) > LEVEL
    assert first.sum() == (walk[:, 1] >= 0).sum()
    second = walk[walk[:, 1] == 2][:, 2]
    assert p_equal(np.array([(second == x).sum() for x in (6, 7)])) > LEVEL
    assert set(np.unique(walk[walk[:, 1] != 2][:, 2])) == {-1}
