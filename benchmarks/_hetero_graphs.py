"""Heterogeneous graphs of the sizes of ogbn-mag and IGB, for benchmarks."""

from __future__ import annotations

import torch
from torch import Tensor

from loader.graph import HeteroGraph
from models.synthetic.hetero import SHAPES, Shape

SECONDS = 315_360_000  # ten years


def paper_times(graph: HeteroGraph, seed: int = 2026) -> Tensor:
    """`[papers]` seconds within ten years, more of them late."""
    g = torch.Generator(graph.device).manual_seed(seed + 1)
    uniform = torch.rand(len(graph.node_types["paper"]), generator=g, device=graph.device, dtype=torch.float64)
    return (SECONDS * uniform.sqrt()).long()


def timed(graph: HeteroGraph, times: Tensor) -> HeteroGraph:
    """The graph with times of its edges: that of the paper at an end, of two papers the later one."""
    edges, of_edges = {}, {}
    g = torch.Generator(graph.device).manual_seed(1)
    for key in graph.edge_types:
        lists = graph.relation(key)
        target = torch.arange(lists.num_dst, device=graph.device).repeat_interleave(lists.in_degrees().long())
        edges[key] = torch.stack([lists.indices.long(), target])
        ends = [times[edges[key][i]] for i, name in ((0, key[0]), (1, key[2])) if name == "paper"]
        if not ends:
            ends = [torch.randint(SECONDS, target.shape, generator=g, device=graph.device)]
        of_edges[key] = torch.stack(ends).amax(0)
    sizes = {name: len(ids) for name, ids in graph.node_types.items()}
    return HeteroGraph.from_edges(edges, sizes, edge_times=of_edges)


def mag_shaped(scale: float = 1.0, device: str = "cuda", seed: int = 2026) -> HeteroGraph:
    """A graph of the size of ogbn-mag, see `shaped`."""
    return shaped(SHAPES["mag"], scale, device, seed)


def igb_shaped(scale: float = 1.0, device: str = "cuda", seed: int = 2026) -> HeteroGraph:
    """A graph of the size of IGB's, see `shaped`."""
    return shaped(SHAPES["igb"], scale, device, seed)


def shaped(shape: Shape, scale: float, device: str, seed: int) -> HeteroGraph:
    """A bipartite Chung-Lu graph per relation, and its reverse. Expected degrees are Lomax(2.5), cut at a fiftieth of
    the other side; parallel edges are left out.

    Args:
        scale: of the numbers of nodes and edges.
    """
    g = torch.Generator(device).manual_seed(seed)
    sizes = {name: max(16, int(n * scale)) for name, n in shape.nodes.items()}

    def drawn(size: int, count: int, most: int) -> Tensor:
        """`count` nodes, each with a probability of its own."""
        uniform = torch.rand(size, generator=g, device=device, dtype=torch.float64)
        weight = (((1 - uniform) ** (-1 / 2.5) - 1) * 1.5 * count / size + 0.05).clamp_(max=float(max(most // 50, 4)))
        cdf = weight.cumsum(0)
        at = torch.rand(count, generator=g, device=device, dtype=torch.float64) * cdf[-1]
        return torch.searchsorted(cdf, at).clamp_(max=size - 1)

    edges = {}
    for (src, name, dst), full in shape.relations.items():
        count = int(full.edges * scale * 1.03)  # some are drawn twice
        key = torch.unique(drawn(sizes[src], count, sizes[dst]) * sizes[dst] + drawn(sizes[dst], count, sizes[src]))
        pairs = torch.stack([key // sizes[dst], key % sizes[dst]])
        edges[src, name, dst] = pairs
        edges[dst, f"rev_{name}", src] = pairs.flip(0)
    return HeteroGraph.from_edges(edges, sizes, keep_edge_ids=False)
