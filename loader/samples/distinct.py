"""The distinct nodes of a mini-batch that has nodes several times, and rows that were gathered once for all copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from loader.samples.base import Rows
from loader.samples.lazy_rows import LazyFeatures, LazyRows, RowsOnDemand
from loader.samples.segments import Segments

# Sorting a node costs about as much as a pass over this many places of a table.
_PLACES_PER_NODE = 8


class Distinct:
    """The distinct nodes of a mini-batch.

    This is no dataclass, because a Trainer goes through the fields of dataclasses.

    Args:
        unique: `[u]` ids of the graph's one range, ascending, so that those of a type lie together.
        row: `[num_nodes]` int32, the place of each node in `unique`.
        starts: `[types + 1]` where the ids of each type begin in `unique`.
        segments: of the mini-batch.
    """

    def __init__(self, unique: Tensor, row: Tensor, starts: Sequence[int], segments: Segments) -> None:
        self.unique, self.row, self.starts, self._segments = unique, row, tuple(starts), segments

    @classmethod
    def of(cls, nodes: Tensor, segments: Segments) -> Distinct:
        """The distinct ones of `nodes`. The host waits once for the device."""
        stops = tuple(ids.stop for ids in segments.node_types.values())
        if nodes.numel() == 0:
            return cls(nodes, nodes.to(torch.int32), [0] * (len(stops) + 1), segments)
        bounds, places = _on(nodes.device, (0, *stops)), nodes.long()
        # Both ways give the same. A table has the shorter way unless the graph is much larger than the mini-batch.
        if stops[-1] <= _PLACES_PER_NODE * nodes.numel():
            seen = torch.zeros(stops[-1] + 1, dtype=torch.int32, device=nodes.device)
            seen.scatter_(0, places + 1, 1)
            before = seen.cumsum(0, dtype=torch.int32)  # how many distinct ids are lower
            row, starts = before.index_select(0, places), before.index_select(0, bounds)
        else:
            ids, order = nodes.sort()
            new = torch.ones(nodes.numel() + 1, dtype=torch.int32, device=nodes.device)
            new[:1].zero_()  # a number that is assigned to an element is waited for
            torch.ne(ids[1:], ids[:-1], out=new[2:])
            upto = new.cumsum(0, dtype=torch.int32)  # [i]: distinct ids among the first i
            row = torch.empty_like(order, dtype=torch.int32).scatter_(0, order, upto[1:] - 1)
            starts = upto.index_select(0, torch.searchsorted(ids, bounds.to(ids.dtype)))
        at = starts.tolist()
        unique = nodes.new_empty(at[-1]).scatter_(0, row.long(), nodes)
        return cls(unique, row, at, segments)

    def map(self, f: Callable[[Tensor], Tensor]) -> Distinct:
        """A copy with other tensors."""
        return Distinct(f(self.unique), f(self.row), self.starts, self._segments)

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of distinct nodes of each type."""
        return tuple(end - begin for begin, end in pairwise(self.starts))

    def ids_of(self, name: str) -> Tensor:
        """`[u]` distinct ids of the nodes of a type, ascending, numbered within the type."""
        t, first = self._segments.type_of(name), self._segments.node_types[name].start
        ids = self.unique[self.starts[t] : self.starts[t + 1]]
        return ids - first if first else ids

    def ids_of_types(self, names: Sequence[str]) -> list[Tensor]:
        """`ids_of` of each of these types, all by two launches."""
        if len(names) == 1:
            return [self.ids_of(names[0])]
        types = [self._segments.type_of(name) for name in names]
        every = self.unique.clone().unsafe_split_with_sizes(list(self.counts))
        ids = [every[t] for t in types]
        self._segments.within_types(ids, types)
        return ids

    def row_of(self, name: str) -> Tensor:
        """`[n]` int32, the place of each node of a type among the distinct ones of the type."""
        t = self._segments.type_of(name)
        row, first = self._segments.of_type(self.row, t), self.starts[t]
        return row - first if first else row


class OnceRows(NamedTuple):
    """Rows for all copies of a node: those of the distinct nodes of a type, gathered or in their table."""

    rows: Rows
    node_type: str

    @property
    def tensor(self) -> Tensor:
        """The rows, or the ids of those that are in their table."""
        return self.rows.nodes if isinstance(self.rows, LazyRows) else self.rows

    def map(self, f: Callable[[Tensor], Tensor]) -> OnceRows:
        """With `f` of the tensor. A table is not copied: what leaves its device is gathered."""
        if not isinstance(self.rows, LazyRows):
            return OnceRows(f(self.rows), self.node_type)
        moved = f(self.rows.nodes)
        rows = self.rows.of(moved) if moved.device == self.rows.device else f(self.rows.gather())
        return OnceRows(rows, self.node_type)


class SpreadRows(RowsOnDemand):
    """A name -> rows, one for each node of a type. They are made of the distinct rows when they are first asked for.

    Args:
        made: name -> rows that are there.
        once: name -> distinct rows.
        places: type -> the place of each node's row among the distinct ones.
    """

    def __init__(
        self,
        made: Mapping[str, Tensor] = MappingProxyType({}),
        once: Mapping[str, OnceRows] = MappingProxyType({}),
        places: Callable[[str], Tensor] | None = None,
    ) -> None:
        super().__init__(made, once)
        self.once: dict[str, OnceRows] = self._waiting
        self._places = places

    @classmethod
    def of(cls, rows: Mapping[str, Tensor] | None, places: Callable[[str], Tensor]) -> SpreadRows:
        """A copy of such rows, or of a dict of made ones, whose distinct rows have these places."""
        if isinstance(rows, SpreadRows):
            return cls(rows.made, rows.once, places)
        return cls(rows or {}, {}, places)

    @cached_property
    def distinct(self) -> Mapping[str, Tensor]:
        """Name -> the distinct rows. Those that are in their table are gathered when they are asked for."""
        return LazyFeatures().with_rows({name: once.rows for name, once in self.once.items()}).if_lazy()

    def held(self) -> list[Tensor]:
        """Rows that were made, and distinct rows that were gathered from their table."""
        distinct = self.__dict__.get("distinct")
        return [*self.made.values(), *(distinct.made.values() if isinstance(distinct, LazyFeatures) else ())]

    def own(self) -> dict[str, Tensor]:
        """The rows that are not made of distinct ones."""
        return {name: rows for name, rows in self.made.items() if name not in self.once}

    def _make(self, name: str) -> Tensor:
        if self._places is None:
            raise KeyError(name)
        rows, node_type = self.once[name]
        places = self._places(node_type)
        if isinstance(rows, LazyRows):
            return rows.of(rows.nodes.index_select(0, places)).gather()
        return rows.index_select(0, places)


@lru_cache(maxsize=32)
def _on(device: torch.device, numbers: tuple[int, ...]) -> Tensor:
    """Numbers on a device. They are kept, as the host waits for the device when it sends them."""
    with torch.inference_mode(False):
        return torch.tensor(numbers, dtype=torch.int64, device=device)
