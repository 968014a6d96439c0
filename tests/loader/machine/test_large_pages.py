"""Host memory on large pages: what the driver is asked for, and when it is given back. Here the driver is a fake."""

from __future__ import annotations

import ctypes
import gc
import mmap
from typing import Any

import pytest
import torch
from marks import needs_gpu

from loader.machine import large_pages, pinning
from loader.machine.large_pages import is_on_large_pages, large_page_memory
from loader.machine.pinning import PinnedTensor
from loader.stores import PinnedFeatures

UNIT = 4096


class FakeDriver:
    """Memory of the system in place of the driver's, in pages of 4 KiB; notes what is mapped and freed."""

    def __init__(self, makes: bool = True, fails_at: int = -1) -> None:
        self.makes, self.fails_at = makes, fails_at
        self.created: list[int] = []
        self.mapped: dict[int, int] = {}
        self.access: list[tuple[int, int]] = []
        self.reserved: mmap.mmap | None = None
        self.library: Any = self

    def granularity(self, prop: Any) -> int:
        assert prop.location.type == 3
        return UNIT

    def __call__(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)

    def cuDeviceGetAttribute(self, found: Any, name: int, device: int) -> None:
        found._obj.value = {134: 0, 141: int(self.makes)}[name]

    def cuMemAddressReserve(self, address: Any, size: Any, *_: Any) -> None:
        assert size.value % UNIT == 0
        self.reserved = mmap.mmap(-1, size.value)
        address._obj.value = ctypes.addressof(ctypes.c_char.from_buffer(self.reserved))

    def cuMemCreate(self, handle: Any, length: Any, *_: Any) -> None:
        if len(self.created) == self.fails_at:
            raise RuntimeError("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY")
        self.created.append(length.value)

    def cuMemMap(self, at: Any, length: Any, *_: Any) -> None:
        self.mapped[at.value] = length.value

    def cuMemRelease(self, handle: Any) -> None:
        pass

    def cuMemSetAccess(self, at: Any, size: Any, places: Any, count: Any) -> None:
        self.access += [(place.location.type, place.flags) for place in places]

    def cuMemUnmap(self, at: Any, length: Any) -> None:
        assert self.mapped.pop(at.value) == length.value

    def cuMemAddressFree(self, at: Any, size: Any) -> None:
        self.reserved = None


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    driver = FakeDriver()
    monkeypatch.setattr(large_pages, "Driver", lambda advice: driver)
    monkeypatch.setattr(large_pages, "_PART", 3 * UNIT)
    for name in ("current_stream", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return driver


def test_memory_is_made_in_parts_and_freed(fake: FakeDriver) -> None:
    memory = large_page_memory(7 * UNIT + 5)
    assert memory is not None
    assert (memory.dtype, memory.numel()) == (torch.uint8, 7 * UNIT + 5)
    assert fake.created == [3 * UNIT, 3 * UNIT, 2 * UNIT]
    assert sum(fake.mapped.values()) == 8 * UNIT
    assert fake.access == [(1, 3), (3, 3)]  # the GPU and the host read and write
    rows = memory[: 6 * UNIT].view(torch.float32).view(-1, 16)
    rows.copy_(torch.arange(rows.numel()).view(rows.shape))
    assert is_on_large_pages(rows)
    assert not is_on_large_pages(torch.zeros(4))
    del memory
    gc.collect()
    assert float(rows[2, 3]) == 35.0  # a view keeps it
    assert fake.mapped
    del rows
    gc.collect()
    assert not fake.mapped
    assert not large_pages._made


def test_what_was_made_before_an_error_is_freed(fake: FakeDriver) -> None:
    fake.fails_at = 1
    assert large_page_memory(7 * UNIT) is None
    assert not fake.mapped
    assert not large_pages._made


def test_a_driver_without_it_makes_none(fake: FakeDriver) -> None:
    fake.makes = False
    assert large_page_memory(UNIT) is None
    assert fake.reserved is None


def test_a_machine_without_a_driver_makes_none(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(advice: str) -> Any:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(large_pages, "Driver", missing)
    assert large_page_memory(UNIT) is None


def test_such_memory_need_not_be_locked(fake: FakeDriver) -> None:
    memory = large_page_memory(UNIT)
    assert memory is not None
    lock = PinnedTensor(memory)
    assert lock.tensor is memory
    assert lock.address == memory.data_ptr()
    lock.release()


class TestOnGPU:
    pytestmark = needs_gpu

    def test_rows_are_read_from_large_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pinning, "FROM_BYTES", 1)
        x = torch.arange(30_000 * 33, dtype=torch.float32).view(-1, 33)
        store = PinnedFeatures(x, copy=True)
        if not any(to - at >= x.nbytes for at, (to, _) in large_pages._made.items()):
            pytest.skip("this driver makes no host memory on large pages")
        ids = torch.randint(30_000, (5_000,))
        assert torch.equal(store.gather(ids).cpu(), x[ids])
        store.close()
        del store
        gc.collect()
        assert not large_pages._made
