"""The places of the arrays of a mini-batch that a GPU sampled. All are parts of one piece of memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import sub

import torch
from torch import Tensor


class Layout:
    """Room in one piece of memory: `nodes`, each hop's `indices`, the tree of each node if there are trees, each hop's
    `indptr`, and its edge ids if wanted.

    Args:
        frontiers, edges: capacities, `L + 1` and `L`, in hop order.
        edge_ids: whether there is room for edge ids.
        node_dtype: of nodes and indices.
        edge_dtype: of indptr and edge ids; not narrower than `node_dtype`.
        rows: lists that each hop picks from, `L`; None: a node has one, so they are the frontiers.
        trees: whether there is room for the tree of each node, int32.

    Attributes:
        length, dtype: of the memory.
        indices_at: where each hop's begins, in elements.
        trees_at: where the trees are, in bytes.
        edges_at: where the first indptr is, in bytes.
        indptr_at, edge_ids_at: where each hop's begins, in elements from there on.
    """

    def __init__(
        self,
        frontiers: Sequence[int],
        edges: Sequence[int],
        edge_ids: bool,
        node_dtype: torch.dtype,
        edge_dtype: torch.dtype,
        rows: Sequence[int] | None = None,
        trees: bool = False,
    ) -> None:
        hops = len(edges)
        nodes = [_aligned(n) for n in (frontiers[-1], *edges)]
        self._trees_each = node_dtype.itemsize // 4 if trees else 0  # int32 numbers per node id; 0: no trees
        if trees:
            nodes.append(_aligned(-(-frontiers[-1] // self._trees_each)))
        in_edges = [_aligned(n + 1) for n in (frontiers[:-1] if rows is None else rows)]
        if edge_ids:
            in_edges += [_aligned(n) for n in edges]
        *node_at, num_nodes = accumulate(nodes, initial=0)
        self.indices_at, self.trees_at = node_at[1 : 1 + hops], node_at[-1] * node_dtype.itemsize
        *at, num_edges = accumulate(in_edges, initial=0)
        self.indptr_at, self.edge_ids_at = at[:hops], at[hops:]
        self.edges_at = num_nodes * node_dtype.itemsize
        edges_length = num_edges * edge_dtype.itemsize // node_dtype.itemsize
        self.length, self.dtype = num_nodes + edges_length, node_dtype
        # One cut for all arrays of a type; those of another type are first cut out together.
        self._edge_dtype = None if edge_dtype == node_dtype else edge_dtype
        self._room = [*nodes, *in_edges] if self._edge_dtype is None else [*nodes, edges_length]
        self._edges_room = in_edges

    def cut(
        self, memory: Tensor, frontiers: Sequence[int], edges: Sequence[int], rows: Sequence[int] | None = None
    ) -> tuple[Tensor, Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], Tensor | None]:
        """The used part of each array: nodes, for each hop indices, indptr and, if there is room, edge ids; and the
        tree of each node, or None.
        """
        hops, count, each = len(edges), frontiers[-1], self._trees_each
        sizes = [count, *edges]
        if each:
            sizes.append(-(-count // each))
        in_edges = [n + 1 for n in (frontiers[:-1] if rows is None else rows)]
        if self.edge_ids_at:
            in_edges += edges
        if self._edge_dtype is None:
            found = _cut(memory, sizes + in_edges, self._room)
            rest = found[len(sizes) :]
        else:
            found = _cut(memory, [*sizes, self._room[-1]], self._room)
            rest = _cut(found[-1].view(self._edge_dtype), in_edges, self._edges_room)
        tree = found[1 + hops] if each else None
        if tree is not None and each > 1:
            tree = tree.view(torch.int32)[:count]
        return found[0], found[1 : 1 + hops], rest[:hops], rest[hops:], tree


def _aligned(n: int) -> int:
    """`n` rounded up so that every array begins at a multiple of 128 bytes."""
    return (n + 31) // 32 * 32


def _cut(memory: Tensor, sizes: list[int], room: list[int]) -> Sequence[Tensor]:
    """The first `sizes` elements of each piece, of which one after the other has this `room`.

    One call of torch for all of them. It is "unsafe": what is done to one array in place is not taken for a change of
    the others.
    """
    cuts = [0] * (2 * len(room))
    cuts[::2] = sizes
    cuts[1::2] = map(sub, room, sizes)
    return memory.unsafe_split_with_sizes(cuts)[::2]
