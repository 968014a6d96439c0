"""Gathering of rows from host memory."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from loader import _core
from loader.stores import FeatureStore, HostFeatures
from loader.stores.rows import CONVERTIBLE


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.bool]
)
def test_rows_equal_index_select(dtype: torch.dtype, index: torch.dtype, num_threads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for num_nodes, dim, n in [(1, 1, 1), (7, 3, 0), (50, 1, 200), (300, 129, 999), (40, 0, 5), (64, 2000, 1000)]:
        table = torch.randint(0, 2, (num_nodes, dim), generator=generator).to(dtype)
        nodes = torch.randint(num_nodes, (n,), generator=generator).to(index)
        rows = HostFeatures(table, num_threads).gather(nodes)
        assert rows.dtype == dtype
        assert rows.shape == (n, dim)
        assert torch.equal(rows, table.index_select(0, nodes))


def test_stores_have_the_properties_of_the_protocol() -> None:
    store = HostFeatures(torch.zeros(5, 3, dtype=torch.float16), num_threads=2)
    assert isinstance(store, FeatureStore)
    assert (store.num_rows, store.dim, store.dtype, store.num_threads) == (5, 3, torch.float16, 2)
    assert HostFeatures(torch.zeros(5, 3)).num_threads >= 1


def test_a_memory_mapped_table_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    values = np.random.default_rng(0).random((500, 8), dtype=np.float32)
    np.save(path, values)
    mapped = np.load(path, mmap_mode="r+")
    table = torch.from_numpy(mapped)
    store = HostFeatures(table, 2)
    assert store.tensor.data_ptr() == mapped.ctypes.data
    nodes = torch.tensor([499, 0, 250, 0])
    assert np.array_equal(store.gather(nodes).numpy(), values[nodes.numpy()])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("bad", [-1, 10, 2**31 - 1, -(2**31)])
def test_an_id_out_of_range_is_named(bad: int, dtype: torch.dtype) -> None:
    store = HostFeatures(torch.zeros(10, 4), 2)
    nodes = torch.tensor([0, 9, bad, 99], dtype=dtype)
    with pytest.raises(ValueError, match=rf"ids\[2\] is {bad}; the table has 10 rows, valid ids are 0 to 9"):
        store.gather(nodes)


def test_a_wide_bad_id_is_not_truncated() -> None:
    with pytest.raises(ValueError, match=str(2**32)):
        HostFeatures(torch.zeros(10, 4)).gather(torch.tensor([2**32]))


@pytest.mark.parametrize(
    ("tensor", "num_threads", "error", "message"),
    [
        ([[1.0]], 1, TypeError, "features is a list"),
        (torch.tensor(3.0), 1, ValueError, r"\[num_rows, \.\.\.\]"),
        (torch.zeros(3, 4).t(), 1, ValueError, "contiguous"),
        (torch.zeros(3, 4, device="meta"), 1, ValueError, "lies on meta"),
        (torch.zeros(3, 4), 0, ValueError, "num_threads is 0"),
    ],
)
def test_bad_tables_are_refused(tensor: object, num_threads: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        HostFeatures(tensor, num_threads)


def test_bad_nodes_are_refused() -> None:
    store = HostFeatures(torch.zeros(10, 4))
    with pytest.raises(TypeError, match=r"ids has dtype torch.float32"):
        store.gather(torch.zeros(3))
    with pytest.raises(TypeError, match=r"ids has dtype torch\.bool; .*: ids\.nonzero\(\)\.view\(-1\)"):
        store.gather(torch.zeros(10) > 0)
    with pytest.raises(ValueError, match="1 dimension"):
        store.gather(torch.zeros(3, 1, dtype=torch.int64))


def test_nodes_need_not_be_contiguous() -> None:
    table = torch.arange(20.0).view(10, 2)
    nodes = torch.arange(10)[::2]
    assert torch.equal(HostFeatures(table).gather(nodes), table[nodes])


def test_a_closed_store_says_so() -> None:
    store = HostFeatures(torch.zeros(10, 4))
    store.close()
    store.close()
    with pytest.raises(RuntimeError, match="was closed"):
        store.gather(torch.tensor([1]))


def test_threads_share_a_store() -> None:
    table = torch.randn(200, 600)
    store = HostFeatures(table, 2)
    wrong: list[int] = []

    def gather(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(20):
            nodes = torch.randint(200, (600,), generator=generator)
            if not torch.equal(store.gather(nodes), table[nodes]):
                wrong.append(seed)

    threads = [threading.Thread(target=gather, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_used_again_only_after_release() -> None:
    table = torch.randn(1000, 1024)  # an output of 4 MB
    store = HostFeatures(table, 2)
    nodes = torch.arange(1000)
    held = store.gather(nodes)
    view = held[10:]
    other = store.gather(nodes.flip(0))
    assert other.data_ptr() != held.data_ptr()
    place = held.data_ptr()
    del held  # a view still holds the memory
    assert store.gather(nodes.flip(0)).data_ptr() != place
    assert torch.equal(view, table[10:])
    del view
    places = {store.gather(nodes).data_ptr() for _ in range(20)}
    assert len(places) == 1  # each was dropped before the next was asked for


@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16])
def test_rows_have_any_shape(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    table = torch.randint(0, 9, (30, *shape)).to(dtype)
    store = HostFeatures(table, 2)
    nodes = torch.tensor([29, 0, 29, 7])
    assert (store.num_rows, store.row_shape, store.dim) == (30, shape, table[0].numel())
    assert torch.equal(store.gather(nodes), table[nodes])
    assert store.gather(nodes[:0]).shape == (0, *shape)


@pytest.mark.parametrize("kept", CONVERTIBLE)
@pytest.mark.parametrize("returned", CONVERTIBLE)
def test_conversion_is_that_of_torch(kept: torch.dtype, returned: torch.dtype) -> None:
    sizes = torch.tensor([1e-8, 1e-6, 1, 3, 1e5, 1e30, 1e-40])
    table = torch.randn(50, 7) * sizes[torch.randint(7, (50, 7))]  # a column of one size below float16's is refused
    if kept == torch.float16:
        table.clamp_(-65504, 65504)
    store = HostFeatures(table, 2, storage_dtype=kept, dtype=returned)
    assert (store.storage_dtype, store.dtype) == (kept, returned)
    nodes = torch.randint(50, (80,))
    assert torch.equal(store.gather(nodes), table.to(kept)[nodes].to(returned))


def floats() -> torch.Tensor:
    """Those of 16 bits, those halfway between two of them, their next neighbors on both sides, and any others."""
    bits = torch.arange(-(2**15), 2**15).to(torch.int16)
    narrow = [bits.view(dtype).float() for dtype in (torch.float16, torch.bfloat16)]
    ties = [(values[1:] + values[:-1]) / 2 for values in narrow]
    near = [torch.nextafter(values, torch.tensor(end)) for values in ties for end in (-torch.inf, torch.inf)]
    generator = torch.Generator().manual_seed(0)
    others = torch.randint(-(2**31), 2**31, (2**18,), generator=generator).to(torch.int32).view(torch.float32)
    return torch.cat([*narrow, *ties, *near, others])


@pytest.mark.parametrize("kept", CONVERTIBLE)
@pytest.mark.parametrize("returned", CONVERTIBLE)
def test_every_number_is_converted_as_by_torch(kept: torch.dtype, returned: torch.dtype) -> None:
    values = floats() if kept == torch.float32 else torch.arange(-(2**15), 2**15).to(torch.int16).view(kept)
    for columns in (1, 7, 32):  # vectors, and what is left of them
        table = values[: len(values) // columns * columns].view(-1, columns)
        ids = torch.randperm(len(table), generator=torch.Generator().manual_seed(1))
        out = torch.empty(len(ids), columns, dtype=returned)
        _core.Gatherer(2).gather_converted(table, ids.int(), out)
        wanted = table[ids].to(returned)
        bits = torch.int32 if returned == torch.float32 else torch.int16
        assert bool(((out.view(bits) == wanted.view(bits)) | (out.isnan() & wanted.isnan())).all())


def test_the_core_refuses_what_it_cannot_convert() -> None:
    gatherer, ids = _core.Gatherer(1), torch.tensor([0])
    table, out = torch.zeros(3, 4, dtype=torch.float16), torch.zeros(1, 4)
    with pytest.raises(TypeError, match=r"out has dtype torch\.float64; it must be float32, float16 or bfloat16"):
        gatherer.gather_converted(table, ids, out.double())
    with pytest.raises(TypeError, match=r"table has dtype torch\.int16; it must be float32, float16 or bfloat16"):
        gatherer.gather_converted(table.view(torch.int16), ids, out)
    with pytest.raises(ValueError, match=r"out has rows of 3 elements, the table of 4"):
        gatherer.gather_converted(table, ids, out[:, :3].contiguous())
    with pytest.raises(ValueError, match=r"ids\[0\] is 3; the table has 3 rows"):
        gatherer.gather_converted(table, ids + 3, out)


@pytest.mark.parametrize("other", [0.0, torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("value", [-65520.0, 1e6])
def test_rows_too_large_to_keep_are_refused(value: float, other: float) -> None:
    table = torch.zeros(5, 3)
    table[2, 1], table[0, 0] = value, other
    with pytest.raises(ValueError, match=r"numbers end at 65504, and features go .*; scale them"):
        HostFeatures(table, storage_dtype="float16")
    assert torch.equal(HostFeatures(table, storage_dtype="bfloat16").gather(torch.tensor([2])), table[2:3].bfloat16())
    table[3, 0] = torch.nan  # beside which it is found, too
    table[4, 2] = torch.inf
    with pytest.raises(
        ValueError, match=r"numbers end at 65504, and features go from (-65520 to 0|0 to 1e[+]06); scale them"
    ):
        HostFeatures(table, storage_dtype="float16")
    table[2, 1] = torch.inf  # which the table has itself
    assert HostFeatures(table, storage_dtype="float16").gather(torch.tensor([2]))[0, 1] == torch.inf


def test_types_that_do_not_convert_are_refused() -> None:
    labels = torch.arange(4)
    with pytest.raises(TypeError, match=r"dtype is torch.float16 for rows of torch.int64"):
        HostFeatures(labels, dtype="float16")
    with pytest.raises(TypeError, match=r"storage_dtype is torch.int32 for rows of torch.float32"):
        HostFeatures(torch.zeros(4), storage_dtype=torch.int32)
    with pytest.raises(TypeError, match=r"'half_float'; it must be a torch.dtype or its name"):
        HostFeatures(torch.zeros(4), dtype="half_float")
    assert HostFeatures(torch.zeros(4), dtype="float16").dtype == torch.float16


def test_outputs_outlive_the_store() -> None:
    table = torch.randn(1000, 1024)
    store = HostFeatures(table)
    rows = store.gather(torch.arange(1000))
    store.close()
    del store
    assert torch.equal(rows, table)
