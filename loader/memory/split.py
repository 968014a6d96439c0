"""How GPU memory is best split over neighbor lists and feature rows.

What is not in GPU memory crosses the bus each time that a mini-batch reads it. A list, or a row, saves some bytes per
mini-batch for each byte of GPU memory that it takes, so those with the largest such ratio are kept. This is the idea of
DUCATI (Zhang et al., "DUCATI: A Dual-Cache Training System for Graph Neural Networks on Giant Graphs with GPUs", SIGMOD
2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from loader.graph import Graph
from loader.memory.visits import classes_of
from loader.samplers.list_hotness import hop_visits, lines_of_visits
from loader.samples import MiniBatch

LINE_BYTES = 128  # of a request to pinned memory
_PLACE_BYTES = 4  # of a row, in the table of a cache
LEVEL_BITS = 44  # of a float64 that are left out: levels lie 1/256 apart
LEVELS = 1 << (63 - LEVEL_BITS)


class Reads(NamedTuple):
    """What mini-batches read, as far as some of them tell.

    Attributes:
        counted: how many mini-batches.
        lists: `[num_nodes]` float64, bytes that a mini-batch is expected to read of each list, in whole lines.
        rows: `[num_nodes]` float64, how often a mini-batch is expected to read each row.
        rows_of: `[counted]` int64, the number of rows of each mini-batch.
    """

    counted: int
    lists: Tensor
    rows: Tensor
    rows_of: Tensor

    @classmethod
    def of(cls, graph: Graph, batches: Iterable[MiniBatch], fanouts: Sequence[int]) -> Reads:
        """Counts what `batches` of a sampler with these fanouts read of a square graph, and expects the like of others,
        see `loader.memory.visits`.

        Raises:
            ValueError: there are none.
        """
        each: list[int] = []
        rows = torch.zeros(graph.num_nodes, dtype=torch.int64)

        def counted() -> Iterable[MiniBatch]:
            nonlocal rows
            for batch in batches:
                nodes = batch.input_nodes.long()
                rows = rows.to(nodes.device)
                rows[nodes] += 1  # those of a mini-batch are distinct
                each.append(nodes.numel())
                yield batch

        visits = hop_visits(graph, counted(), fanouts)
        if not each:
            raise ValueError(
                "there is no mini-batch that shows which lists and rows are read: the train split has 0 nodes; it "
                "must have at least 1, or leave memory out"
            )
        rows = rows.cpu()
        classes = classes_of(graph, rows)
        lines = lines_of_visits(graph, (classes.expected(of_hop) for of_hop in visits), fanouts)
        count = len(each)
        return cls(count, lines * (LINE_BYTES / count), classes.expected(rows) / count, torch.tensor(each))


class Split(NamedTuple):
    """What lies in GPU memory.

    Attributes:
        lists, rows: ascending ids of the nodes whose lists, or rows, are kept there; None: all of them.
        list_bytes, row_bytes: GPU memory of lists and rows with the tables of their places; of all lists with `indptr`.
        bus: bytes that a mini-batch reads over the bus on average, by what was counted.
        bus_without: the same if nothing were in GPU memory.
    """

    lists: Tensor | None
    rows: Tensor | None
    list_bytes: int
    row_bytes: int
    bus: float
    bus_without: float


def split_memory(
    room: int,
    graph: Graph,
    row_bytes: int,
    reads: Reads,
    beside: tuple[int, int] = (0, 0),
) -> Split:
    """The split of `room` bytes of GPU memory with the fewest bytes over the bus.

    Args:
        room: for lists and rows; nothing is kept if it is too small for the tables of their places.
        graph: square.
        row_bytes: of a feature row.
        reads: what mini-batches read.
        beside: what a cache of rows takes beside them and the table of their places: bytes per cached row, and per row.
    """
    degrees = graph.in_degrees().cpu().long()
    all_lists = graph.indptr.nbytes + graph.indices.nbytes
    n, list_table = graph.num_nodes, 2 * graph.indptr.nbytes  # with `indptr`, which is copied for pinned lists, too
    all_rows, row_table = n * row_bytes, n * (_PLACE_BYTES + beside[1])
    whole_row = -(-row_bytes // LINE_BYTES) * LINE_BYTES
    lists = _Items.of(degrees * graph.indices.itemsize, reads.lists)
    rows = _Items.of(torch.full((n,), row_bytes + beside[0]), reads.rows * whole_row)
    without = float(lists.saved.sum() + rows.saved.sum())
    none = torch.zeros(0, dtype=torch.int64)

    def chosen(of: _Items, table: int, left: int) -> tuple[Tensor, int, float]:
        (ids,) = _fill([of], left - table)
        return (ids, table + int(of.nbytes[ids].sum()), float(of.saved[ids].sum())) if ids.numel() else (none, 0, 0.0)

    indptr = graph.indptr.nbytes
    found = [Split(none, none, 0, 0, without, without)]
    if all_lists + all_rows <= room:
        return Split(None, None, all_lists, all_rows, 0.0, without)
    if all_lists <= room:
        ids, nbytes, saved = chosen(rows, row_table, room - all_lists)
        found.append(Split(None, ids, all_lists, nbytes, float(rows.saved.sum()) - saved, without))
    if all_rows + indptr <= room:
        ids, nbytes, saved = chosen(lists, list_table, room - all_rows)
        found.append(Split(ids, None, nbytes or indptr, all_rows, float(lists.saved.sum()) - saved, without))
    if indptr + row_table <= room:
        ids, nbytes, saved = chosen(rows, row_table, room - indptr)
        found.append(Split(none, ids, indptr, nbytes, without - saved, without))
    if list_table <= room:
        ids, nbytes, saved = chosen(lists, list_table, room)
        found.append(Split(ids, none, nbytes, 0, without - saved, without))
    if list_table + row_table <= room:
        of_lists, of_rows = _fill([lists, rows], room - list_table - row_table)
        list_bytes = list_table + int(lists.nbytes[of_lists].sum())
        row_bytes_used = row_table + int(rows.nbytes[of_rows].sum())
        saved = float(lists.saved[of_lists].sum() + rows.saved[of_rows].sum())
        found.append(Split(of_lists, of_rows, list_bytes, row_bytes_used, without - saved, without))
    # Of equal ones that with the most in GPU memory: other mini-batches may read what these did not.
    return min(found, key=lambda split: (split.bus, -split.list_bytes - split.row_bytes))


def level_of(worth: Tensor) -> Tensor:
    """`[n]` int32: the leading bits of each worth, float64 and not negative, and so in its order."""
    return (worth.view(torch.int64) >> LEVEL_BITS).int()


class _Items(NamedTuple):
    """What may be kept, by node: what each takes, and what it saves per mini-batch, in bytes."""

    nbytes: Tensor  # int64
    saved: Tensor  # float64
    worth: Tensor  # float64, saved per byte
    level: Tensor  # int32, the leading bits of `worth`, and so in its order
    on_level: Tensor  # float64, bytes of each level

    @classmethod
    def of(cls, nbytes: Tensor, saved: Tensor) -> _Items:
        worth = saved / nbytes.clamp(min=1)
        level = level_of(worth)
        return cls(nbytes, saved, worth, level, torch.bincount(level, nbytes.double(), minlength=LEVELS))


def _fill(kinds: Sequence[_Items], room: int) -> list[Tensor]:
    """For each kind the ids, ascending, that are kept: those that save most per byte, as long as there is room.

    Only those of the level on which the room ends are sorted: to sort all of a large graph takes a minute.
    """
    above = torch.stack([kind.on_level for kind in kinds]).sum(0).flip(0).cumsum(0)  # of a level and those above it
    fits = int((above <= room).sum())  # from the highest level on
    masks = [kind.level >= LEVELS - fits for kind in kinds]
    if fits < LEVELS:
        left = room - (int(above[fits - 1]) if fits else 0)
        ends = [(kind.level == LEVELS - 1 - fits).nonzero().view(-1) for kind in kinds]
        worth, nbytes = (
            torch.cat([getattr(kind, name)[ids] for kind, ids in zip(kinds, ends, strict=True)])
            for name in ("worth", "nbytes")
        )
        best = torch.argsort(worth, descending=True, stable=True)
        taken = torch.zeros(best.numel(), dtype=torch.bool)
        taken[best[torch.cumsum(nbytes[best], 0) <= left]] = True
        for mask, ids, of_kind in zip(masks, ends, taken.split([ids.numel() for ids in ends]), strict=True):
            mask[ids[of_kind]] = True
    return [mask.nonzero().view(-1) for mask in masks]
