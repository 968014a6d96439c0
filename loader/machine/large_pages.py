"""Host memory that a GPU reads by large pages.

A GPU keeps the places of the pages that it read last. Those of memory that the driver locked are small, whatever pages
the system has, so random rows of a table of many GiB are mostly on pages whose place is looked up first. Memory that
the driver itself makes by its virtual memory management has pages of 2 MiB for the GPU, too.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from loader.machine.virtual_memory import (
    ON_DEVICE,
    ON_HOST_NODE,
    PINNED,
    READ_WRITE,
    U64,
    Access,
    Driver,
    Location,
    Prop,
)

FROM_BYTES = 6 << 30  # an H200 reads tables of 4 GB as fast without
_PART = 1 << 30  # bytes that are made at once
_HOST_NODE, _MAKES_ON_HOST_NODES = (
    134,
    141,
)  # CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, ..._HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT...
_ADVICE = "host memory for the GPU could not be made"

_lock = threading.RLock()  # a finalizer may run inside
_made: dict[int, tuple[int, int]] = {}  # address -> its end, and the GPU that reads it


def large_page_memory(nbytes: int) -> Tensor | None:
    """`[nbytes]` uint8 of fresh host memory that the current GPU reads by large pages, at the addresses of the host.

    It is locked, and it is freed with the last tensor that refers to it.

    Returns:
        None if the driver does not make such memory, or not this much of it.
    """
    torch.cuda.current_stream()  # makes a context, if there is none
    device = torch.cuda.current_device()
    try:
        driver = Driver(_ADVICE)
        makes, node = _attribute(driver, _MAKES_ON_HOST_NODES, device), _attribute(driver, _HOST_NODE, device)
        if not makes:
            return None
        return _make(driver, nbytes, device, max(node, 0))
    except (OSError, AttributeError, RuntimeError):  # an old driver, or too little memory: who asks has another way
        return None


def is_on_large_pages(tensor: Tensor) -> bool:
    """Whether the current GPU reads this memory, made by `large_page_memory`, at the addresses of the host."""
    begin = tensor.data_ptr()
    end = begin + tensor.numel() * tensor.element_size()
    with _lock:
        return any(at <= begin and end <= to and gpu == torch.cuda.current_device() for at, (to, gpu) in _made.items())


def _attribute(driver: Driver, name: int, device: int) -> int:
    found = ctypes.c_int()
    driver("cuDeviceGetAttribute", ctypes.byref(found), name, device)
    return found.value


def _make(driver: Driver, nbytes: int, device: int, node: int) -> Tensor:
    prop = Prop(PINNED, 0, Location(ON_HOST_NODE, node))
    unit = driver.granularity(prop)
    size, step = -(-nbytes // unit) * unit, -(-_PART // unit) * unit
    address = ctypes.c_uint64()
    driver("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), U64(0), U64(0))
    at = address.value
    mapped: list[tuple[int, int]] = []

    def free() -> None:
        with _lock:
            _made.pop(at, None)
        torch.cuda.synchronize(device)  # a kernel of any stream may still read it
        for begin, length in mapped:
            driver.library.cuMemUnmap(U64(begin), ctypes.c_size_t(length))
        driver.library.cuMemAddressFree(U64(at), ctypes.c_size_t(size))

    try:
        for begin in range(at, at + size, step):
            length, handle = min(step, at + size - begin), ctypes.c_uint64()
            driver("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(length), ctypes.byref(prop), U64(0))
            try:
                driver("cuMemMap", U64(begin), ctypes.c_size_t(length), ctypes.c_size_t(0), handle, U64(0))
            finally:
                driver("cuMemRelease", handle)  # the mapping keeps it
            mapped.append((begin, length))
        places = (Access * 2)(
            Access(Location(ON_DEVICE, device), READ_WRITE), Access(Location(ON_HOST_NODE, node), READ_WRITE)
        )
        driver("cuMemSetAccess", U64(at), ctypes.c_size_t(size), places, ctypes.c_size_t(2))
    except BaseException:
        free()
        raise
    with _lock:
        _made[at] = at + size, device
    return _tensor_of(at, nbytes, free)


def _tensor_of(address: int, nbytes: int, free: Callable[[], None]) -> Tensor:
    """Bytes at an address, which are freed with the last tensor of them."""
    kind: Any = type("Memory", (ctypes.c_uint8 * nbytes,), {})  # a class of its own can be referred to weakly
    memory = kind.from_address(address)
    weakref.finalize(memory, free).atexit = False  # the process's end frees it, too
    return torch.frombuffer(memory, dtype=torch.uint8)
