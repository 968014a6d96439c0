"""Mini-batches to a GPU: the same bytes, in one copy."""

from __future__ import annotations

import torch
from marks import needs_gpu

from loader.samples import Block, MiniBatch
from loader.stages.move import MoveStage, to_gpu
from loader.timing import PipelineStats


def make() -> MiniBatch:
    block = Block(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1], dtype=torch.int32), 3, 2, torch.tensor([5, 6, 7]))
    empty = Block(torch.zeros(4, dtype=torch.int32), torch.empty(0, dtype=torch.int32), 3, 3)
    x = torch.arange(9, dtype=torch.float16).view(3, 3)
    return MiniBatch(torch.tensor([4, 1, 9]), (2, 3, 3), (empty, block), 1, 2, x, torch.tensor([True, False]))


def test_empty_arrays_move_too() -> None:
    batch = make()
    device = torch.device("meta")  # stands in for a GPU where the other arrays are
    there = batch.map(lambda t: t.to(device)).replace(x=torch.empty(0, 3))
    moved, nbytes = to_gpu(there, device)
    assert all(t.device == device for t in moved.tensors())
    assert (moved.x.shape, nbytes) == ((0, 3), 0)


class TestOnGPU:
    pytestmark = needs_gpu

    def test_every_type_and_shape_arrives(self) -> None:
        batch = make()
        moved, nbytes = to_gpu(batch, torch.device("cuda", 0))
        assert all(t.is_cuda for t in moved.tensors())
        assert moved.digest() == batch.digest()
        assert nbytes == batch.nbytes

    def test_pageable_arrays_share_one_buffer_and_start_aligned(self) -> None:
        moved, _ = to_gpu(make(), torch.device("cuda", 0))
        assert len({t.untyped_storage().data_ptr() for t in moved.tensors() if t.numel()}) == 1
        assert all(t.data_ptr() % 128 == 0 for t in moved.tensors() if t.numel())

    def test_resident_arrays_stay_and_pinned_ones_move_unpacked(self) -> None:
        batch = make()
        batch = batch.replace(x=batch.x.cuda(), y=batch.y.pin_memory())
        moved, nbytes = to_gpu(batch, torch.device("cuda", 0))
        assert moved.x is batch.x
        assert nbytes == batch.nbytes - batch.x.nbytes
        assert moved.digest() == batch.digest()
        assert to_gpu(moved, torch.device("cuda", 0)) == (moved, 0)

    def test_a_stage_counts_the_moved_bytes(self) -> None:
        stats = PipelineStats(["move"])
        stage = MoveStage(torch.device("cuda", 0), stats)
        assert stage.asynchronous
        assert stage.run(make()).digest() == make().digest()
        assert stats.moved == {"move": make().nbytes}
