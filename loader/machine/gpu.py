"""Whether CUDA can be used here, which GPU is meant, what is free there and what is current."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from loader.machine.devices import as_device

# Of torch's caching allocator: sizes are multiples of the first, and up to the second of a block beyond a tensor may
# not be cut off.
_BLOCK, _SMALL = 512, 2**20


class NoGpuError(RuntimeError):
    """A GPU was asked for, and there is none that torch finds."""


def require_cuda(wanted_by: str) -> None:
    """Raises NoGpuError, with the way out, unless torch finds a GPU here."""
    if not torch.cuda.is_available():
        raise NoGpuError(
            f"{wanted_by} needs an NVIDIA GPU and a torch with CUDA; torch finds none here: run with device=cpu, or "
            "install a torch with CUDA"
        )


def cuda_device(device: str | int | torch.device | None) -> torch.device:
    """The GPU that `device` means, with its index; None is the current one.

    Raises:
        ValueError: `device` is not a GPU, or this machine has no such GPU.
    """
    if device is None:
        return torch.device("cuda", torch.cuda.current_device())
    wanted = as_device(device)
    if wanted.type != "cuda":
        raise ValueError(f"device is '{wanted}'; it must be a GPU: cuda, or cuda:0 to cuda:{_count() - 1}")
    if wanted.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    if wanted.index >= _count():
        raise ValueError(f"device is '{wanted}'; this machine has {_count()} GPUs, cuda:0 to cuda:{_count() - 1}")
    return wanted


def free_bytes(device: torch.device) -> int:
    """GPU memory that is free, and what torch's allocator holds without using it."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


COUNTED_BEYOND = _BLOCK + _SMALL  # more bytes than `counted_bytes` ever adds


def counted_bytes(nbytes: int) -> int:
    """The most that torch's allocator counts for a tensor of this size: it does not cut small ends off a block."""
    rounded = -(-nbytes // _BLOCK) * _BLOCK
    return rounded if nbytes <= _SMALL else rounded + _SMALL


def counted_beyond(nbytes: int) -> int:
    """The most that `counted_bytes` adds to a size of at most this."""
    return _BLOCK if nbytes <= _SMALL else COUNTED_BEYOND


_streams: dict[tuple[int, int, int], torch.cuda.Stream] = {}  # by what torch tells streams apart by
_AS_IT_IS = nullcontext()


def made_current(device: torch.device) -> AbstractContextManager[Any]:
    """`torch.cuda.device(device)`, or nothing where it is the current one: that takes as long as a launch.

    CUDA must be in use already: `torch.cuda.current_device()`, which makes sure, takes longer.
    """
    return _AS_IT_IS if torch._C._cuda_getDevice() == device.index else torch.cuda.device(device)


def current_stream_handle(device: int) -> int:
    """Of the stream that is current on the GPU; 0, the default stream, is that of the current GPU."""
    handle: int = torch._C._cuda_getCurrentRawStream(device)
    return handle


def launch_place(like: Tensor) -> tuple[int, int]:
    """GPU and current stream, by its handle, of launches on a tensor."""
    device = like.get_device()
    return device, current_stream_handle(device)


def current_stream(device: int) -> torch.cuda.Stream:
    """`torch.cuda.current_stream(device)`, one object for each stream: to make one takes as long as a launch.

    So `is` tells them apart, and without Python code, which `==` of streams is. An `ExternalStream` is not the stream
    of torch's that has the same handle: their ids differ.
    """
    key = torch._C._cuda_getCurrentStream(device)
    stream = _streams.get(key)
    if stream is None:
        stream_id, index, kind = key
        made = torch.cuda.Stream(stream_id=stream_id, device_index=index, device_type=kind)
        stream = _streams.setdefault(key, made)  # or another thread's
    return stream


def wait_for_made(device: torch.device) -> None:
    """Waits, on a GPU, for what the current stream is making: it is kept, and later calls read it on any stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _count() -> int:
    return torch.cuda.device_count()
