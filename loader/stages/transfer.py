"""Mini-batches from host memory to a GPU: packed, page-locked, in one copy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.samples import MiniBatch

_ALIGNMENT = 128  # bytes; what every array begins at a multiple of, as in memory of its own


def to_gpu(batch: MiniBatch, device: torch.device) -> tuple[MiniBatch, int]:
    """The mini-batch on `device`, copied on the current stream without making the host wait for the copy.

    Arrays in pageable memory are packed into one page-locked buffer of torch's caching allocator, which uses it again
    once the copy is done, and cross the bus in one piece; arrays that are page-locked already are copied as they are.
    What lies on a GPU stays where it is.

    Returns:
        The mini-batch, and the bytes that were copied.
    """
    pageable, size, moved = [], 0, 0
    for t in batch.tensors():
        if t.device.type != "cpu":
            continue
        moved += t.nbytes
        if not t.is_pinned():
            pageable.append((t, size))
            size += -(-t.nbytes // _ALIGNMENT) * _ALIGNMENT
    if not moved:
        return batch, 0
    copies: dict[int, Tensor] = {}
    if size:
        packed = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        for t, begin in pageable:
            _cut(packed, begin, t).copy_(t)
        arrived = packed.to(device, non_blocking=True)
        copies = {id(t): _cut(arrived, begin, t) for t, begin in pageable}

    def move(t: Tensor) -> Tensor:
        copy = copies.get(id(t))
        return t.to(device, non_blocking=True) if copy is None else copy

    return batch._map(move), moved


def _cut(buffer: Tensor, begin: int, like: Tensor) -> Any:
    return buffer[begin : begin + like.nbytes].view(like.dtype).view(like.shape)
