"""The places of the arrays of a mini-batch that a GPU sampled. All are parts of one piece of memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

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
        # One split for all arrays of a type; those of another type are first split off together.
        self._edge_dtype = None if edge_dtype == node_dtype else edge_dtype
        self._room = [*nodes, *in_edges] if self._edge_dtype is None else [*nodes, edges_length]
        self._edges_room = in_edges

    def split(self, memory: Tensor) -> list[Tensor]:
        """The room of each array: nodes, each hop's indices, trees if there are any, each hop's indptr, and edge ids.

        This takes as long as a launch and needs no sizes, so it can be done while the GPU samples. It is "unsafe": what
        is done to one array in place is not taken for a change of the others.
        """
        found = list(memory.unsafe_split_with_sizes(self._room))
        if self._trees_each > 1:
            tree = 1 + len(self.indices_at)
            found[tree] = found[tree].view(torch.int32)
        if self._edge_dtype is not None:
            found[-1:] = found[-1].view(self._edge_dtype).unsafe_split_with_sizes(self._edges_room)
        return found

    def fit(
        self, room: list[Tensor], frontiers: Sequence[int], edges: Sequence[int], rows: Sequence[int] | None = None
    ) -> tuple[Tensor, Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], Tensor | None]:
        """Makes what `split` returned as long as its arrays are: nodes, for each hop indices, indptr and, if there is
        room, edge ids; and the tree of each node, or None.
        """
        hops, count, first = len(edges), frontiers[-1], 1 + len(edges)
        sizes = [count, *edges]
        if self._trees_each:
            sizes.append(count)
            first += 1
        sizes += [n + 1 for n in (frontiers[:-1] if rows is None else rows)]
        if self.edge_ids_at:
            sizes += edges
        if room[0].is_inference() and not torch.is_inference_mode_enabled():  # torch does not change those in place
            room = [t[:n] for t, n in zip(room, sizes, strict=True)]
        else:
            for t, n in zip(room, sizes, strict=True):
                t.resize_(n)  # in a fifth of the time that a view of a part takes
        tree = room[1 + hops] if self._trees_each else None
        return room[0], room[1 : 1 + hops], room[first : first + hops], room[first + hops :], tree


def _aligned(n: int) -> int:
    """`n` rounded up so that every array begins at a multiple of 128 bytes."""
    return (n + 31) // 32 * 32
