"""Graphs: adjacency in compressed sparse columns, and where its arrays lie."""

from loader.graph.csc import MAX_DEGREE, Graph

__all__ = ["MAX_DEGREE", "Graph"]
