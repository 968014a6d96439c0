"""Which rows are worth GPU memory: how often mini-batches read them, guessed or counted."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from loader.graph import Graph
from loader.samples import MiniBatch

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


def count_visits(batches: Iterable[Tensor | MiniBatch], num_rows: int) -> Tensor:
    """`[num_rows]` int64 on the CPU: how often each row is read by `batches`.

    With the mini-batches of whole epochs of a run, as GNNLab does it (Yang et al., "GNNLab: A Factored System for
    Sample-based GNN Training over GPUs", EuroSys 2022): they are a pure function of the loader's arguments, so to
    sample them once more changes nothing in the run.

    Args:
        batches: tensors of ids (int32 or int64, on any device), or mini-batches, whose input nodes count: a
            `NodeLoader` without features, for example. An id may stand in a tensor more than once.
        num_rows: number of rows, one a vertex for mini-batches.

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
