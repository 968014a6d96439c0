"""The stage that brings samples from host memory to a GPU: packed, page-locked, in one copy."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from loader.pipeline import Stage
from loader.samples import Sample
from loader.timing import PipelineStats

AnySample = TypeVar("AnySample", bound=Sample)

_ALIGNMENT = 128  # bytes; what every array begins at a multiple of, as in memory of its own


class MoveStage(Stage):
    """Copies the tensors that are still in host memory to the GPU.

    Args:
        device: the GPU.
        stats: where bytes are counted.
        name: of the stage; a second stage of this kind needs another name.
    """

    priority = -3  # as a gather: a copy that begins late keeps the bus idle
    asynchronous = True

    def __init__(self, device: torch.device, stats: PipelineStats, name: str = "move") -> None:
        self.name = name
        self.device = self._device = device
        self._stats = stats

    def run(self, sample: Sample) -> Sample:
        sample, nbytes = to_gpu(sample, self._device)
        self._stats.add_bytes(self.name, nbytes)
        return sample


def to_gpu(batch: AnySample, device: torch.device) -> tuple[AnySample, int]:
    """The sample on `device`, copied on the current stream. The host does not wait for the copy.

    Arrays in pageable memory are packed into one page-locked buffer and copied in one piece. The buffer is one of
    torch's caching allocator, which uses it again when the copy is done. Page-locked arrays are copied directly. Arrays
    on a GPU stay there.

    Returns:
        The sample, and the bytes that were copied.
    """
    pageable, size, moved, there = [], 0, 0, True
    for t in batch.tensors():
        if t.device.type != "cpu":
            continue
        moved, there = moved + t.nbytes, False
        if not t.is_pinned():
            pageable.append((t, size))
            size += -(-t.nbytes // _ALIGNMENT) * _ALIGNMENT
    if there:
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

    return batch.map(move), moved


def _cut(buffer: Tensor, begin: int, like: Tensor) -> Any:
    return buffer[begin : begin + like.nbytes].view(like.dtype).view(like.shape)
