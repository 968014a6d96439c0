"""Copies of the hottest neighbor lists in GPU memory, beside a graph in pinned host memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from loader.graph.checks import check_range, integer_vector
from loader.machine.arguments import as_number
from loader.machine.renamed_arguments import renamed

_CHUNK = 1 << 26  # edges that are copied at once


class _Csc(Protocol):
    """What is read of a `Graph`, which makes these caches."""

    indptr: Tensor
    indices: Tensor

    @property
    def num_dst(self) -> int: ...

    @property
    def num_edges(self) -> int: ...

    def in_degrees(self) -> Tensor: ...


@renamed({"vertices": "nodes"})
class ListCache:
    """Some lists of a graph in GPU memory: `Graph.cache_lists` makes it, and samplers on that GPU read from it.

    Args:
        graph: whose lists are copied.
        nodes: `[n]`, integer, distinct: of the lists to copy.
        device: the GPU.

    Attributes:
        nodes: `[n]` int64 on the CPU, ascending.
        begins: `[num_dst]` on `device`, type of `indptr`: where the list of a node begins in `entries`, -1 if it is
            not there.
        entries: `[num_edges]` on `device`, type of `indices`: the lists, one behind the other.
    """

    def __init__(self, graph: _Csc, nodes: Tensor, device: torch.device) -> None:
        self.nodes = nodes.long().cpu().sort().values
        begins, at = self._places(graph)
        self.begins = begins.to(device)
        self.entries = torch.empty(int(at[-1]), dtype=graph.indices.dtype, device=device)
        for place, part in self._parts(graph, at):
            self.entries[place].copy_(part)  # not by way of a second array on the GPU, which would count meanwhile

    def require_lists_of(self, graph: _Csc) -> None:
        """Raises ValueError unless the copies are what the graph's lists are now."""
        begins, at = self._places(graph)
        same = int(at[-1]) == self.num_edges and torch.equal(begins, self.begins.cpu())
        parts = self._parts(graph, at)
        if not same or not all(torch.equal(part, self.entries[place].to(part)) for place, part in parts):
            raise ValueError(
                "the graph's lists were written to or replaced after cache_lists, whose copies are of before; "
                "call graph.cache_lists again, and sample the graph that it returns"
            )

    def _places(self, graph: _Csc) -> tuple[Tensor, Tensor]:
        """Where the list of each node begins among the copies, -1 if it is not there; and `[n + 1]` int64: where the
        lists of `nodes` begin there, and where the last one ends.
        """
        lengths = graph.in_degrees().cpu()[self.nodes]
        at = torch.zeros(lengths.numel() + 1, dtype=torch.int64)
        torch.cumsum(lengths, 0, out=at[1:])
        begins = torch.full((graph.num_dst,), -1, dtype=graph.indptr.dtype)
        begins[self.nodes] = at[:-1].to(graph.indptr.dtype)
        return begins, at

    def _parts(self, graph: _Csc, at: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """The lists in the order of the copies, some at once, and their place there."""
        indptr, lengths, first = graph.indptr.cpu(), at.diff(), 0
        while first < self.nodes.numel():
            end = max(first + 1, int(torch.searchsorted(at, at[first] + _CHUNK, right=True)) - 1)
            begin, length = indptr[self.nodes[first:end]].long(), lengths[first:end]
            places = (begin - at[first:end]).repeat_interleave(length)
            places += torch.arange(int(at[first]), int(at[end]))
            yield slice(int(at[first]), int(at[end])), graph.indices[places.to(graph.indices.device)]
            first = end

    @property
    def num_edges(self) -> int:
        """Number of edges in the cached lists."""
        return self.entries.numel()

    @property
    def device(self) -> torch.device:
        return self.entries.device

    @property
    def nbytes(self) -> int:
        """Bytes of GPU memory that the cache takes."""
        return self.begins.nbytes + self.entries.nbytes


def hottest_lists(graph: _Csc, fraction: float | None, budget_gib: float | None, hotness: str | Tensor) -> Tensor:
    """`[n]` int64 on the CPU: the nodes of the hottest lists that fit; of equal scores the first.

    Args:
        fraction, budget_gib, hotness: as `Graph.cache_lists`.
    """
    if (fraction is None) == (budget_gib is None):
        raise ValueError(f"fraction is {fraction} and budget_gib is {budget_gib}; give exactly one of them")
    if fraction is not None:
        if not 0 <= as_number("fraction", fraction) <= 1:
            raise ValueError(f"fraction is {fraction}; it must be in 0 to 1")
        room = int(fraction * graph.num_edges)
    else:
        assert budget_gib is not None
        table = graph.num_dst * graph.indptr.itemsize
        left = int(as_number("budget_gib", budget_gib) * 2**30) - table
        if left < 0:
            raise ValueError(
                f"budget_gib is {budget_gib}, less than the {table / 2**30:.3g} GiB that the places of {graph.num_dst} "
                "lists take; give more, or leave the lists in pinned memory"
            )
        room = left // graph.indices.itemsize
    degrees = graph.in_degrees().cpu()
    if isinstance(hotness, Tensor):
        if hotness.shape != degrees.shape:
            raise ValueError(
                f"hotness has shape {list(hotness.shape)}; it must have one score for {graph.num_dst} lists"
            )
        scores = hotness.cpu()
    elif hotness == "degree":
        scores = degrees
    else:
        raise ValueError(f"hotness is {hotness!r}; it must be 'degree' or a tensor of scores")
    order = torch.argsort(scores, descending=True, stable=True)
    order = order[degrees[order] > 0]
    return order[torch.cumsum(degrees[order].long(), 0) <= room]


def check_lists(graph: _Csc, nodes: Tensor) -> Tensor:
    """The nodes as they are; raises ValueError unless each is one of the graph, and none is there twice."""
    nodes = integer_vector("nodes", nodes, torch.device("cpu"))
    check_range("nodes", nodes, graph.num_dst)
    seen = torch.zeros(graph.num_dst, dtype=torch.bool)
    seen[nodes.long()] = True
    if int(seen.sum()) != nodes.numel():
        raise ValueError("nodes holds one more than once; a list is cached once: nodes.unique()")
    return nodes
