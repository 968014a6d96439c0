"""DGL's sampler behind the protocol; and the core's samplers beside it, whose distributions have to agree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from graphs import WIDTHS, equal_degrees, messy_graph, widen
from marks import needs_dgl
from numpy.typing import NDArray
from scipy import stats
from statistics_of_counts import LEVEL, p_equal, p_same

from loader.graph import Graph
from loader.samplers import DGLSampler, FullSampler, FusedSampler, Sampler
from loader.samples import MiniBatch

pytestmark = needs_dgl


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """DGL draws from a random state a thread, so its samples are fixed only where the number of threads is."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def edges_of(graph: Graph, batch: MiniBatch, hop: int) -> list[tuple[int, int, int]]:
    """(source, destination, id) of the edges of a hop, global, sorted."""
    block = batch.blocks[-hop]
    row = torch.repeat_interleave(torch.arange(block.num_dst), (block.indptr[1:] - block.indptr[:-1]).long())
    src, dst = batch.nodes[block.indices.long()], batch.nodes[row]
    return sorted(zip(src.tolist(), dst.tolist(), block.edge_ids.tolist(), strict=True))


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match=r"seeed is no option of DGLSampler; did you mean seed\?"):
        DGLSampler([3], seeed=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"num_threads is no option of DGLSampler; torch\.set_num_threads"):
        DGLSampler([3], num_threads=2)  # type: ignore[call-arg]


