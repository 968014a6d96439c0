"""All hops of a mini-batch of several types as one matrix of neighbors, for models that apply all relations at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.ops.grouped import Grouped, Span
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.hetero_block import HeteroBlock


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


class Packed(NamedTuple):
    """Places for the rows of nodes of some hops, where those of a node lie beside each other: means of its neighbors by
    relation, then its own features.

    The rows are those of the layout, an unused one, and one for each node.

    Attributes:
        order, at: for each type of sources `[rows]` int64 each: which rows are over such sources, and where they begin.
        spans: of each part with nodes.
        size: number of elements.
        step: what all places are multiples of.
    """

    order: list[Tensor]
    at: list[Tensor]
    spans: list[Span]
    size: int
    step: int


class Fixed:
    """What depends on the segments alone, made once: a CUDA graph neither makes it anew nor finds it elsewhere.

    Args:
        tile: what the sizes of all segments are multiples of.
        device: of all arrays.
    """

    def __init__(self, tile: int, device: torch.device) -> None:
        self.tile, self.device = tile, device
        self._made: dict[Any, Any] = {}

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returns, the first time for this key."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def arange(self, count: int) -> Tensor:
        """`[count]` int64, 0 and up."""
        made: Tensor = self.get(("arange", count), lambda: torch.arange(count, device=self.device))
        return made


@dataclass(eq=False)
class HopLayout:
    """A mini-batch as a model reads it whose layers apply all relations at once.

    Layer `i` of `L` writes the nodes of the first `L - i` hops, and reads one hop more. These are prefixes of the
    nodes and, where each node is expanded once, of the rows and of the edges.

    Attributes:
        segments: of each hop, from the seeds outward.
        indptr: `[rows + 1]`. The rows are those of the nodes of all hops but the last, in their order; a node has one
            for each relation into its type, in the order of the graph's relations.
        indices: `[edges]` places of the sources among the nodes. There may be more than the last row ends at.
        row: `[nodes]` int64, the place of each node among the distinct ones, which follow type after type.
        unique: number of distinct nodes of each type.
        unique_x: node type -> `[unique, F]` features of the distinct nodes, of types that have any.
        names: the node types.
        ids: node type -> `[unique]` ids of the distinct nodes within their type; None: they are not known.
        edges: numbers of entries that hold all of the first hop, of the first two, and so on; None: `indices` are all.
        fixed: keeps what depends on the segments alone; None: it is made anew.
    """

    segments: list[list[Segment]]
    indptr: Tensor
    indices: Tensor
    row: Tensor
    unique: tuple[int, ...]
    unique_x: Mapping[str, Tensor]
    names: tuple[str, ...]
    ids: Callable[[str], Tensor] | None = field(default=None, kw_only=True)
    edges: tuple[int, ...] | None = field(default=None, kw_only=True)
    fixed: Fixed | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, batch: HeteroMiniBatch) -> HopLayout:
        """That of a k-hop mini-batch, whose nodes are distinct. Without padding."""
        seg = batch.segments
        segments = segments_of(batch.sizes, [len(into) for into in seg.into])
        unique = tuple(seg.count(t) for t in range(len(seg.names)))
        device = batch.nodes.device
        firsts = [sum(unique[:t]) for t in range(len(unique))]
        row = seg.within(device) + seg.spread([firsts] * len(batch.sizes), device)
        x = batch.x or {}

        def ids(name: str) -> Tensor:
            return batch.ids(f"node/{name}")

        if batch.expands_all:
            return _AllHops(segments, batch.blocks, row, unique, x, seg.names, ids)
        edges = edges_of_hops(batch.blocks)
        return cls(segments, *rows_of_hops(batch), row, unique, x, seg.names, ids=ids, edges=edges)

    def nodes_of(self, hops: int) -> int:
        """Number of nodes of the first hops, of which the seeds are the first."""
        return sum(segment.size for of_hop in self.segments[:hops] for segment in of_hop)

    def rows_of(self, hops: int) -> Tensor:
        """`indptr` of the rows of the first hops, for the layer that writes these."""
        rows = sum(segment.size * segment.slots for of_hop in self.segments[:hops] for segment in of_hop)
        return self.indptr[: rows + 1]

    def entries_of(self, hops: int) -> Tensor:
        """`indices` of these rows. There may be more than the last row ends at."""
        return self.indices if self.edges is None else self.indices[: self.edges[hops - 1]]

    def with_own(self, hops: int) -> tuple[Tensor, Tensor]:
        """`rows_of` and `entries_of`, behind a row for each of these nodes, which has the node itself as its entry."""
        nodes, indptr, entries = self.arange(self.nodes_of(hops)), self.rows_of(hops), self.entries_of(hops)
        begins = torch.cat([nodes.to(indptr.dtype), indptr + len(nodes)])
        return begins, torch.cat([nodes.to(entries.dtype), entries])

    def parts(self, hops: int) -> Iterator[Segment]:
        """The segments of the first hops that have nodes, in the order of the nodes."""
        for of_hop in self.segments[:hops]:
            yield from (segment for segment in of_hop if segment.size)

    def packed(self, hops: int, into: Sequence[Sequence[tuple[int, int]]], widths: Sequence[int]) -> Packed:
        """Places for rows of the nodes of the first hops. The host does not wait for the device.

        Args:
            hops: number of hops.
            into: for each node type the relations into it, in the order of its rows: their number, and the type of
                their sources.
            widths: of features, by type; 0 leaves them out.
        """
        return self.once(("packed", hops, *widths), lambda: self._packed(hops, into, widths))

    def _packed(self, hops: int, into: Sequence[Sequence[tuple[int, int]]], widths: Sequence[int]) -> Packed:
        device, size, of_nodes = self.row.device, 0, len(self.rows_of(hops))
        order: list[list[Tensor]] = [[] for _ in into]
        at: list[list[Tensor]] = [[] for _ in into]
        spans = []
        for part in self.parts(hops):
            count = part.size
            rows = [(source, part.row + slot, part.slots) for slot, (_, source) in enumerate(into[part.node_type])]
            rows.append((part.node_type, of_nodes + part.begin, 1))
            a_node = sum(widths[source] for source, *_ in rows)
            spans.append(Span(part.node_type, size, count, a_node))
            begin = size
            for source, first, apart in rows:
                if widths[source]:
                    order[source].append(torch.arange(first, first + count * apart, apart, device=device))
                    at[source].append(torch.arange(begin, begin + count * a_node, a_node, device=device))
                begin += widths[source]
            size += count * a_node
        none = [torch.zeros(0, dtype=torch.int64, device=device)]
        return Packed([torch.cat(of or none) for of in order], [torch.cat(of or none) for of in at], spans, size,
                      gcd(*widths))  # fmt: skip

    def ids_of(self, name: str) -> Tensor:
        """`[unique]` ids of the distinct nodes of a type within it. Raises ValueError where they are not known."""
        if self.ids is None:
            raise ValueError(f"there are no ids of nodes of type {name} here, which a table needs; give a mini-batch")
        return self.ids(name)

    def arange(self, count: int) -> Tensor:
        """`[count]` int64, 0 and up."""
        return torch.arange(count, device=self.row.device) if self.fixed is None else self.fixed.arange(count)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returns of the segments alone: where these are fixed, what it returned the first time."""
        return make() if self.fixed is None else self.fixed.get(key, make)

    def group_of(self, runs: Sequence[tuple[int, int]]) -> Grouped:
        """Rows of several types, by the type and the number of rows of each run."""
        tile = 1 if self.fixed is None else self.fixed.tile
        made: Grouped = self.once(("group", *runs), lambda: Grouped(runs, tile, self.row.device, len(self.names)))
        return made

    def group(self, hops: int) -> Grouped:
        """The nodes of the first hops, by type."""
        return self.group_of([(segment.node_type, segment.size) for segment in self.parts(hops)])


