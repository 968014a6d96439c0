"""All hops of sampled trees as one matrix of neighbors, for models whose layers apply all relations at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from loader.ops.grouped import Grouped
from loader.samples.trees import TreeMiniBatch


class Segment(NamedTuple):
    """Nodes of one type that one hop found: `nodes[begin:begin + size]`, whose rows begin at `row`.

    A node has `slots` rows, one for each relation into its type.
    """

    node_type: int
    begin: int
    size: int
    row: int
    slots: int


def segments_of(sizes: Sequence[Sequence[int]], slots: Sequence[int]) -> list[list[Segment]]:
    """The segments of each hop, where hops and types follow on each other.

    Args:
        sizes: numbers of nodes, `[hops + 1][node types]`.
        slots: numbers of relations into each node type.
    """
    found: list[list[Segment]] = []
    begin = row = 0
    for of_hop in sizes:
        found.append([])
        for node_type, size in enumerate(of_hop):
            found[-1].append(Segment(node_type, begin, size, row, slots[node_type]))
            begin += size
            row += size * slots[node_type]
    return found


@dataclass(eq=False)
class TreeLayout:
    """The trees of a mini-batch as a model reads them whose layers apply all relations at once.

    Layer `i` of `L` writes the nodes of the first `L - i` hops, and reads one hop more. These are prefixes of the
    nodes, of the rows and of the edges.

    Attributes:
        segments: of each hop, from the seeds outward.
        indptr: `[rows + 1]`. The rows are those of the nodes of all hops but the last, in their order; a node has one
            for each relation into its type, in the order of the graph's relations.
        indices: `[edges]` places of the sources among the nodes. There may be more than the last row ends at.
        row: `[nodes]` int64, the place of each node among the distinct ones, which follow type after type.
        unique: number of distinct nodes of each type.
        unique_x: node type -> `[unique, F]` features of the distinct nodes, of types that have any.
        tree: `[nodes]` int64, the tree of each node.
        seed_times: `[trees]` int64, or None.
        names: the node types.
    """

    segments: list[list[Segment]]
    indptr: Tensor
    indices: Tensor
    row: Tensor
    unique: tuple[int, ...]
    unique_x: Mapping[str, Tensor]
    tree: Tensor
    seed_times: Tensor | None
    names: tuple[str, ...]

    @classmethod
    def of(cls, batch: TreeMiniBatch) -> TreeLayout:
        """That of a mini-batch, without padding."""
        seg, distinct = batch.segments, batch.distinct
        hops = batch.blocks[::-1]
        indptr, edges = [], 0
        for block in hops:
            begins = block.indptr if block is hops[-1] else block.indptr[:-1]
            indptr.append(begins + edges if edges else begins)
            edges += block.num_edges
        none = batch.nodes.new_zeros(1)
        return cls(
            segments_of(batch.sizes, [len(into) for into in seg.into]),
            torch.cat(indptr) if indptr else none,
            torch.cat([block.indices for block in hops]) if hops else none[:0],
            distinct.row.long(),
            distinct.counts,
            batch.unique_x,
            batch.tree.long(),
            batch.seed_times,
            seg.names,
        )

    def nodes_of(self, hops: int) -> int:
        """Number of nodes of the first hops, of which the seeds are the first."""
        return sum(segment.size for of_hop in self.segments[:hops] for segment in of_hop)

    def rows_of(self, hops: int) -> Tensor:
        """`indptr` of the rows of the first hops."""
        rows = sum(segment.size * segment.slots for of_hop in self.segments[:hops] for segment in of_hop)
        return self.indptr[: rows + 1]

    def parts(self, hops: int) -> Iterator[Segment]:
        """The segments of the first hops that have nodes, in the order of the nodes."""
        for of_hop in self.segments[:hops]:
            yield from (segment for segment in of_hop if segment.size)

    def group_of(self, runs: Sequence[tuple[int, int]]) -> Grouped:
        """Rows of several types, by the type and the number of rows of each run."""
        return Grouped(runs, 1, self.row.device)

    def group(self, hops: int) -> Grouped:
        """The nodes of the first hops, by type."""
        return self.group_of([(segment.node_type, segment.size) for segment in self.parts(hops)])
