"""The edges of one relation by their ids: their ends and their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from loader.graph.relations import EdgeType

if TYPE_CHECKING:
    from loader.graph.hetero import HeteroGraph


class EdgeEnds(NamedTuple):
    """The edges of a relation by id.

    Attributes:
        sources, targets: `[ids]` int64 on the CPU, -1 for an id that no edge has.
        times: `[ids]` int64, or None.
    """

    sources: Tensor
    targets: Tensor
    times: Tensor | None

    @classmethod
    def of(cls, graph: HeteroGraph, edge_type: EdgeType) -> EdgeEnds:
        """The edges of the relation. If the graph keeps no ids, they are places in its lists."""
        edges = graph.relation(edge_type).to("cpu")
        assert edges.edge_ids is not None
        ids = edges.edge_ids.long()
        count = int(ids.max()) + 1 if ids.numel() else 0
        targets = torch.arange(edges.num_dst).repeat_interleave(edges.in_degrees().long())

        def by_id(of: Tensor) -> Tensor:
            return torch.full((count,), -1, dtype=torch.int64).index_copy_(0, ids, of.long())

        times = None if edges.edge_times is None else by_id(edges.edge_times)
        return cls(by_id(edges.indices), by_id(targets), times)

    def check_ids(self, ids: Tensor, edge_type: EdgeType) -> None:
        """Raises ValueError unless they are -1 or ids below those that the relation has."""
        if not ids.numel():
            return
        low, high = torch.stack(ids.aminmax()).tolist()
        if low < -1:
            raise ValueError(f"edge_ids holds {low}; an id is at least 0, or -1 for a pair that is no edge")
        if high >= self.sources.numel():
            raise ValueError(f"edge_ids holds {high}; {edge_type} has ids below {self.sources.numel()}")

    def seen(self, sources: Tensor, targets: Tensor, times: Tensor | None) -> Tensor:
        """`[n]` bool: which pairs are edges; with `times` `[n]` int64 those that are edges at these times."""
        num_targets = int(torch.cat([self.targets, targets]).max()) + 1 if targets.numel() else 1
        known = self.sources * num_targets + self.targets
        known[self.sources < 0] = -1
        keys = torch.cat([known, sources * num_targets + targets])
        if times is not None and self.times is not None:
            keys, at = (of.unique(return_inverse=True)[1] for of in (keys, torch.cat([self.times, times])))
            keys = keys * (int(at.max()) + 1 if at.numel() else 1) + at
        return torch.isin(keys[known.numel() :], keys[: known.numel()])


def require_edge_ids(graph: HeteroGraph) -> None:
    """Raises ValueError if the graph keeps no edge ids."""
    if graph.lists.edge_ids is None:
        raise ValueError("edge_ids is given, and the graph keeps no edge ids; make it with keep_edge_ids=True")
