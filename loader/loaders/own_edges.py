"""Links that are edges of the graph: their trees must not see them."""

from __future__ import annotations

import torch

from loader.graph import EdgeType, HeteroGraph
from loader.graph.edge_ends import EdgeEnds, require_edge_ids
from loader.items import EdgeItems
from loader.samplers.trees import TreeSampler


def check_own_edges(graph: HeteroGraph, edge_type: EdgeType, items: EdgeItems) -> None:
    """Raises ValueError unless the items are the edges of the relation that they say they are.

    Args:
        items: with edge ids.
    """
    assert items.edge_ids is not None
    require_edge_ids(graph)
    edges, ids, pairs = EdgeEnds.of(graph, edge_type), items.edge_ids.cpu(), items.ids.cpu()
    count = edges.sources.numel()
    if int(ids.max()) >= count:
        raise ValueError(f"edge_ids holds {int(ids.max())}; {edge_type} has ids below {count}")
    if not count:
        return
    ends = torch.stack([edges.sources, edges.targets], 1)[ids.clamp(min=0)]
    wrong = ((ids >= 0) & (ends != pairs).any(1)).nonzero()
    if wrong.numel():
        at = int(wrong[0])
        raise ValueError(
            f"edge_ids[{at}] is {int(ids[at])}, which is the edge {tuple(ends[at].tolist())}, and pairs[{at}] is "
            f"{tuple(pairs[at].tolist())}; give the id of this edge, or -1 if there is none"
        )


def check_unseen(sampler: TreeSampler, graph: HeteroGraph, edge_type: EdgeType, items: EdgeItems) -> None:
    """Raises ValueError if items are edges of the relation, which their own trees would see at their times.

    An edge whose own time counts is that of an item if it has the time of the item. With the rule "<" it is not seen.
    """
    assert items.times is not None
    timed = sampler.times != "node" and edge_type in graph.timed_relations
    if timed and sampler.rule == "<":
        return
    edges = EdgeEnds.of(graph, edge_type)
    sources, targets = items.ids.cpu().long().t()
    seen = edges.seen(sources, targets, items.times.cpu() if timed else None)
    if count := int(seen.sum()):
        first = int(seen.nonzero()[0])
        raise ValueError(
            f"{count} of {len(items)} links are edges of the graph that their trees would see, the first at {first}; "
            f"give the LinkSampler exclude='self' or 'reverse'{', or the rule ' + repr('<') if timed else ''}"
        )
