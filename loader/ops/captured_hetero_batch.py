"""Mini-batches of several types under a CUDA graph: arrays with room for the largest, each type and hop at its place.

The counterpart of `loader.ops.captured_batch` for `HeteroMiniBatch`. `load` copies the arrays of a mini-batch to where
the graph reads them, with the places where its segments begin. The graph itself moves the segments apart, by `layout`:
no size is read by the host. Rows and nodes that are too many lie at the end of their segment; such a row has no
entries, and no row reads such a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import gcd
from operator import ge
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from loader.ops.captured_hetero_moves import LoadedHops, MovedHops, moved
from loader.ops.hop_layout import Fixed, HopLayout, edges_of_hops, segments_of
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.lazy_rows import LazyFeatures, LazyRows

_MOST = 2**30  # nodes and entries: with room for more, int32 numbers them


class HopKind(NamedTuple):
    """What mini-batches of several types have to have in common to take turns under one graph."""

    device: torch.device
    batch_size: int
    hops: int
    types: tuple[tuple[str, int, int], ...]
    edge_types: tuple[tuple[str, str, str], ...]
    features: tuple[tuple[str, torch.dtype, int, int], ...]  # the last number: where the table lies, 0 if gathered
    labels: tuple[torch.dtype, torch.Size]
    timed: bool

    @classmethod
    def of(cls, batch: HeteroMiniBatch, x: Mapping[str, Tensor], timed: bool) -> HopKind | None:
        """That of a mini-batch with these features of its distinct nodes; None if it cannot be captured: it has no
        labels, no rows or no hops, or more than 2^30 nodes or entries.
        """
        if batch.y is None or not batch.blocks or not batch.batch_size:
            return None
        lazy = x.lazy if isinstance(x, LazyFeatures) else {}
        read = {name: lazy[name].table if name in lazy else x[name] for name in sorted(x)}
        if any(rows.dim() != 2 or rows.requires_grad or rows.device != batch.nodes.device for rows in read.values()):
            return None
        if max(batch.nodes.numel(), sum(block.num_edges for block in batch.blocks)) > _MOST:
            return None
        return cls(
            batch.nodes.device,
            batch.batch_size,
            len(batch.blocks),
            tuple((name, ids.start, ids.stop) for name, ids in batch.node_types.items()),
            batch.edge_types,
            tuple((name, x.dtype, x.shape[1], x.data_ptr() if name in lazy else 0) for name, x in read.items()),
            (batch.y.dtype, batch.y.shape),
            timed,
        )

    def has_fewer_seeds_than(self, other: HopKind) -> bool:
        """Whether that is the only difference."""
        if self.batch_size >= other.batch_size or self.labels[1][1:] != other.labels[1][1:]:
            return False
        labels = (self.labels[0], other.labels[1])
        return self._replace(batch_size=other.batch_size, labels=labels) == other


class HopRoom(NamedTuple):
    """Sizes of mini-batches of several types, or upper bounds of them.

    Attributes:
        nodes: of each type that each hop found, `[hops + 1][node types]`.
        unique: distinct nodes of each type.
        edges: of the first hop, of the first two, and so on.
    """

    nodes: tuple[tuple[int, ...], ...]
    unique: tuple[int, ...]
    edges: tuple[int, ...]

    def union(self, other: HopRoom) -> HopRoom:
        """Room for both."""
        nodes = tuple(tuple(map(max, a, b)) for a, b in zip(self.nodes, other.nodes, strict=True))
        edges = tuple(map(max, self.edges, other.edges))
        return HopRoom(nodes, tuple(map(max, self.unique, other.unique)), edges)

    def holds(self, other: HopRoom) -> bool:
        """Whether the other is no larger anywhere."""
        flat = [n for of_hop in self.nodes for n in of_hop], [n for of_hop in other.nodes for n in of_hop]
        return all(map(ge, *flat)) and all(map(ge, (*self.unique, *self.edges), (*other.unique, *other.edges)))

    def widened(self, share: float, step: int) -> HopRoom:
        """Larger by `share`, in whole `step`s; seeds only to whole ones. What is empty stays so."""

        def wider(size: int) -> int:
            return -(-int(size * (1 + share)) // step) * step

        seeds = tuple(-(-size // step) * step for size in self.nodes[0])
        return HopRoom(
            (seeds, *(tuple(map(wider, of_hop)) for of_hop in self.nodes[1:])),
            tuple(map(wider, self.unique)),
            tuple(map(wider, self.edges)),
        )


class CapturedHeteroBatch:
    """Stands in for the k-hop mini-batches of one kind up to some size, see the module.

    Args:
        like: one of them, with labels, whose hops expand only what the hop before found.
        room: how large they may be.
        ignored_label: a class that the loss leaves out: seeds that are missing have it. None for a loss that takes a
            mean by `weights`.

    Attributes:
        batch: what to give to the model while it is captured: this object, which has of a mini-batch `y`, `batch_size`,
            `sizes`, `segments`, `layout`, and `weights` in place of a mean: a mini-batch may have fewer seeds, and,
            without `ignored_label`, `y` then ends with labels of another one.
    """

    stands_for: ClassVar[type] = HeteroMiniBatch
    headroom: ClassVar[float] = 0.05  # small types differ by more than the whole mini-batch does
    branches: ClassVar[bool] = False

    def __init__(self, like: Any, room: HopRoom, ignored_label: int | None = None) -> None:
        kind = self.kind_of(like)
        if kind is None:
            raise ValueError(
                f"{like!r} cannot be captured: it needs labels, hops, the rows of its distinct nodes, and at most "
                f"{_MOST} nodes and entries"
            )
        self.kind, self.room, self.sizes = kind, room, room.nodes
        self.segments, self.batch_size, self.batch = like.segments, like.batch_size, self
        self._ignored = ignored_label
        self._slots = [len(into) for into in like.segments.into]
        places = segments_of(room.nodes, self._slots)
        self._places = [segment for of_hop in places for segment in of_hop]
        self._begins = np.array([segment.begin for segment in self._places])
        self._hops = places
        # Sizes have this in common, so that layers can be products of tiles.
        tile = gcd(*(size for of_hop in room.nodes for size in of_hop), *room.unique)
        self._fixed = Fixed(tile, kind.device)
        for nodes in accumulate(sum(segment.size for segment in of_hop) for of_hop in places):
            self._fixed.arange(nodes)  # before branches of a step that read it
        device, types = kind.device, len(self._slots)

        def spread(of: list[int], sizes: list[int]) -> Tensor:
            return torch.repeat_interleave(torch.tensor(of), torch.tensor(sizes)).to(device)

        def within(sizes: list[int]) -> Tensor:
            return torch.cat([torch.arange(size) for size in sizes]).to(device)

        # The arrays of a mini-batch, one hop right behind the other.
        self._num_nodes = sum(segment.size for segment in self._places)
        rows = [segment.size * segment.slots for of_hop in places[:-1] for segment in of_hop]
        self._indptr = self._zeros(sum(rows) + kind.hops, dtype=torch.int32)
        self._indices = self._zeros(max(room.edges[-1], 1), dtype=torch.int32)
        self._unique_x: Mapping[str, Tensor] = self._room_for_features(like)
        self._y = self._zeros(*kind.labels[1], dtype=kind.labels[0])
        # Where its segments lie, and what follows from it; see `load`.
        self._numbers = self._zeros(7 * len(self._places) + types + 2)
        self._sizes = self._numbers[: 7 * len(self._places)].view(7, -1)
        self._of_types = self._numbers[7 * len(self._places) :]
        # What is fixed: the segment of each node and row with room, and its place there.
        of_nodes = [segment.size for segment in self._places]
        self._segment, self._place = spread(list(range(len(of_nodes))), of_nodes), within(of_nodes)
        self._type = spread([segment.node_type for segment in self._places], of_nodes)
        self._segment_of_row, self._place_of_row = spread(list(range(len(rows))), rows), within(rows)
        firsts = np.cumsum([0, *room.unique[:-1]])
        self._first_unique = torch.from_numpy(firsts).to(device)
        self._slots_of = torch.tensor([segment.slots for segment in self._places], device=device)

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=self.kind.device)

    @staticmethod
    def _x_of(batch: Any) -> Mapping[str, Any]:
        """Features of the distinct nodes of a mini-batch."""
        return batch.x or {}

    def _room_for_features(self, like: Any) -> Mapping[str, Tensor]:
        """Arrays for the features of the distinct nodes, or for the ids of those that stay in their table."""
        made, lazy = dict[str, Tensor](), dict[str, LazyRows]()
        x: Any = self._x_of(like)
        for name, dtype, width, table in self.kind.features:
            count = self.room.unique[like.segments.type_of(name)]
            if table:
                left = x.lazy[name]
                lazy[name] = left.of(self._zeros(count, dtype=left.nodes.dtype))
            else:
                made[name] = self._zeros(count, width, dtype=dtype)
        return LazyFeatures(made, lazy) if lazy else made

    @staticmethod
    def kind_of(batch: Any) -> HopKind | None:
        """See `HopKind.of`. None also of a mini-batch whose hops expand all nodes so far."""
        if type(batch) is not HeteroMiniBatch or batch.expands_all:
            return None
        return HopKind.of(batch, CapturedHeteroBatch._x_of(batch), False)

    @staticmethod
    def room_of(batch: Any) -> HopRoom:
        """The sizes of a mini-batch."""
        unique = tuple(batch.segments.count(t) for t in range(len(batch.segments.names)))
        return HopRoom(batch.sizes, unique, edges_of_hops(batch.blocks))

    def holds(self, batch: Any) -> bool:
        """Whether `batch` can be loaded."""
        kind = self.kind_of(batch)
        if kind is None or not (kind == self.kind or kind.has_fewer_seeds_than(self.kind)):
            return False
        return self.room.holds(self.room_of(batch))

    def forget_draws(self) -> None:
        """Dropout draws by torch's generator, of which a graph knows: there is nothing to count."""

    def check_draws(self) -> None:
        """See `forget_draws`."""

    def load(self, batch: Any) -> None:
        """Makes `batch` the one that the graph finds from now on, in the order of the current stream.

        It launches copies and does not wait for the device.
        """
        assert batch.y is not None
        hops = batch.blocks[::-1]
        sent = torch.from_numpy(self._numbers_of(batch, [block.num_edges for block in hops]))
        if self.kind.device.type == "cuda":
            sent = sent.pin_memory()
        self._numbers.copy_(sent, non_blocking=True)
        copies = [(self._y[: batch.batch_size], batch.y), *self._copies(batch)]
        in_indptr = in_edges = 0
        for block in hops:
            rows, count = block.indptr.numel(), block.num_edges
            copies.append((self._indptr[in_indptr : in_indptr + rows], block.indptr))
            copies.append((self._indices[in_edges : in_edges + count], block.indices))
            in_indptr, in_edges = in_indptr + rows, in_edges + count
        # By one launch for each dtype: one for each array takes longer than the copies.
        alike: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        for there, given in copies:
            if given.numel():
                alike.setdefault((there.dtype, given.dtype), []).append((there, given))
        for pairs in alike.values():
            torch._foreach_copy_([there for there, _ in pairs], [given for _, given in pairs])

    def _numbers_of(self, batch: Any, edges: Sequence[int]) -> np.ndarray:
        """Where the segments of a mini-batch lie, type after type and hop after hop, and what follows from it.

        Args:
            edges: of each hop.
        """
        sizes = np.array(batch.sizes, dtype=np.int64)
        flat, rows = sizes.ravel(), (sizes * self._slots).ravel()
        end, before = flat.cumsum(), np.cumsum([0, *edges])
        hop = np.arange(len(sizes)).repeat(sizes.shape[1])
        begin, of_type = end - flat, (sizes.cumsum(0) - sizes).ravel()
        # In `indptr` each hop so far has one entry more than rows.
        columns = (begin, flat, rows.cumsum() - rows + hop, before[hop], end, self._begins - begin, of_type)
        return np.concatenate([*columns, self._starts(batch), [before[-1], batch.batch_size]])

    def _starts(self, batch: Any) -> Sequence[int]:
        """Where the distinct nodes of each type begin; not read where all nodes are distinct."""
        return [0] * len(self._slots)

    def _copies(self, batch: Any) -> list[tuple[Tensor, Tensor]]:
        """Further arrays of a mini-batch, and where they are copied to."""
        x: Any = self._x_of(batch)
        room = self._unique_x
        if not isinstance(room, LazyFeatures):
            return [(room[name][: rows.shape[0]], rows) for name, rows in x.items()]
        lazy = [(room.lazy[name].nodes, left.nodes) for name, left in x.lazy.items()]
        made = [(room.made[name], x[name]) for name in room.made]
        return [(there[: given.shape[0]], given) for there, given in [*lazy, *made]]

    @property
    def y(self) -> Tensor:
        """Labels of the seeds. Part of a CUDA graph."""
        if self._ignored is None:
            return self._y
        seeds = self._fixed.arange(self.batch_size)
        return torch.where(seeds < self._of_types[-1], self._y, self._ignored)

    @property
    def weights(self) -> Tensor:
        """`[batch_size]` float32 of the seeds in a mean over those that there are. Part of a CUDA graph."""
        seeds = self._of_types[-1]
        return (self._fixed.arange(self.batch_size) < seeds) / seeds

    @property
    def layout(self) -> HopLayout:
        """The loaded mini-batch, each segment at its own place. Computed anew each time; part of a CUDA graph."""
        return HopLayout(**self._arrays(self._moved()), fixed=self._fixed)

    def _features(self) -> Mapping[str, Tensor]:
        """Those of the distinct nodes. What is gathered of them is gathered anew each time."""
        x = self._unique_x
        return LazyFeatures(x.made, x.lazy) if isinstance(x, LazyFeatures) else x

    def _of_nodes(self) -> tuple[Tensor | None, Tensor | None]:
        """`distinct` and `tree` of the loaded nodes, see `LoadedHops`."""
        return None, None

    def _moved(self) -> MovedHops:
        return moved(
            LoadedHops(
                self._sizes, self._of_types, self._slots_of, self._first_unique, self._segment, self._place, self._type,
                self._segment_of_row, self._place_of_row, self._indptr, self._indices, *self._of_nodes(),
            )
        )  # fmt: skip

    def _arrays(self, hops: MovedHops) -> dict[str, Any]:
        """The attributes of a `HopLayout`."""
        return {
            "segments": self._hops,
            "indptr": hops.indptr,
            "indices": hops.indices,
            "row": hops.distinct,
            "unique": self.room.unique,
            "unique_x": self._features(),
            "names": self.segments.names,
            "edges": self.room.edges,
        }
