"""Graphs: adjacency in compressed sparse columns, and where its arrays lie."""

from loader.graph.checks import MAX_DEGREE
from loader.graph.csc import Graph, require_square
from loader.graph.foreign import require_graph
from loader.graph.hetero import HeteroGraph
from loader.graph.induced import InducedEdges, induced_edges, induced_edges_by_type, induced_subgraph
from loader.graph.list_cache import ListCache
from loader.graph.placement import Placement
from loader.graph.relations import EdgeType
from loader.graph.times import TimedLists

__all__ = [
    "MAX_DEGREE",
    "EdgeType",
    "Graph",
    "HeteroGraph",
    "InducedEdges",
    "ListCache",
    "Placement",
    "TimedLists",
    "induced_edges",
    "induced_edges_by_type",
    "induced_subgraph",
    "require_graph",
    "require_square",
]
