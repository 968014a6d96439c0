"""How GPU memory is best split over neighbour lists and feature rows.

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
from loader.samplers import list_hotness
from loader.samples import MiniBatch

LINE_BYTES = 128  # of a request to pinned memory
_PLACE_BYTES = 4  # of a row, in the table of a cache


class Reads(NamedTuple):
    """What mini-batches read.

    Attributes:
        counted: how many mini-batches.
        lists: `[num_nodes]` float64, bytes that a mini-batch reads of each list on average, in whole lines.
        rows: `[num_nodes]` float64, how often a mini-batch reads each row on average.
        most_rows: of a mini-batch.
    """

    counted: int
    lists: Tensor
    rows: Tensor
    most_rows: int

    @classmethod
    def of(cls, graph: Graph, batches: Iterable[MiniBatch], fanouts: Sequence[int]) -> Reads:
        """Counts what `batches` of a sampler with these fanouts read of a square graph.

        Raises:
            ValueError: there are none.
        """
        count = most = 0
        rows = torch.zeros(graph.num_nodes, dtype=torch.int64)

        def counted() -> Iterable[MiniBatch]:
            nonlocal count, most, rows
            for batch in batches:
                nodes = batch.input_nodes.long()
                rows = rows.to(nodes.device)
                rows[nodes] += 1  # those of a mini-batch are distinct
                count, most = count + 1, max(most, nodes.numel())
                yield batch

        per_byte = list_hotness(graph, counted(), fanouts)
        if not count:
            raise ValueError(
                "there is no mini-batch that shows which lists and rows are read: the train split has 0 vertices; it "
                "must have at least 1, or leave memory out"
            )
        nbytes = graph.in_degrees().cpu().double() * graph.indices.itemsize
        return cls(count, per_byte * nbytes * LINE_BYTES / count, rows.cpu().double() / count, most)


class Split(NamedTuple):
    """What lies in GPU memory.

    Attributes:
        lists, rows: ascending ids of the vertices whose lists, or rows, are kept there; None: all of them.
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


def split_memory(room: int, graph: Graph, row_bytes: int, reads: Reads) -> Split:
    """The split of `room` bytes of GPU memory with the fewest bytes over the bus.

    Args:
        room: for lists and rows; nothing is kept if it is too small for the tables of their places.
        graph: square.
        row_bytes: of a feature row.
        reads: what mini-batches read.
    """
    degrees = graph.in_degrees().cpu().long()
    all_lists = graph.indptr.nbytes + graph.indices.nbytes
    n, list_table = graph.num_nodes, 2 * graph.indptr.nbytes  # with `indptr`, which is copied for pinned lists, too
    all_rows, row_table = n * row_bytes, n * _PLACE_BYTES
    whole_row = -(-row_bytes // LINE_BYTES) * LINE_BYTES
    lists = _Items(degrees * graph.indices.itemsize, reads.lists)
    rows = _Items(torch.full((n,), row_bytes), reads.rows * whole_row)
    without = float(lists.saved.sum() + rows.saved.sum())
    none = torch.zeros(0, dtype=torch.int64)

    best = _best([lists, rows])  # in which each kind has its own order: one sort for all
    best_lists, best_rows = best[best < n], best[best >= n] - n

    def kept(of: _Items, best: Tensor, table: int, left: int) -> tuple[Tensor, int, float]:
        (ids,) = _fill([of], best, left - table)
        return (ids, table + int(of.nbytes[ids].sum()), float(of.saved[ids].sum())) if ids.numel() else (none, 0, 0.0)

    indptr = graph.indptr.nbytes
    found = [Split(none, none, 0, 0, without, without)]
    if all_lists + all_rows <= room:
        return Split(None, None, all_lists, all_rows, 0.0, without)
    if all_lists <= room:
        ids, nbytes, saved = kept(rows, best_rows, row_table, room - all_lists)
        found.append(Split(None, ids, all_lists, nbytes, float(rows.saved.sum()) - saved, without))
    if all_rows + indptr <= room:
        ids, nbytes, saved = kept(lists, best_lists, list_table, room - all_rows)
        found.append(Split(ids, None, nbytes or indptr, all_rows, float(lists.saved.sum()) - saved, without))
    if indptr + row_table <= room:
        ids, nbytes, saved = kept(rows, best_rows, row_table, room - indptr)
        found.append(Split(none, ids, indptr, nbytes, without - saved, without))
    if list_table <= room:
        ids, nbytes, saved = kept(lists, best_lists, list_table, room)
        found.append(Split(ids, none, nbytes, 0, without - saved, without))
    if list_table + row_table <= room:
        of_lists, of_rows = _fill([lists, rows], best, room - list_table - row_table)
        list_bytes = list_table + int(lists.nbytes[of_lists].sum())
        row_bytes_kept = row_table + int(rows.nbytes[of_rows].sum())
        saved = float(lists.saved[of_lists].sum() + rows.saved[of_rows].sum())
        found.append(Split(of_lists, of_rows, list_bytes, row_bytes_kept, without - saved, without))
    # Of equal ones that with the most in GPU memory: other mini-batches may read what these did not.
    return min(found, key=lambda split: (split.bus, -split.list_bytes - split.row_bytes))


class _Items(NamedTuple):
    """What may be kept, by vertex: what each takes, and what it saves per mini-batch, in bytes."""

    nbytes: Tensor  # int64
    saved: Tensor  # float64


def _best(kinds: Sequence[_Items]) -> Tensor:
    """What is read of all kinds, numbered one behind the other: first what saves most per byte."""
    nbytes, saved = (torch.cat([getattr(kind, name) for kind in kinds]) for name in ("nbytes", "saved"))
    read = (saved > 0).nonzero().view(-1)
    return read[torch.argsort(saved[read] / nbytes[read].clamp(min=1), descending=True, stable=True)]


def _fill(kinds: Sequence[_Items], best: Tensor, room: int) -> list[Tensor]:
    """For each kind the ids, ascending, that are kept: the best as long as there is room, then what was never read.

    The latter comes as it lies: of large graphs it is most, and takes long to sort.
    """
    nbytes = torch.cat([kind.nbytes for kind in kinds]) if len(kinds) > 1 else kinds[0].nbytes
    ends = torch.cumsum(nbytes[best], 0)
    kept = torch.zeros(nbytes.numel(), dtype=torch.bool)
    kept[best[ends <= room]] = True
    left = room - (int(ends[-1]) if ends.numel() else 0)
    if left >= 0:
        others = torch.cat([kind.saved <= 0 for kind in kinds]).nonzero().view(-1)
        kept[others[torch.cumsum(nbytes[others], 0) <= left]] = True
    return [part.nonzero().view(-1) for part in kept.split([kind.nbytes.numel() for kind in kinds])]
