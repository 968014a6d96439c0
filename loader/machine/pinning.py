"""Tensors in pinned host memory, which a GPU reads without a copy."""

from __future__ import annotations

import threading
import weakref
from functools import partial

import torch
from torch import Tensor

from loader import _core
from loader.machine.freeing import free_when_done
from loader.machine.pages import use_huge_pages
from loader.machine.shared import shared_copy

_lock = threading.RLock()  # a finalizer may run inside
# What is locked, by first byte and length, and how often it is held.
_locked: dict[tuple[int, int], tuple[_core.HostRegistration, int]] = {}


def host_memory(nbytes: int) -> Tensor:
    """`nbytes` bytes of fresh host memory, aligned to 2 MiB and on huge pages where the system has them."""
    return torch.frombuffer(_core.BufferPool(0).take(nbytes), dtype=torch.uint8)


class PinnedTensor:
    """A CPU tensor whose memory is locked for the GPU, until `release` or the end of this object.

    The tensor's own memory is put on huge pages, about a second per GiB, and locked in place. Where that cannot be,
    because it is a memory-mapped file that the system does not lock or because another tensor on the same page is
    locked already, the values are copied once to memory of our own; `tensor` is the copy then. Locking rounds nothing
    up, as an allocator of pinned memory that keeps powers of two does. Tensors that torch pinned are used as they
    are. Several may lock the same memory. If several processes of a run on this machine map the same file, they share
    one copy, which each of them locks.

    Args:
        tensor: contiguous, on the CPU.
        copy: always copy. Memory of our own begins on a line of 128 bytes, so rows of whole lines are read in as
            few requests as possible; torch aligns its memory to 64 bytes.

    Attributes:
        tensor: the locked tensor.
        address: where the current GPU sees it; 0 for an empty one.

    Raises:
        RuntimeError: the system does not lock that much memory.
    """

    def __init__(self, tensor: Tensor, *, copy: bool = False) -> None:
        self.tensor = tensor
        self.address = 0
        self._finalizer: weakref.finalize | None = None
        if tensor.numel() == 0:
            return
        shared = shared_copy(tensor)
        if shared is not None or copy or not self._hold_in_place():
            nbytes = tensor.numel() * tensor.element_size()
            if shared is None:
                shared = host_memory(nbytes).view(tensor.dtype).view(tensor.shape).copy_(tensor)
            self.tensor = shared
            try:
                self._hold()
            except RuntimeError as error:
                raise RuntimeError(
                    f"{error}; {nbytes / 2**30:.2f} GiB had to be locked (`ulimit -l` may limit it). Rows can stay in "
                    "pageable memory by features=staged, a graph can lie on the GPU"
                ) from error
        self.address = _core.cuda_device_address(self.tensor, torch.cuda.current_device())

    def release(self) -> None:
        """Waits for the GPU and unlocks the memory, unless another holds it too."""
        if self._finalizer is not None:
            self._finalizer()

    def _hold_in_place(self) -> bool:
        try:
            self._hold()
        except RuntimeError:
            return False
        return True

    def _hold(self) -> None:
        begin = self.tensor.data_ptr()
        key = (begin, self.tensor.numel() * self.tensor.element_size())
        with _lock:
            for known in _locked:
                if known[0] <= begin and begin + key[1] <= known[0] + known[1]:
                    key = known
            if key not in _locked and self.tensor.is_pinned():
                return  # by torch, which keeps it so as long as the tensor lives
            if key not in _locked:
                use_huge_pages(self.tensor)  # locked pages stay where they are
            registration, holders = _locked.get(key) or (
                _core.HostRegistration(self.tensor, torch.cuda.current_device()),
                0,
            )
            _locked[key] = (registration, holders + 1)
        self._finalizer = weakref.finalize(
            self, free_when_done, torch.cuda.current_device(), partial(_release, key, self.tensor)
        )


def _release(key: tuple[int, int], _: Tensor) -> None:
    # The memory is there until it is unlocked: another tensor might lie there, and would seem to be locked.
    with _lock:
        registration, holders = _locked.pop(key)
        if holders > 1:
            _locked[key] = (registration, holders - 1)
        else:
            registration.release()
