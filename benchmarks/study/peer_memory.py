"""A table in the memory of several GPUs of one machine, at one range of addresses that each of them reads.

By the virtual memory management of NVIDIA's driver (CUDA Driver API reference manual, section "Virtual Memory
Management"): each process makes its parts of the table, hands them to the others as file descriptors, and maps all
parts one behind the other. A kernel sees one array, wherever its parts lie; what lies on another GPU comes over NVLink.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.machine.freeing import free_when_done
from loader.machine.shared import RUN, local_ranks

_PARTS = 32  # at most this many of each process: so many that hot rows lie everywhere, and few file descriptors
_PATIENCE = 600.0  # seconds until another process has filled its parts
_POSIX_FILE = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_RECOMMENDED = 1  # CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
_CUDA = 2  # kDLCUDA

_tables = 0  # that this process made: all processes of a run make them in the same order


class Part(NamedTuple):
    """Bytes `begin` to `end` of a table, which lie on the GPU of process `owner`."""

    owner: int
    begin: int
    end: int


def parts_of(nbytes: int, processes: int, granularity: int) -> list[Part]:
    """The parts of a table, which the processes have in turns.

    Args:
        nbytes: of the table, at least 1.
        processes: that share it.
        granularity: of the driver's memory, in bytes.

    Returns:
        Parts one behind the other, of equal size, a multiple of `granularity`; so the last one may be larger than what
        is left of the table.
    """
    units = -(-nbytes // granularity)
    size = max(1, -(-units // (processes * _PARTS))) * granularity
    count = -(-nbytes // size)
    return [Part(i % processes, i * size, (i + 1) * size) for i in range(count)]


def peer_table(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, fill: Callable[[Tensor, int], None]
) -> Tensor:
    """A table that the processes of the run on this machine share, each with parts of it on its GPU.

    All of them have to call this, with the same shape and type. It returns when all parts are filled. Memory is freed
    when no process refers to the tensor any more; a view of it does not count.

    Args:
        shape, dtype: of the table, of at least one byte.
        device: the GPU of this process, which is the current one.
        fill: `fill(part, begin)` writes a part of this process, `[n]` uint8 on `device`, which begins at byte `begin`.

    Raises:
        RuntimeError: the GPUs do not reach each other's memory, there is too little, or a process did not come.
    """
    global _tables
    nbytes = math.prod(shape) * dtype.itemsize
    rank, processes = local_ranks()
    driver = _Driver()
    prop = _Prop(_PINNED, _POSIX_FILE, _Location(_ON_DEVICE, device.index))
    granularity = ctypes.c_size_t()
    driver("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(prop), _RECOMMENDED)
    parts = parts_of(nbytes, processes, granularity.value)
    address = ctypes.c_uint64()
    size = parts[-1].end
    driver("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), _U64(0), _U64(0))
    mapped: list[Part] = []
    free = partial(_free, driver.library, device, address.value, size, mapped)
    release = weakref.finalize(driver, free_when_done, device, free)

    def put(part: Part, handle: ctypes.c_uint64) -> None:
        begin, length = _U64(address.value + part.begin), ctypes.c_size_t(part.end - part.begin)
        driver("cuMemMap", begin, length, ctypes.c_size_t(0), handle, _U64(0))
        mapped.append(part)
        driver("cuMemRelease", handle)  # the mapping keeps it
        access = _Access(_Location(_ON_DEVICE, device.index), _READ_WRITE)
        driver("cuMemSetAccess", begin, length, ctypes.byref(access), ctypes.c_size_t(1))

    mine: list[int] = []
    _tables += 1
    meeting = _Meeting(rank, processes, _tables)
    try:
        table = _tensor_at(address.value, nbytes, device)
        for part in (part for part in parts if part.owner == rank):
            handle, file = ctypes.c_uint64(), ctypes.c_int()
            length = ctypes.c_size_t(part.end - part.begin)
            driver("cuMemCreate", ctypes.byref(handle), length, ctypes.byref(prop), _U64(0))
            driver("cuMemExportToShareableHandle", ctypes.byref(file), handle, _POSIX_FILE, _U64(0))
            mine.append(file.value)
            put(part, handle)
            fill(table[part.begin : min(part.end, nbytes)], part.begin)
        torch.cuda.synchronize(device)
        meeting.hand_out(mine)
        for other in range(processes):
            if other == rank:
                continue
            theirs = [part for part in parts if part.owner == other]  # maybe none of a small table
            for part, file_descriptor in zip(theirs, meeting.receive(other, len(theirs)), strict=True):
                handle = ctypes.c_uint64()
                as_pointer = ctypes.c_void_p(file_descriptor)
                try:
                    driver("cuMemImportFromShareableHandle", ctypes.byref(handle), as_pointer, _POSIX_FILE)
                finally:
                    os.close(file_descriptor)
                put(part, handle)
        meeting.wait()
    except BaseException:
        release()
        raise
    finally:
        meeting.close()
        for file_descriptor in mine:
            os.close(file_descriptor)
    release.detach()
    table = table.view(dtype).view(shape)
    weakref.finalize(table, free_when_done, device, free)
    return table


def _free(library: Any, device: torch.device, address: int, size: int, mapped: list[Part]) -> None:
    with torch.cuda.device(device):
        for part in mapped:
            library.cuMemUnmap(_U64(address + part.begin), ctypes.c_size_t(part.end - part.begin))
        library.cuMemAddressFree(_U64(address), ctypes.c_size_t(size))


class _Meeting:
    """Where processes hand each other file descriptors: a socket of each, which only the same user's may speak to."""

    def __init__(self, rank: int, processes: int, number: int) -> None:
        key = repr((os.getuid(), [os.environ.get(name) for name in RUN], number))
        self._name = f"\0gnn-loader-{hashlib.sha256(key.encode()).hexdigest()[:24]}-"
        self._others = processes - 1
        self._served: threading.Thread | None = None
        self._error: list[BaseException] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_PATIENCE)
        if self._others:
            self._socket.bind(self._name + str(rank))
            self._socket.listen(processes)

    def hand_out(self, files: list[int]) -> None:
        """Begins to give the descriptors to all others, in a thread."""

        def serve() -> None:
            try:
                for _ in range(self._others):
                    other, _ = self._socket.accept()
                    with other:
                        _check_user(other)
                        socket.send_fds(other, [b"."], files)
                        other.recv(1)  # until the other one has them
            except BaseException as error:
                self._error.append(error)

        self._served = threading.Thread(target=serve, name="peer memory", daemon=True)
        self._served.start()

    def receive(self, rank: int, count: int) -> list[int]:
        """The descriptors of process `rank`, when it hands them out."""
        deadline = time.monotonic() + _PATIENCE
        with socket.socket(socket.AF_UNIX) as there:
            there.settimeout(_PATIENCE)
            while True:
                try:
                    there.connect(self._name + str(rank))
                    break
                except ConnectionRefusedError:
                    if time.monotonic() > deadline:
                        raise RuntimeError(
                            f"process {rank} of this machine did not come to share its GPU's memory within "
                            f"{_PATIENCE:.0f} s; all processes of a run must make their stores in the same order"
                        ) from None
                    time.sleep(0.02)
            _check_user(there)
            _, files, _, _ = socket.recv_fds(there, 1, count)
            there.sendall(b".")
        if len(files) != count:
            raise RuntimeError(f"process {rank} of this machine has {len(files)} parts of the table, not {count}")
        return list(files)

    def wait(self) -> None:
        """Until all others have the descriptors."""
        if self._served is not None:
            self._served.join()
        if self._error:
            raise RuntimeError("the GPUs' memory could not be shared with the other processes") from self._error[0]

    def close(self) -> None:
        self._socket.close()


