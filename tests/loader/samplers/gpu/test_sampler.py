"""The GPU sampler gives the bytes of the CPU oracle, under every schedule and with every kind of node set."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from marks import HAS_GPU, needs_gpu

from loader.graph import Graph
from loader.samplers import HopwiseSampler
from loader.samplers.base import Request
from loader.samplers.gpu import sizes as gpu_sizes
from loader.samplers.gpu.sampler import NODE_SETS, SCHEDULES, CudaSampler, PaddedMiniBatch
from loader.samplers.gpu.sizes import choose_node_set
from loader.samplers.gpu.workspace import Workspace

node_sets = pytest.mark.parametrize("node_set", NODE_SETS)
schedules = pytest.mark.parametrize(
    ("schedule", "node_set"),
    [(s, v) for s in sorted(SCHEDULES) for v in NODE_SETS],
)


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_a_missing_gpu_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"needs an NVIDIA GPU"):
        CudaSampler(10, 2)


@pytest.mark.parametrize(
    ("num_nodes", "room", "kind"),
    [
        (2_500_000, 100_000, "bitmap"),  # a small graph
        (400_000_000, 100_000, "hash"),
        (100_000_000, 900_000, "hash"),
        (100_000_000, 2_500_000, "bitmap"),  # a mini-batch that holds a fortieth of it
        (0, 0, "bitmap"),
    ],
)
def test_auto_chooses_a_node_set_by_size(num_nodes: int, room: int, kind: str) -> None:
    assert choose_node_set(num_nodes, room) == kind


def skewed_graph(seed: int) -> Graph:
    rng = random.Random(seed)
    g = torch.Generator().manual_seed(seed)
    n = rng.choice([1, 2, 31, 33, 300, 5000, 70000])
    e = rng.choice([0, n // 2, 4 * n, 20 * n])
    src = torch.randint(n, (e,), generator=g)
    dst = torch.randint(n, (e,), generator=g) // rng.choice([1, 1, 3, 50])
    return Graph.from_edges(src, dst, n, keep_edge_ids=rng.random() < 0.3)


@contextmanager
def no_host_wait() -> Iterator[None]:
    """Within, torch raises where it would make the host wait for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


