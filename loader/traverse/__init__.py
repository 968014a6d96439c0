"""Traversals of a `Graph` on CPU and GPU: breadth-first search, shortest paths, connected components, PageRank.

A graph lists the in-neighbors of its nodes. Each function says in which direction it follows edges. Equal arguments
give equal results, with any number of threads, on CPU and GPU.

On a GPU the graph lies there or in pinned memory. A traversal takes about 9 bytes of GPU memory per node beside its
result, PageRank 41 bytes. For a graph in pinned memory a copy of `indptr` is kept there, too.
"""

from loader.traverse.components import connected_components
from loader.traverse.pagerank import pagerank
from loader.traverse.search import bfs, k_hop
from loader.traverse.sssp import sssp

__all__ = ["bfs", "connected_components", "k_hop", "pagerank", "sssp"]