def _check_user(other: socket.socket) -> None:
    _, uid, _ = struct.unpack("3i", other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.getuid():
        raise RuntimeError(f"a process of user {uid} asked for this run's GPU memory")


_U64 = ctypes.c_uint64


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Prop(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class _Driver:
    """Calls of NVIDIA's driver in the context that is current; what it refuses is a RuntimeError."""

    def __init__(self) -> None:
        self.library: Any = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            word = ctypes.c_char_p()
            self.library.cuGetErrorName(status, ctypes.byref(word))
            what = word.value.decode() if word.value else f"error {status}"
            raise RuntimeError(
                f"{name}: {what}; ShardedFeatures needs GPUs that reach each other's memory (nvidia-smi topo -m), and "
                "room for its part of the rows on each; else take DeviceFeatures or CachedFeatures"
            )


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


def _tensor_at(address: int, nbytes: int, device: torch.device) -> Tensor:
    """The bytes at an address as a tensor, which does not own them, by DLPack (https://dmlc.github.io/dlpack)."""
    shape = (ctypes.c_int64 * 1)(nbytes)
    kind = _CUDA if device.type == "cuda" else 1
    held = _DLTensor(address, kind, device.index or 0, 1, 1, 8, 1, shape, None, 0, None, None)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    tensor: Tensor = torch.utils.dlpack.from_dlpack(new(ctypes.addressof(held), b"dltensor", None))
    _ALIVE.append((held, shape))  # torch reads the struct again when it frees the tensor
    return tensor


_ALIVE: list[Any] = []
