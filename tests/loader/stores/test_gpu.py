"""The stores on a GPU return the bytes of `tensor[nodes].to(dtype)`, wherever the rows are kept."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from marks import HAS_GPU, needs_two_gpus
from torch import Tensor

from loader.machine.pinning import PinnedTensor, _locked
from loader.stores import (
    CachedFeatures,
    DeviceFeatures,
    FeatureStore,
    MemmapFeatures,
    PinnedFeatures,
    StagedFeatures,
)
from loader.stores.deviations import check_deviations
from loader.stores.rows import CONVERTIBLE


def cached(tensor: Tensor, *args: Any, **options: Any) -> CachedFeatures:
    scores = torch.randperm(tensor.shape[0], generator=torch.Generator().manual_seed(0))
    return CachedFeatures(tensor, *args, **{"fraction": 0.4, "hotness": scores, **options})


def helped(tensor: Tensor, *args: Any, **options: Any) -> CachedFeatures:
    """Threads of the host take part, however few ids there are."""
    store = cached(tensor, *args, host_threads=2, **options)
    if store._host is not None:
        store._host.least = 1
    return store


STORES: dict[str, Callable[..., Any]] = {
    "device": DeviceFeatures,
    "pinned": PinnedFeatures,
    "copied": partial(PinnedFeatures, copy=True),
    "staged": partial(StagedFeatures, num_threads=2, buffer_mib=1),
    "cached": cached,
    "all-cached": partial(cached, fraction=1.0),
    "none-cached": partial(cached, fraction=0.0),
    "helped": helped,
}
WAITING = ("staged", "helped")  # whose host takes part
KERNELS = [name for name in STORES if name not in WAITING]
FAR = ["pinned", "copied", "cached", "all-cached", "none-cached"]  # whose kernel reads host memory
CACHES = ["cached", "all-cached", "none-cached", "helped"]
every_store = pytest.mark.parametrize("name", STORES)


def in_order(store: Any) -> Any:
    """The store, its rows read by where they lie, however few, where it can do that."""
    if isinstance(store, PinnedFeatures | CachedFeatures):
        store._gatherer.order_from = 0
    return store


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
@pytest.mark.parametrize("name", [*STORES, "memmap"])
def test_a_missing_gpu_is_named(name: str) -> None:
    make = partial(MemmapFeatures, device="cuda") if name == "memmap" else STORES[name]
    with pytest.raises(RuntimeError, match=r"needs an NVIDIA GPU"):
        make(torch.zeros(10, 4))


def random_rows(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Values of all sizes that the type holds; no NaN, whose payload conversions do not define."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        scale = 10.0 ** torch.randint(-9, 5, shape, generator=generator)
        return (torch.randn(shape, generator=generator) * scale).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 127, shape, generator=generator).to(dtype)


def unaligned(table: Tensor, elements: int) -> Tensor:
    """The same rows at an address that is `elements` elements past an aligned one."""
    room = torch.empty(table.numel() + elements, dtype=table.dtype)
    return room[elements:].copy_(table.reshape(-1)).view(table.shape)


def differs_in(table: Tensor, dtype: torch.dtype) -> bool:
    """Whether rows still differ in a type; else it is refused, which a few rows of all sizes may be."""
    try:
        check_deviations(table, table.to(dtype), "dtype", dtype)
    except ValueError:
        return False
    return True


def same_bytes(a: Tensor, b: Tensor) -> bool:
    a, b = a.cpu().contiguous(), b.cpu().contiguous()
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
class TestOnGPU:
    @every_store
    @pytest.mark.parametrize("index", [torch.int32, torch.int64])
    @pytest.mark.parametrize("kept", CONVERTIBLE)
    @pytest.mark.parametrize("returned", CONVERTIBLE)
    def test_rows_of_every_type_arrive(
        self, name: str, index: torch.dtype, kept: torch.dtype, returned: torch.dtype
    ) -> None:
        nodes = torch.randint(400, (1500,), generator=torch.Generator().manual_seed(1)).to(index)
        for dim in (1, 2, 3, 4, 6, 8, 25, 31, 32, 33, 64, 75, 100, 128, 129, 301, 1433):
            table = random_rows((400, dim), torch.float32, seed=dim)
            store = STORES[name](table, dtype=returned, storage_dtype=kept)
            expected = table.to(kept)[nodes.long()].to(returned)
            assert same_bytes(store.gather(nodes), expected)
            assert same_bytes(store.gather(nodes.cuda()), expected)
            store.check()
            store.close()

    @every_store
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int16, torch.int32, torch.int64, torch.float64])
    def test_other_types_are_copied(self, name: str, dtype: torch.dtype) -> None:
        nodes = torch.randint(99, (500,))
        for shape in [(), (1,), (3,), (5, 7), (2, 2, 2), (129,), (1023,), (5000,)]:
            table = random_rows((99, *shape), dtype)
            store = STORES[name](table)
            assert (store.num_rows, store.row_shape, store.dtype) == (99, shape, dtype)
            assert same_bytes(store.gather(nodes.cuda()), table[nodes])
            store.close()

    @every_store
    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_any_row_at_any_address_arrives(self, name: str, data: st.DataObject) -> None:
        kept = data.draw(st.sampled_from([*CONVERTIBLE, torch.uint8, torch.int64, torch.int16]))
        returned = data.draw(st.sampled_from(CONVERTIBLE)) if kept in CONVERTIBLE else kept
        num_nodes, dim = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 300))
        table = unaligned(random_rows((num_nodes, dim), kept), data.draw(st.integers(0, 70)))
        assume(returned == kept or differs_in(table, returned))
        nodes = torch.tensor(data.draw(st.lists(st.integers(0, num_nodes - 1), max_size=200)), dtype=torch.int64)
        if data.draw(st.booleans()):
            nodes = nodes.int()
        store = STORES[name](table, dtype=returned)
        assert same_bytes(store.gather(nodes.cuda()), table[nodes.long()].to(returned))
        store.close()

    @every_store
    def test_any_number_of_rows_arrives(self, name: str) -> None:
        table = random_rows((30000, 100), torch.float32)
        store = STORES[name](table)
        generator = torch.Generator().manual_seed(2)
        for n in (0, 1, 7, 255, 256, 257, 100_000):
            nodes = torch.randint(30000, (n,), generator=generator)
            assert same_bytes(store.gather(nodes.cuda()), table[nodes])
            assert same_bytes(store.gather(nodes.sort().values.cuda().int()), table[nodes.sort().values])
        assert same_bytes(store.gather(torch.full((5000,), 29999)), table[29999].expand(5000, 100))
        store.close()

    @every_store
    def test_stores_have_the_properties_of_the_protocol(self, name: str) -> None:
        store = STORES[name](torch.zeros(5, 3), dtype="float16")
        assert isinstance(store, FeatureStore)
        assert (store.num_rows, store.dim, store.row_shape, store.dtype) == (5, 3, (3,), torch.float16)
        assert store.storage_dtype == torch.float32
        assert store.device == torch.device("cuda", torch.cuda.current_device())
        assert store.asynchronous == (name not in WAITING)
        assert type(store).__name__ in repr(store)
        store.close()

    @every_store
    def test_no_rows_give_an_empty_tensor(self, name: str) -> None:
        none = torch.empty(0, dtype=torch.int64)
        for shape in [(0, 4), (6, 0)]:
            store = STORES[name](torch.zeros(shape))
            assert store.gather(none).shape == (0, shape[1])
            store.close()
        store = STORES[name](torch.zeros(6, 0))
        assert store.gather(torch.tensor([5, 5])).shape == (2, 0)
        with pytest.raises(ValueError, match="is 6"):
            store.gather(torch.tensor([6]))
        store.close()

    @pytest.mark.parametrize("name", KERNELS)
    @pytest.mark.parametrize("bad", [-1, 10, 2**31 - 1, -(2**31), 2**40])
    def test_a_bad_id_reads_nothing_and_is_reported(self, name: str, bad: int) -> None:
        table = torch.rand(10, 33) + 1
        store = STORES[name](table)
        nodes = torch.tensor([0, 9, bad, 3])
        for ids in [nodes] if abs(bad) > 2**31 else [nodes, nodes.int()]:
            rows = store.gather(ids.cuda())
            with pytest.raises(ValueError, match=rf"ids\[2\] = {bad}; the table has 10 rows, valid ids are 0 to 9"):
                store.check()
            assert same_bytes(rows[2], torch.zeros(33))
            assert same_bytes(rows[[0, 1, 3]], table[[0, 9, 3]])
            store.check()  # told once
            store.gather(ids.cuda())
            torch.cuda.synchronize()
            with pytest.raises(ValueError, match=str(bad)):
                store.gather(nodes[:1])
            assert same_bytes(store.gather(nodes[:1]), table[:1])
        store.close()

    @pytest.mark.parametrize("on", ["cpu", "cuda"])
    def test_a_staged_store_raises_at_once(self, on: str) -> None:
        store = StagedFeatures(torch.zeros(10, 200_000), buffer_mib=1)  # one row a buffer
        with pytest.raises(ValueError, match=r"ids\[5\] is 10; the table has 10 rows"):
            store.gather(torch.tensor([0, 1, 2, 3, 4, 10, -1], device=on))
        assert store.gather(torch.tensor([9, 9])).shape == (2, 200_000)
        store.close()

    @every_store
    def test_bad_arguments_are_refused(self, name: str) -> None:
        make = STORES[name]
        with pytest.raises(ValueError, match="device is 'cpu'; it must be a GPU"):
            make(torch.zeros(3, 4), device="cpu")
        with pytest.raises(ValueError, match=r"device is 'cuda:99'; this machine has"):
            make(torch.zeros(3, 4), device="cuda:99")
        with pytest.raises(ValueError, match="contiguous"):
            make(torch.zeros(3, 4).t())
        with pytest.raises(TypeError, match="features is a list"):
            make([1.0]) if name not in CACHES else CachedFeatures([1.0], fraction=1)
        with pytest.raises(TypeError, match="convert"):
            make(torch.zeros(3, dtype=torch.int64), dtype="float32")
        store = make(torch.zeros(3, 4))
        with pytest.raises(TypeError, match=r"ids has dtype torch\.float32"):
            store.gather(torch.zeros(3))
        with pytest.raises(ValueError, match="1 dimension"):
            store.gather(torch.zeros(3, 1, dtype=torch.int64))
        store.close()

    @every_store
    def test_a_closed_store_says_so(self, name: str) -> None:
        store = STORES[name](torch.zeros(10, 4))
        store.close()
        store.close()
        with pytest.raises(RuntimeError, match="was closed; make a new one"):
            store.gather(torch.tensor([1]))

    @every_store
    def test_memory_is_free_after_close(self, name: str) -> None:
        table = torch.rand(20_000, 256)
        STORES[name](table[:1]).close()
        gc.collect()
        torch.cuda.synchronize()
        before, locked = torch.cuda.memory_allocated(), dict(_locked)
        for closes in (True, False):
            store = STORES[name](table)
            rows = store.gather(torch.arange(100))
            if name in ("pinned", "none-cached"):
                assert store.in_place
                assert table.is_pinned()
            if closes:
                store.close()
            del store
            gc.collect()
            assert same_bytes(rows, table[:100])
            del rows
            assert torch.cuda.memory_allocated() == before
            assert _locked == locked
            assert not table.is_pinned()

    def test_device_memory_is_used_as_it_is(self) -> None:
        table = torch.rand(1000, 64, device="cuda")
        before = torch.cuda.memory_allocated()
        store = DeviceFeatures(table)
        assert torch.cuda.memory_allocated() - before < 4096
        assert same_bytes(store.gather(torch.tensor([999, 3])), table[[999, 3]])
        store.close()

    def test_two_stores_lock_the_same_memory(self) -> None:
        table = torch.rand(1000, 64)
        first, second = PinnedFeatures(table), cached(table)
        part = PinnedFeatures(table[100:200])
        assert first.in_place
        assert second.in_place
        assert part.in_place
        first.close()
        nodes = torch.randint(100, (64,))
        assert same_bytes(part.gather(nodes), table[100:200][nodes])
        second.close()
        assert same_bytes(part.gather(nodes), table[100:200][nodes])
        part.close()
        assert not table.is_pinned()

    def test_memory_that_torch_pinned_is_used(self) -> None:
        table = torch.rand(1000, 64).pin_memory()
        store = PinnedFeatures(table)
        assert store.in_place
        nodes = torch.randint(1000, (64,))
        assert same_bytes(store.gather(nodes), table[nodes])
        store.close()
        assert table.is_pinned()

    def test_a_copy_begins_on_a_line(self) -> None:
        pinned = PinnedTensor(unaligned(torch.rand(1000, 64), 3), copy=True)
        assert pinned.address % 128 == 0  # bytes of a request of the GPU to the host
        pinned.release()

    def test_a_read_only_mapping_may_be_copied(self, tmp_path: Path) -> None:
        values = np.random.default_rng(0).random((5000, 33), dtype=np.float32)
        np.save(tmp_path / "x.npy", values)
        mapped = MemmapFeatures(tmp_path / "x.npy")
        table = mapped._open().tensor
        store = PinnedFeatures(table)
        nodes = torch.randint(5000, (700,))
        assert same_bytes(store.gather(nodes), torch.from_numpy(values)[nodes])
        store.close()

    @pytest.mark.parametrize("suffix", [".npy", ".bin"])
    def test_rows_go_from_disk_to_the_gpu(self, suffix: str, tmp_path: Path) -> None:
        values = np.random.default_rng(0).random((3000, 301), dtype=np.float32)
        path = tmp_path / f"x{suffix}"
        if suffix == ".npy":
            np.save(path, values)
            store = MemmapFeatures(path, "cuda", dtype="bfloat16", buffer_mib=1)
        else:
            values.tofile(path)
            store = MemmapFeatures(path, "cuda", dtype="bfloat16", shape=(3000, 301), storage_dtype="float32")
        nodes = torch.randint(3000, (2500,))
        assert store.device.type == "cuda"
        assert same_bytes(store.gather(nodes.cuda()), torch.from_numpy(values)[nodes].bfloat16())
        store.close()

    @pytest.mark.parametrize("name", FAR)
    @pytest.mark.parametrize("index", [torch.int32, torch.int64])
    @pytest.mark.parametrize("num_nodes", [1, 1023, 1025, 50_000])
    def test_rows_are_counted_by_their_place(self, name: str, index: torch.dtype, num_nodes: int) -> None:
        table = random_rows((num_nodes, 7), torch.float32)
        store = in_order(STORES[name](table))
        generator = torch.Generator().manual_seed(4)
        for n in (1, 31, 8192, 8193, 70_000):
            uniform = torch.randint(num_nodes, (n,), generator=generator)
            ascending = uniform.sort().values
            nearly = torch.where(torch.rand(n, generator=generator) < 0.05, uniform, ascending)
            one_place = torch.where(torch.rand(n, generator=generator) < 0.9, 0, uniform)
            for nodes in (uniform, ascending, ascending.flip(0), nearly, one_place):
                assert same_bytes(store.gather(nodes.to(index).cuda()), table[nodes])
        store.check()
        store.close()

    @pytest.mark.parametrize("name", FAR)
    def test_a_bad_id_keeps_its_reported_position(self, name: str) -> None:
        table = random_rows((5000, 33), torch.float32)
        store = in_order(STORES[name](table))
        nodes = torch.randint(5000, (20_000,), generator=torch.Generator().manual_seed(5))
        for at, bad in ((0, 5000), (12_345, -7), (19_999, 2**40)):
            ids = nodes.clone()
            ids[at] = bad
            rows = store.gather(ids.cuda())
            with pytest.raises(ValueError, match=rf"ids\[{at}\] = {bad};"):
                store.check()
            expected = table[nodes]
            expected[at] = 0
            assert same_bytes(rows, expected)
        store.close()

    def test_rows_are_read_in_order_of_address(self) -> None:
        num_nodes, n = 100_000, 60_000
        store = in_order(PinnedFeatures(torch.rand(num_nodes, 8)))
        gatherer, out = store._gatherer, torch.empty(n, 8, device="cuda")
        scratch = torch.empty(gatherer.scratch_bytes(n), dtype=torch.uint8, device="cuda")
        generator = torch.Generator().manual_seed(6)
        uniform = torch.randint(num_nodes, (n,), generator=generator)
        runs = torch.cat([part.sort().values for part in uniform.split(n // 4)])  # as the hops of a mini-batch

        def positions(nodes: Tensor) -> Tensor:
            ids = nodes.cuda()
            gatherer.gather(ids, out, scratch, 0)
            torch.cuda.synchronize()
            return scratch[-4 * n :].view(torch.int32).long().cpu()

        for ascending in (uniform.sort().values, runs):
            assert torch.equal(positions(ascending), torch.arange(n))
        short = torch.cat([part.sort().values for part in uniform.split(16)])  # each over all of the table
        for nodes in (uniform, short):
            order = positions(nodes)
            assert torch.equal(order.sort().values, torch.arange(n))
            buckets = nodes[order] // (num_nodes // 1024 + 1)
            assert bool((buckets.diff() >= 0).all())
        store.close()

    def test_a_cache_looks_at_ordered_ids_less_often(self) -> None:
        n = 50_000
        store = cached(random_rows((n, 9), torch.float32), fraction=0.3)
        store._gatherer.order_from = 1
        ascending, mixed = torch.arange(n), torch.randperm(n, generator=torch.Generator().manual_seed(7))

        def looked_at(nodes: Tensor) -> bool:
            nbytes: int = store._gatherer.scratch_bytes(n)  # as the gather asks, which is then not asked itself
            scratch, out = torch.empty(nbytes, dtype=torch.uint8, device="cuda"), torch.empty(n, 9, device="cuda")
            ids = nodes.cuda()
            store._gatherer.gather(ids, out, scratch if nbytes else None, 0)
            torch.cuda.synchronize()
            return nbytes > 0

        assert [looked_at(ascending) for _ in range(34)] == [i < 16 or i == 32 for i in range(34)]
        assert [looked_at(mixed) for _ in range(40)] == [i >= 15 for i in range(40)]
        store.close()

    def test_only_large_gathers_from_host_memory_are_ordered(self) -> None:
        large = torch.empty(2**20, 768, dtype=torch.uint8)
        for make, ordered in ((PinnedFeatures, True), (partial(cached, fraction=0.01), True), (DeviceFeatures, False)):
            store = make(large)
            gatherer = store._gatherer
            assert (gatherer.scratch_bytes(500_000) > 4 * 500_000) == ordered
            assert gatherer.scratch_bytes(1000) == 0
            store.close()
        small = PinnedFeatures(torch.empty(1000, 512, dtype=torch.uint8))
        assert small._gatherer.scratch_bytes(500_000) == 0
        with pytest.raises(ValueError, match="order_from is -1"):
            small._gatherer.order_from = -1
        small.close()

    @every_store
    def test_gathers_on_several_streams_agree(self, name: str) -> None:
        table = random_rows((20_000, 256), torch.float32)
        store = in_order(STORES[name](table))
        generator = torch.Generator().manual_seed(3)
        ids = [torch.randint(20_000, (15_000,), generator=generator) for _ in range(8)]
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        rows = []
        for i, nodes in enumerate(ids):
            with torch.cuda.stream(streams[i % 2]):
                rows.append(store.gather(nodes.cuda()))
        torch.cuda.synchronize()
        for nodes, got in zip(ids, rows, strict=True):
            assert same_bytes(got, table[nodes])
        store.close()

    @every_store
    def test_threads_share_a_store(self, name: str) -> None:
        table = random_rows((5000, 100), torch.float32)
        store = STORES[name](table)
        wrong: list[int] = []

        def gather(seed: int) -> None:
            generator = torch.Generator().manual_seed(seed)
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(10):
                    nodes = torch.randint(5000, (9000,), generator=generator)
                    if not same_bytes(store.gather(nodes), table[nodes]):
                        wrong.append(seed)

        threads = [threading.Thread(target=gather, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        store.close()

    @pytest.mark.parametrize("name", KERNELS)
    def test_the_host_does_not_wait(self, name: str) -> None:
        store = STORES[name](torch.rand(1000, 64))
        nodes = torch.randint(1000, (500,)).cuda()
        store.gather(nodes)
        torch.cuda.synchronize()
        torch.cuda._sleep(500_000_000)  # a quarter of a second
        store.gather(nodes)
        assert not torch.cuda.current_stream().query()
        torch.cuda.synchronize()
        store.close()

    @needs_two_gpus
    @every_store
    def test_a_store_may_lie_on_another_gpu(self, name: str) -> None:
        table = random_rows((1000, 100), torch.float32)
        store = STORES[name](table, device="cuda:1")
        nodes = torch.randint(1000, (500,))
        rows = store.gather(nodes)
        assert rows.device == torch.device("cuda:1")
        assert torch.cuda.current_device() == 0
        assert same_bytes(rows, table[nodes])
        with pytest.raises(ValueError, match="ids lies on cuda:0"):
            store.gather(nodes.to("cuda:0"))
        store.close()
