"""One hop of a mini-batch with types, and the edges of such hops by relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from loader.samples.block import Block
from loader.samples.segments import EdgeType, Segments


@dataclass(eq=False)
class HeteroBlock:
    """One hop of a typed mini-batch, CSC: a row per destination node and relation into its type.

    Immutable by convention. A `HeteroMiniBatch` says which rows are of which relation, so `relation` and
    `edge_index_dict` are for the blocks of one.

    Attributes:
        indptr: `[num_rows + 1]`. The rows are those of the destinations in their order; a node has one for each
            relation into its type, in the order of the graph's relations.
        indices: `[num_edges]` places of the sources in the mini-batch's `nodes`.
        first_dst, num_dst: the destinations are `nodes[first_dst : first_dst + num_dst]`.
        num_src: sources lie in `nodes[:num_src]`.
        edge_ids: `[num_edges]` ids of the edges, or None if they were not asked for.
    """

    indptr: Tensor
    indices: Tensor
    first_dst: int
    num_dst: int
    num_src: int
    edge_ids: Tensor | None = None

    if TYPE_CHECKING:
        segments: Segments = field(
            init=False
        )  # of the mini-batch, which sets it; no field, for tools that go through all fields

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    def relation(self, edge_type: EdgeType | str) -> Block:
        """The edges of one relation, with places within the types: row `i` is of the destination `i` of those that the
        block has of this type, and `indices` are places among the nodes of the source type (`n_id`).

        Raises:
            KeyError: the graph has no such relation.
        """
        seg = self.segments
        relation = seg.relation_of(edge_type)
        source, target = seg.ends_of(relation)
        num_src, num_dst = seg.count(source, self.num_src), self._count_dst(target)
        if len(seg.names) == len(seg.edge_types) == 1:
            return Block(self.indptr, self.indices, num_src, num_dst, self.edge_ids)
        found = by_relation([self], seg, [relation])
        within = seg.within(self.indices.device)
        return Block(
            found.indptr.to(self.indptr.dtype),
            within.index_select(0, of_blocks([self.indices], found)).to(self.indices.dtype),
            num_src,
            num_dst,
            None if self.edge_ids is None else of_blocks([self.edge_ids], found),
        )

    @property
    def edge_index_dict(self) -> dict[EdgeType, Tensor]:
        """Relation -> `[2, num_edges]` int64: places of the sources and of the destinations among the nodes of their
        types, as torch_geometric's heterogeneous layers take them. Relations without edges here are there, too.
        """
        found = by_relation([self], self.segments)
        return edge_index_dict([self], self.segments, found, found.counts())

    def _count_dst(self, node_type: int) -> int:
        return sum(part.size for t, part, _ in self.segments.rows(self.first_dst, self.num_dst) if t == node_type)

    def memory(self) -> list[Tensor]:
        """Tensors whose memory holds the arrays, see `Block.memory`."""
        return [t for t in (self.indptr, self.indices, self.edge_ids) if t is not None]


class ByRelation(NamedTuple):
    """The edges of some blocks, relation after relation, and within a relation block after block.

    Attributes:
        places: `[E]` of the edges in the arrays of the blocks, one block after the other.
        row_of: `[E]` numbers of the edges' rows.
        indptr: `[rows + 1]`, where the edges of each row begin.
        rows: `[rows]` places of the rows' destinations in the mini-batch's `nodes`.
        bounds: `[relations][blocks + 1]`, where the rows of a relation and block begin.
    """

    places: Tensor
    row_of: Tensor
    indptr: Tensor
    rows: Tensor
    bounds: list[list[int]]

    def counts(self) -> list[list[int]]:
        """Numbers of edges, `[relations][blocks]`. The host waits for the device."""
        rows = [row for bounds in self.bounds for row in bounds]
        flat = torch.tensor(rows, dtype=torch.int64, device=self.indptr.device)
        ends = iter(self.indptr[flat].tolist())
        return [[b - a for a, b in pairwise([next(ends) for _ in bounds])] for bounds in self.bounds]


def by_relation(
    blocks: Sequence[HeteroBlock], segments: Segments, relations: Sequence[int] | None = None
) -> ByRelation:
    """The edges of these relations, by default of all."""
    device = blocks[0].indices.device
    layouts = [segments.rows(block.first_dst, block.num_dst) for block in blocks]
    arange = torch.arange(max(max(block.num_src, block.indptr.numel()) for block in blocks) + 1, device=device)
    order, rows, bounds, count = [], [], [], 0
    for r in range(len(segments.edge_types)) if relations is None else relations:
        _, target = segments.ends_of(r)
        slots = segments.into[target]
        bounds.append([count])
        before = 0
        for block, layout in zip(blocks, layouts, strict=True):
            for t, part, row in layout:
                if t == target:
                    mine = arange[row : row + part.size * len(slots)].view(part.size, -1)[:, slots.index(r)]
                    order.append(mine + before if before else mine)
                    rows.append(arange[part.begin : part.begin + part.size])
                    count += part.size
            before += block.indptr.numel() - 1
            bounds[-1].append(count)
    begins, degrees, edges = [], [], 0
    for block in blocks:
        begin = block.indptr.long()
        degrees.append(begin.diff())
        begins.append(begin[:-1] + edges if edges else begin[:-1])
        edges += block.num_edges
    if not order:
        none = arange[:0]
        return ByRelation(none, none, arange[:1], none, bounds)
    chosen = torch.cat(order)
    degree = torch.cat(degrees).index_select(0, chosen)  # faster than an index in brackets
    indptr = torch.cat([arange[:1], degree.cumsum(0)])
    total = edges if relations is None else int(indptr[-1])
    row_of = torch.repeat_interleave(degree, output_size=total)
    shift = torch.cat(begins).index_select(0, chosen) - indptr[:-1]
    places = shift.index_select(0, row_of).add_(torch.arange(total, device=device))
    return ByRelation(places, row_of, indptr, torch.cat(rows), bounds)


def edge_index_dict(
    blocks: Sequence[HeteroBlock], segments: Segments, found: ByRelation, counts: list[list[int]]
) -> dict[EdgeType, Tensor]:
    """Relation -> `[2, E]` int64, places within the types, of all edges of the blocks."""
    within = segments.within(found.places.device)
    pairs = within.new_empty((2, found.places.numel()))
    torch.index_select(within, 0, of_blocks([block.indices for block in blocks], found), out=pairs[0])
    torch.index_select(within.index_select(0, found.rows), 0, found.row_of, out=pairs[1])
    return dict(zip(segments.edge_types, pairs.split([sum(of_block) for of_block in counts], 1), strict=True))


def of_blocks(arrays: Sequence[Tensor], found: ByRelation) -> Tensor:
    """The entries of the edges that were found, of arrays of the blocks."""
    return torch.cat(list(arrays)).index_select(0, found.places)


class HeteroBlocks(Protocol):
    """What a `HeteroMiniBatch` has, for functions that make other forms of it."""

    nodes: Tensor
    sizes: tuple[tuple[int, ...], ...]
    blocks: tuple[HeteroBlock, ...]
    node_types: Mapping[str, range]
    edge_types: tuple[EdgeType, ...]
    segments: Segments
    epoch: int
    index: int
    x: Mapping[str, Tensor] | None
    y: Tensor | None
    repeats: bool
    rows: Mapping[str, Tensor]

    @property
    def n_id(self) -> dict[str, Tensor]: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def seed_type(self) -> str: ...

    @property
    def expands_all(self) -> bool: ...

    def first_picks(self) -> HeteroBlocks: ...

    def of_trees(self) -> dict[str, Any]: ...
