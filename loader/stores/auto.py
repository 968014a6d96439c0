"""The default store of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor

from loader.machine.arguments import as_number
from loader.machine.devices import as_device
from loader.machine.gpu import cuda_device, free_bytes, require_cuda
from loader.machine.hardware import usable_memory
from loader.machine.mapped import is_mapped
from loader.stores.base import FeatureStore, StoreContext
from loader.stores.cached import SLOT_BYTES, CachedFeatures
from loader.stores.device import DeviceFeatures
from loader.stores.host import HostFeatures
from loader.stores.memmap import MemmapFeatures
from loader.stores.pinned import PinnedFeatures
from loader.stores.rows import RowFormat, RowOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

GPU_SHARE = 0.5  # of the GPU memory that is free, that rows may take by default
_HOST_SHARE = 0.5  # of the memory that processes here may use, that rows may take which are expected to stay there
_LOCKED_SHARE = 0.5  # of the same memory, that may be locked for GPUs to read


def auto_features(
    tensor: Tensor,
    device: str | int | torch.device | None = None,
    *,
    gpu_share: float = GPU_SHARE,
    num_threads: int | None = None,
    context: StoreContext | None = None,
    **options: Unpack[RowOptions],
) -> FeatureStore:
    """The fastest store that there is room for, for mini-batches on `device`.

    On a CPU this is `HostFeatures`, or `MemmapFeatures` if the rows lie in a file and take more than half of the memory
    that processes here may use. On a GPU it is the first of these whose condition holds:

    `DeviceFeatures` (`lazy` if possible), if all rows fit into `gpu_share` of the GPU memory that is free now.

    `MemmapFeatures`, if the rows of all processes on this machine take more than half of the memory that they may use:
    this much memory must not be page-locked.

    `PinnedFeatures`, if a cache of the size above has no room for a row, or nothing says which rows are read most.

    `CachedFeatures`, with a cache of that size.

    Args:
        tensor: `[num_rows, ...]` on the CPU; memory-mapped if it is larger than memory.
        device: "cpu", or the GPU, by default the current one.
        gpu_share: share of the free GPU memory to use, in (0, 1].
        num_threads: threads of a gather by the CPU, see the stores.
        context: says which rows are read most, if its graph has one node per row; `open_store` passes it.
        options: see `RowOptions`.

    Raises:
        TypeError, ValueError: an option is out of its range; and as the stores.
        RuntimeError: `device` is a GPU, and the build or the machine has no CUDA.
    """
    if not 0 < as_number("gpu_share", gpu_share) <= 1:
        raise ValueError(f"gpu_share is {gpu_share}; it must be in (0, 1]")
    if device is not None and as_device(device).type == "cpu":
        rows = RowFormat(tensor, **options)
        if rows.num_rows * rows.nbytes > _HOST_SHARE * usable_memory() and is_mapped(tensor):
            return MemmapFeatures(tensor, "cpu", num_threads=num_threads, **options)
        return HostFeatures(tensor, num_threads, **options)
    require_cuda("features=auto on a GPU")
    gpu = cuda_device(device)
    rows, room = RowFormat(tensor, **options), int(gpu_share * free_bytes(gpu))
    known = context is not None and context.graph.num_nodes == rows.num_rows
    kind = kind_of_rows(rows, room, known=known, lockable=may_lock(rows.num_rows * rows.nbytes))
    cache = {"budget_gib": room / 2**30}
    return open_rows(kind, tensor, gpu, cache=cache, num_threads=num_threads, context=context, **options)


def kind_of_rows(rows: RowFormat, room: int, *, known: bool, lockable: bool) -> str:
    """Which of the stores of `auto_features` on a GPU has room for the rows: "device", "memmap", "pinned", "cached".

    Args:
        rows: their number and format.
        room: bytes of GPU memory for them.
        known: whether something says which rows are read most.
        lockable: whether all may be page-locked.
    """
    if rows.num_rows * rows.nbytes <= room:
        return "device"
    if not lockable:
        return "memmap"
    return "cached" if known and room >= rows.num_rows * SLOT_BYTES + rows.nbytes else "pinned"


def open_rows(
    kind: str,
    tensor: Tensor,
    gpu: torch.device,
    *,
    cache: Mapping[str, Any],
    num_threads: int | None = None,
    context: StoreContext | None = None,
    **options: Unpack[RowOptions],
) -> FeatureStore:
    """The store of this kind on a GPU.

    Args:
        kind: as of `kind_of_rows`.
        cache: of "cached", the options of `CachedFeatures` that say which rows are cached.
        num_threads: of "memmap".
        tensor, context, options: see `auto_features`.
    """
    if kind == "device":
        return DeviceFeatures(tensor, gpu, lazy=None, **options)
    if kind == "pinned":
        return PinnedFeatures(tensor, gpu, **options)
    if kind == "cached":
        return CachedFeatures(tensor, gpu, context=context, **cache, **options)
    return MemmapFeatures(tensor, gpu, num_threads=num_threads, **options)


def may_lock(nbytes: int) -> bool:
    """Whether each process here may page-lock this many bytes."""
    return nbytes * processes_here() <= _LOCKED_SHARE * usable_memory()


def processes_here() -> int:
    """Processes of a distributed run on this machine, or on all machines if the run does not say how many are here."""
    if local := os.environ.get("LOCAL_WORLD_SIZE"):
        return int(local)
    started = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if started else 1
