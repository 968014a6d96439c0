"""Links that are edges of the graph: their trees must not see them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.graph import EdgeType, HeteroGraph
from loader.graph.checks import MISSING_TIME
from loader.graph.edge_ends import EdgeEnds, require_edge_ids
from loader.items import EdgeItems
from loader.samplers.links import LinkSampler


def check_own_edges(graph: HeteroGraph, edge_type: EdgeType, items: EdgeItems) -> None:
    """Raises ValueError unless the items are the edges of the relation that they say they are.

    Args:
        items: with edge ids.
    """
    assert items.edge_ids is not None
    require_edge_ids(graph)
    edges, ids, pairs = EdgeEnds.of(graph, edge_type), items.edge_ids.cpu(), items.ids.cpu()
    edges.check_ids(ids, edge_type)
    some = (ids >= 0).nonzero().view(-1)
    rows, (sources, targets) = edges.rows(ids[some]), pairs[some].long().t()
    others = (edges.sources[rows] != sources) | (edges.targets[rows] != targets)  # or another edge has the id, too
    some, rows = some[others], rows[others]
    wrong = (~edges.have(ids[some], sources[others], targets[others])).nonzero()
    if wrong.numel():
        at, row = int(some[wrong[0]]), int(rows[wrong[0]])
        ends = int(edges.sources[row]), int(edges.targets[row])
        raise ValueError(
            f"edge_ids[{at}] is {int(ids[at])}, which is the edge {ends}, and pairs[{at}] is "
            f"{tuple(pairs[at].tolist())}; give the id of this edge, or -1 if there is none"
        )


def check_unseen(sampler: LinkSampler, graph: HeteroGraph, edge_type: EdgeType, items: EdgeItems) -> None:
    """Raises ValueError if items are edges that their own trees would see at their times, or most of them reverses.

    An edge whose own time counts is that of an item if it has the time of the item, under the rule "<=", or no time and
    is always seen.
    """
    assert items.times is not None
    times, ids = items.times.cpu(), None if items.edge_ids is None else items.edge_ids.cpu()
    sources, targets = items.ids.cpu().long().t()
    if sampler.exclude == "none" or ids is not None:
        seen = _seen(sampler, graph, edge_type, sources, targets, times)
        if ids is not None:
            seen &= ids < 0
        if count := int(seen.sum()):
            first = int(seen.nonzero()[0])
            way = "give the LinkSampler exclude='self' or 'reverse'" if ids is None else "give the id of this edge"
            raise ValueError(
                f"{count} of {len(items)} links are edges of the graph that their trees would see, the first at "
                f"{first}; {way}{_or_earlier(sampler, graph, edge_type)}"
            )
    for key in graph.edge_types:
        if key == edge_type or (key[0], key[2]) != (edge_type[2], edge_type[0]):
            continue
        if sampler.exclude == "reverse" and key == sampler.reverse:
            continue
        count = int(_seen(sampler, graph, key, targets, sources, times).sum())
        if 2 * count > len(items):
            raise ValueError(
                f"the trees of {count} of {len(items)} links would see their reverse, an edge of {key}; give the "
                f"LinkSampler exclude='reverse' and reverse={key}{_or_earlier(sampler, graph, key)}"
            )


def _counts_times(sampler: LinkSampler, graph: HeteroGraph, key: EdgeType) -> bool:
    around: Any = sampler.around
    return around.times in ("edge", "both") and key in graph.timed_relations


def _or_earlier(sampler: LinkSampler, graph: HeteroGraph, key: EdgeType) -> str:
    return ", or the rule '<'" if _counts_times(sampler, graph, key) else ""


def _seen(
    sampler: LinkSampler, graph: HeteroGraph, key: EdgeType, sources: Tensor, targets: Tensor, times: Tensor
) -> Tensor:
    """`[n]` bool: which pairs are edges of a relation that a tree of the pair sees at its time."""
    around: Any = sampler.around
    edges = EdgeEnds.of(graph, key)
    if not _counts_times(sampler, graph, key):
        return edges.seen(sources, targets, None)
    seen = torch.zeros(times.numel(), dtype=torch.bool)
    if around.rule == "<=":
        seen |= edges.seen(sources, targets, times)
    if around.missing_times == "always":
        seen |= edges.seen(sources, targets, torch.full_like(times, MISSING_TIME))
    return seen
