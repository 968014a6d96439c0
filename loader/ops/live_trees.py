"""Mini-batches of trees under a CUDA graph: arrays with room for the largest, in which each type and hop has its place.

The counterpart of `loader.ops.live` for `TreeMiniBatch`. `load` copies the arrays of a mini-batch to where the graph
reads them, with the places where its segments begin. The graph itself moves the segments apart, by `layout`: no size is
read by the host. Rows and nodes that are too many lie at the end of their segment; such a row has no entries, and no
row reads such a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from operator import ge
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from loader.ops.grouped import Grouped
from loader.ops.tree_layout import TreeLayout, segments_of
from loader.samples.trees import TreeMiniBatch


class TreeKind(NamedTuple):
    """What mini-batches of trees have to have in common to take turns under one graph."""

    device: torch.device
    batch_size: int
    hops: int
    types: tuple[tuple[str, int, int], ...]
    edge_types: tuple[tuple[str, str, str], ...]
    index_dtypes: tuple[torch.dtype, ...]
    features: tuple[tuple[str, torch.dtype, int], ...]
    labels: tuple[torch.dtype, torch.Size]
    timed: bool

    @classmethod
    def of(cls, batch: TreeMiniBatch) -> TreeKind | None:
        """That of a mini-batch; None if it cannot be live: it has no labels, no rows, or no hops."""
        if not isinstance(batch, TreeMiniBatch) or batch.y is None or not batch.blocks or not batch.batch_size:
            return None
        block, x = batch.blocks[0], batch.unique_x
        if any(rows.dim() != 2 or rows.requires_grad or rows.device != batch.nodes.device for rows in x.values()):
            return None
        if any(b.indptr.dtype != block.indptr.dtype or b.indices.dtype != block.indices.dtype for b in batch.blocks):
            return None
        return cls(
            batch.nodes.device,
            batch.batch_size,
            len(batch.blocks),
            tuple((name, ids.start, ids.stop) for name, ids in batch.node_types.items()),
            batch.edge_types,
            (block.indptr.dtype, block.indices.dtype),
            tuple((name, rows.dtype, rows.shape[1]) for name, rows in sorted(x.items())),
            (batch.y.dtype, batch.y.shape),
            batch.seed_times is not None,
        )

    def has_fewer_seeds_than(self, other: TreeKind) -> bool:
        """Whether that is the only difference."""
        if self.batch_size >= other.batch_size or self.labels[1][1:] != other.labels[1][1:]:
            return False
        labels = (self.labels[0], other.labels[1])
        return self._replace(batch_size=other.batch_size, labels=labels) == other


class TreeRoom(NamedTuple):
    """Sizes of mini-batches of trees, or upper bounds of them.

    Attributes:
        nodes: of each type that each hop found, `[hops + 1][node types]`.
        unique: distinct nodes of each type.
        edges: of all hops together.
    """

    nodes: tuple[tuple[int, ...], ...]
    unique: tuple[int, ...]
    edges: int

    @classmethod
    def of(cls, batch: TreeMiniBatch) -> TreeRoom:
        return cls(batch.sizes, batch.distinct.counts, batch.num_edges)

    def union(self, other: TreeRoom) -> TreeRoom:
        """Room for both."""
        nodes = tuple(tuple(map(max, a, b)) for a, b in zip(self.nodes, other.nodes, strict=True))
        return TreeRoom(nodes, tuple(map(max, self.unique, other.unique)), max(self.edges, other.edges))

    def holds(self, other: TreeRoom) -> bool:
        """Whether the other is no larger anywhere."""
        flat = [n for of_hop in self.nodes for n in of_hop], [n for of_hop in other.nodes for n in of_hop]
        return all(map(ge, *flat)) and all(map(ge, self.unique, other.unique)) and self.edges >= other.edges

    def widened(self, share: float, step: int) -> TreeRoom:
        """Larger by `share`, in whole `step`s; seeds only to whole ones. What is empty stays so."""

        def wider(size: int) -> int:
            return -(-int(size * (1 + share)) // step) * step

        seeds = tuple(-(-size // step) * step for size in self.nodes[0])
        return TreeRoom(
            (seeds, *(tuple(map(wider, of_hop)) for of_hop in self.nodes[1:])),
            tuple(map(wider, self.unique)),
            wider(self.edges),
        )


@dataclass(eq=False)
class LiveLayout(TreeLayout):
    """A `TreeLayout` whose groups stay as they are from one use to the next, as a CUDA graph needs them."""

    groups: dict[Any, Grouped]
    tile: int

    def group_of(self, runs: Sequence[tuple[int, int]]) -> Grouped:
        key = tuple(runs)
        if key not in self.groups:
            self.groups[key] = Grouped(runs, self.tile, self.row.device)
        return self.groups[key]


class LiveTrees:
    """Stands in for the mini-batches of trees of one kind up to some size, see the module.

    Args:
        like: one of them, with labels and rows of its distinct nodes.
        room: how large they may be.

    Attributes:
        batch: what to give to the model while it is captured: this object, which has of a mini-batch `y`, `batch_size`,
            `sizes`, `segments`, `layout`, and `weights` in place of a mean: a mini-batch may have fewer seeds, and `y`
            then ends with labels of another one.
    """

    stands_for: ClassVar[type] = TreeMiniBatch
    headroom: ClassVar[float] = 0.1  # sizes of trees differ by more than those of k-hop mini-batches do

    def __init__(self, like: TreeMiniBatch, room: TreeRoom, ignored_label: int | None = None) -> None:
        if ignored_label is not None:
            raise ValueError(
                f"ignored_label is {ignored_label}; seeds that are missing have a weight of 0, so give None"
            )
        kind = TreeKind.of(like)
        if kind is None:
            raise ValueError(f"{like!r} cannot be live: it needs labels, hops and the rows of its distinct nodes")
        self.kind, self.room, self.sizes = kind, room, room.nodes
        self.segments, self.batch_size, self.batch = like.segments, like.batch_size, self
        self._slots = [len(into) for into in like.segments.into]
        places = segments_of(room.nodes, self._slots)
        self._places = [segment for of_hop in places for segment in of_hop]
        self._hops = places
        # Sizes have this in common, so that layers can be products of tiles.
        self._tile = gcd(*(size for of_hop in room.nodes for size in of_hop), *room.unique)
        self._groups: dict[Any, Grouped] = {}
        device, types = kind.device, len(self._slots)

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        def spread(of: list[int], sizes: list[int]) -> Tensor:
            return torch.repeat_interleave(torch.tensor(of), torch.tensor(sizes)).to(device)

        def within(sizes: list[int]) -> Tensor:
            return torch.cat([torch.arange(size) for size in sizes]).to(device)

        # The arrays of a mini-batch, one hop right behind the other.
        num_nodes = sum(segment.size for segment in self._places)
        rows = [segment.size * segment.slots for of_hop in places[:-1] for segment in of_hop]
        self._indptr = zeros(sum(rows) + kind.hops, dtype=kind.index_dtypes[0])
        self._indices = zeros(max(room.edges, 1), dtype=kind.index_dtypes[1])
        self._row = zeros(num_nodes, dtype=torch.int32)
        self._tree = zeros(num_nodes, dtype=torch.int32)
        self._times = zeros(self.batch_size) if kind.timed else None
        self._unique_x = {
            name: zeros(room.unique[like.segments.type_of(name)], width, dtype=dtype)
            for name, dtype, width in kind.features
        }
        self.y = zeros(*kind.labels[1], dtype=kind.labels[0])
        # Where its segments lie, and what follows from it; see `load`.
        self._sizes = zeros(6, len(self._places))
        self._of_types = zeros(types + 2)
        # What is fixed: the segment of each node and row with room, and its place there.
        of_nodes = [segment.size for segment in self._places]
        self._segment, self._place = spread(list(range(len(of_nodes))), of_nodes), within(of_nodes)
        self._type = spread([segment.node_type for segment in self._places], of_nodes)
        self._segment_of_row, self._place_of_row = spread(list(range(len(rows))), rows), within(rows)
        firsts = np.cumsum([0, *room.unique[:-1]])
        self._first_unique = torch.from_numpy(firsts).to(device)
        self._slots_of = torch.tensor([segment.slots for segment in self._places], device=device)

    @staticmethod
    def kind_of(batch: TreeMiniBatch) -> TreeKind | None:
        """See `TreeKind.of`."""
        return TreeKind.of(batch)

    @staticmethod
    def room_of(batch: TreeMiniBatch) -> TreeRoom:
        """See `TreeRoom.of`."""
        return TreeRoom.of(batch)

    def holds(self, batch: TreeMiniBatch) -> bool:
        """Whether `batch` can be loaded."""
        kind = TreeKind.of(batch)
        if kind is None or not (kind == self.kind or kind.has_fewer_seeds_than(self.kind)):
            return False
        return self.room.holds(TreeRoom.of(batch))

    def forget_draws(self) -> None:
        """Dropout draws by torch's generator, of which a graph knows: there is nothing to count."""

    def check_draws(self) -> None:
        """See `forget_draws`."""

    def load(self, batch: TreeMiniBatch) -> None:
        """Makes `batch` the one that the graph finds from now on, in the order of the current stream.

        It launches copies and does not wait for the device.
        """
        assert batch.y is not None
        distinct, hops = batch.distinct, batch.blocks[::-1]
        begins = segments_of(batch.sizes, self._slots)
        told = np.zeros((6, len(self._places)), dtype=np.int64)
        at, edges, in_indptr, in_edges = 0, 0, 0, 0
        for h, of_hop in enumerate(begins):
            for _, begin, size, row, _ in of_hop:
                # In `indptr` each hop so far has one entry more than rows.
                told[:, at] = begin, size, row + h, edges, begin + size, self._places[at].begin - begin
                at += 1
            if h < len(hops):
                edges += hops[h].num_edges
        numbers = np.concatenate([told.ravel(), distinct.starts[:-1], [edges, batch.batch_size]])
        sent = torch.from_numpy(numbers)
        if self.kind.device.type == "cuda":
            sent = sent.pin_memory()
        self._sizes.copy_(sent[: told.size].view(told.shape), non_blocking=True)
        self._of_types.copy_(sent[told.size :], non_blocking=True)
        into, of = [], []
        for block in hops:
            rows, count = block.indptr.numel(), block.num_edges
            into += [self._indptr[in_indptr : in_indptr + rows], self._indices[in_edges : in_edges + count]]
            of += [block.indptr, block.indices]
            in_indptr, in_edges = in_indptr + rows, in_edges + count
        nodes = batch.nodes.numel()
        into += [self._row[:nodes], self._tree[:nodes], self.y[: batch.batch_size]]
        of += [distinct.row, batch.tree, batch.y]
        if self._times is not None:
            assert batch.seed_times is not None
            into.append(self._times[: batch.batch_size])
            of.append(batch.seed_times)
        for name, rows_of in batch.unique_x.items():
            into.append(self._unique_x[name][: len(rows_of)])
            of.append(rows_of)
        for there, given in zip(into, of, strict=True):
            if given.numel():
                there.copy_(given)

    @property
    def weights(self) -> Tensor:
        """`[batch_size]` float32 of the seeds in a mean over those that there are. Part of a CUDA graph."""
        seeds = self._of_types[-1]
        return (torch.arange(self.batch_size, device=seeds.device) < seeds) / seeds

    @property
    def layout(self) -> TreeLayout:
        """The loaded mini-batch, each segment at its own place. Computed anew each time; part of a CUDA graph."""
        begin, size, row, edges, end, shift = self._sizes.unbind()
        first, total = self._of_types[:-2], self._of_types[-2:-1]
        # Nodes: those beyond their segment's have the row of the first distinct one of their type.
        there = self._place < size[self._segment]
        node = torch.where(there, begin[self._segment] + self._place, 0)
        unique = self._row[node] - first[self._type]
        unique = torch.where(there, unique, 0) + self._first_unique[self._type]
        tree = torch.where(there, self._tree[node], 0).long()
        # Rows: those beyond their segment's begin where its last one ends.
        of_row = self._segment_of_row
        at = row[of_row] + torch.minimum(self._place_of_row, (size * self._slots_of)[of_row])
        indptr = torch.cat([self._indptr[at] + edges[of_row], total])
        # Entries: each source's place moves as its segment does.
        segment = torch.bucketize(self._indices, end.to(self._indices.dtype), right=True)
        sources = self._indices + shift[segment.clamp(max=len(self._places) - 1)]
        entry = torch.arange(len(sources), device=sources.device)
        sources = torch.where(entry < total, sources, 0)
        return LiveLayout(
            self._hops,
            indptr.to(self.kind.index_dtypes[0]),
            sources.to(self.kind.index_dtypes[1]),
            unique,
            self.room.unique,
            self._unique_x,
            tree,
            self._times,
            self.segments.names,
            self._groups,
            self._tile,
        )
