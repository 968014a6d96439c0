"""Moves what a mini-batch of several types has to where a CUDA graph reads it, see `captured_hetero_batch`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.machine.gpu import launch_place


class LoadedHops(NamedTuple):
    """A mini-batch as it was loaded, and the places with room. A segment is the nodes of one type that one hop found.

    Attributes:
        sizes: `[7, segments]` int64: of each segment where its nodes begin, how many there are, where its rows begin in
            `indptr`, where the entries of its hop begin, where its nodes end, by how much sources in it move, and how
            many nodes of its type come before.
        of_types: `[types + 2]` int64: where the distinct nodes of each type begin; the number of entries, and of seeds.
        slots: `[segments]` int64, rows of each of its nodes.
        first: `[types]` int64, where the distinct nodes of each type are to begin.
        segment, place, type: `[nodes]` int64 of each node with room: its segment, its place there, and its type.
        segment_of_row, place_of_row: `[rows]` int64 of each row with room.
        indptr, indices: int32, one hop right behind the other; each hop has an element of `indptr` more than rows.
        distinct: `[nodes]` int32, the place of each node among the distinct ones; None: they are distinct.
        tree: `[nodes]` int32, the tree of each node; None: there are no trees.
    """

    sizes: Tensor
    of_types: Tensor
    slots: Tensor
    first: Tensor
    segment: Tensor
    place: Tensor
    type: Tensor
    segment_of_row: Tensor
    place_of_row: Tensor
    indptr: Tensor
    indices: Tensor
    distinct: Tensor | None
    tree: Tensor | None


class MovedHops(NamedTuple):
    """The same, each segment at its place.

    Attributes:
        indptr, indices: int32 `[rows + 1]` and `[entries]`. Rows that are too many have no entries.
        distinct: `[nodes]` int64. Nodes that are too many have the first one of their type.
        tree: `[nodes]` int64, 0 of nodes that are too many; or None.
    """

    indptr: Tensor
    indices: Tensor
    distinct: Tensor
    tree: Tensor | None


def moved(hops: LoadedHops) -> MovedHops:
    """Moves them: on a GPU by one launch, else by torch. The host does not wait."""
    return _moved_by_kernel(hops) if hops.indptr.is_cuda else _moved_by_torch(hops)


def _moved_by_kernel(hops: LoadedHops) -> MovedHops:
    nodes, rows = len(hops.segment), len(hops.segment_of_row)
    found = MovedHops(
        hops.indptr.new_empty(rows + 1),
        torch.empty_like(hops.indices),
        hops.segment.new_empty(nodes),
        None if hops.tree is None else hops.segment.new_empty(nodes),
    )
    _core.cuda_move_hops(launch_place(hops.indptr), hops.sizes, hops.of_types, hops[2:9], hops[9:], found)
    return found


def _moved_by_torch(hops: LoadedHops) -> MovedHops:
    begin, size, row, edges, end, shift, of_type = hops.sizes.unbind()
    total = hops.of_types[-2]
    there = hops.place < size[hops.segment]
    node = torch.where(there, begin[hops.segment] + hops.place, 0)
    if hops.distinct is None:
        distinct = of_type[hops.segment] + hops.place
    else:
        distinct = hops.distinct[node] - hops.of_types[:-2][hops.type]
    # Rows: those beyond their segment's begin where its last one ends.
    of_row = hops.segment_of_row
    at = row[of_row] + torch.minimum(hops.place_of_row, (size * hops.slots)[of_row])
    indptr = torch.cat([hops.indptr[at] + edges[of_row], total.view(1)])
    # Entries: each source's place moves as its segment does.
    segment = torch.bucketize(hops.indices, end.to(hops.indices.dtype), right=True)
    sources = hops.indices + shift[segment.clamp(max=len(end) - 1)]
    sources = torch.where(torch.arange(len(sources), device=sources.device) < total, sources, 0)
    return MovedHops(
        indptr.to(torch.int32),
        sources.to(torch.int32),
        torch.where(there, distinct, 0) + hops.first[hops.type],
        None if hops.tree is None else torch.where(there, hops.tree[node], 0).long(),
    )
