"""The edges of one relation by their ids: their ends and their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from loader.graph.relations import EdgeType

if TYPE_CHECKING:
    from loader.graph.hetero import HeteroGraph


class EdgeEnds(NamedTuple):
    """The edges of a relation in the order of their ids, which may have gaps, and may be there several times.

    Attributes:
        ids: `[num_edges]` int64, ascending.
        sources, targets: `[num_edges]` int64.
        times: `[num_edges]` int64, or None.
    """

    ids: Tensor
    sources: Tensor
    targets: Tensor
    times: Tensor | None

    @classmethod
    def of(cls, graph: HeteroGraph, edge_type: EdgeType) -> EdgeEnds:
        """The edges of the relation, on the CPU. If the graph keeps no ids, they are places in its lists."""
        edges = graph.relation(edge_type).to("cpu")
        assert edges.edge_ids is not None
        order = _order_of(edges.edge_ids.long())
        ids = edges.edge_ids.long()[order]
        targets = torch.arange(edges.num_dst).repeat_interleave(edges.in_degrees().long())
        times = None if edges.edge_times is None else edges.edge_times[order]
        return cls(ids, edges.indices.long()[order], targets[order], times)

    def without_ends(self, device: torch.device) -> EdgeEnds:
        """Ids and times only, on a device."""
        none = self.sources[:0].to(device)
        return EdgeEnds(self.ids.to(device), none, none, None if self.times is None else self.times.to(device))

    def rows(self, ids: Tensor) -> Tensor:
        """`[n]` int64: places in the arrays of the edges with these ids; for an id that no edge has any place."""
        return torch.searchsorted(self.ids, ids.long().contiguous()).clamp_(max=self.ids.numel() - 1)

    def check_ids(self, ids: Tensor, edge_type: EdgeType) -> None:
        """Raises ValueError unless they are -1 or ids of edges."""
        if not ids.numel():
            return
        ids = ids.to(self.ids.device)  # once: each look at a tensor on a GPU waits for it
        low = int(ids.min())
        if low < -1:
            raise ValueError(f"edge_ids holds {low}; an id is at least 0, or -1 for a pair that is no edge")
        given = ids[ids >= 0]
        if not self.ids.numel() and given.numel():
            raise ValueError(f"edge_ids holds {int(given[0])}; {edge_type} has no edges")
        unknown = given[self.ids[self.rows(given)] != given]
        if unknown.numel():
            raise ValueError(
                f"edge_ids holds {int(unknown[0])}, which no edge of {edge_type} has; its ids are "
                f"{int(self.ids[0])} to {int(self.ids[-1])}"
            )

    def seen(self, sources: Tensor, targets: Tensor, times: Tensor | None) -> Tensor:
        """`[n]` bool: which pairs are edges; with `times` `[n]` int64 those that are edges at these times."""
        return self._seen(sources, targets, self.times, times)

    def have(self, ids: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        """`[n]` bool: which pairs are edges of these ids."""
        return self._seen(sources, targets, self.ids, ids.long())

    def _seen(self, sources: Tensor, targets: Tensor, of: Tensor | None, wanted: Tensor | None) -> Tensor:
        num_targets = int(torch.cat([self.targets, targets]).max()) + 1 if targets.numel() else 1
        known = self.sources * num_targets + self.targets
        keys = torch.cat([known, sources * num_targets + targets])
        if of is not None and wanted is not None:
            keys, at = (all_.unique(return_inverse=True)[1] for all_ in (keys, torch.cat([of, wanted])))
            keys = keys * (int(at.max()) + 1 if at.numel() else 1) + at
        return torch.isin(keys[known.numel() :], keys[: known.numel()])


def _order_of(ids: Tensor) -> Tensor:
    """`[n]` int64: places of ids, ascending by id, then by place."""
    count = ids.numel()
    if count and 0 <= int(ids.min()) <= int(ids.max()) < count:  # numbers of edges, as from_edges gives them
        every = torch.arange(count)
        order = torch.zeros(count, dtype=torch.int64).index_copy_(0, ids, every)
        if torch.equal(ids[order], every):
            return order
    return ids.argsort(stable=True)


def require_edge_ids(graph: HeteroGraph) -> None:
    """Raises ValueError if the graph keeps no edge ids."""
    if graph.lists.edge_ids is None:
        raise ValueError("edge_ids is given, and the graph keeps no edge ids; make it with keep_edge_ids=True")
