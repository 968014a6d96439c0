"""The GPU sampler gives the bytes of the CPU oracle, under every schedule."""

from __future__ import annotations

import random

import pytest
import torch

from loader import _core
from loader.graph import Graph
from loader.samplers import HopwiseSampler
from loader.samplers.cuda import SCHEDULES, CudaSampler

gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (_core.with_cuda and torch.cuda.is_available()), reason="needs a GPU and a CUDA build"),
]
schedules = pytest.mark.parametrize("schedule", sorted(SCHEDULES))


@pytest.mark.skipif(_core.with_cuda and torch.cuda.is_available(), reason="there is a GPU")
def test_without_cuda_it_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"LOADER_CUDA=ON|needs an NVIDIA GPU"):
        CudaSampler(10, 2)


def skewed_graph(seed: int) -> Graph:
    rng = random.Random(seed)
    g = torch.Generator().manual_seed(seed)
    n = rng.choice([1, 2, 31, 33, 300, 5000, 70000])
    e = rng.choice([0, n // 2, 4 * n, 20 * n])
    src = torch.randint(n, (e,), generator=g)
    dst = torch.randint(n, (e,), generator=g) // rng.choice([1, 1, 3, 50])
    return Graph.from_edges(src, dst, n, keep_edge_ids=rng.random() < 0.3)


class TestOnGPU:
    pytestmark = gpu

    @schedules
    @pytest.mark.parametrize("seed", range(60))
    def test_equals_the_oracle(self, seed: int, schedule: str) -> None:
        rng = random.Random(seed)
        graph = skewed_graph(seed)
        if rng.random() < 0.3:  # the wide types, as graphs beyond 2^31 edges have them
            graph.indptr = graph.indptr.long()
            if rng.random() < 0.5:
                graph.indices = graph.indices.long()
        fanouts = [rng.choice([-1, 1, 2, 5, 7, 10, 12, 15, 20, 32, 33, 100]) for _ in range(rng.randint(1, 4))]
        options = {"replace": rng.random() < 0.4, "edge_ids": rng.random() < 0.5, "seed": rng.getrandbits(60)}
        oracle = HopwiseSampler(fanouts, num_threads=1, **options)
        sampler = CudaSampler(fanouts, schedule=schedule, **options)
        on_gpu = Graph(graph.indptr, graph.indices, edge_ids=graph.edge_ids, validate=False)
        on_gpu.indptr, on_gpu.indices = graph.indptr.cuda(), graph.indices.cuda()
        for batch in range(10):
            size = rng.choice([0, 1, min(graph.num_nodes, 40), min(graph.num_nodes, 1000)])
            seeds = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(batch))[:size]
            expected = oracle.sample(graph, seeds, epoch=seed, batch=batch)
            assert sampler.sample(on_gpu, seeds, epoch=seed, batch=batch).digest() == expected.digest()

    @schedules
    @pytest.mark.parametrize("fanout", [1, 5, 10, 15, 20, 25, 32, 33, 64, 1024, -1])
    @pytest.mark.parametrize("replace", [False, True])
    def test_fanouts(self, fanout: int, replace: bool, schedule: str) -> None:
        g = torch.Generator().manual_seed(fanout)
        graph = Graph.from_edges(*torch.randint(3000, (2, 90000), generator=g), 3000)
        seeds = torch.randperm(3000, generator=g)[:500]
        expected = HopwiseSampler(fanout, 2, replace=replace).sample(graph, seeds)
        got = CudaSampler(fanout, 2, replace=replace, schedule=schedule).sample(graph.to("cuda"), seeds.cuda())
        assert got.digest() == expected.digest()

    @schedules
    @pytest.mark.parametrize("shape", ["chain", "star", "hub"])
    def test_shapes(self, shape: str, schedule: str) -> None:
        n = 1_000_001 if shape == "hub" else 2000
        v = torch.arange(n)
        if shape == "chain":
            graph = Graph.from_edges(v[:-1], v[1:], n)
        else:  # vertex 0 has everyone as a neighbour, everyone else has vertex 0
            graph = Graph.from_edges(torch.cat([v[1:], v[1:] * 0]), torch.cat([v[1:] * 0, v[1:]]), n)
        for fanouts in ([1] * 8, [10, 10, 10], [-1, 2]):
            seeds = torch.tensor([0, n - 1, n // 2])
            expected = HopwiseSampler(fanouts).sample(graph, seeds)
            got = CudaSampler(fanouts, schedule=schedule).sample(graph.to("cuda"), seeds)
            assert got.digest() == expected.digest()

    @schedules
    def test_pinned_graph(self, schedule: str) -> None:
        graph = skewed_graph(5)
        seeds = torch.arange(min(50, graph.num_nodes))
        expected = HopwiseSampler([10, 5]).sample(graph, seeds)
        assert CudaSampler([10, 5], schedule=schedule).sample(graph.pin_memory(), seeds).digest() == expected.digest()

    @schedules
    def test_bad_seeds_then_good_ones(self, schedule: str) -> None:
        graph = Graph.from_edges(*torch.randint(500, (2, 5000)), 500)
        sampler = CudaSampler([5, 5], schedule=schedule)
        on_gpu = graph.to("cuda")
        with pytest.raises(ValueError, match="vertex 500; valid ids are 0 to 499"):
            sampler.sample(on_gpu, torch.tensor([1, 500], dtype=torch.int32, device="cuda"))
        with pytest.raises(ValueError, match="vertex 3 more than once"):
            sampler.sample(on_gpu, torch.tensor([3, 1, 3], device="cuda"))
        seeds = torch.arange(100)
        assert sampler.sample(on_gpu, seeds).digest() == HopwiseSampler([5, 5]).sample(graph, seeds).digest()

    @schedules
    def test_too_little_room_is_mended(self, schedule: str) -> None:
        # A star sampled whole: the guess by the mean degree is far too small.
        n = 20000
        v = torch.arange(1, n)
        graph = Graph.from_edges(torch.cat([v, v * 0]), torch.cat([v * 0, v]), n)
        sampler = CudaSampler(-1, 3, schedule=schedule)
        seeds = torch.tensor([7])
        expected = HopwiseSampler(-1, 3).sample(graph, seeds)
        assert sampler.sample(graph.to("cuda"), seeds).digest() == expected.digest()

    @schedules
    def test_two_streams_and_a_busy_gpu(self, schedule: str) -> None:
        graph = Graph.from_edges(*torch.randint(20000, (2, 400000)), 20000)
        on_gpu = graph.to("cuda")
        oracle = HopwiseSampler([10, 10, 10])
        samplers = [CudaSampler([10, 10, 10], schedule=schedule) for _ in range(2)]
        streams = [torch.cuda.Stream() for _ in range(2)]
        busy = torch.randn(4096, 4096, device="cuda")
        seeds = [torch.arange(i * 512, (i + 1) * 512) for i in range(8)]
        torch.cuda.synchronize()
        results = []
        for i, s in enumerate(seeds):
            for _ in range(3):
                busy = (busy @ busy).clamp(-1, 1)
            with torch.cuda.stream(streams[i % 2]):
                results.append(samplers[i % 2].sample(on_gpu, s, batch=i))
        torch.cuda.synchronize()
        for i, (s, got) in enumerate(zip(seeds, results, strict=True)):
            assert got.digest() == oracle.sample(graph, s, batch=i).digest()

    def test_one_sampler_on_two_streams(self) -> None:
        graph = Graph.from_edges(*torch.randint(20000, (2, 400000)), 20000)
        on_gpu, sampler, oracle = graph.to("cuda"), CudaSampler([10, 10]), HopwiseSampler([10, 10])
        streams = [torch.cuda.Stream() for _ in range(2)]
        results = []
        for i in range(20):
            with torch.cuda.stream(streams[i % 2]):
                results.append(sampler.sample(on_gpu, torch.arange(i, i + 300), batch=i))
        torch.cuda.synchronize()
        for i, got in enumerate(results):
            assert got.digest() == oracle.sample(graph, torch.arange(i, i + 300), batch=i).digest()
