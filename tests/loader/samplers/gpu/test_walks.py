"""Walks on a GPU are those of the CPU, byte for byte."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import WIDTHS, messy_graph, widen
from marks import needs_gpu

import loader
from loader.graph import Graph
from loader.items import Walkers
from loader.loaders.base import Loader
from loader.samplers import Request, WalkSampler

pytestmark = needs_gpu

LAWS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "stop": {"stop": 0.15},
    "restart": {"restart": 0.3},
    "stop and restart": {"stop": 0.1, "restart": 0.2},
    "node2vec": {"p": 2, "q": 0.5},
    "node2vec, back": {"p": 0.25, "q": 4},
    "node2vec, p alone": {"p": 0.1},
    "node2vec, scanning": {"p": 1e6, "q": 1e-3},
    "node2vec, stop and restart": {"p": 0.5, "q": 2, "stop": 0.1, "restart": 0.2},
}


@pytest.mark.parametrize("length", [0, 1, 16, 17, 80])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("law", LAWS)
def test_every_law_gives_the_walks_of_the_cpu(law: str, width: str, length: int) -> None:
    graph = widen(messy_graph(3000, 40_000, seed=1), width)
    starts = torch.randint(3000, (5000,), generator=torch.Generator().manual_seed(0))
    for options in ({"edge_ids": True}, {"num_negatives": 2}, {"num_negatives": 2, "negative_exponent": 0.75}):
        arguments: dict[str, Any] = {"seed": 2**63 + 1, **LAWS[law], **options}
        expected = WalkSampler(length, **arguments).sample(graph, starts, epoch=2**33, batch=5)
        got = WalkSampler(length, device="cuda", **arguments).sample(graph.to("cuda"), starts, epoch=2**33, batch=5)
        assert all(t.is_cuda for t in got.tensors())
        assert got.digest() == expected.digest()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("law", [law for law in LAWS if "scanning" not in law])
@pytest.mark.parametrize("zeros", [False, True])
def test_weighted_walks_are_those_of_the_cpu(law: str, width: str, zeros: bool) -> None:
    plain = messy_graph(3000, 40_000, seed=1)
    weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(0)) ** 6
    if zeros:
        weights[::5] = 0
    graph = widen(Graph(plain.indptr, plain.indices, edge_weights=weights), width)
    arguments: dict[str, Any] = {"weights": "edge_weights", "edge_ids": True, **LAWS[law]}
    expected = WalkSampler(33, **arguments).sample(graph, torch.arange(3000))
    got = WalkSampler(33, device="cuda", **arguments).sample(graph.to("cuda"), torch.arange(3000))
    assert got.digest() == expected.digest()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("law", ["uniform", "stop", "restart", "stop and restart"])
@pytest.mark.parametrize("weights", [None, "edge_weights"])
@pytest.mark.parametrize("pinned", [False, True])
def test_transit_parallel_walks_are_those_of_the_cpu(law: str, width: str, weights: str | None, pinned: bool) -> None:
    plain = messy_graph(3000, 40_000, seed=1)
    values = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(0)) ** 6
    graph = widen(Graph(plain.indptr, plain.indices, edge_weights=values), width)
    starts = torch.randint(3000, (5000,), generator=torch.Generator().manual_seed(0))
    there = graph.pin_memory() if pinned else graph.to("cuda")
    arguments: dict[str, Any] = {"weights": weights, "edge_ids": True, **LAWS[law]}
    for length in (0, 1, 19):
        expected = WalkSampler(length, **arguments).sample(graph, starts)
        got = WalkSampler(length, device="cuda", schedule="transit", **arguments).sample(there, starts)
        assert got.digest() == expected.digest()


def test_auto_walks_on_pinned_graphs_are_the_cpus(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(500, 4000)
    starts = torch.arange(500).repeat(401)  # so many that they are ordered by node
    got = loader.random_walk(graph.pin_memory(), starts, 5, device="cuda")
    assert isinstance(got, torch.Tensor)
    assert torch.equal(got.cpu(), loader.random_walk(graph, starts, 5))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("stop", [0, 0.2])
def test_a_metapath_gives_the_walks_of_the_cpu(width: str, stop: float) -> None:
    plain = messy_graph(3000, 40_000, seed=1)
    types = torch.randint(5, (plain.num_edges,), generator=torch.Generator().manual_seed(0))
    ids = torch.randperm(plain.num_edges, generator=torch.Generator().manual_seed(1))
    graph = widen(Graph(plain.indptr, plain.indices, edge_types=types, edge_ids=ids), width)
    arguments: dict[str, Any] = {"metapath": [3, 0, 3, 2], "stop": stop, "edge_ids": True}
    expected = WalkSampler(33, **arguments).sample(graph, torch.arange(3000))
    assert WalkSampler(33, device="cuda", **arguments).sample(graph.to("cuda"), torch.arange(3000)).digest() == (
        expected.digest()
    )


def test_a_hubs_filter_gives_the_cpus_walks() -> None:
    n = 200_001
    leaves = torch.arange(1, n)
    rim = torch.arange(1, n).roll(1)
    ends = torch.stack([torch.cat([leaves, leaves]), torch.cat([torch.zeros_like(leaves), rim])])
    graph = Graph.from_edges(torch.cat([ends[0], ends[1]]), torch.cat([ends[1], ends[0]]), n)
    for p, q in ((2, 0.5), (0.5, 2), (1e5, 1)):
        expected = loader.random_walk(graph, torch.arange(0, n, 50), 12, p=p, q=q)
        got = loader.random_walk(graph.to("cuda"), torch.arange(0, n, 50), 12, p=p, q=q)
        assert isinstance(got, torch.Tensor)
        assert isinstance(expected, torch.Tensor)
        assert torch.equal(got.cpu(), expected)


def test_starts_may_have_any_type_and_place(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(500, 4000)
    expected = loader.random_walk(graph, torch.arange(500), 7)
    there = graph.to("cuda")
    for starts in (
        torch.arange(500),
        torch.arange(500).int().cuda(),
        torch.arange(500).cuda(),
        torch.arange(500).repeat_interleave(2)[::2],
    ):
        walks = loader.random_walk(there, starts, 7)
        assert isinstance(walks, torch.Tensor)
        assert walks.shape == (500, 8)
        if int(starts[1]) == 1:
            assert torch.equal(walks.cpu(), expected)  # type: ignore[arg-type]
    pinned = loader.random_walk(graph.pin_memory(), torch.arange(500), 7, device="cuda")
    assert torch.equal(pinned.cpu(), expected)  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("bad", [-1, 500, 2**32 + 3])
def test_a_start_out_of_range_is_named(bad: int, random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(500, 4000).to("cuda")
    starts = torch.tensor([4, bad, 7])
    with pytest.raises(ValueError, match=f"holds node {bad}; valid ids are 0 to 499"):
        loader.random_walk(graph, starts, 7, schedule="transit")
    with pytest.raises(ValueError, match=f"holds node {bad}; valid ids are 0 to 499"):
        loader.random_walk(graph, starts, 7, p=2)
    assert loader.random_walk(graph, starts[:1], 7, p=2).shape == (1, 8)  # type: ignore[union-attr]
    session = WalkSampler(7, device="cuda").open(graph)
    (finish,) = session.begin([Request(starts, 0, 0)])
    assert finish().nodes[1].tolist()[1:] == [-1] * 7
    with pytest.raises(ValueError, match=f"holds node {bad}"):
        session.check()
    session.check()
    session.close()


def test_unsupported_walks_are_refused(random_graph: Callable[..., Graph]) -> None:
    with pytest.raises(ValueError, match="steps of the first order; leave p, q, metapath and next out"):
        WalkSampler(7, device="cuda", schedule="transit", q=2)
    graph = random_graph(500, 4000)
    with pytest.raises(ValueError, match="want a graph there or in pinned memory"):
        WalkSampler(7, device="cuda").sample(graph, torch.arange(3))
    with pytest.raises(ValueError, match=r"use graph.to\('cpu'\)"):
        WalkSampler(7).sample(graph.to("cuda"), torch.arange(3))
    with pytest.raises(TypeError, match=r"dtype torch\.float32"):
        loader.random_walk(graph.to("cuda"), torch.rand(3), 7)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_gpu_loader_gives_the_cpus_walks(prefetch: int, random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(500, 4000)
    options: dict[str, Any] = {"p": 2, "q": 0.5, "num_negatives": 1}

    def digests(graph: Graph, device: str) -> list[str]:
        sampler = WalkSampler(20, device=device, **options)
        made = Loader(graph, Walkers(torch.arange(500), 3), sampler, 64, shuffle=True, prefetch=prefetch)
        return [batch.digest() for _ in range(2) for batch in made]

    assert digests(graph.to("cuda"), "cuda") == digests(graph, "cpu")


def test_walks_on_several_streams_are_the_cpus(random_graph: Callable[..., Graph]) -> None:
    graph = random_graph(5000, 60_000)
    starts = torch.arange(5000)
    expected = [WalkSampler(40, q=2).sample(graph, starts, batch=i).digest() for i in range(6)]
    session = WalkSampler(40, q=2, device="cuda").open(graph.to("cuda"))
    streams = [torch.cuda.Stream() for _ in range(3)]
    made = []
    for i, stream in zip(range(6), itertools.cycle(streams), strict=False):
        with torch.cuda.stream(stream):
            (finish,) = session.begin([Request(starts, 0, i)])
            made.append(finish())
    torch.cuda.synchronize()
    assert [walks.digest() for walks in made] == expected
