"""Ego graphs are those of plain Python, and their picks have torch-sparse's law."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from induced_oracle import expected_edges, rows_of, small_graphs
from marks import HAS_GPU
from statistics_of_counts import LEVEL, p_expected

from loader.graph import Graph
from loader.samplers.ego import EgoSampler


def reached(rows: list[list[int]], root: int, depth: int) -> set[int]:
    found, frontier = {root}, {root}
    for _ in range(depth):
        frontier = {u for v in frontier for u in rows[v]}
        found |= frontier
    return found


@settings(deadline=None, max_examples=80)
@given(st.data(), small_graphs(), st.integers(0, 3), st.sampled_from([-1, 1000]))
def test_whole_neighborhoods_are_those_of_plain_python(data, graph: Graph, depth: int, k: int) -> None:
    if k == 1000:
        depth = min(depth, 1)  # copies are expanded again and again
    rows = rows_of(graph)
    roots = data.draw(st.lists(st.integers(0, graph.num_nodes - 1), min_size=1, max_size=5))
    found = EgoSampler(depth, k, num_threads=1).sample(graph, torch.tensor(roots))
    ends = found.ptr.tolist()
    for i, root in enumerate(roots):
        nodes = found.nodes[ends[i] : ends[i + 1]].tolist()
        assert nodes == sorted(reached(rows, root, depth))
        assert nodes[int(found.roots[i]) - ends[i]] == root
        assert (found.tree[ends[i] : ends[i + 1]] == i).all()
        own = (found.edge_index[1] >= ends[i]) & (found.edge_index[1] < ends[i + 1])
        edges = zip(*(found.edge_index[:, own] - ends[i]).tolist(), found.edge_ids[own].tolist(), strict=True)
        assert list(edges) == expected_edges(rows, nodes)
    assert ends[-1] == found.nodes.numel()


@given(small_graphs(), st.integers(1, 3), st.booleans())
def test_picks_stay_within_reach(graph: Graph, depth: int, replace: bool) -> None:
    rows, roots = rows_of(graph), torch.arange(graph.num_nodes)
    found = EgoSampler(depth, 2, replace=replace, num_threads=1, seed=3).sample(graph, roots, epoch=1)
    ends = found.ptr.tolist()
    for i in range(graph.num_nodes):
        nodes = found.nodes[ends[i] : ends[i + 1]].tolist()
        assert {i} <= set(nodes) <= reached(rows, i, depth)
        assert len(nodes) <= 1 + sum(2**hop for hop in range(1, depth + 1))
        assert len(set(nodes) & set(rows[i])) >= min(len(set(rows[i])), 1)


def test_copies_are_expanded_independently() -> None:
    # Two picks of 1 by two parallel edges, which each pick one of four: their union has two nodes 3 times of 4.
    sources = torch.tensor([1, 1, 2, 3, 4, 5])
    graph = Graph.from_edges(sources, torch.tensor([0, 0, 1, 1, 1, 1]), 6)
    sampler = EgoSampler(2, 2, num_threads=1, seed=1)
    sizes: Counter[int] = Counter()
    for batch in range(40):
        found = sampler.sample(graph, torch.zeros(100, dtype=torch.int64), batch=batch)
        sizes.update(found.ptr.diff().tolist())
    # Each copy picks 2 of 4: the union of two independent pairs has 2, 3 or 4 nodes.
    counts = np.array([sizes[2 + n] for n in (2, 3, 4)])
    assert counts.sum() == 4000
    assert p_expected(counts, np.array([1.0, 4.0, 1.0])) > LEVEL


def test_equal_arguments_give_equal_bytes() -> None:
    g = torch.Generator().manual_seed(1)
    graph = Graph.from_edges(*torch.randint(200, (2, 4000), generator=g), 200, keep_edge_ids=True)
    one, two = EgoSampler(2, 3, seed=5, num_threads=1), EgoSampler(2, 3, seed=5, num_threads=4)
    roots = torch.tensor([7, 7, 3])
    first, again = one.sample(graph, roots, epoch=2, batch=9), two.sample(graph, roots, epoch=2, batch=9)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.nodes, one.sample(graph, roots, epoch=3, batch=9).nodes)
    assert first.nodes[: first.ptr[1]].tolist() != first.nodes[first.ptr[1] : first.ptr[2]].tolist()
    assert one.spec() == two.spec() != EgoSampler(3, 3, seed=5).spec()


def test_no_seeds_are_no_graphs() -> None:
    graph = Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 2)
    found = EgoSampler(2, 3).sample(graph, torch.empty(0, dtype=torch.int64))
    assert (found.nodes.numel(), found.ptr.tolist(), found.edge_index.shape) == (0, [0], (2, 0))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="depth is 9; it must be at most 8"):
        EgoSampler(9, 2)
    with pytest.raises(ValueError, match="depth is -1"):
        EgoSampler(-1, 2)
    graph = Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 2)
    with pytest.raises(ValueError, match="node 2; valid ids are 0 to 1"):
        EgoSampler(1, 2).sample(graph, torch.tensor([2]))
    with pytest.raises(ValueError, match="seeds holds node -1; valid ids are 0 to 1"):
        EgoSampler(0, 2).sample(graph, torch.tensor([-1]))
    for depth in (0, 1):
        for seeds in (torch.tensor([True, False]), torch.tensor([0.5, 1.0])):
            with pytest.raises(TypeError, match=f"seeds has dtype {seeds.dtype}; it must be an integer type"):
                EgoSampler(depth, 2).sample(graph, seeds)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(("depth", "k", "replace"), [(2, 10, False), (3, 4, True), (2, -1, False), (0, 3, False)])
def test_a_gpu_gives_the_same_bytes(depth: int, k: int, replace: bool) -> None:
    g = torch.Generator().manual_seed(6)
    graph = Graph.from_edges(*torch.randint(3000, (2, 30_000), generator=g), 3000, keep_edge_ids=True)
    roots = torch.randint(3000, (200,), generator=g)
    here = EgoSampler(depth, k, replace=replace, seed=4).sample(graph, roots, epoch=1, batch=2)
    gpu = EgoSampler(depth, k, replace=replace, seed=4, device="cuda")
    there = gpu.sample(graph.to("cuda"), roots, epoch=1, batch=2)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))
