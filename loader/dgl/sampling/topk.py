"""`dgl.sampling.select_topk`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.dgl.sampling.frontier import (
    by_relation,
    by_type,
    frontier,
    is_out,
    refusing_as_dgl,
    require_graph,
    weights_by_type,
)
from loader.dgl.sampling.lists import Lists, lists_of
from loader.machine.arguments import as_flag
from loader.machine.memo import Memo
from loader.samples.subgraph import ranges

_orders = Memo()  # of edges by weight


@refusing_as_dgl
def select_topk(
    g: Any,
    k: Any,
    weight: str,
    nodes: Any = None,
    edge_dir: str = "in",
    ascending: bool = False,
    copy_ndata: bool = True,
    copy_edata: bool = True,
    output_device: Any = None,
) -> Any:
    """`dgl.sampling.select_topk`: the graph of all nodes and only the heaviest edges of `nodes`.

    Of equal weights, those of the lowest neighbors come first, and of parallel edges those with the lowest ids. The
    first call sorts the edges, which takes 8 bytes per edge; this is kept while nobody writes to the weights.

    Args:
        k: edges per node and edge type, or -1 for all; or a dict by edge type.
        weight: name in `g.edata`, of numbers `[num_edges]`; every edge type has it.
        nodes: `[n]`, or a dict by type; None: all.
        ascending: select the lightest edges.
        g, edge_dir, copy_ndata, copy_edata, output_device: see `sample_neighbors`.

    Raises:
        TypeError, ValueError: an argument is not as said above, or a weight is NaN. The latter is a `dgl.DGLError`,
            too.
    """
    require_graph(g)
    lightest, out = as_flag("ascending", ascending), is_out(edge_dir)
    weights = weights_by_type(g, "weight", weight)
    if missing := [key for key in g.canonical_etypes if key not in weights]:
        raise ValueError(f"weight is {weight!r}, which the edge type {missing[0]} does not have")
    if nodes is None:
        nodes = {name: torch.arange(g.num_nodes(name), device=g.device) for name in g.ntypes}
    seeds, counts, picked = by_type(g, nodes), by_relation(g, "k", k), {}
    for key in g.canonical_etypes:
        at = seeds.get(key[0] if out else key[2])
        if at is not None and counts[key] != 0:
            lists = lists_of(g, key, out=out)
            order = _order(lists, weights[key], lightest)
            taken = lists.degrees(at)
            if counts[key] > 0:
                taken = taken.clamp(max=counts[key])
            places = order[ranges(lists.graph.indptr[at.long()].long(), taken)]
            picked[key] = lists.at(torch.arange(len(at), device=at.device).repeat_interleave(taken), places)
    return frontier(g, seeds, picked, out=out, copy_ndata=copy_ndata, copy_edata=copy_edata, device=output_device)


def _order(lists: Lists, weights: Tensor, ascending: bool) -> Tensor:
    """`[num_edges]` places of each list in the order of the weights, list by list."""
    orders = _orders.get(lists, None, "orders", Memo)
    return orders.get_of([weights], ascending, lambda: _sorted(lists.graph, weights, ascending))


def _sorted(graph: Any, weights: Tensor, ascending: bool) -> Tensor:
    if bool(weights.isnan().any()):
        at = int(weights.isnan().nonzero()[0])
        raise ValueError(f"the weight of edge {at} is nan, which has no place in an order; replace it")
    order = torch.argsort(weights[graph.edge_ids.long()], descending=not ascending, stable=True)
    rows = torch.arange(graph.num_nodes, device=order.device).repeat_interleave(graph.in_degrees().long())
    return order[torch.argsort(rows[order], stable=True)]
