"""CUDA graphs in name only: a `GraphedLoss` captures and replays on the CPU, by what a stand-in holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from loader.ops import captured_batch
from loader.ops.captured_batch import CapturedBatch, Kind
from loader.samples import MiniBatch


def simulate_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends, mini-batches on the CPU have a stand-in, and `ReplayedOnCPU` is what was captured."""
    monkeypatch.setattr(Kind, "of", staticmethod(kind_of))
    monkeypatch.setattr(captured_batch._core, "cuda_write_captured_blocks", copy_labels)
    monkeypatch.setattr(captured_batch, "current_stream_handle", lambda device: 0)
    monkeypatch.setattr("models.training.cuda_graphs._Captured", ReplayedOnCPU)


def kind_of(batch: MiniBatch) -> Kind:
    """`Kind.of`, for the CPU."""
    assert batch.x is not None
    assert batch.y is not None
    dtypes = tuple((block.indptr.dtype, block.indices.dtype) for block in batch.blocks)
    features, labels = (batch.x.dtype, batch.x.shape[1]), (batch.y.dtype, batch.y.shape)
    return Kind(batch.x.device, batch.batch_size, dtypes, features, labels)


def copy_labels(values: Any, to: Tensor, labels: Tensor, labels_to: Tensor, device: Any, stream: int) -> None:
    """What of `cuda_write_captured_blocks` can be seen without kernels."""
    labels_to[: len(labels)].copy_(labels)


class ReplayedOnCPU:
    """In the place of `_Captured`: the function as a graph would have it, with rows and labels of seeds too many.

    The module is a `GraphSAGE`. A seed without features and neighbors has the last bias as its logits.
    """

    def __init__(self, call: Any, stand_in: CapturedBatch, batch: MiniBatch) -> None:
        self._call, self.stand_in = call, stand_in
        self.output = self.run(batch)[1]

    def is_valid(self) -> bool:
        return True

    def run(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        self.stand_in.load(batch)
        assert self.stand_in.batch.y is not None
        net, seeds = self._call.module, self.stand_in.kind.batch_size

        def pad(module: Any, given: Any, logits: Tensor) -> Tensor:
            bias = net.convs[-1].lin_self.bias
            return torch.cat((logits, bias.expand(seeds - logits.shape[0], -1)))

        handle = net.register_forward_hook(pad)
        try:
            found: tuple[Tensor, Tensor] = self._call(batch.replace(y=self.stand_in.batch.y.clone()))
        finally:
            handle.remove()
        return found

    def run_whole(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        self._call.module.zero_grad()
        with torch.enable_grad():
            loss, output = self.run(batch)
            loss.backward()
        return loss.detach(), output

    repeat = run_whole