def test_ignored_times_are_warned_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("loader.samplers.base._warned_of_times", False)
    timed = Graph(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), node_times=torch.tensor([3, 4]))
    DGLSampler([1]).sample(timed, torch.tensor([0]))
    assert "DGLSampler ignores the times that the graph has of its nodes" in caplog.messages[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_all_neighbors_are_the_same_edges_as_ours(width) -> None:
    graph = widen(messy_graph(200, 1500, 0), width)
    seeds = torch.tensor([5, 199, 0, 77])
    theirs = DGLSampler(-1, 3, edge_ids=True).sample(graph, seeds, epoch=2, batch=3)
    ours = FullSampler(3, edge_ids=True).sample(graph, seeds, epoch=2, batch=3)
    assert theirs.frontier_sizes == ours.frontier_sizes
    assert (theirs.epoch, theirs.index) == (2, 3)
    assert torch.equal(theirs.output_nodes, ours.output_nodes)
    for hop in (1, 2, 3):
        size = theirs.frontier_sizes[hop]
        assert set(theirs.nodes[:size].tolist()) == set(ours.nodes[:size].tolist())
        assert edges_of(graph, theirs, hop) == edges_of(graph, ours, hop)
        a, b = theirs.blocks[-hop], ours.blocks[-hop]
        assert (a.indptr.dtype, a.indices.dtype, a.edge_ids.dtype) == (
            b.indptr.dtype,
            b.indices.dtype,
            b.edge_ids.dtype,
        )


def test_fanouts_are_in_hop_order() -> None:
    batch = DGLSampler([5, 2]).sample(equal_degrees(500, 9), torch.arange(10))
    outer, inner = batch.blocks[1], batch.blocks[0]
    assert torch.equal(outer.indptr, torch.arange(11, dtype=torch.int32) * 5)
    assert torch.equal(inner.indptr, torch.arange(inner.num_dst + 1, dtype=torch.int32) * 2)


@pytest.mark.parametrize("replace", [False, True])
def test_edge_ids_name_the_sampled_edges(replace) -> None:
    g = torch.Generator().manual_seed(0)
    src, dst = (torch.randint(100, (900,), generator=g) for _ in range(2))
    for keep in (False, True):
        graph = Graph.from_edges(src, dst, 100, keep_edge_ids=keep)
        batch = DGLSampler([3, 3], replace=replace, edge_ids=True).sample(graph, torch.arange(0, 100, 7))
        sources = src if keep else graph.indices
        targets = dst if keep else torch.repeat_interleave(torch.arange(100), graph.in_degrees().long())
        for hop in (1, 2):
            for u, v, e in edges_of(graph, batch, hop):
                assert (int(sources[e]), int(targets[e])) == (u, v)
    assert DGLSampler([3]).sample(graph, torch.arange(3)).blocks[0].edge_ids is None


def test_mini_batches_repeat_in_any_order() -> None:
    graph = messy_graph(300, 5000, 0)
    places = [(0, 0), (0, 1), (1, 0), (2, 5)]

    def run(order: list[tuple[int, int]]) -> dict[tuple[int, int], str]:
        sampler = DGLSampler([3, 3], edge_ids=True, seed=11)
        return {(e, b): sampler.sample(graph, torch.arange(50), epoch=e, batch=b).digest() for e, b in order}

    once = run(places)
    assert len(set(once.values())) == len(places)
    torch.manual_seed(99)
    assert run(places[::-1]) == once
    assert DGLSampler([3, 3], edge_ids=True, seed=12).sample(graph, torch.arange(50)).digest() != once[0, 0]


def test_a_sampler_follows_the_graph_it_is_given() -> None:
    sampler = DGLSampler(-1, 1)
    for degree in (3, 5, 3):
        batch = sampler.sample(equal_degrees(20, degree), torch.tensor([1]))
        assert batch.num_edges == degree


def test_picks_do_not_narrow_from_call_to_call() -> None:
    """With 32-bit ids DGL 1.1.3 ends up with the same few neighbors of each node; ours come widened."""
    graph = equal_degrees(1000, 50)
    assert graph.indices.dtype == torch.int32
    sampler = DGLSampler([5], edge_ids=True)
    picked: set[int] = set()
    for batch in range(60):
        (block,) = sampler.sample(graph, torch.arange(1000), batch=batch).blocks
        if batch >= 30:
            picked.update(block.edge_ids[:5].tolist())
    assert len(picked) > 40


# ------------------------------------------------------------- ours and DGL's have one distribution


def skewed_graph() -> Graph:
    """3000 nodes, 30000 edges without parallel ones; in-degrees from 0 to some hundreds."""
    rng = np.random.default_rng(4)
    weight = rng.pareto(1.5, 3000) + 0.1
    dst = rng.choice(3000, 40_000, p=weight / weight.sum())
    src = rng.integers(0, 3000, 40_000)
    keys = np.unique(dst * 3000 + src)
    keys = np.sort(rng.choice(keys, 30_000, replace=False))
    return Graph.from_edges(torch.from_numpy(keys % 3000), torch.from_numpy(keys // 3000), 3000)


def run(sampler: Sampler, graph: Graph, batches: int, size: int, seed: int) -> list[MiniBatch]:
    g = torch.Generator().manual_seed(seed)
    seeds = [torch.randperm(graph.num_nodes, generator=g)[:size] for _ in range(batches)]
    return [sampler.sample(graph, s, batch=i) for i, s in enumerate(seeds)]


@pytest.mark.parametrize("replace", [False, True])
def test_block_sizes_are_distributed_as_dgls(replace) -> None:
    graph = skewed_graph()
    options = {"replace": replace, "seed": 3}
    theirs = run(DGLSampler([5, 4, 3], **options), graph, 400, 16, seed=0)
    ours = run(FusedSampler([5, 4, 3], **options), graph, 400, 16, seed=1)
    for hop in (1, 2, 3):
        for of in (lambda b, h=hop: b.frontier_sizes[h], lambda b, h=hop: b.blocks[-h].num_edges):
            a, b = [of(x) for x in ours], [of(x) for x in theirs]
            assert stats.ks_2samp(a, b).pvalue > LEVEL
            assert abs(np.mean(a) / np.mean(b) - 1) < 0.02


def picks_by_place(batches: list[MiniBatch], graph: Graph, hop: int) -> NDArray[np.int64]:
    """How often each edge of the graph was picked at `hop`."""
    counts = np.zeros(graph.num_edges, dtype=np.int64)
    for batch in batches:
        np.add.at(counts, batch.blocks[-hop].edge_ids.numpy(), 1)
    return counts


@pytest.mark.parametrize("replace", [False, True])
def test_picks_are_distributed_as_dgls(replace) -> None:
    graph = skewed_graph()
    options = {"replace": replace, "edge_ids": True, "seed": 3}
    theirs = run(DGLSampler([4, 4], **options), graph, 150, 300, seed=0)
    ours = run(FusedSampler([4, 4], **options), graph, 150, 300, seed=1)
    degrees = graph.in_degrees().numpy()
    target = np.repeat(np.arange(graph.num_nodes), degrees)
    place = np.arange(graph.num_edges) - graph.indptr[:-1].numpy()[target]
    for hop in (1, 2):
        a, b = (picks_by_place(batches, graph, hop) for batches in (ours, theirs))
        for degree in (2, 5, 6, 9, 14):  # by place in the list, over all nodes of one degree
            of = degrees[target] == degree
            x, y = (np.bincount(place[of], c[of], degree).astype(np.int64) for c in (a, b))
            assert x.sum() > 500
            assert p_same(x, y) > LEVEL


def test_nodes_are_reached_as_often_as_by_dgl() -> None:
    graph, batches = skewed_graph(), 400
    reached = []
    for seed, make in enumerate((DGLSampler, FusedSampler)):
        counts = np.zeros(graph.num_nodes)
        for batch in run(make([4, 4], seed=3), graph, batches, 100, seed=seed):
            counts[batch.nodes.numpy()] += 1
        reached.append(counts)
    a, b = reached
    p = (a + b) / (2 * batches)
    of = (p > 0.05) & (p < 0.95)  # where a count is near normal
    z = (a - b)[of] / np.sqrt(2 * batches * p[of] * (1 - p[of]))
    assert of.sum() > 1000
    assert stats.chi2.sf((z**2).sum(), of.sum()) > LEVEL
    assert stats.kstest(z, "norm").pvalue > LEVEL


def test_subsets_are_distributed_as_dgls() -> None:
    graph = equal_degrees(4000, 5)
    found = []
    for sampler in (DGLSampler([2], edge_ids=True), FusedSampler([2], edge_ids=True)):
        counts = np.zeros(25, dtype=np.int64)
        for batch in range(5):
            (block,) = sampler.sample(graph, torch.arange(4000), batch=batch).blocks
            pairs = np.sort(block.edge_ids.numpy().reshape(-1, 2) - np.arange(4000)[:, None] * 5, 1)
            counts += np.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25)
        found.append(counts)
    assert (found[0] > 0).sum() == (found[1] > 0).sum() == 10
    assert p_same(*found) > LEVEL
    for counts in found:
        assert p_equal(counts[counts > 0]) > LEVEL
