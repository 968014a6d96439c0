"""Law 2: what a mini-batch looks like, checked against the graph alone."""

from __future__ import annotations

import pytest
import torch
from graphs import messy_graph, widen
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import Graph
from loader.samplers import FullSampler, FusedSampler, HopwiseSampler
from loader.samples import MiniBatch

CORE = [HopwiseSampler, FusedSampler]


def assert_canonical(
    graph: Graph,
    seeds: torch.Tensor,
    fanouts: list[int],
    replace: bool,
    batch: MiniBatch,
    positions: list[torch.Tensor],
) -> None:
    """`positions`: of each block's edges in `graph.indices`."""
    nodes, sizes = batch.nodes.long(), batch.frontier_sizes
    assert torch.equal(batch.output_nodes.long(), seeds.long())
    assert len(sizes) == len(fanouts) + 1
    assert sizes[-1] == nodes.numel() == torch.unique(nodes).numel()
    for hop, fanout in enumerate(fanouts, start=1):
        block, place = batch.blocks[-hop], positions[-hop].long()
        assert (block.num_dst, block.num_src) == (sizes[hop - 1], sizes[hop])
        assert block.indptr.dtype == graph.indptr.dtype
        assert block.indices.dtype == graph.indices.dtype
        dst = nodes[: block.num_dst]
        new = nodes[sizes[hop - 1] : sizes[hop]]
        assert bool((new[1:] > new[:-1]).all())

        begin, degree = graph.indptr.long()[dst], graph.in_degrees().long()[dst]
        count = block.indptr.long()[1:] - block.indptr.long()[:-1]
        if fanout == -1:
            expected = degree
        elif replace:
            expected = torch.where(degree > 0, fanout, 0)
        else:
            expected = degree.clamp(max=fanout)
        assert int(block.indptr[0]) == 0
        assert torch.equal(count, expected)

        sources = nodes[block.indices.long()]
        assert torch.equal(graph.indices.long()[place], sources)
        row = torch.repeat_interleave(torch.arange(block.num_dst), count)
        assert bool(((place >= begin[row]) & (place < (begin + degree)[row])).all())
        step = torch.diff(place)[torch.diff(row) == 0]  # within a row: list order
        assert bool((step >= 0 if replace and fanout != -1 else step > 0).all())
        assert set(new.tolist()) == set(sources.tolist()) - set(dst.tolist())


@pytest.mark.parametrize("make", CORE)
@settings(max_examples=60, deadline=None)
@given(
    num_nodes=st.integers(1, 200),
    num_edges=st.integers(0, 3000),
    rng=st.integers(0, 2**31),
    width=st.sampled_from(["int32", "wide edges", "int64"]),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 5, 40]), min_size=1, max_size=4),
    replace=st.booleans(),
)
def test_blocks_are_canonical(make, num_nodes, num_edges, rng, width, fanouts, replace) -> None:
    graph = widen(messy_graph(num_nodes, num_edges, rng), width)
    seeds = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(rng))[:20]
    batch = make(fanouts, replace=replace, edge_ids=True, num_threads=2).sample(graph, seeds)
    assert_canonical(graph, seeds, fanouts, replace, batch, [b.edge_ids for b in batch.blocks])
    for block in batch.blocks:
        assert block.edge_ids.dtype == graph.indptr.dtype


@pytest.mark.parametrize("make", CORE)
def test_edge_ids_change_nothing_else(make) -> None:
    graph = messy_graph(200, 3000, 0)
    with_ids = make([4, -1], edge_ids=True).sample(graph, torch.arange(20))
    without = make([4, -1]).sample(graph, torch.arange(20))
    assert all(block.edge_ids is None for block in without.blocks)
    assert torch.equal(with_ids.nodes, without.nodes)
    for a, b in zip(with_ids.blocks, without.blocks, strict=True):
        assert torch.equal(a.indptr, b.indptr)
        assert torch.equal(a.indices, b.indices)


@pytest.mark.parametrize("make", [*CORE, FullSampler])
def test_edge_ids_are_the_users_if_kept(make) -> None:
    g = torch.Generator().manual_seed(0)
    src, dst = (torch.randint(100, (900,), generator=g) for _ in range(2))
    graph = Graph.from_edges(src, dst, 100, keep_edge_ids=True)
    seeds = torch.arange(0, 100, 7)
    batch = make(2, edge_ids=True) if make is FullSampler else make([3, 3], edge_ids=True)
    batch = batch.sample(graph, seeds)
    assert batch.num_edges > 0
    for block in batch.blocks:
        row = torch.repeat_interleave(torch.arange(block.num_dst), (block.indptr[1:] - block.indptr[:-1]).long())
        ids = block.edge_ids.long()
        assert torch.equal(src[ids], batch.nodes[block.indices.long()].long())
        assert torch.equal(dst[ids], batch.nodes[row].long())


@pytest.mark.parametrize("make", CORE)
def test_seeds_keep_their_order_and_are_not_repeated(make) -> None:
    #   0 <- 1, 2    1 <- 0    2 <- 0, 3    3 <- (none)
    graph = Graph(torch.tensor([0, 2, 3, 5, 5]), torch.tensor([1, 2, 0, 0, 3]))
    batch = make([-1, -1], edge_ids=True).sample(graph, torch.tensor([2, 0]))
    assert batch.nodes.tolist() == [2, 0, 1, 3]
    assert batch.frontier_sizes == (2, 4, 4)
    outer, inner = batch.blocks[1], batch.blocks[0]
    assert (outer.indptr.tolist(), outer.indices.tolist(), outer.edge_ids.tolist()) == (
        [0, 2, 4],
        [1, 3, 2, 0],
        [3, 4, 0, 1],
    )
    assert (inner.indptr.tolist(), inner.indices.tolist()) == ([0, 2, 4, 5, 5], [1, 3, 2, 0, 1])
