"""Scores of rows for a cache: estimates or counts of how often mini-batches read them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from loader.graph import Graph
from loader.samples import MiniBatch

_CHUNK = 1 << 28  # edges counted at once


def degree_hotness(graph: Graph) -> Tensor:
    """`[num_nodes]` int64 on the CPU: the number of neighbour lists that each vertex is in.

    A sampler picks from lists of in-neighbours, and a vertex is in as many of them as its out-degree. In an undirected
    graph this is also its in-degree. It is a static estimate, as in PaGraph (Lin et al., "PaGraph: Scaling GNN Training
    on Large Graphs via Computation-aware Caching", SoCC 2020), and takes one pass over the edges.
    """
    counts = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    for part in graph.indices.split(_CHUNK):
        counts += torch.bincount(part, minlength=graph.num_nodes)
    return counts.cpu()


def count_visits(batches: Iterable[Tensor | MiniBatch], num_rows: int) -> Tensor:
    """`[num_rows]` int64 on the CPU: how often each row is read by `batches`.

    Give the mini-batches of whole epochs of a run, as GNNLab does (Yang et al., "GNNLab: A Factored System for
    Sample-based GNN Training over GPUs", EuroSys 2022). They are a pure function of the loader's arguments, so sampling
    them here does not change the run.

    Args:
        batches: tensors of ids (int32 or int64, on any device), in which ids may repeat; or mini-batches, for example a
            `NodeLoader` without features. Of a mini-batch the input nodes count.
        num_rows: number of rows; for mini-batches the number of vertices.

    Raises:
        ValueError: an id is out of range.
    """
    counts = torch.zeros(num_rows, dtype=torch.int64)
    for batch in batches:
        ids = batch.input_nodes if isinstance(batch, MiniBatch) else batch
        if counts.device != ids.device:
            counts = counts.to(ids.device)
        if ids.numel():
            low, high = (int(x) for x in torch.aminmax(ids))
            if low < 0 or high >= num_rows:
                raise ValueError(f"ids holds {low if low < 0 else high}; valid ids are 0 to {num_rows - 1}")
            counts.index_add_(0, ids, torch.ones_like(ids, dtype=torch.int64))
    return counts.cpu()