class TestOnGPU:
    pytestmark = needs_gpu

    @schedules
    @pytest.mark.parametrize("seed", range(60))
    def test_mini_batches_equal_the_oracles(self, seed: int, schedule: str, node_set: str) -> None:
        rng = random.Random(seed)
        graph = skewed_graph(seed)
        if rng.random() < 0.3:  # the wide types, as graphs beyond 2^31 edges have them
            graph.indptr = graph.indptr.long()
            if rng.random() < 0.5:
                graph.indices = graph.indices.long()
        fanouts = [rng.choice([-1, 1, 2, 5, 7, 10, 12, 15, 20, 32, 33, 100]) for _ in range(rng.randint(1, 4))]
        options = {"replace": rng.random() < 0.4, "edge_ids": rng.random() < 0.5, "seed": rng.getrandbits(60)}
        oracle = HopwiseSampler(fanouts, num_threads=1, **options)
        sampler = CudaSampler(fanouts, schedule=schedule, node_set=node_set, **options)
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
    def test_every_fanout_equals_the_oracle(self, fanout: int, replace: bool, schedule: str, node_set: str) -> None:
        g = torch.Generator().manual_seed(fanout)
        graph = Graph.from_edges(*torch.randint(3000, (2, 90000), generator=g), 3000)
        seeds = torch.randperm(3000, generator=g)[:500]
        expected = HopwiseSampler(fanout, 2, replace=replace).sample(graph, seeds)
        got = CudaSampler(fanout, 2, replace=replace, schedule=schedule, node_set=node_set).sample(
            graph.to("cuda"), seeds.cuda()
        )
        assert got.digest() == expected.digest()

    @schedules
    @pytest.mark.parametrize("shape", ["chain", "star", "hub"])
    def test_chains_and_hubs_equal_the_oracle(self, shape: str, schedule: str, node_set: str) -> None:
        n = 1_000_001 if shape == "hub" else 2000
        v = torch.arange(n)
        if shape == "chain":
            graph = Graph.from_edges(v[:-1], v[1:], n)
        else:  # node 0 has everyone as a neighbor, everyone else has node 0
            graph = Graph.from_edges(torch.cat([v[1:], v[1:] * 0]), torch.cat([v[1:] * 0, v[1:]]), n)
        for fanouts in ([1] * 8, [10, 10, 10], [-1, 2]):
            seeds = torch.tensor([0, n - 1, n // 2])
            expected = HopwiseSampler(fanouts).sample(graph, seeds)
            got = CudaSampler(fanouts, schedule=schedule, node_set=node_set).sample(graph.to("cuda"), seeds)
            assert got.digest() == expected.digest()

    @schedules
    def test_a_pinned_graph_equals_the_oracle(self, schedule: str, node_set: str) -> None:
        graph = skewed_graph(5)
        seeds = torch.arange(min(50, graph.num_nodes))
        expected = HopwiseSampler([10, 5]).sample(graph, seeds)
        assert (
            CudaSampler([10, 5], schedule=schedule, node_set=node_set).sample(graph.pin_memory(), seeds).digest()
            == expected.digest()
        )

    @schedules
    def test_good_seeds_after_bad_ones_are_sampled(self, schedule: str, node_set: str) -> None:
        graph = Graph.from_edges(*torch.randint(500, (2, 5000)), 500)
        sampler = CudaSampler([5, 5], schedule=schedule, node_set=node_set)
        on_gpu = graph.to("cuda")
        with pytest.raises(ValueError, match="node 500; valid ids are 0 to 499"):
            sampler.sample(on_gpu, torch.tensor([1, 500], dtype=torch.int32, device="cuda"))
        with pytest.raises(ValueError, match="node 3 more than once"):
            sampler.sample(on_gpu, torch.tensor([3, 1, 3], device="cuda"))
        seeds = torch.arange(100)
        assert sampler.sample(on_gpu, seeds).digest() == HopwiseSampler([5, 5]).sample(graph, seeds).digest()

    @schedules
    def test_too_little_room_is_mended(self, schedule: str, node_set: str) -> None:
        # A star sampled whole: the guess by the mean degree is far too small.
        n = 20000
        v = torch.arange(1, n)
        graph = Graph.from_edges(torch.cat([v, v * 0]), torch.cat([v * 0, v]), n)
        sampler = CudaSampler(-1, 3, schedule=schedule, node_set=node_set)
        seeds = torch.tensor([7])
        expected = HopwiseSampler(-1, 3).sample(graph, seeds)
        assert sampler.sample(graph.to("cuda"), seeds).digest() == expected.digest()

    @schedules
    def test_two_streams_on_a_busy_gpu_agree(self, schedule: str, node_set: str) -> None:
        graph = Graph.from_edges(*torch.randint(20000, (2, 400000)), 20000)
        on_gpu = graph.to("cuda")
        oracle = HopwiseSampler([10, 10, 10])
        samplers = [CudaSampler([10, 10, 10], schedule=schedule, node_set=node_set) for _ in range(2)]
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

    @node_sets
    def test_one_sampler_may_use_two_streams(self, node_set: str) -> None:
        graph = Graph.from_edges(*torch.randint(20000, (2, 400000)), 20000)
        sampler, oracle = CudaSampler([10, 10], node_set=node_set), HopwiseSampler([10, 10])
        on_gpu = graph.to("cuda")
        streams = [torch.cuda.Stream() for _ in range(2)]
        results = []
        for i in range(20):
            with torch.cuda.stream(streams[i % 2]):
                results.append(sampler.sample(on_gpu, torch.arange(i, i + 300), batch=i))
        torch.cuda.synchronize()
        for i, got in enumerate(results):
            assert got.digest() == oracle.sample(graph, torch.arange(i, i + 300), batch=i).digest()

    @node_sets
    def test_many_may_be_begun_before_one_finishes(self, node_set: str) -> None:
        graph = Graph.from_edges(*torch.randint(20000, (2, 400000)), 20000)
        sampler, oracle = CudaSampler([10, 10], node_set=node_set), HopwiseSampler([10, 10])
        on_gpu = graph.to("cuda")
        seeds = [torch.arange(i, i + 300) for i in range(150)]
        finish = sampler.open(on_gpu).begin([Request(s, 0, i) for i, s in enumerate(seeds)])
        for i, s in enumerate(seeds):
            assert finish[i]().digest() == oracle.sample(graph, s, batch=i).digest()

    def test_one_may_finish_after_many_others(self) -> None:
        graph = Graph.from_edges(*torch.randint(20000, (2, 400000)), 20000)
        session, oracle = CudaSampler([10, 10]).open(graph.to("cuda")), HopwiseSampler([10, 10])
        seeds = torch.arange(300)
        (late,) = session.begin([Request(seeds, 0, 0)])
        for i in range(1, 200):
            (finish,) = session.begin([Request(seeds, 0, i)])
            if i % 3:  # others are dropped
                finish()
        assert late().digest() == oracle.sample(graph, seeds).digest()

    def test_more_edges_than_32_bits_hold_are_refused(self) -> None:
        # 2^21 rows of 1024 picks each, one for each node.
        n = 2**21
        if torch.cuda.mem_get_info()[0] < 32 * 2**30:
            pytest.skip("needs 32 GiB of free GPU memory")
        graph = Graph(torch.arange(n + 1, dtype=torch.int32), torch.arange(n, dtype=torch.int32), validate=False)
        on_gpu, seeds = graph.to("cuda"), torch.arange(n, dtype=torch.int32, device="cuda")
        for schedule, node_set in (("hopwise", "bitmap"), ("cooperative", "bitmap"), ("hopwise", "hash")):
            sampler = CudaSampler([1024], replace=True, schedule=schedule, node_set=node_set)
            with pytest.raises(OverflowError, match="a block of 2147483648 edges exceeds 32-bit edge ids"):
                sampler.sample(on_gpu, seeds)
            few = seeds[:100]
            expected = HopwiseSampler([1024], replace=True).sample(graph, few.cpu())
            assert sampler.sample(on_gpu, few).digest() == expected.digest()
            sampler.close()
        padded = CudaSampler([1024], replace=True, pad_to_capacity=True)
        with pytest.raises(OverflowError, match="a padded block has room for 2147483648 edges"):
            padded.sample(on_gpu, seeds)
        del graph, on_gpu
        torch.cuda.empty_cache()

    @pytest.mark.parametrize("fanouts", [[10, 10], [3, 40], [-1, 2], [15, 10, 5]])
    @pytest.mark.parametrize("batches", [2, 3, 8, 16])
    @pytest.mark.parametrize("schedule", ["cooperative", "hopwise"])
    @node_sets
    def test_several_batches_per_launch_equal_the_oracle(
        self, node_set: str, schedule: str, batches: int, fanouts: list[int]
    ) -> None:
        graph = skewed_graph(4)
        on_gpu, oracle = graph.to("cuda"), HopwiseSampler(fanouts)
        sampler = CudaSampler(fanouts, schedule=schedule, batches_per_launch=batches, node_set=node_set)
        session = sampler.open(on_gpu)
        for turn in range(3):
            # The last launch is not full, its mini-batches are of different sizes.
            count = batches if turn < 2 else batches - 1
            size = min(graph.num_nodes, 200)
            seeds = [torch.randperm(graph.num_nodes)[: size - (turn + i) % 7] for i in range(count)]
            finish = session.begin([Request(s, turn, i) for i, s in enumerate(seeds)])
            for i, s in enumerate(seeds):
                assert finish[i]().digest() == oracle.sample(graph, s, epoch=turn, batch=i).digest()

    @schedules
    @pytest.mark.parametrize("edge_ids", [False, True])
    @pytest.mark.parametrize("fanouts", [[5, 5], [10, 10, 10], [40, 2]])
    def test_padded_mini_batches_trim_to_the_oracles(
        self, fanouts: list[int], edge_ids: bool, schedule: str, node_set: str
    ) -> None:
        graph = skewed_graph(5)
        on_gpu, oracle = graph.to("cuda"), HopwiseSampler(fanouts, edge_ids=edge_ids)
        sampler = CudaSampler(fanouts, edge_ids=edge_ids, schedule=schedule, node_set=node_set, pad_to_capacity=True)
        shapes = set()
        for i in range(5):
            seeds = torch.randperm(graph.num_nodes)[:50]
            on_device = seeds.to("cuda", graph.indices.dtype)
            torch.cuda.synchronize()
            with no_host_wait():
                padded = sampler.sample(on_gpu, on_device, batch=i)
            assert isinstance(padded, PaddedMiniBatch)
            assert padded.trim().digest() == oracle.sample(graph, seeds, batch=i).digest()
            for block in padded.blocks:
                assert block.indptr.numel() == block.num_dst + 1
                assert block.indptr.diff().min() >= 0
                assert block.indices.max() < block.num_src
            assert padded.nodes.max() < graph.num_nodes
            shapes.add(tuple(t.shape for t in padded.tensors()))
        assert len(shapes) == 1

    @node_sets
    @pytest.mark.parametrize("sizes", [[50, 50, 50], [50, 50, 20], [20, 50, 50, 7]])
    def test_padded_groups_equal_single_mini_batches(self, sizes: list[int], node_set: str) -> None:
        graph = skewed_graph(5)
        on_gpu, oracle = graph.to("cuda"), HopwiseSampler([5, 5])
        together, alone = (
            CudaSampler([5, 5], pad_to_capacity=True, node_set=node_set, batches_per_launch=n) for n in (3, 1)
        )
        seeds = [torch.randperm(graph.num_nodes)[:size] for size in sizes]
        begun = together.open(on_gpu).begin([Request(s, 0, i) for i, s in enumerate(seeds)])
        for i, (finish, s) in enumerate(zip(begun, seeds, strict=True)):
            padded = finish()
            assert padded.batch_size == s.numel()
            assert padded.digest() == alone.sample(on_gpu, s, batch=i).digest()
            assert isinstance(padded, PaddedMiniBatch)
            assert padded.trim().digest() == oracle.sample(graph, s, batch=i).digest()

    def test_seeds_that_are_no_vector_are_refused(self) -> None:
        graph = Graph.from_edges(*torch.randint(500, (2, 5000)), 500).to("cuda")
        sampler = CudaSampler([5, 5])
        with pytest.raises(ValueError, match=r"seeds has shape \[4, 2\]; it must have 1 dimension"):
            sampler.sample(graph, torch.arange(8, dtype=torch.int32, device="cuda").view(4, 2))
        with pytest.raises(TypeError, match=r"seeds is .*list.*; it must be a tensor of node ids"):
            sampler.sample(graph, [3, 4])

    @node_sets
    def test_padded_bad_seeds_are_reported_later(self, node_set: str) -> None:
        graph = skewed_graph(5)
        on_gpu = graph.to("cuda")
        sampler = CudaSampler([5, 5], pad_to_capacity=True, node_set=node_set)
        bad = torch.tensor([1, graph.num_nodes], dtype=torch.int32, device="cuda")
        padded = sampler.sample(on_gpu, bad, batch=7)
        torch.cuda.synchronize()
        assert padded.trim().num_edges == 0
        assert all(int(t.abs().max()) == 0 for t in padded.tensors())
        with pytest.raises(ValueError, match="mini-batch 7"):
            sampler.sample(on_gpu, bad[:1])
        seeds = torch.arange(20)
        assert sampler.sample(on_gpu, seeds).trim().digest() == HopwiseSampler([5, 5]).sample(graph, seeds).digest()

    @schedules
    @pytest.mark.parametrize("blocks_per_sm", [0.01, 0.5, 1])
    def test_any_number_of_blocks_equals_the_oracle(self, blocks_per_sm: float, schedule: str, node_set: str) -> None:
        graph = skewed_graph(5)
        sampler = CudaSampler([10, 10], schedule=schedule, node_set=node_set, blocks_per_sm=blocks_per_sm)
        seeds = torch.arange(min(graph.num_nodes, 500))
        assert (
            sampler.sample(graph.to("cuda"), seeds).digest() == HopwiseSampler([10, 10]).sample(graph, seeds).digest()
        )

    def test_auto_names_its_schedule(self) -> None:
        graph = Graph.from_edges(*torch.randint(300_000, (2, 6_000_000)), 300_000)
        session, oracle = CudaSampler([10, 10]).open(graph.to("cuda")), HopwiseSampler([10, 10])
        chosen = []
        for size in (100, 100, 60_000, 60_000, 100):
            seeds = torch.randperm(300_000)[:size]
            (finish,) = session.begin([Request(seeds, 0, 0)])
            assert finish().digest() == oracle.sample(graph, seeds).digest()
            chosen.append(session.launched)
        assert chosen[0] == "cooperative"
        assert chosen[3] == "hopwise"

    def test_auto_leaves_some_multiprocessors_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = Graph.from_edges(*torch.randint(3000, (2, 60_000)), 3000)
        session, oracle = CudaSampler([10, 10]).open(graph.to("cuda")), HopwiseSampler([10, 10])
        blocks, launch = [], Workspace.launch

        def note(space: Workspace, batches: Any, plan: Any) -> Any:
            blocks.append(plan.blocks)
            return launch(space, batches, plan)

        monkeypatch.setattr(Workspace, "launch", note)
        for ahead in (False, True, True, False):
            seeds = torch.randperm(3000)[:100]
            (finish,) = session.begin([Request(seeds, 0, 0)], ahead=ahead)
            assert finish().digest() == oracle.sample(graph, seeds).digest()
            assert session.launched == "cooperative"
            assert session.launches == 1
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        assert blocks == [0, processors // 2, processors // 2, 0]  # 0: all

    def test_auto_names_its_node_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = Graph.from_edges(*torch.randint(70_000, (2, 700_000)), 70_000)
        on_gpu, oracle = graph.to("cuda"), HopwiseSampler([5, 5])
        session = CudaSampler([5, 5]).open(on_gpu)
        monkeypatch.setattr(gpu_sizes, "HASH_FROM_NODES", 70_000)
        for size, kind in ((40, "hash"), (10_000, "bitmap"), (30, "hash"), (40, "hash"), (9_000, "bitmap")):
            seeds = torch.randperm(70_000)[:size]
            (finish,) = session.begin([Request(seeds, 0, 0)])
            assert finish().digest() == oracle.sample(graph, seeds).digest()
            assert session.launched_set == kind

    @pytest.mark.parametrize("schedule", ["cooperative", "hopwise"])
    def test_a_hash_set_orders_close_ids(self, schedule: str) -> None:
        # v has the in-neighbors v + 1 to v + 4: thousands of ids in a row, and nothing in the rest of the graph.
        n = 6_000_000
        v = torch.arange(n, dtype=torch.int32)
        graph = Graph(torch.arange(n + 1) * 4, ((v[:, None] + torch.arange(1, 5)) % n).int().view(-1), validate=False)
        sampler, oracle = CudaSampler([4, 2, 4], schedule=schedule, node_set="hash"), HopwiseSampler([4, 2, 4])
        on_gpu = graph.to("cuda")
        for first, step in ((0, 2), (n - 100_000, 3), (1000, 1), (17, 5000)):
            seeds = torch.arange(first, min(n, first + 40_000 * step), step)
            seeds = seeds[torch.randperm(seeds.numel())]
            assert sampler.sample(on_gpu, seeds).digest() == oracle.sample(graph, seeds).digest()

    @pytest.mark.parametrize("schedule", ["cooperative", "hopwise"])
    def test_a_hash_set_is_left_empty(self, schedule: str) -> None:
        # Mini-batches of all sizes one after the other, some of which do not fit at first.
        graph = Graph.from_edges(*torch.randint(50_000, (2, 1_000_000)), 50_000)
        fanouts = [3, -1, 2]
        sampler, oracle = CudaSampler(fanouts, schedule=schedule, node_set="hash"), HopwiseSampler(fanouts)
        on_gpu = graph.to("cuda")
        for i in range(60):
            seeds = torch.randperm(50_000)[: (1, 50, 2000, 7)[i % 4] * (1 + i // 12)]
            assert sampler.sample(on_gpu, seeds, batch=i).digest() == oracle.sample(graph, seeds, batch=i).digest()

    @schedules
    @pytest.mark.parametrize("fanouts", [[10, 10, 10], [-1, -1]])
    def test_every_node_may_be_a_seed(self, fanouts: list[int], schedule: str, node_set: str) -> None:
        # Every pick of the first hop is a seed: whichever mark comes first, no node may be sampled otherwise.
        graph = Graph.from_edges(*torch.randint(5000, (2, 60000)), 5000)
        sampler, oracle, on_gpu = (
            CudaSampler(fanouts, schedule=schedule, node_set=node_set),
            HopwiseSampler(fanouts),
            graph.to("cuda"),
        )
        for i in range(10):
            seeds = torch.randperm(5000)
            assert sampler.sample(on_gpu, seeds, batch=i).digest() == oracle.sample(graph, seeds, batch=i).digest()

    @schedules
    def test_more_than_2_to_31_edges_are_sampled(self, schedule: str, node_set: str) -> None:
        # Node v has the in-neighbors (v * 40 + i * 1_000_003) % n; the lists are made on the GPU.
        n, degree = 56_000_000, 40
        if torch.cuda.mem_get_info()[0] < 24 * 2**30:
            pytest.skip("needs 24 GiB of free GPU memory")
        assert n * degree > 2**31
        i = torch.arange(degree, device="cuda") * 1_000_003
        indices = torch.empty(n, degree, dtype=torch.int32, device="cuda")
        for v in torch.arange(n, device="cuda").split(n // 8):
            indices[v] = ((v[:, None] * 40 + i) % n).int()
        indptr = torch.arange(n + 1, device="cuda") * degree
        graph = Graph(indptr, indices.view(-1), validate=False)
        assert graph.indptr.dtype == torch.int64
        seeds = torch.cat([torch.arange(n - 500, n), torch.arange(500)])
        batch = CudaSampler([10, 5], schedule=schedule, node_set=node_set, edge_ids=True).sample(graph, seeds)
        assert batch.blocks[0].edge_ids is not None
        assert int(batch.blocks[0].edge_ids.max()) > 2**31
        assert batch.digest() == HopwiseSampler([10, 5], edge_ids=True).sample(graph.to("cpu"), seeds).digest()
        del graph, indices, indptr
        torch.cuda.empty_cache()


class TestOptions:
    """Options are refused before any work starts; a machine without a GPU refuses the sampler itself."""

    pytestmark = needs_gpu

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"schedule": "best"}, "schedule is 'best'"),
            ({"node_set": "tree"}, r"node_set is 'tree'; it must be one of \['auto', 'bitmap', 'hash'\]"),
            ({"blocks_per_sm": 2}, r"blocks_per_sm is 2; it must be in \(0, 1\]"),
            ({"batches_per_launch": 0}, "batches_per_launch is 0"),
            ({"batches_per_launch": 17}, "batches_per_launch is 17; it must be at most 16"),
            ({"schedule": "persistent"}, "was removed in 0.2; take schedule='auto'"),
            ({"pad_to_capacity": True, "fanouts": [-1]}, "fanout -1"),
        ],
    )
    def test_bad_options_are_refused(self, options: dict, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            CudaSampler(**{"fanouts": [5], **options})
