"""What links of a graph join: the nodes that may be their ends, and the edges that they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader.graph import EdgeType, Graph, require_square
from loader.graph.checks import check_range
from loader.samplers.base import AnyGraph
from loader.samplers.gpu.links import without_links as without_links_on_gpu
from loader.samples.links import without_links

Without = Callable[[Any, Tensor, Tensor], Any]


class LinkEnds:
    """The ends of links of a graph with one type of nodes.

    Args:
        graph: that is sampled.

    Attributes:
        sources, targets: ids that sources and destinations may have, in the one range of the graph's nodes. Links are
            given by numbers from the first of these ids on.
        num_nodes: of the graph.
        dtype: of its ids.
        edge_type: the relation of the links; None with one type.

    Raises:
        ValueError: the graph is bipartite.
    """

    edge_type: EdgeType | None = None

    def __init__(self, graph: Graph) -> None:
        require_square(graph, "LinkSampler")
        self.num_nodes, self.dtype = graph.num_nodes, graph.indices.dtype
        self.sources = self.targets = range(graph.num_nodes)

    def check(self, name: str, pairs: Tensor) -> None:
        """Raises ValueError unless both columns of `pairs` `[n, 2]`, called `name`, are nodes."""
        check_range(name, pairs, self.num_nodes)

    def require_known(self, known: AnyGraph, graph: AnyGraph) -> None:
        """Raises ValueError unless `known` has the nodes of the graph."""
        if not isinstance(known, Graph):
            raise ValueError("known has types of nodes, and the graph has none; give a Graph")
        if known.num_nodes != graph.num_nodes:
            raise ValueError(f"known has {known.num_nodes} nodes, the graph {graph.num_nodes}; they must be equal")

    def edges(self, graph: Any) -> Graph:
        """The edges that links are, with ends numbered as those of links."""
        found: Graph = graph
        return found

    def without(self, exclude: str, device: torch.device) -> Without | None:
        """A function of a sample, sources and targets, which leaves out the edges that `exclude` says; or None."""
        if exclude == "none":
            return None
        return partial(without_links_on_gpu if device.type == "cuda" else without_links, reverse=exclude == "reverse")

    def within_types(self, around: Any, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The ends of links, by name as those of `Links`, from places among the seeds of `around` to places among those
        of their types.
        """
        return dict(parts)
