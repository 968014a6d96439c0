"""Bindings of the GPU part, and Python around them, on the host: kernels get what they were given.

Those of aggregation, links, walks and gathers; samplers and renewals have tests of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from threading import Lock
from typing import Any

import pytest
import torch
from cuda_on_host import module_on_host
from graphs_on_cpu import kind_of
from torch import Tensor

from loader import _core
from loader.ops import aggregate_mean, captured_batch, concat_self_mean
from loader.ops import gpu as ops_gpu
from loader.ops.captured_batch import CapturedBatch, Kind, Room
from loader.samplers.gpu import links as gpu_links
from loader.samples import Block, MiniBatch, Subgraph
from loader.samples.links import without_links
from loader.stores import CachedFeatures, cached, kernel
from loader.stores.rows import RowFormat

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

INDEX_TYPES = [(torch.int32, torch.int32), (torch.int64, torch.int32), (torch.int64, torch.int64)]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("bindings_on_host", tmp_path_factory)


@pytest.fixture(autouse=True)
def on_host(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in dir(core):
        if name.startswith("cuda_") or name in ("CudaLinkEngine", "CudaGatherer"):
            monkeypatch.setattr(_core, name, getattr(core, name))
    for name in ("cuda_find_links", "cuda_drop", "cuda_write_captured_blocks"):  # as device 0: the CPU has no number
        monkeypatch.setattr(_core, name, partial(_as_device_0, getattr(core, name)))
    monkeypatch.setattr(Kind, "of", staticmethod(kind_of))
    for module in (captured_batch, gpu_links):
        monkeypatch.setattr(module, "current_stream_handle", lambda device: 0)
    monkeypatch.setattr(ops_gpu, "launch_place", lambda like: (like.get_device(), 0))
    monkeypatch.setattr(gpu_links, "made_current", lambda device: nullcontext())


def _as_device_0(launch: Callable[..., None], *arguments: Any) -> None:
    *arrays, _, stream = arguments
    launch(*arrays, 0, stream)


def make_batch(num_seeds: int, types: tuple[torch.dtype, torch.dtype], seed: int) -> MiniBatch:
    """Two hops, of few and of many edges, and features of 5 columns."""
    random = torch.Generator().manual_seed(seed)
    frontiers, blocks = [num_seeds], []
    for degree in (3, 60):
        num_dst = frontiers[-1]
        num_src = num_dst + 7
        indptr = torch.cat((torch.zeros(1).long(), torch.randint(degree, (num_dst,), generator=random).cumsum(0)))
        indices = torch.randint(num_src, (int(indptr[-1]),), generator=random)
        blocks.insert(0, Block(indptr.to(types[0]), indices.to(types[1]), num_src, num_dst))
        frontiers.append(num_src)
    x, y = torch.randn(frontiers[-1], 5, generator=random), torch.randint(3, (num_seeds,), generator=random)
    return MiniBatch(torch.arange(frontiers[-1]), tuple(frontiers), tuple(blocks), x=x, y=y)


def edges_of(block: Block) -> ops_gpu.Edges:
    return ops_gpu.Edges(block.indptr, block.indices, block.num_dst, block.captured)


def on_cpu(x: Tensor, block: Block, relu: bool, padding: int = 0) -> Tensor:
    """`concat_of` in torch."""
    both = concat_self_mean(x, block, relu=relu)
    ones = torch.zeros(block.num_dst, padding, dtype=x.dtype)
    ones[:, :1] = 1
    return torch.cat((both, ones), 1)


@pytest.mark.parametrize("types", INDEX_TYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
class TestMean:
    def test_the_mean_is_that_of_the_cpu(self, types: tuple[torch.dtype, torch.dtype], dtype: torch.dtype) -> None:
        for block in make_batch(9, types, 1).blocks:
            x = torch.randn(block.num_src, 5, dtype=dtype)
            torch.testing.assert_close(ops_gpu.mean_of(x, edges_of(block)), aggregate_mean(x, block))
            apart = torch.randn(block.num_src, 8, dtype=dtype)[:, 2:7]  # rows that lie apart
            activation, device = ops_gpu.Activation(relu=True), torch.device("cpu")
            both = ops_gpu.concat_of(apart, edges_of(block), dtype, 4, activation, device)
            torch.testing.assert_close(both, on_cpu(apart, block, relu=True, padding=4))

    def test_rows_are_read_in_their_table(self, types: tuple[torch.dtype, torch.dtype], dtype: torch.dtype) -> None:
        block = make_batch(9, types, 2).blocks[0]
        table, nodes = torch.randn(90, 5, dtype=dtype), torch.randperm(90)[: block.num_src].to(types[1])
        device = torch.device("cpu")
        both = ops_gpu.concat_of(table, edges_of(block), dtype, 0, ops_gpu.IDENTITY, device, nodes)
        torch.testing.assert_close(both, on_cpu(table[nodes.long()], block, relu=False))

    def test_rows_go_to_their_places(self, types: tuple[torch.dtype, torch.dtype], dtype: torch.dtype) -> None:
        block = make_batch(9, types, 2).blocks[0]
        x = torch.randn(block.num_src, 6, dtype=dtype)
        order, at = torch.randperm(block.num_dst)[:5], 3 * torch.tensor([20, 4, 0, 10, 15])
        out = torch.full((30, 3), 7.0, dtype=dtype)
        ops_gpu.write_means(out, x, edges_of(block), (order, at))
        wanted = torch.full_like(out, 7).view(-1)
        wanted[at.unsqueeze(1) + torch.arange(6)] = aggregate_mean(x, block)[order]
        torch.testing.assert_close(out.view(-1), wanted)

    @pytest.mark.parametrize("sums", [False, True])
    def test_sums_are_not_means(self, types: tuple[torch.dtype, torch.dtype], dtype: torch.dtype, sums: bool) -> None:
        block = make_batch(9, types, 4).blocks[0]
        x = torch.randn(block.num_src, 5, dtype=dtype, requires_grad=True)
        mean = aggregate_mean(x, block)
        wanted = mean * block.indptr.diff().unsqueeze(1) if sums else mean
        found = ops_gpu.Mean.apply(x, block.indptr, block.indices, block.num_dst, None, sums)
        torch.testing.assert_close(found, wanted)
        mix = torch.randn_like(wanted)
        gradients = [torch.autograd.grad((of * mix).sum(), x)[0] for of in (found, wanted)]
        torch.testing.assert_close(*gradients)

    @pytest.mark.parametrize("deterministic", [False, True])
    @pytest.mark.parametrize("relu", [False, True])
    def test_gradients_are_those_of_the_cpu(
        self, types: tuple[torch.dtype, torch.dtype], dtype: torch.dtype, relu: bool, deterministic: bool
    ) -> None:
        torch.use_deterministic_algorithms(deterministic)
        try:
            for block in make_batch(9, types, 3).blocks:
                x = torch.randn(block.num_src, 5, dtype=dtype, requires_grad=True)
                weights = torch.randn(block.num_dst, 10, dtype=dtype)
                (wanted,) = torch.autograd.grad((concat_self_mean(x, block, relu=relu) * weights).sum(), x)
                arrays = block.indptr, block.indices, block.num_dst, None
                both = ops_gpu.ConcatSelfMean.apply(x, *arrays, dtype, ops_gpu.Activation(relu=relu))
                (found,) = torch.autograd.grad((both * weights).sum(), x)
                torch.testing.assert_close(found, wanted)
                own, mean = ops_gpu.SelfAndMean.apply(x, *arrays)
                for output in (own, mean):  # one of the gradients
                    same = aggregate_mean(x, block) if output is mean else x[: block.num_dst]
                    (wanted,) = torch.autograd.grad(same.sum(), x)
                    (found,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
                    torch.testing.assert_close(found, wanted)
        finally:
            torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("types", INDEX_TYPES)
def test_captured_blocks_are_those_of_the_moment(types: tuple[torch.dtype, torch.dtype]) -> None:
    batches = [make_batch(9, types, seed) for seed in (4, 5)]
    stand_in = CapturedBatch(batches[0], Room.of(batches[0]).union(Room.of(batches[1])))
    device = torch.device("cpu")
    for batch in batches:
        stand_in.load(batch)
        first, second = stand_in.blocks
        assert stand_in.batch.x is not None
        assert batch.x is not None
        both = ops_gpu.concat_of(stand_in.batch.x, edges_of(first), torch.float32, 0, ops_gpu.IDENTITY, device)
        torch.testing.assert_close(both, on_cpu(batch.x, batch.blocks[0], relu=False))
        x = both[:, :5].contiguous().requires_grad_()
        mean = ops_gpu.Mean.apply(x, *edges_of(second)[:4])
        wanted = aggregate_mean(x, batch.blocks[1])
        torch.testing.assert_close(mean, wanted)
        found = torch.autograd.grad(mean.sum(), x)[0], torch.autograd.grad(wanted.sum(), x)[0]
        torch.testing.assert_close(*found)
        assert stand_in.batch.y is not None
        assert torch.equal(stand_in.batch.y, batch.y)


@pytest.mark.parametrize("wide_pairs", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("each", [0, 2])
def test_ends_of_links_are_seeds(dtype: torch.dtype, wide_pairs: bool, each: int) -> None:
    ends = gpu_links.GpuLinks(torch.device("cpu", 0), range(10, 40), range(40, 60), 60, dtype, lambda pairs: None, None)
    random = torch.Generator().manual_seed(1)
    pairs = torch.stack([torch.randint(30, (8,), generator=random), torch.randint(20, (8,), generator=random)], 1)
    seeds, places = ends.ends(pairs if wide_pairs else pairs.int(), 16, each, 3)
    assert seeds.dtype == dtype
    assert torch.equal(seeds, seeds.unique())
    assert [len(of) for of in places] == [8, 8, *([] if each else [16]), 16]
    assert torch.equal(seeds[places[0]].long(), 10 + pairs[:, 0])
    assert torch.equal(seeds[places[1]].long(), 40 + pairs[:, 1])
    assert bool((seeds[places[-1]] >= 40).all())


@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize("types", INDEX_TYPES)
@pytest.mark.parametrize("reverse", [False, True])
def test_links_leave_blocks_and_subgraphs(
    types: tuple[torch.dtype, torch.dtype], reverse: bool, edge_ids: bool
) -> None:
    batch = make_batch(6, types, 6).replace(x=None, y=None)
    blocks = [
        Block(b.indptr, b.indices, b.num_src, b.num_dst, torch.arange(b.num_edges) if edge_ids else None)
        for b in batch.blocks
    ]
    batch = batch.replace(blocks=tuple(blocks))
    random = torch.Generator().manual_seed(2)
    sources, targets = torch.randint(6, (2, 12), generator=random)
    found = gpu_links.without_links(batch, sources, targets, reverse=reverse)
    assert found.digest() == without_links(batch, sources, targets, reverse=reverse).digest()
    assert found.digest() != batch.digest()
    of_seeds = torch.stack([torch.randint(9, (30,), generator=random), torch.randint(6, (30,), generator=random)])
    others = torch.stack([torch.randint(9, (10,), generator=random), torch.randint(6, 9, (10,), generator=random)])
    index = torch.cat((of_seeds, others), 1)
    ids = torch.arange(40) if edge_ids else None
    sample = Subgraph(torch.arange(9), index, ids, num_nodes=(6, 3), num_edges=(30, 10))
    found = gpu_links.without_links(sample, sources, targets, reverse=reverse)
    assert found.digest() == without_links(sample, sources, targets, reverse=reverse).digest()
    assert found.digest() != sample.digest()


@pytest.mark.parametrize("wide_starts", [False, True])
@pytest.mark.parametrize("types", INDEX_TYPES)
def test_walks_are_those_of_the_cpu(core: Any, types: tuple[torch.dtype, torch.dtype], wide_starts: bool) -> None:
    random = torch.Generator().manual_seed(7)
    indptr = torch.cat((torch.zeros(1).long(), torch.randint(5, (30,), generator=random).cumsum(0)))
    indices = torch.randint(30, (int(indptr[-1]),), generator=random)
    graph = indptr.to(types[0]), indices.to(types[1])
    starts, key, length, chances = torch.randint(30, (70,), generator=random), 11, 6, (2**28, 2**30)
    given = starts if wide_starts else starts.int()
    nodes, places = torch.zeros(70, length + 1, dtype=types[1]), torch.zeros(70, length, dtype=types[0])
    wanted = nodes.clone(), places.clone()
    cpu = _core.WalkEngine(*graph, None, None, 0, 1)
    cpu.walk(starts.to(types[1]), 0, key, length, *chances, None, [], *wanted)
    gpu = core.CudaWalkEngine(*graph, None, None, 0, torch.zeros(2, dtype=torch.int64), 0)
    gpu.walk(given, 0, key, length, *chances, None, [], nodes, places, 0)
    assert torch.equal(nodes, wanted[0])
    assert torch.equal(places, wanted[1])
    nodes, places = torch.zeros_like(nodes), torch.zeros_like(places)
    for step in range(length):
        gpu.step(given, key, length, *chances, torch.randperm(70, generator=random), step, nodes, places, 0)
    assert torch.equal(nodes, wanted[0])
    assert torch.equal(places, wanted[1])
    gpu.walk(given, 0, key, length, *chances, None, [], nodes.zero_(), None, 0)
    assert torch.equal(nodes, wanted[0])
    fault, reported = torch.zeros(5, dtype=torch.int64), torch.zeros(1, dtype=torch.int32)
    gpu.walk_by("", given, 0, key, length, 1, [], None, False, False, nodes, fault, reported, 0)
    assert torch.equal(nodes, starts[:, None].expand(70, length + 1).to(types[1]))
    assert int(reported) == 1


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_gathers_bring_the_rows_asked_for(core: Any, monkeypatch: pytest.MonkeyPatch, index: torch.dtype) -> None:
    for module in (kernel, cached):
        monkeypatch.setattr(module, "current_stream_handle", lambda device: 0)
    random = torch.Generator().manual_seed(8)
    table, hot = torch.randn(90, 3, generator=random), torch.arange(0, 90, 3)
    slots, hits = torch.full((90,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
    slots[hot] = torch.arange(30, dtype=torch.int32)
    arrays = {"cache": -table[hot], "slots": slots, "hits": hits}  # so that it is seen which row was read
    raised, notes = torch.zeros(1, dtype=torch.int32), torch.zeros(core.cuda_notes_bytes, dtype=torch.uint8)
    gatherer = core.CudaGatherer(table, table.data_ptr(), "torch.float32", raised=raised, notes=notes, **arrays)
    store = object.__new__(CachedFeatures)
    store._device, store._gatherer, store._count_lock, store._gathered = torch.device("cpu"), gatherer, Lock(), 0
    store._format = RowFormat(table)
    for n in (0, 7, 70, 150):  # from 100 on in order of address
        ids = torch.randint(90, (n,), generator=random)
        is_hot = (ids % 3 == 0)[:, None]
        wanted, given = torch.where(is_hot, -table[ids], table[ids]), ids.to(index)
        rows = torch.zeros(n, 3)
        store._launch(gatherer, given, rows)
        assert torch.equal(rows, wanted)
        store._launch(gatherer, given, rows.zero_().view(torch.int32))  # rows that are not converted may be words
        assert torch.equal(rows, wanted)
        store._launch(gatherer, given, rows.zero_(), misses_below=40)
        assert torch.equal(rows, wanted.where(is_hot | (ids < 40)[:, None], 0))
        gathers = cached._Gathers(store)
        gathers.read_misses(given, gathers.mark_misses(given), rows.zero_())
        assert torch.equal(rows, wanted.where(~is_hot, 0))
        gathers.read_cached(given, rows)
        assert torch.equal(rows, wanted)
        found, positions = cached._Kernels(store, gatherer).find_misses(given, 20)
        counts, found = found[: 2 + core.miss_ranges], found[2 + core.miss_ranges :].view(index)
        missed = ((ids % 3 != 0) & (ids >= 20)).nonzero().view(-1)
        assert int(counts[0]) == len(missed)
        assert torch.equal(positions[: len(missed)], missed)
        assert torch.equal(found[: len(missed)], given[missed])
        assert int(counts[2:].sum()) == int((ids % 3 != 0).sum())
