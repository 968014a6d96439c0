"""Mini-batches in arrays of fixed size."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from loader.samples import Block, MiniBatch


@dataclass(eq=False)
class PaddedMiniBatch(MiniBatch):
    """A mini-batch in arrays of fixed size, so that the host need not wait for its sizes (`pad_to_capacity`).

    Its numbers of nodes and edges are upper bounds. The arrays are filled up with node 0 at the end of `nodes`,
    with rows without edges, and with edges of no row. No message goes from these to a seed, so a model computes the
    same for the seeds as on `trim()`.

    Attributes:
        sizes: `[2 L + 1]` int64 on the GPU, the true sizes: the frontiers, then the edges of each hop.
    """

    sizes: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """All tensors, `sizes` last."""
        return super().tensors() + ([] if self.sizes is None else [self.sizes])

    def memory(self) -> list[Tensor]:
        return super().memory() + ([] if self.sizes is None else [self.sizes])

    def trim(self) -> MiniBatch:
        """The mini-batch without the padding, and without features and labels. Waits for its sizes."""
        assert self.sizes is not None
        hops = len(self.blocks)
        sizes = self.sizes.tolist()
        frontiers, edges = sizes[: hops + 1], sizes[hops + 1 :]
        blocks = []
        for h, block in zip(range(hops - 1, -1, -1), self.blocks, strict=True):
            blocks.append(
                Block(
                    block.indptr[: frontiers[h] + 1],
                    block.indices[: edges[h]],
                    frontiers[h + 1],
                    frontiers[h],
                    None if block.edge_ids is None else block.edge_ids[: edges[h]],
                )
            )
        return MiniBatch(
            self.nodes[: frontiers[-1]],
            tuple(frontiers),
            tuple(blocks),
            epoch=self.epoch,
            index=self.index,
            repeats=self.repeats,
        )
