"""How much of a `HeteroGraph` the fanouts allow a mini-batch to reach, by types and relations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from loader.graph import HeteroGraph
from loader.samplers.base import NeighborSampler
from loader.samplers.relations import fanouts_by_relation

_ROWS = 1 << 20  # whose lengths are compared at a time, so that this takes little memory


class Most(NamedTuple):
    """Sizes of mini-batches around seeds of one type, at most.

    Attributes:
        frontiers: nodes within each number of hops, `[hops + 1]`.
        rows, edges: of each hop, `[hops]`.
    """

    frontiers: list[int]
    rows: list[int]
    edges: list[int]


class _Relation(NamedTuple):
    source: int
    target: int
    longest: int


class Reach:
    """What the fanouts of a sampler allow in a graph. Reads the lengths of its lists once.

    A relation leads to no more nodes than its fanout allows from each list, or than its longest list has, or than there
    are of its source type. So these sizes bound every mini-batch around seeds of one type, also of LABOR, and of fanout
    -1. Seeds of several types may reach more together.

    Args:
        sampler: `expand` and `replace` count, too.
        graph: its lists may lie anywhere.
        distinct: a mini-batch, or a tree, has a node once.
    """

    def __init__(self, sampler: NeighborSampler, graph: HeteroGraph, *, distinct: bool = True) -> None:
        self._fanouts = fanouts_by_relation(graph, sampler.fanouts, sampler.relation_fanouts)
        self._once, self._replace = sampler.expand == "new", sampler.replace
        self._whole = sampler.picking.labor  # of a list, if it comes so
        self._slots = [len(into) for into in graph.relations_into.values()]
        self._sizes = [len(ids) for ids in graph.node_types.values()]
        self._distinct = distinct
        names, longest = list(graph.node_types), longest_lists(graph)
        order = [graph.edge_types[r] for into in graph.relations_into.values() for r in into]
        self._relations = [
            _Relation(names.index(key[0]), names.index(key[2]), most) for key, most in zip(order, longest, strict=True)
        ]
        self._known: dict[int, Most] = {}

    def most(self, num_seeds: int) -> Most:
        """The sizes for seeds of any one type: of each number the largest over the types."""
        if num_seeds not in self._known:
            found = [self._of(t, num_seeds) for t in range(len(self._sizes))]
            self._known[num_seeds] = Most(
                *([max(of) for of in zip(*part, strict=True)] for part in zip(*found, strict=True))
            )
        return self._known[num_seeds]

    def _of(self, seed_type: int, num_seeds: int) -> Most:
        def bounded(counts: Sequence[int]) -> list[int]:
            return list(map(min, counts, self._sizes)) if self._distinct else list(counts)

        reached = [0] * len(self._sizes)
        reached[seed_type] = num_seeds
        new, frontiers = reached, [num_seeds]
        rows, edges = list[int](), list[int]()
        for fanouts in self._fanouts:
            expanded = new if self._once else reached
            rows.append(sum(n * slots for n, slots in zip(expanded, self._slots, strict=True)))
            found = [0] * len(self._sizes)
            for (source, target, longest), k in zip(self._relations, fanouts, strict=True):
                found[source] += expanded[target] * self._picks(k, longest)
            edges.append(sum(found))
            new = bounded(found)
            reached = bounded([a + b for a, b in zip(reached, found, strict=True)])
            frontiers.append(max(frontiers[-1], sum(reached)))
        return Most(frontiers, rows, edges)

    def _picks(self, k: int, longest: int) -> int:
        """The most picks of a list."""
        if k == -1 or (self._whole and k):
            return longest
        return min(k, longest) if not self._replace or not longest else k


def longest_lists(graph: HeteroGraph) -> list[int]:
    """Of each relation the length of its longest list, in the order of the types that the relations lead to."""
    indptr = graph.lists.indptr
    found: list[torch.Tensor] = []
    for name, ids in graph.node_types.items():
        slots = len(graph.relations_into[name])
        longest = torch.zeros(slots, dtype=indptr.dtype, device=indptr.device)
        first, each = graph.first_row[name], max(1, _ROWS // max(slots, 1)) * slots
        rows = first + len(ids) * slots
        for begin, end in pairwise([*range(first, rows, each or 1), rows]):
            part = indptr[begin : end + 1]
            longest = torch.maximum(longest, (part[1:] - part[:-1]).view(-1, slots).amax(0))
        found.append(longest)
    return [int(n) for n in torch.cat(found).tolist()] if found else []
