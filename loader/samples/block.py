"""One hop of a mini-batch as a bipartite graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor


# Not frozen, for tools that copy dataclasses and exchange the tensors in the copy, as the precision plugins of
# Lightning do; equality is identity, since tensors have none that is one value.
@dataclass(eq=False)
class Block:
    """One hop of a mini-batch: a bipartite graph from `num_src` to `num_dst` nodes, CSC, local ids.

    Immutable by convention: change a copy (`dataclasses.replace`).

    The destination nodes are the first `num_dst` source nodes. Row `i` of the block,
    `indices[indptr[i]:indptr[i + 1]]`, holds the sampled in-neighbors of destination `i` in the order of the
    graph's neighbor list.

    Attributes:
        indptr: `[num_dst + 1]`, dtype of the graph's `indptr`.
        indices: `[num_edges]`, local source ids in `[0, num_src)`, dtype of the graph's `indices`.
        num_src, num_dst: numbers of nodes.
        edge_ids: `[num_edges]` ids of the edges in the graph, or None if they were not asked for.
        edge_features: `[num_edges, D]` features of the edges, or None if they were not gathered.
    """

    indptr: Tensor
    indices: Tensor
    num_src: int
    num_dst: int
    edge_ids: Tensor | None = None
    edge_features: Tensor | None = None

    # Where kernels find arrays and sizes when they run, instead of those above: see `loader.ops.captured_batch`.
    captured = cast("Tensor | None", None)

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    @property
    def edge_index(self) -> Tensor:
        """`[2, num_edges]` int64 local ids: a row of sources and a row of destinations, as torch_geometric's layers for
        bipartite graphs take them: `conv((x, x[:block.num_dst]), block.edge_index)`.
        """
        targets = torch.arange(self.num_dst, device=self.indices.device).repeat_interleave(self.indptr.diff().long())
        return torch.stack((self.indices.long(), targets))

    def memory(self) -> list[Tensor]:
        """Tensors whose memory holds the arrays: the arrays themselves, or the pieces that they are parts of."""
        return [t for t in (self.indptr, self.indices, self.edge_ids, self.edge_features) if t is not None]


class Blocks(Protocol):
    """What a `MiniBatch` has, for functions that make other forms of it."""

    nodes: Tensor
    blocks: tuple[Block, ...]
    epoch: int
    index: int
    repeats: bool

    @property
    def batch_size(self) -> int: ...
