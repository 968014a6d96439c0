"""Which vertices' rows are worth GPU memory: how often a sampler reads them, guessed or counted."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from loader.graph import Graph
from loader.samples import MiniBatch
from loader.stores.base import StoreContext

_CHUNK = 1 << 28  # edges counted at once


def degree_hotness(graph: Graph) -> Tensor:
    """`[num_nodes]` int64 on the CPU: in how many neighbour lists each vertex is.

    A sampler picks from the lists of in-neighbours, so a vertex is met as often as it stands in them: by its
    out-degree, which in an undirected graph is its in-degree. A static guess, as in PaGraph (Lin et al., "PaGraph:
    Scaling GNN Training on Large Graphs via Computation-aware Caching", SoCC 2020); it takes one pass over the edges.
    """
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    for part in graph.indices.split(_CHUNK):
        counts += torch.bincount(part, minlength=graph.num_nodes)
    return counts.cpu()


def count_visits(batches: Iterable[Tensor | MiniBatch], num_nodes: int) -> Tensor:
    """`[num_nodes]` int64 on the CPU: how often each vertex is in `batches`.

    Args:
        batches: tensors of ids (int32 or int64, on any device), or mini-batches, whose input nodes count: a
            `NodeLoader` without features, for example. An id may stand in a tensor more than once.
        num_nodes: number of vertices.

    Raises:
        ValueError: an id is out of range.
    """
    counts = torch.zeros(num_nodes, dtype=torch.int64)
    for batch in batches:
        nodes = batch.input_nodes if isinstance(batch, MiniBatch) else batch
        if counts.device != nodes.device:
            counts = counts.to(nodes.device)
        if nodes.numel():
            low, high = (int(x) for x in torch.aminmax(nodes))
            if low < 0 or high >= num_nodes:
                raise ValueError(f"nodes holds {low if low < 0 else high}; valid ids are 0 to {num_nodes - 1}")
            counts.index_add_(0, nodes, torch.ones_like(nodes, dtype=torch.int64))
    return counts.cpu()


def sampled_visits(context: StoreContext, epochs: int = 1) -> Tensor:
    """`[num_nodes]` int64 on the CPU: how often the run that `context` describes reads each vertex.

    Samples whole epochs of the training seeds, as GNNLab does (Yang et al., "GNNLab: A Factored System for
    Sample-based GNN Training over GPUs", EuroSys 2022). Mini-batches are a pure function of the arguments, so this
    changes nothing in the run itself; with the run's own seed it counts exactly its first epochs.

    Args:
        context: with sampler, seeds and batch_size.
        epochs: how many, at least 1.

    Raises:
        ValueError: `context` has no sampler, seeds or batch size; `epochs` < 1.
    """
    from loader.node_loader import NodeLoader  # which imports the stores

    missing = [name for name in ("sampler", "seeds", "batch_size") if getattr(context, name) is None]
    if missing:
        raise ValueError(f"visits are counted by sampling, but the context has no {', '.join(missing)}")
    if epochs < 1:
        raise ValueError(f"epochs is {epochs}; it must be at least 1")
    assert context.seeds is not None
    assert context.sampler is not None
    assert context.batch_size is not None
    counts = torch.zeros(context.graph.num_nodes, dtype=torch.int64)
    loader = NodeLoader(
        context.graph,
        None,
        None,
        context.seeds,
        context.sampler,
        context.batch_size,
        shuffle=True,
        seed=context.seed,
        prefetch=0,
    )
    for _ in range(epochs):
        counts += count_visits(loader, context.graph.num_nodes)
    return counts
