"""How GPU memory is best divided over the features of several node types and the graph.

A row in GPU memory saves some bytes over the bus per mini-batch for each byte that it takes. The rows that save most
are kept, whichever type they are of. Besides, all rows of a type may be kept, which needs no table of places. The graph
is kept as a whole or not at all.

The search runs twice, once with the graph and once without. It sets a price for a byte of GPU memory. At this price it
takes, of each type, the choice (all rows, some, none) that saves most beyond what its bytes cost. No other choice that
takes as much memory saves more (Everett, "Generalized Lagrange Multiplier Method", Operations Research 1963). The price
is the lowest that the memory allows. What is left goes to one more type, and to the rows that are worth less than the
price. A type that just does not fit would keep the price high for the others. So the search also leaves out each type
once, and keeps each one alone once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from loader.machine.gpu import counted_beyond, counted_bytes
from loader.memory.split import LEVEL_BITS, LEVELS, LINE_BYTES, level_of


class HeteroSplit(NamedTuple):
    """What lies in GPU memory.

    Attributes:
        lists: whether the graph does.
        rows: node type -> ascending ids of the rows that do; None: all of them.
        list_bytes: GPU memory of the graph but for the places of its lists.
        row_bytes: node type -> GPU memory of its rows with the table of their places.
        bus: bytes that a mini-batch reads over the bus on average, by what was counted.
        bus_without: the same if nothing were in GPU memory.
    """

    lists: bool
    rows: dict[str, Tensor | None]
    list_bytes: int
    row_bytes: dict[str, int]
    bus: float
    bus_without: float


def split_types(
    room: int,
    list_bytes: int,
    list_reads: float,
    rows: Mapping[str, int],
    reads: Mapping[str, Tensor],
) -> HeteroSplit:
    """The split of `room` bytes of GPU memory with the fewest bytes over the bus.

    What torch's allocator counts for the arrays of the split is at most `room`.

    Args:
        room: for the graph and rows.
        list_bytes: of the entries of all lists.
        list_reads: bytes that a mini-batch reads of them.
        rows: node type -> bytes of a row.
        reads: node type -> `[nodes of the type]` float64, how often a mini-batch reads each row.
    """
    types = {name: _Type.of(row_bytes, reads[name]) for name, row_bytes in rows.items()}
    whole_graph = counted_bytes(list_bytes)
    lists = _Lists(whole_graph, list_reads)
    every = _State(True, frozenset(types), frozenset())
    best = _Filled.of(every, types, lists, room)
    if best is None:
        tried = (_Filled.of(state, types, lists, room) for state in _states(types, lists, room))
        best = max((one for one in tried if one is not None), key=lambda one: (one.saved, one.taken))
    chosen: dict[str, Tensor | None] = {}
    taken: dict[str, int] = {}
    for name, of in types.items():
        ids = None if name in best.state.whole else best.ids(name, of) if name in best.state.part else _NONE
        chosen[name] = ids
        taken[name] = of.whole if ids is None else of.table + ids.numel() * of.row_bytes if ids.numel() else 0
    without = list_reads + sum(float(of.saved.sum()) for of in types.values())
    saved = (list_reads if best.state.lists else 0.0) + sum(
        float(of.saved.sum() if ids is None else of.saved[ids].sum())
        for of, ids in zip(types.values(), chosen.values(), strict=True)
    )
    bus = max(0.0, without - saved)
    return HeteroSplit(best.state.lists, chosen, list_bytes if best.state.lists else 0, taken, bus, without)


_NONE = torch.zeros(0, dtype=torch.int64)


class _Lists(NamedTuple):
    """What the graph takes, and what it saves."""

    taken: int
    saved: float


class _Type(NamedTuple):
    """The rows of a type, and sums over those of a level of worth and above.

    Attributes:
        row_bytes: of a row.
        saved: `[rows]` float64, bytes over the bus that each saves per mini-batch.
        worth: `[rows]` float64, the same for each of its bytes.
        level: `[rows]` int32, see `level_of`.
        levels: those on which there are rows, negated, so that they ascend from the highest on.
        counts, sums: numbers of rows on the first levels, and what they save; entry 0 is 0.
        whole: bytes of all rows.
        table: bytes of the places of rows, if some are kept, and what may be counted beyond the arrays.
    """

    row_bytes: int
    saved: Tensor
    worth: Tensor
    level: Tensor
    levels: np.ndarray
    counts: np.ndarray
    sums: np.ndarray
    whole: int
    table: int

    @classmethod
    def of(cls, row_bytes: int, reads: Tensor) -> _Type:
        n, whole_row = reads.numel(), -(-row_bytes // LINE_BYTES) * LINE_BYTES
        saved = reads * whole_row
        worth = saved / max(row_bytes, 1)
        level = level_of(worth)
        levels, at = torch.unique(level, return_inverse=True)
        of_level = (
            torch.bincount(at, minlength=levels.numel()),
            torch.bincount(at, saved, minlength=levels.numel()),
        )
        counts, sums = (np.concatenate([[0], part.flip(0).cumsum(0).numpy()]) for part in of_level)
        whole = counted_bytes(n * row_bytes)
        table = counted_bytes(4 * n) + counted_beyond(n * row_bytes)
        return cls(row_bytes, saved, worth, level, -levels.flip(0).numpy(), counts, sums, whole, table)

    def upto(self, level: int) -> int:
        """How many of `levels` are this one or higher."""
        return int(np.searchsorted(self.levels, -level, side="right"))

    def choose(self, level: int) -> str:
        """What saves most beyond the price of what it takes, "whole", "part" or "none"."""
        price, at = _price(level), self.upto(level)
        whole = float(self.sums[-1]) - price * self.whole
        part = float(self.sums[at]) - price * (self.table + int(self.counts[at]) * self.row_bytes)
        if whole >= max(part, 0.0):
            return "whole"
        return "part" if part > 0 else "none"


def _price(level: int) -> float:
    """The least worth on a level."""
    return float(np.array([level << LEVEL_BITS], dtype=np.int64).view(np.float64)[0])


class _State(NamedTuple):
    """Whether the graph is kept, and the types of which all rows, or some, are kept."""

    lists: bool
    whole: frozenset[str]
    part: frozenset[str]

    @classmethod
    def of(cls, types: Mapping[str, _Type], with_lists: bool, level: int) -> _State:
        chosen = {name: of.choose(level) for name, of in types.items()}
        whole, part = (frozenset(name for name, kind in chosen.items() if kind == of) for of in ("whole", "part"))
        return cls(with_lists, whole, part)

    def fixed(self, types: Mapping[str, _Type], lists: _Lists) -> int:
        """Bytes whatever rows are kept of the types that are kept in part."""
        taken = sum(types[name].whole for name in self.whole) + sum(types[name].table for name in self.part)
        return taken + (lists.taken if self.lists else 0)

    def with_one_more(self, types: Mapping[str, _Type]) -> Iterator[_State]:
        """Those with rows of one more type."""
        for name in types:
            if name not in self.whole:
                yield self._replace(whole=self.whole | {name}, part=self.part - {name})
                if name not in self.part:
                    yield self._replace(part=self.part | {name})


def _states(types: Mapping[str, _Type], lists: _Lists, room: int) -> Iterator[_State]:
    """Choices of which one is good; nothing at all is among them."""
    for with_lists in (False, True):
        if with_lists and lists.taken > room:
            return
        base = _at_lowest_price(types, with_lists, lists, room)
        yield base
        yield from base.with_one_more(types)
        for name in types:
            others = {other: of for other, of in types.items() if other != name}
            yield _at_lowest_price(others, with_lists, lists, room)
            yield _State(with_lists, frozenset({name}), frozenset())
            yield _State(with_lists, frozenset(), frozenset({name}))


def _at_lowest_price(types: Mapping[str, _Type], with_lists: bool, lists: _Lists, room: int) -> _State:
    """The choice by the lowest price for which there is room; of no rows if there is none."""
    low, high = -1, LEVELS  # no room at the first, room at the second, at which no rows are kept
    best = _State(with_lists, frozenset(), frozenset())
    while high - low > 1:
        level = (low + high) // 2
        state = _State.of(types, with_lists, level)
        rows = _bytes_upto({name: types[name] for name in state.part}, level)
        if state.fixed(types, lists) + rows <= room:
            best, high = state, level
        else:
            low = level
    return best


class _Filled(NamedTuple):
    """A choice with as many rows, the most worth first, as there is room for.

    Attributes:
        level: rows of this one and above are kept, of types in part.
        also: node type -> ids of rows of the level below that are kept, too.
        saved, taken: bytes over the bus, and of memory.
    """

    state: _State
    level: int
    also: dict[str, Tensor]
    saved: float
    taken: int

    @classmethod
    def of(cls, state: _State, types: Mapping[str, _Type], lists: _Lists, room: int) -> _Filled | None:
        """None if there is no room for the choice without rows of types in part."""
        left = room - state.fixed(types, lists)
        if left < 0:
            return None
        part = {name: of for name, of in types.items() if name in state.part}
        saved = (lists.saved if state.lists else 0.0) + sum(float(types[name].sums[-1]) for name in state.whole)
        level = _lowest_level(part, left)
        left -= _bytes_upto(part, level)
        also = _best_of_level(part, level - 1, left) if level else dict.fromkeys(part, _NONE)
        for name, of in part.items():
            ids = also[name]
            saved += float(of.sums[of.upto(level)]) + float(of.saved[ids].sum())
            left -= ids.numel() * of.row_bytes
        return cls(state, level, also, saved, room - left)

    def ids(self, name: str, of: _Type) -> Tensor | None:
        """`[kept]` ascending ids of the rows of a type in part; None: all."""
        mask = of.level >= self.level
        mask[self.also[name]] = True
        return None if bool(mask.all()) else mask.nonzero().view(-1)


def _bytes_upto(part: Mapping[str, _Type], level: int) -> int:
    """Bytes of the rows of this level and above."""
    return sum(int(of.counts[of.upto(level)]) * of.row_bytes for of in part.values())


def _lowest_level(part: Mapping[str, _Type], room: int) -> int:
    """The lowest level so that there is room for the rows of it and of those above."""
    low, high = -1, LEVELS
    while high - low > 1:
        level = (low + high) // 2
        low, high = (low, level) if _bytes_upto(part, level) <= room else (level, high)
    return high


def _best_of_level(part: Mapping[str, _Type], level: int, room: int) -> dict[str, Tensor]:
    """Of the rows of one level the ids of those that are worth most, as long as there is room."""
    ids = {name: (of.level == level).nonzero().view(-1) for name, of in part.items()}
    if not ids:
        return {}
    worth = torch.cat([part[name].worth[one] for name, one in ids.items()])
    nbytes = torch.cat([torch.full_like(one, part[name].row_bytes) for name, one in ids.items()])
    best = torch.argsort(worth, descending=True, stable=True)
    taken = torch.zeros(best.numel(), dtype=torch.bool)
    taken[best[torch.cumsum(nbytes[best], 0) <= room]] = True
    masks = taken.split([one.numel() for one in ids.values()])
    return {name: one[mask] for (name, one), mask in zip(ids.items(), masks, strict=True)}
