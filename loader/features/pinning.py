"""Rows in pinned host memory, which a GPU reads without a copy."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from loader import _core

_LINE = 128  # bytes of a request of the GPU to the host
_lock = threading.Lock()
_shared: dict[tuple[int, int], tuple[_core.HostRegistration, int]] = {}  # registrations and how often they are held


def host_memory(nbytes: int) -> Tensor:
    """`nbytes` bytes of fresh host memory, aligned to 2 MiB and on huge pages where the system has them."""
    return torch.frombuffer(_core.BufferPool(0).take(nbytes), dtype=torch.uint8)


class PinnedTensor:
    """A CPU tensor whose memory is locked for the GPU, until `release`.

    The tensor's own memory is locked in place. Where that cannot be, because it is a memory-mapped file that the
    system does not lock or because another tensor on the same page is locked already, the rows are copied once to
    memory of our own; `in_place` says which it was. Locking rounds nothing up, as an allocator of pinned memory
    that keeps powers of two does. Tensors that torch pinned are used as they are.

    Args:
        tensor: contiguous, on the CPU.
        copy: always copy. Memory of our own begins on a line of 128 bytes, so rows of whole lines are read in as
            few requests as possible; torch aligns its memory to 64 bytes.

    Attributes:
        tensor: the locked tensor.
        in_place: whether it is the one that was given.
        address: where the current GPU sees it.

    Raises:
        RuntimeError: the system does not lock that much memory.
    """

    def __init__(self, tensor: Tensor, *, copy: bool = False) -> None:
        self._key: tuple[int, int] | None = None
        self.in_place = not copy
        self.address = 0
        if tensor.numel() == 0:
            self.tensor = tensor
            return
        if not copy and not tensor.is_pinned():
            try:
                self._hold(tensor)
            except RuntimeError:
                self.in_place = False
        if not self.in_place:
            own = host_memory(tensor.numel() * tensor.element_size()).view(tensor.dtype).view(tensor.shape)
            tensor = own.copy_(tensor)
            try:
                self._hold(tensor)
            except RuntimeError as error:
                raise RuntimeError(
                    f"{error}; {tensor.numel() * tensor.element_size() / 2**30:.2f} GiB had to be locked (the limit is "
                    "that of `ulimit -l`); features=staged keeps the rows in pageable memory"
                ) from error
        self.tensor = tensor
        self.address = _core.cuda_device_address(tensor.data_ptr())

    @property
    def whole_lines(self) -> bool:
        """Whether the memory begins on a line of 128 bytes."""
        return self.address % _LINE == 0

    def release(self) -> None:
        """Unlocks the memory, unless another holds it too. The GPU must be done with it."""
        if self._key is None:
            return
        with _lock:
            registration, holders = _shared.pop(self._key)
            if holders > 1:
                _shared[self._key] = (registration, holders - 1)
            else:
                registration.release()
        self._key = None

    def _hold(self, tensor: Tensor) -> None:
        key = (tensor.data_ptr(), tensor.numel() * tensor.element_size())
        with _lock:
            registration, holders = _shared.get(key) or (_core.HostRegistration(*key), 0)
            _shared[key] = (registration, holders + 1)
        self._key = key
