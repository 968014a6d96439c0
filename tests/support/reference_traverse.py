"""Traversals by networkx and scipy, and graphs on which they are hard."""

from __future__ import annotations

import networkx as nx
import numpy as np
import torch
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import csgraph

from loader.graph import Graph


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """With isolated nodes, hubs, self loops, parallel edges and several components; half of them symmetric."""
    n = draw(st.integers(1, 30))
    node = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=60))
    hub = draw(node)
    pairs += [(hub, v) for v in draw(st.lists(node, max_size=30))]
    if draw(st.booleans()):
        pairs += [(v, u) for u, v in pairs]
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    return Graph.from_edges(edges[:, 0], edges[:, 1], n)


def edges_of(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Sources and destinations, in the order of `graph.indices`."""
    dst = torch.arange(graph.num_nodes).repeat_interleave(graph.in_degrees().long())
    return graph.indices.numpy(), dst.numpy()


def to_networkx(graph: Graph) -> nx.MultiDiGraph:
    g = nx.MultiDiGraph()
    g.add_nodes_from(range(graph.num_nodes))
    g.add_edges_from(zip(*(ends.tolist() for ends in edges_of(graph)), strict=True))
    return g


def distances(graph: Graph, sources: list[int], cutoff: int | None = None, *, against: bool = False) -> list[int]:
    """Edges from the nearest source, -1 if there is no path; `against` the direction of edges."""
    g = to_networkx(graph)
    g = g.reverse() if against else g
    found = [nx.single_source_shortest_path_length(g, s, cutoff=cutoff) for s in sources]
    return [min((one[v] for one in found if v in one), default=-1) for v in range(graph.num_nodes)]


def lengths(graph: Graph, source: int, weights: torch.Tensor) -> np.ndarray:
    """By scipy, in float64; infinity if there is no path."""
    src, dst = edges_of(graph)
    order = np.lexsort((weights.numpy(), dst, src))
    src, dst, w = src[order], dst[order], weights.numpy()[order].astype(np.float64)
    first = np.ones(src.size, dtype=bool)  # of parallel edges the lightest
    first[1:] = (src[1:] != src[:-1]) | (dst[1:] != dst[:-1])
    # scipy takes a weight of 0 in a dense array for no edge; in a sparse one it is a weight.
    matrix = sparse.csr_matrix((w[first], (src[first], dst[first])), shape=(graph.num_nodes, graph.num_nodes))
    return np.asarray(csgraph.dijkstra(matrix, indices=source))


def components(graph: Graph) -> list[int]:
    """Of each node the smallest node of its weakly connected component."""
    src, dst = edges_of(graph)
    matrix = sparse.csr_matrix((np.ones(src.size), (src, dst)), shape=(graph.num_nodes, graph.num_nodes))
    _, label = csgraph.connected_components(matrix, directed=False)
    return [int(np.flatnonzero(label == one)[0]) for one in label]


def grid_graph(side: int) -> Graph:
    """`side * side` nodes, each joined with those beside it: the longest of all shortest paths."""
    ids = torch.arange(side * side).view(side, side)
    a = torch.cat((ids[:, :-1].reshape(-1), ids[:-1].reshape(-1)))
    b = torch.cat((ids[:, 1:].reshape(-1), ids[1:].reshape(-1)))
    return Graph.from_edges(torch.cat((a, b)), torch.cat((b, a)), side * side)


def power_law_graph(num_nodes: int, num_edges: int, seed: int) -> Graph:
    """Symmetric; a few nodes have most of the edges."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.rand(2, num_edges, generator=generator, dtype=torch.float64)
    src = (ends[0] ** 4 * num_nodes).long()
    dst = (ends[1] * num_nodes).long()
    mixed = torch.randperm(num_nodes, generator=generator)
    src, dst = mixed[src], mixed[dst]
    return Graph.from_edges(torch.cat((src, dst)), torch.cat((dst, src)), num_nodes)
