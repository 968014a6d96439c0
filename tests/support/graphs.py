"""Small graphs that samplers find hard, and graphs in every width of ids."""

from __future__ import annotations

import torch

from loader.graph import Graph

WIDTHS = ("int32", "wide edges", "int64")


def widen(graph: Graph, width: str) -> Graph:
    """`graph` with the types that a larger one would have; `Graph` itself narrows what fits 32 bits."""
    if width != "int32":
        graph.indptr = graph.indptr.long()
    if width == "int64":
        graph.indices = graph.indices.long()
    return graph


def messy_graph(num_nodes: int, num_edges: int, seed: int) -> Graph:
    """A hub, self loops, parallel edges, isolated nodes and nodes that nobody points to."""
    g = torch.Generator().manual_seed(seed)

    def ids(count: int) -> torch.Tensor:
        return torch.randint(num_nodes, (count,), generator=g)

    src, dst = ids(num_edges), ids(num_edges)
    dst[: num_edges // 4] = int(ids(1))  # the hub
    loops = torch.rand(num_edges, generator=g) < 0.05
    dst[loops] = src[loops]
    twins = num_edges // 10
    src[num_edges - twins :], dst[num_edges - twins :] = src[:twins].clone(), dst[:twins].clone()
    lonely = torch.rand(num_nodes, generator=g) < 0.2
    kept = ~(lonely[src] | lonely[dst])
    return Graph.from_edges(src[kept], dst[kept], num_nodes)


def equal_degrees(num_nodes: int, degree: int) -> Graph:
    """`degree` in-neighbors each: the next nodes in the circle."""
    indptr = torch.arange(num_nodes + 1) * degree
    indices = (torch.arange(num_nodes)[:, None] + 1 + torch.arange(degree)[None, :]) % num_nodes
    return Graph(indptr, indices.reshape(-1))


def star(num_leaves: int) -> Graph:
    """Node 0 has all others as in-neighbors, and they have node 0."""
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64), num_leaves + torch.arange(num_leaves + 1)))
    indices = torch.cat((torch.arange(1, num_leaves + 1), torch.zeros(num_leaves, dtype=torch.int64)))
    return Graph(indptr, indices)


def chain(num_nodes: int) -> Graph:
    """`v + 1` is the only in-neighbor of `v`; the last node has none."""
    indptr = torch.arange(num_nodes + 1).clamp_(max=num_nodes - 1)
    return Graph(indptr, torch.arange(1, num_nodes))