class _AllHops(HopLayout):
    """Of a mini-batch whose hops expand all nodes so far: each layer has rows and entries of its own."""

    def __init__(
        self,
        segments: list[list[Segment]],
        blocks: Sequence[HeteroBlock],
        row: Tensor,
        unique: tuple[int, ...],
        unique_x: Mapping[str, Tensor],
        names: tuple[str, ...],
        ids: Callable[[str], Tensor],
    ) -> None:
        super().__init__(segments, blocks[0].indptr, blocks[0].indices, row, unique, unique_x, names, ids=ids)
        self._blocks = blocks[::-1]

    def rows_of(self, hops: int) -> Tensor:
        return self._blocks[hops - 1].indptr

    def entries_of(self, hops: int) -> Tensor:
        return self._blocks[hops - 1].indices


def edges_of_hops(blocks: Sequence[HeteroBlock]) -> tuple[int, ...]:
    """Numbers of edges of the first hop, of the first two, and so on, of blocks from the last hop inward."""
    return tuple(accumulate(block.num_edges for block in blocks[::-1]))


def rows_of_hops(batch: HeteroMiniBatch) -> tuple[Tensor, Tensor]:
    """`indptr` and `indices` of all hops, where each expands what the one before found."""
    hops = batch.blocks[::-1]
    indptr, edges = [], 0
    for block in hops:
        begins = block.indptr if block is hops[-1] else block.indptr[:-1]
        indptr.append(begins + edges if edges else begins)
        edges += block.num_edges
    none = batch.nodes.new_zeros(1)
    return torch.cat(indptr) if indptr else none, torch.cat([b.indices for b in hops]) if hops else none[:0]
