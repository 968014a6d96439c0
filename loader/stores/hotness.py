"""Scores of rows for a cache: estimates or counts of how often mini-batches read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from loader.graph import Graph, require_graph
from loader.graph.checks import check_integers
from loader.machine.arguments import as_size, shown
from loader.samples import MiniBatch
from loader.traverse import pagerank

_CHUNK = 1 << 28  # edges counted at once
_PART = 1 << 24  # edges whose probabilities are computed at once


def degree_hotness(graph: Graph) -> Tensor:
    """`[num_nodes]` int64 on the CPU: the number of neighbor lists that each node is in.

    A sampler picks from lists of in-neighbors, and a node is in as many of them as its out-degree. In an undirected
    graph this is also its in-degree. It is a static estimate, as in PaGraph (Lin et al., "PaGraph: Scaling GNN Training
    on Large Graphs via Computation-aware Caching", SoCC 2020), and takes one pass over the edges.
    """
    require_graph(graph, hetero=False)
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    for part in graph.indices.split(_CHUNK):
        counts += torch.bincount(part, minlength=graph.num_nodes)
    return counts.cpu()


def pagerank_hotness(graph: Graph, seeds: Tensor | None = None) -> Tensor:
    """`[num_nodes]` float64 on the CPU: how often a surfer is at each node who goes to in-neighbors at random, as
    samplers do, and at times begins anew at a seed: the reverse PageRank. A static estimate, as in Min et al., "Graph
    Neural Network Training and Data Tiering", KDD 2022.

    Args:
        graph: on the CPU or a GPU; see `loader.traverse.pagerank`.
        seeds: `[n]` int64, the nodes that mini-batches begin with. By default any node can be a seed.

    Raises:
        ValueError: a seed is no node; and as `loader.traverse.pagerank`.
    """
    require_graph(graph, hetero=False)
    own = None if seeds is None else _marked(seeds, graph.num_nodes).double()
    return pagerank(graph, personalization=own, reverse=True).cpu()


def k_hop_hotness(graph: Graph, seeds: Tensor, fanouts: Sequence[int], batch_size: int) -> Tensor:
    """`[num_nodes]` float64 on the CPU: how likely a mini-batch reads each node, if its picks were independent.

    In each hop a node picks each of its `degree` in-neighbors with the probability `min(1, fanout / degree)`. This
    takes a pass over the edges per hop, and samples nothing: node-inclusion probabilities (Kaler et al.,
    "Communication-Efficient Graph Neural Networks with Probabilistic Neighborhood Expansion Analysis and Caching",
    MLSys 2023).

    Args:
        graph: on the CPU or a GPU.
        seeds: `[n]` int64, the nodes that mini-batches begin with.
        fanouts: neighbors per node for each hop, from the seeds on, -1 for all.
        batch_size: seeds per mini-batch.

    Raises:
        ValueError: a seed is no node, or a number is too small.
    """
    require_graph(graph, hetero=False)
    size = as_size("batch_size", batch_size)
    if isinstance(fanouts, (str, bytes)) or not isinstance(fanouts, Iterable):
        raise TypeError(f"fanouts is {shown(fanouts)}; it must be a list of integers, e.g. [15, 10, 5]")
    picks = [as_size("fanouts", fanout, least=-1) for fanout in fanouts]
    chosen = _marked(seeds, graph.num_nodes).to(graph.device)
    chance = chosen.double() * min(1.0, size / int(chosen.sum()))  # of being reached so far
    misses = torch.log1p(-chance)  # logarithms: the probabilities of not being reached are multiplied
    degrees = graph.in_degrees().to(graph.device)
    for fanout in picks:
        share = torch.ones_like(chance) if fanout < 0 else (fanout / degrees.double().clamp(min=1)).clamp(max=1)
        passed = torch.log1p(-chance * share)
        for begin in range(0, graph.num_edges, _PART):
            sources = graph.indices[begin : begin + _PART]
            places = torch.arange(begin, begin + sources.numel(), device=graph.device, dtype=graph.indptr.dtype)
            lists = torch.searchsorted(graph.indptr.to(graph.device), places, right=True) - 1
            misses.index_add_(0, sources, passed[lists])
        chance = -torch.expm1(misses)
    return chance.cpu()


def count_visits(batches: Iterable[Tensor | MiniBatch], num_rows: int) -> Tensor:
    """`[num_rows]` int64 on the CPU: how often each row is read by `batches`.

    Give the mini-batches of whole epochs of a run, as GNNLab does (Yang et al., "GNNLab: A Factored System for
    Sample-based GNN Training over GPUs", EuroSys 2022). They are a pure function of the loader's arguments, so sampling
    them here does not change the run.

    Args:
        batches: tensors of ids (int32 or int64, on any device), in which ids may repeat; or mini-batches, for example a
            `NodeLoader` without features. Of a mini-batch the input nodes count.
        num_rows: number of rows; for mini-batches the number of nodes.

    Raises:
        TypeError: `batches` holds something else.
        ValueError: an id is out of range.
    """
    if isinstance(batches, Tensor):
        raise TypeError("batches is a Tensor; it must be a list of them, or of mini-batches: [ids]")
    counts = torch.zeros(as_size("num_rows", num_rows, least=0), dtype=torch.int64)
    for batch in batches:
        ids = batch.input_nodes if isinstance(batch, MiniBatch) else batch
        if not isinstance(ids, Tensor) or ids.dtype not in (torch.int32, torch.int64):
            raise TypeError(
                f"batches holds {shown(batch)}; it must hold mini-batches, or tensors of int32 or int64 ids"
            )
        if counts.device != ids.device:
            counts = counts.to(ids.device)
        if ids.numel():
            low, high = (int(x) for x in torch.aminmax(ids))
            if low < 0 or high >= num_rows:
                raise ValueError(f"ids holds {low if low < 0 else high}; valid ids are 0 to {num_rows - 1}")
            counts.index_add_(0, ids, torch.ones_like(ids, dtype=torch.int64))
    return counts.cpu()


def _marked(seeds: Tensor, num_nodes: int) -> Tensor:
    """`[num_nodes]` bool: the seeds."""
    if not isinstance(seeds, Tensor):
        raise TypeError(f"seeds is {shown(seeds)}; it must be a tensor of node ids (torch.as_tensor)")
    check_integers("seeds", seeds)
    ids = seeds.cpu().long()
    if ids.numel() == 0:
        raise ValueError("seeds is empty; give at least one node")
    low, high = (int(x) for x in torch.aminmax(ids))
    if low < 0 or high >= num_nodes:
        raise ValueError(f"seeds holds {low if low < 0 else high}; valid ids are 0 to {num_nodes - 1}")
    marked = torch.zeros(num_nodes, dtype=torch.bool)
    marked[ids] = True
    return marked
