"""A GPU samples a graph in pinned memory: the CPU's bytes, however its lists are read."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from fake_gpu_sampler import FakeGPU
from marks import needs_gpu

from loader.graph import Graph
from loader.samplers import HopwiseSampler
from loader.samplers.base import Request
from loader.samplers.gpu import sizes
from loader.samplers.gpu.lists import choose_reads
from loader.samplers.gpu.sampler import CudaSampler


def graph_of(seed: int, nodes: int = 3000, edges: int = 90_000) -> Graph:
    g = torch.Generator().manual_seed(seed)
    src = torch.randint(nodes, (edges,), generator=g)
    dst = torch.randint(nodes, (edges,), generator=g) // random.Random(seed).choice([1, 3, 50])
    return Graph.from_edges(src, dst, nodes)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "reads"),
        [
            ({}, "naive"),  # of lists in GPU memory
            ({"reads": "aligned"}, "aligned"),
            ({"reads": "sectors", "schedule": "hopwise"}, "sectors"),
            ({"reads": "aligned", "schedule": "hopwise", "node_set": "hash", "weights": "edge_weights"}, "aligned"),
        ],
    )
    def test_reads_are_those_asked_for(
        self, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], reads: str
    ) -> None:
        FakeGPU(monkeypatch)
        assert choose_reads(CudaSampler(3, 2, **options), graph_of(0)) == reads

    def test_too_many_units_are_read_by_entries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        FakeGPU(monkeypatch)
        graph = graph_of(0)
        graph.indices = torch.empty(2**34, dtype=torch.int64, device="meta")  # 2**32 sectors
        assert choose_reads(CudaSampler(3, 2), graph) == "naive"
        assert choose_reads(CudaSampler(3, 2, reads="aligned"), graph) == "aligned"
        with pytest.raises(ValueError, match="reads is 'sectors', but the lists have 4294967296 units of 32 bytes"):
            choose_reads(CudaSampler(3, 2, reads="sectors"), graph)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"reads": "lines"},
                r"reads is 'lines'; it must be one of \['auto', 'naive', 'aligned', 'sectors'\]",
            ),
            ({"reads": "aligned", "schedule": "cooperative", "node_set": "hash"}, "leave one of them out"),
            ({"reads": "aligned", "schedule": "cooperative", "weights": "edge_weights"}, "leave one of them out"),
            ({"reads": "aligned", "labor": True}, "labor=True reads whole lists; leave reads out"),
        ],
    )
    def test_bad_reads_are_refused(
        self, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
    ) -> None:
        FakeGPU(monkeypatch)
        with pytest.raises(ValueError, match=message):
            CudaSampler(3, 2, **options)


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("reads", ["naive", "aligned", "sectors"])
    @pytest.mark.parametrize("seed", range(8))
    def test_mini_batches_equal_the_oracles(self, monkeypatch: pytest.MonkeyPatch, seed: int, reads: str) -> None:
        rng = random.Random(seed)
        if rng.random() < 0.3:  # most lines find no room
            monkeypatch.setattr(sizes, "_MOST_STAGED", 128 * 50)
        graph = graph_of(seed)
        if rng.random() < 0.3:
            graph.indptr = graph.indptr.long()
            if rng.random() < 0.5:
                graph.indices = graph.indices.long()
        fanouts = [rng.choice([-1, 1, 2, 5, 7, 10, 12, 15, 20, 32, 33, 100]) for _ in range(rng.randint(1, 4))]
        options = {"replace": rng.random() < 0.4, "edge_ids": rng.random() < 0.5, "seed": rng.getrandbits(60)}
        oracle = HopwiseSampler(fanouts, num_threads=1, **options)
        places = [("cooperative", "bitmap"), ("hopwise", "bitmap"), ("hopwise", "hash"), ("auto", "auto")]
        pinned = graph.pin_memory()
        if seed % 2:
            pinned = pinned.cache_lists(fraction=rng.choice([0, 0.1, 0.5, 1]))
        for schedule, node_set in places:
            sampler = CudaSampler(
                fanouts, schedule=schedule, node_set=node_set, reads=reads, batches_per_launch=4, **options
            )
            session = sampler.open(pinned)
            for first in range(0, 12, 4):
                group = []
                for i in range(first, first + rng.choice([1, 4])):
                    g = torch.Generator().manual_seed(i)
                    seeds = torch.randperm(graph.num_nodes, generator=g)[: rng.choice([0, 1, 40, 1000])]
                    group.append(Request(seeds, seed, i))
                expected = [oracle.sample(graph, r.seeds, epoch=seed, batch=r.batch).digest() for r in group]
                assert [finish().digest() for finish in session.begin(group)] == expected
            session.close()

    @pytest.mark.parametrize("kind", [{}, {"replace": True}, {"top_k": True}])
    def test_picks_by_weight_equal_the_oracles(self, kind: dict[str, bool]) -> None:
        plain = graph_of(1)
        weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(2)) ** 6
        weights[::5] = 0
        graph = Graph(plain.indptr, plain.indices, edge_weights=weights)
        seeds = torch.arange(300)
        for fanouts in ([10, 5], [-1, 40]):
            options: dict[str, Any] = {"weights": "edge_weights", "edge_ids": True, **kind}
            expected = HopwiseSampler(fanouts, **options).sample(graph, seeds).digest()
            pinned = graph.pin_memory()
            for where in (pinned, pinned.cache_lists(fraction=0.3)):
                session = CudaSampler(fanouts, **options).open(where)
                assert session.reads == "sectors"
                (finish,) = session.begin([Request(seeds, 0, 0)])
                assert finish().digest() == expected
                assert session.lines > 0

    def test_bounds_that_are_written_to_are_read_again(self) -> None:
        graph, seeds = graph_of(2).pin_memory(), torch.arange(300)
        sampler = CudaSampler([10, 5])
        before = sampler.sample(graph, seeds).digest()
        graph.indptr[1:] = graph.indptr.diff().flip(0).cumsum(0)
        after = HopwiseSampler([10, 5]).sample(Graph(graph.indptr, graph.indices), seeds).digest()
        assert before != after == sampler.sample(graph, seeds).digest()

    def test_a_line_is_copied_once_for_a_launch(self) -> None:
        graph, entries = graph_of(3), 32
        pinned = graph.pin_memory()
        shift = pinned.indices.data_ptr() % 128 // 4
        session = CudaSampler([10, 5], batches_per_launch=4, reads="aligned").open(pinned)
        oracle = HopwiseSampler([10, 5], edge_ids=True)
        group = [Request(torch.arange(100 * i, 100 * i + 100), 0, i) for i in range(4)]
        for _ in range(2):  # the first time there may be too little room
            session.lines = 0
            for finish in session.begin(group):
                finish()
        lines: set[int] = set()
        for r in group:
            for block in oracle.sample(graph, r.seeds, batch=r.batch).blocks:
                assert block.edge_ids is not None
                lines |= set(((block.edge_ids + shift) // entries).tolist())
        assert session.lines == len(lines)

    def test_cached_lists_save_lines(self) -> None:
        pinned, lines = graph_of(5).pin_memory(), []
        for fraction in (0, 0.5, 1):
            session = CudaSampler([10, 5]).open(pinned.cache_lists(fraction=fraction))
            for _ in range(2):
                session.lines = 0
                (finish,) = session.begin([Request(torch.arange(200), 0, 0)])
                finish()
            lines.append(session.lines)
        assert lines[0] > lines[1] > lines[2] == 0

    def test_indptr_of_a_pinned_graph_is_copied(self) -> None:
        pinned = graph_of(4).pin_memory()
        first, second = (CudaSampler([3]).open(pinned) for _ in range(2))
        assert first._space is not None
        assert second._space is not None
        assert first._space._indptr.is_cuda
        assert first._space._indptr is second._space._indptr
