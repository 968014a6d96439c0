"""Mini-batches to a GPU: the same bytes, in one copy."""

from __future__ import annotations

import pytest
import torch

from loader.samples import Block, MiniBatch
from loader.stages.move import MoveStage, to_gpu
from loader.timing import PipelineStats

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")]


def make() -> MiniBatch:
    block = Block(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1], dtype=torch.int32), 3, 2, torch.tensor([5, 6, 7]))
    empty = Block(torch.zeros(4, dtype=torch.int32), torch.empty(0, dtype=torch.int32), 3, 3)
    x = torch.arange(9, dtype=torch.float16).view(3, 3)
    return MiniBatch(torch.tensor([4, 1, 9]), (2, 3, 3), (empty, block), 1, 2, x, torch.tensor([True, False]))


def test_every_type_and_shape_arrives() -> None:
    batch = make()
    moved, nbytes = to_gpu(batch, torch.device("cuda", 0))
    assert all(t.is_cuda for t in moved.tensors())
    assert moved.digest() == batch.digest()
    assert nbytes == batch.nbytes


def test_pageable_arrays_share_one_buffer_and_start_aligned() -> None:
    moved, _ = to_gpu(make(), torch.device("cuda", 0))
    assert len({t.untyped_storage().data_ptr() for t in moved.tensors() if t.numel()}) == 1
    assert all(t.data_ptr() % 128 == 0 for t in moved.tensors() if t.numel())


def test_resident_arrays_stay_and_pinned_ones_move_unpacked() -> None:
    batch = make()
    batch = batch.replace(x=batch.x.cuda(), y=batch.y.pin_memory())
    moved, nbytes = to_gpu(batch, torch.device("cuda", 0))
    assert moved.x is batch.x
    assert nbytes == batch.nbytes - batch.x.nbytes
    assert moved.digest() == batch.digest()
    assert to_gpu(moved, torch.device("cuda", 0)) == (moved, 0)


def test_a_stage_counts_the_moved_bytes() -> None:
    stats = PipelineStats(["move"])
    stage = MoveStage(torch.device("cuda", 0), stats)
    assert stage.asynchronous
    assert stage.run(make()).digest() == make().digest()
    assert stats.moved == {"move": make().nbytes}
