"""Rows of 8 bits on a GPU: every store, the lazy first layer and CUDA graphs give the bits of the CPU's rows."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from marks import HAS_GPU
from narrow_rows import CODES
from torch import Tensor

from loader.ops import linear_self_mean
from loader.ops.captured_batch import CapturedBatch, Kind, Room
from loader.samples import Block, LazyRows, MiniBatch
from loader.stores import (
    CachedFeatures,
    DeviceFeatures,
    HostFeatures,
    MemmapFeatures,
    PinnedFeatures,
    StagedFeatures,
)
from loader.stores.rows import CONVERTIBLE

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")]


def cached(tensor: Tensor, **options: Any) -> CachedFeatures:
    scores = torch.randperm(tensor.shape[0], generator=torch.Generator().manual_seed(0))
    return CachedFeatures(tensor, **{"fraction": 0.4, "hotness": scores, **options})


def helped(tensor: Tensor, **options: Any) -> CachedFeatures:
    store = cached(tensor, host_threads=2, **options)
    assert store._host is not None
    store._host.least = 1
    return store


STORES: dict[str, Any] = {
    "device": DeviceFeatures,
    "pinned": PinnedFeatures,
    "copied": partial(PinnedFeatures, copy=True),
    "staged": partial(StagedFeatures, num_threads=2, buffer_mib=1),
    "cached": cached,
    "all-cached": partial(cached, fraction=1.0),
    "none-cached": partial(cached, fraction=0.0),
    "helped": helped,
}
WIDTHS = (1, 2, 3, 4, 6, 8, 25, 31, 32, 33, 47, 64, 100, 128, 129, 301, 1433)


def some_rows(num_rows: int, columns: int, by_row: bool) -> Tensor:
    random = torch.Generator().manual_seed(columns)
    x = (torch.rand(num_rows, columns, generator=random) + 0.5) * torch.randn(1, columns, generator=random).sign()
    return x * torch.logspace(-3, 3, num_rows)[:, None] if by_row else x * torch.logspace(-3, 3, columns)


def widths_of(kind: str, by_row: bool) -> list[int]:
    """Narrow rows have no scale of their own, so int8 does not take what `some_rows` makes of them."""
    return [width for width in WIDTHS if width > 8 or not (by_row and kind == "int8")]


def same_bytes(a: Tensor, b: Tensor) -> bool:
    a, b = a.cpu().contiguous(), b.cpu().contiguous()
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("by_row", [False, True])
def test_gathered_rows_are_those_of_the_cpu(name: str, kind: str, by_row: bool) -> None:
    for columns in widths_of(kind, by_row):
        x = some_rows(400, columns, by_row)
        for returned in CONVERTIBLE if columns in (4, 33, 100, 129) else (torch.float32,):
            if returned == torch.float16:
                x = x.clamp(-6e4, 6e4)
            wanted = HostFeatures(x, 1, storage_dtype=kind, dtype=returned)
            store: Any = STORES[name](x, storage_dtype=kind, dtype=returned)
            assert store.storage_dtype == wanted.storage_dtype
            if kind == "int8" and columns > 8:
                assert store._format.by_row == by_row
            for index in (torch.int32, torch.int64):
                ids = torch.randint(400, (1500,), generator=torch.Generator().manual_seed(1)).to(index)
                assert same_bytes(store.gather(ids), wanted.gather(ids))
                assert same_bytes(store.gather(ids.cuda()), wanted.gather(ids))
            store.check()
            store.close()


@pytest.mark.parametrize("name", ["device", "pinned", "cached"])
def test_ids_out_of_range_give_zeros(name: str) -> None:
    x = some_rows(400, 100, by_row=True)
    store: Any = STORES[name](x, storage_dtype="int8")
    ids = torch.tensor([3, -1, 400, 7, 2**40])
    rows = store.gather(ids.cuda()).cpu()
    assert not rows[[1, 2, 4]].any()
    assert torch.equal(rows[[0, 3]], HostFeatures(x, 1, storage_dtype="int8").gather(torch.tensor([3, 7])))
    with pytest.raises(ValueError, match="the table has 400 rows"):
        store.check()
    store.close()


def test_rows_are_read_by_where_they_lie() -> None:
    x = some_rows(5000, 100, by_row=False)
    ids = torch.randint(5000, (60_000,))
    wanted = HostFeatures(x, 1, storage_dtype="int8").gather(ids)
    for make in (PinnedFeatures, cached):
        store: Any = make(x, storage_dtype="int8")
        store._gatherer.order_from = 0
        assert same_bytes(store.gather(ids.cuda()), wanted)
        store.close()


@pytest.mark.parametrize("kind", ["bfloat16", *CODES])
def test_a_file_is_converted_for_a_gpu(kind: str, tmp_path: Path) -> None:
    x = some_rows(600, 33, by_row=False)
    np.save(tmp_path / "x.npy", x.numpy())
    ids = torch.randint(600, (900,))
    wanted = HostFeatures(x, 1, storage_dtype=kind, dtype="float32").gather(ids)
    for _ in range(2):
        store = MemmapFeatures(tmp_path / "x.npy", "cuda", storage_dtype=kind, dtype="float32", buffer_mib=1)
        assert same_bytes(store.gather(ids), wanted)
        store.close()


def test_a_table_takes_its_own_bytes() -> None:
    x = torch.rand(200_000, 100) + 1
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    store = DeviceFeatures(x, storage_dtype="int8", lazy=True)
    taken = torch.cuda.memory_allocated() - before
    assert 200_000 * 128 <= taken <= 200_000 * 128 + 2**21  # torch takes whole pieces of 2 MiB
    assert torch.cuda.max_memory_allocated() - before < 2 * taken
    store.close()
    gc.collect()
    assert torch.cuda.memory_allocated() <= before


def test_lookahead_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lookahead is 4, rows are kept as torch\.int8 .*: give no storage_dtype"):
        cached(some_rows(400, 100, by_row=False), storage_dtype="int8", lookahead=4)


class TestFirstLayer:
    @pytest.fixture
    def block(self) -> Block:
        random = torch.Generator().manual_seed(0)
        degrees = torch.randint(9, (300,), generator=random)
        degrees[5] = 700
        indptr = torch.cat((torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)))
        indices = torch.randint(800, (int(indptr[-1]),), generator=random)
        return Block(indptr.int().cuda(), indices.int().cuda(), 800, 300)

    @pytest.mark.parametrize("kind", CODES)
    @pytest.mark.parametrize("by_row", [False, True])
    @pytest.mark.parametrize("autocast", [False, True])
    @pytest.mark.parametrize("dim", [1, 7, 12, 47, 100, 128, 256])
    def test_sums_are_those_of_gathered_rows(
        self, block: Block, kind: str, by_row: bool, autocast: bool, dim: int
    ) -> None:
        store = DeviceFeatures(some_rows(5000, dim, by_row and dim > 8), storage_dtype=kind, lazy=True)
        nodes = torch.randperm(5000)[:800].int().cuda()
        weights = [torch.randn(s, device="cuda", requires_grad=True) for s in ((8, dim), (8, dim), (8,))]
        results = []
        lazy = store.lazy_rows(nodes)
        assert (lazy.shape, lazy.dtype) == ((800, dim), torch.float32)
        assert torch.equal(lazy.gather(), store.gather(nodes))
        for x in (store.gather(nodes), lazy):
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                out = linear_self_mean(x, block, *weights)
            results.append([out, *torch.autograd.grad(out.float().square().sum(), weights)])
        for gathered, read in zip(*results, strict=True):
            assert torch.equal(gathered, read)
        store.close()

    def test_dropout_and_relu_are_those_of_rows(self, block: Block) -> None:
        store = DeviceFeatures(some_rows(800, 24, by_row=True), storage_dtype="int8", lazy=True)
        everyone = torch.arange(800, dtype=torch.int32, device="cuda")
        eye, zero = torch.eye(24, device="cuda"), torch.zeros(24, 24, device="cuda")
        for weights in ((eye, zero), (zero, eye)):
            results = []
            for x in (store.gather(everyone), store.lazy_rows(everyone)):
                torch.manual_seed(4)
                results.append(linear_self_mean(x, block, *weights, zero[0], relu=True, dropout=0.3))
            assert torch.equal(*results)
        store.close()

    def test_wrong_scales_are_refused(self, block: Block) -> None:
        codes = torch.zeros(5000, 24, dtype=torch.int8, device="cuda")
        nodes = torch.arange(800, device="cuda").int()
        weights = [torch.randn(s, device="cuda") for s in ((8, 24), (8, 24), (8,))]
        for scales, message in (
            (torch.ones(1, 23, device="cuda"), r"scales has shape \(1, 23\)"),
            (torch.ones(24, device="cuda"), r"scales has shape \(24,\)"),
            (torch.ones(1, 24, device="cuda").double(), r"dtype torch\.float64"),
            (torch.ones(1, 24), "scales lies on cpu"),
        ):
            with pytest.raises(ValueError, match=message):
                linear_self_mean(LazyRows(codes, nodes, scales), block, *weights)
        with pytest.raises(TypeError, match=r"the table has dtype torch\.float32; rows with scales are int8"):
            linear_self_mean(LazyRows(codes.float(), nodes, torch.ones(1, 24, device="cuda")), block, *weights)
        with pytest.raises(TypeError, match=r"x has dtype torch\.int8"):
            linear_self_mean(LazyRows(codes, nodes), block, *weights)

    @pytest.mark.parametrize("by_row", [False, True])
    @pytest.mark.parametrize("columns", [24, 100])
    def test_captured_blocks_read_codes(self, by_row: bool, columns: int) -> None:
        store = DeviceFeatures(some_rows(10_000, columns, by_row), storage_dtype="int8", lazy=True)
        batches = []
        for degree in (3, 9, 1):
            random = torch.Generator().manual_seed(degree)
            indptr = torch.arange(0, 40 * degree + 1, degree, dtype=torch.int32)
            indices = torch.randint(40 + 10 * degree, (40 * degree,), generator=random).int()
            nodes = torch.randperm(10_000, generator=random)[: 40 + 10 * degree].int().cuda()
            block = Block(indptr.cuda(), indices.cuda(), len(nodes), 40)
            y = torch.zeros(40, dtype=torch.int64, device="cuda")
            batches.append(MiniBatch(nodes, (40, len(nodes)), (block,), rows=store.lazy_rows(nodes), y=y))
        captured = CapturedBatch(batches[1], Room.of(batches[1]).widened(0.1, 16))
        weights = [torch.randn(s, device="cuda") for s in ((6, columns), (6, columns), (6,))]
        stand_in = captured.batch.features
        assert isinstance(stand_in, LazyRows)
        for batch in batches:
            assert captured.holds(batch)
            assert batch.rows is not None
            wanted = linear_self_mean(batch.rows, batch.blocks[0], *weights)
            captured.load(batch)
            got = linear_self_mean(stand_in, captured.blocks[0], *weights)
            torch.testing.assert_close(got[:40], wanted)
            assert torch.equal(got[40:], weights[2].expand(got.shape[0] - 40, 6))
        other = DeviceFeatures(some_rows(10_000, columns, by_row), storage_dtype="int8", lazy=True)
        kind = Kind.of(batch.replace(rows=other.lazy_rows(batch.nodes)))
        assert kind is not None
        assert kind != captured.kind  # the scales are of another table
