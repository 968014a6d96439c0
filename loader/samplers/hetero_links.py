"""What links of one relation of a `HeteroGraph` join."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader.graph import EdgeType, Graph, HeteroGraph
from loader.graph.checks import check_range
from loader.samplers.base import AnyGraph
from loader.samplers.link_ends import LinkEnds, Without
from loader.samples.hetero_links import without_hetero_links


class HeteroLinkEnds(LinkEnds):
    """The ends of links of one relation, see `LinkEnds`. Links are numbered within their types.

    Args:
        graph: that is sampled.
        edge_type: the relation of the links.
        reverse: that of their reverses, or None.
        is_relation: False: the graph may lack the relation, if both types are there.

    Raises:
        ValueError: the graph has no such relations.
    """

    def __init__(
        self, graph: HeteroGraph, edge_type: EdgeType | None, reverse: EdgeType | None, *, is_relation: bool = True
    ) -> None:
        relations = list(graph.edge_types)
        if edge_type is None:
            example = f", e.g. edge_type={relations[0]}" if relations else ""
            raise ValueError(f"the graph has the relations {relations}, and links are of one of them: name it{example}")
        for name, given in (("edge_type", edge_type), ("reverse", reverse)):
            if given is not None and given not in graph.edge_types and is_relation:
                raise ValueError(f"{name} is {given}, which is no relation of the graph; its relations are {relations}")
        self.num_nodes, self.dtype = graph.num_nodes, graph.lists.indices.dtype
        self.edge_type, self._reverse = edge_type, reverse
        self.sources, self.targets = graph.node_types[edge_type[0]], graph.node_types[edge_type[2]]

    def check(self, name: str, pairs: Tensor) -> None:
        assert self.edge_type is not None
        ends = (0, self.edge_type[0], self.sources), (1, self.edge_type[2], self.targets)
        for column, node_type, ids in ends:
            check_range(f"{name}[:, {column}], of type {node_type!r},", pairs[:, column], len(ids))

    def require_known(self, known: AnyGraph, graph: AnyGraph) -> None:
        assert isinstance(graph, HeteroGraph)
        if not isinstance(known, HeteroGraph):
            raise ValueError("known has one type of nodes, and the graph has several; give a HeteroGraph")
        if known.node_types != graph.node_types:
            sizes = [{name: len(ids) for name, ids in one.node_types.items()} for one in (known, graph)]
            raise ValueError(f"known has the nodes {sizes[0]}, the graph {sizes[1]}; they must be equal")
        if self.edge_type not in known.edge_types:
            raise ValueError(
                f"known has no relation {self.edge_type}, of which the links are; its relations are "
                f"{list(known.edge_types)}"
            )

    def edges(self, graph: Any) -> Graph:
        found: Graph = graph.relation(self.edge_type)
        return found.pin_memory() if graph.lists.indices.is_pinned() else found

    def without(self, exclude: str, device: torch.device) -> Without | None:
        if exclude == "none":
            return None
        assert self.edge_type is not None
        return partial(without_hetero_links, edge_type=self.edge_type, reverse=self._reverse)

    def within_types(self, around: Any, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        assert self.edge_type is not None
        first, before = {}, 0
        for name, count in around.num_seeds.items():
            first[name] = before
            before += count
        begins = {"sources": first[self.edge_type[0]], "targets": first[self.edge_type[2]]}
        return {name: places - begins[name.removeprefix("negative_")] for name, places in parts.items()}
