"""All hops of sampled trees as one matrix of neighbors, for models whose layers apply all relations at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from loader.ops.hop_layout import HopLayout, rows_of_hops, segments_of


@dataclass(eq=False)
class TreeLayout(HopLayout):
    """The trees of a mini-batch as a model reads them whose layers apply all relations at once, see `HopLayout`.

    Attributes:
        tree: `[nodes]` int64, the tree of each node.
        seed_times: `[trees]` int64, or None.
    """

    tree: Tensor
    seed_times: Tensor | None

    @classmethod
    def of(cls, batch: Any) -> TreeLayout:
        """That of a `TreeMiniBatch`, without padding."""
        seg, distinct = batch.segments, batch.distinct
        return cls(
            segments_of(batch.sizes, [len(into) for into in seg.into]),
            *rows_of_hops(batch),
            distinct.row.long(),
            distinct.counts,
            batch.unique_x,
            seg.names,
            batch.tree.long(),
            batch.seed_times,
        )
