"""Mini-batches of trees under a CUDA graph, see `loader.ops.captured_hetero_batch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from loader.ops.captured_hetero_batch import CapturedHeteroBatch, HopKind, HopRoom
from loader.ops.hop_layout import edges_of_hops
from loader.ops.tree_layout import TreeLayout
from loader.samples.trees import TreeMiniBatch


class CapturedTrees(CapturedHeteroBatch):
    """Stands in for the mini-batches of trees of one kind up to some size, see `CapturedHeteroBatch`.

    Args:
        like: one of them, with labels and rows of its distinct nodes.
        room: how large they may be.
        ignored_label: must be None: the loss takes a mean by `weights`.
    """

    stands_for: ClassVar[type] = TreeMiniBatch
    headroom: ClassVar[float] = 0.1  # sizes of trees differ by more than those of k-hop mini-batches do
    branches: ClassVar[bool] = True  # tables have encoders of their own, of some ten small kernels each

    def __init__(self, like: TreeMiniBatch, room: HopRoom, ignored_label: int | None = None) -> None:
        if ignored_label is not None:
            raise ValueError(
                f"ignored_label is {ignored_label}; seeds that are missing have a weight of 0, so give None"
            )
        super().__init__(like, room)
        self._row = self._zeros(self._num_nodes, dtype=torch.int32)
        self._tree = self._zeros(self._num_nodes, dtype=torch.int32)
        self._times = self._zeros(self.batch_size) if self.kind.timed else None

    @staticmethod
    def kind_of(batch: Any) -> HopKind | None:
        """See `HopKind.of`."""
        if not isinstance(batch, TreeMiniBatch):
            return None
        return HopKind.of(batch, batch.unique_x, batch.seed_times is not None)

    @staticmethod
    def room_of(batch: TreeMiniBatch) -> HopRoom:
        """The sizes of a mini-batch."""
        return HopRoom(batch.sizes, batch.distinct.counts, edges_of_hops(batch.blocks))

    @staticmethod
    def _x_of(batch: TreeMiniBatch) -> Mapping[str, Any]:
        return batch.unique_x

    def _starts(self, batch: TreeMiniBatch) -> Sequence[int]:
        return batch.distinct.starts[:-1]

    def _copies(self, batch: TreeMiniBatch) -> list[tuple[Tensor, Tensor]]:
        nodes = batch.nodes.numel()
        found = [(self._row[:nodes], batch.distinct.row), (self._tree[:nodes], batch.tree)]
        if self._times is not None:
            assert batch.seed_times is not None
            found.append((self._times[: batch.batch_size], batch.seed_times))
        return found + super()._copies(batch)

    def _of_nodes(self) -> tuple[Tensor | None, Tensor | None]:
        return self._row, self._tree

    @property
    def layout(self) -> TreeLayout:
        """See `CapturedHeteroBatch.layout`."""
        hops = self._moved()
        assert hops.tree is not None
        return TreeLayout(**self._arrays(hops), tree=hops.tree, seed_times=self._times, fixed=self._fixed)
