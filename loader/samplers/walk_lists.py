"""What walks read of a graph beside its lists: made once, when a session opens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.samplers.picks import weighed


def sorted_lists(graph: Graph) -> tuple[Tensor, Tensor | None]:
    """`[num_edges]` neighbors with each list in ascending order, and their places in the graph.

    If the lists are so already, as `Graph.from_edges` makes them, `graph.indices` itself and None; else copies.
    """
    indptr, indices = graph.indptr.long(), graph.indices
    falls = indices[1:] < indices[:-1]
    begins = indptr[1:-1]
    begins = begins[(begins > 0) & (begins < indices.numel())]
    falls[begins - 1] = False
    if not bool(falls.any()):
        return indices, None
    rows = torch.arange(graph.num_nodes, device=indices.device).repeat_interleave(indptr.diff())
    order = torch.argsort(indices, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]
    return indices[order].contiguous(), order.to(graph.indptr.dtype)


def copies_of(graph: Graph, ascending: Tensor) -> tuple[Tensor, Tensor] | None:
    """How often lists have a node; None: no list has one twice.

    `[num_nodes]` uint8: no list has a node more than 2 to this power times. `[num_nodes, 3]`: the first place of the
    node that a list has most often (the lowest of several), how often, and how often any other at most.

    Args:
        graph: of the lists.
        ascending: from `sorted_lists`; places are places there.
    """
    indptr = graph.indptr.to(ascending.device).long()
    again = torch.zeros(ascending.numel() + 1, dtype=torch.bool, device=ascending.device)
    if ascending.numel():
        again[1:-1] = ascending[1:] == ascending[:-1]
        again[indptr] = False
    if not bool(again.any()):
        return None
    begins = (~again).nonzero().view(-1)  # of runs, and the end
    lengths = begins.diff()
    begins, lengths = begins[:-1][lengths > 1], lengths[lengths > 1]
    rows = torch.searchsorted(indptr, begins, right=True) - 1
    counts = indptr.diff().clamp(max=1).scatter_reduce(0, rows, lengths, "amax")
    is_most = lengths == counts[rows]
    places = indptr[:-1].scatter_reduce(0, rows[is_most], begins[is_most], "amin", include_self=False)
    other = begins != places[rows]
    others = indptr.diff().clamp(max=1).scatter_reduce(0, rows[other], lengths[other], "amax")
    powers = torch.bucketize(counts, 2 ** torch.arange(63, device=counts.device))
    return powers.to(torch.uint8), torch.stack((places, counts, others), dim=1).to(graph.indptr.dtype)


def weighted_lists(graph: Graph, num_threads: int) -> tuple[Graph, Tensor]:
    """The graph of the edges that have a weight above 0, and `[words * num_edges]` what walks by weight read: 16 bytes
    an edge, or 24 if nodes are int64.

    Args:
        graph: on the CPU.
        num_threads: to make it.

    Raises:
        ValueError: the graph has no weights, or one that is negative, infinite or NaN; its edge is named.
    """
    made = weighed(graph, "a walk by weight")
    part = made.part_of(graph)
    cells, _ = made.tables(num_threads)
    words = 4 if part.indices.dtype == torch.int32 else 3
    out = torch.empty(words * part.num_edges, dtype=part.indices.dtype)
    _core.walk_cells(part.indptr, part.indices, cells, out, num_threads)
    return part, out


class MetapathLists(NamedTuple):
    """The edges of the types of a metapath, by node, and those of a node by type.

    Attributes:
        indptr: `[num_nodes * groups + 1]`; the edges of type `types[g]` of node `v` are at
            `indptr[v * groups + g]` to `indptr[v * groups + g + 1]`.
        indices: `[kept]` their other ends.
        places: `[kept]` their places in the graph.
        path: the `g` of each step.
        groups: number of different types in the path.
    """

    indptr: Tensor
    indices: Tensor
    places: Tensor
    path: list[int]
    groups: int


def metapath_lists(graph: Graph, metapath: Sequence[int]) -> MetapathLists:
    """The lists for `metapath`, types of edges; other edges are left out. Edges keep their order in a list."""
    types = graph.edge_types
    if types is None:
        raise ValueError("a metapath names types of edges, but the graph has none; give it edge_types")
    names = sorted(set(metapath))
    indptr = graph.indptr.long()
    known = torch.tensor(names, dtype=types.dtype, device=types.device)
    of_edge = torch.searchsorted(known, types).clamp_(max=len(names) - 1)
    of_edge[known[of_edge] != types] = -1
    places = (of_edge >= 0).nonzero().view(-1)
    rows = torch.arange(graph.num_nodes, device=types.device).repeat_interleave(indptr.diff())[places]
    slots = rows * len(names) + of_edge[places]
    slots, order = torch.sort(slots, stable=True)
    places = places[order]
    bounds = torch.zeros(graph.num_nodes * len(names) + 1, dtype=torch.int64, device=types.device)
    torch.cumsum(torch.bincount(slots, minlength=bounds.numel() - 1), 0, out=bounds[1:])
    return MetapathLists(
        bounds.to(graph.indptr.dtype),
        graph.indices[places].contiguous(),
        places.to(graph.indptr.dtype),
        [names.index(t) for t in metapath],
        len(names),
    )
