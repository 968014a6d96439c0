"""Links of a `HeteroData`: their relation, and their ends."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader.utils import get_edge_label_index

from loader.graph import EdgeType, HeteroGraph
from loader.graph.checks import check_integers, check_range
from loader.machine.arguments import shown
from loader.samplers import LinkSampler
from loader.samplers.base import AnyGraph
from loader.samplers.hetero_links import HeteroLinkEnds
from loader.samplers.link_ends import LinkEnds


class LinksBetween(LinkSampler):
    """A `LinkSampler` of links between two types of nodes, which need not be a relation of the graph unless edges are
    excluded, or negatives strict.
    """

    def ends(self, graph: AnyGraph) -> LinkEnds:
        if not isinstance(graph, HeteroGraph) or self.edge_type is None or self.edge_type in graph.edge_types:
            return super().ends(graph)
        if self.exclude != "none" or (self.negatives is not None and self.negatives.strict):
            return super().ends(graph)  # which says what is wrong
        return HeteroLinkEnds(graph, self.edge_type, None, is_relation=False)


def links_of(data: Any, edge_label_index: Any) -> tuple[EdgeType, Tensor]:
    """The relation of the links, and their ends `[2, n]` within their types.

    Args:
        data: a `HeteroData`, or a feature store and a graph store of several types.
        edge_label_index: an edge type, whose edges are the links, or `(edge type, ends)`.

    Raises:
        TypeError: it is neither.
        ValueError: there is no such relation.
    """
    given: Any = edge_label_index
    edge_type = given[0] if isinstance(given, (tuple, list)) and given and not isinstance(given[0], str) else given
    is_type = isinstance(edge_type, (tuple, list)) and all(isinstance(name, str) for name in edge_type)
    if not is_type or len(edge_type) not in (2, 3) or (edge_type is not given and len(given) != 2):
        known = list(data.edge_types) if isinstance(data, HeteroData) else []
        example = known[0] if known else ("user", "buys", "item")
        raise TypeError(
            f"edge_label_index is {shown(given)}; data has types, so give the edge type of the links, as {example}, or "
            f"({example}, [2, n] ids)"
        )
    if isinstance(data, HeteroData):
        key = data._to_canonical(*edge_type)
        all_edges = edge_type is given or given[1] is None
        lacks = [name for name in (key[0], key[-1]) if name not in data.node_types]
        if lacks or (all_edges and key not in data.edge_types):
            raise ValueError(
                f"edge_label_index names the edge type {tuple(edge_type)}; data has {list(data.edge_types)} between "
                f"the node types {list(data.node_types)}"
            )
        if all_edges and "edge_index" not in data[key]:
            raise ValueError(
                f"data[{key!r}] has no edge_index, whose edges would be the links; set it, or give edge_label_index="
                f"({key!r}, [2, n] ids)"
            )
    found, ends = get_edge_label_index(data, given)
    return found, ends


def check_ends(edge_type: EdgeType, links: Tensor, graph: HeteroGraph) -> None:
    """Raises TypeError or ValueError unless all ends are nodes of their types."""
    if links.numel() == 0:
        return
    check_integers("edge_label_index", links, ": .long()")
    for end, name in ((0, edge_type[0]), (1, edge_type[2])):
        check_range(f"edge_label_index[{end}], of type {name!r},", links[end], len(graph.node_types[name]))


def graph_without_edges(data: HeteroData, edge_type: EdgeType, time_attr: str | None = None) -> HeteroGraph:
    """The graph of data without edge types: one relation, of the links, without edges."""
    sizes = {name: int(data[name].num_nodes) for name in data.node_types}
    edges = {edge_type: torch.empty(2, 0, dtype=torch.int64)}
    times = {} if time_attr is None else {n: data[n][time_attr] for n in data.node_types if time_attr in data[n]}
    if time_attr is not None and not times:
        raise ValueError(f"time_attr is {time_attr!r}, which no node type of data has; name one that is there")
    return HeteroGraph.from_edges(edges, sizes, node_times=times or None)
