"""Exact inference: layer by layer over the whole graph, every vertex with all its in-neighbours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from loader.graph import Graph
from loader.minibatch import Block
from loader.ops import aggregate_mean
from models.sage import GraphSAGE, SAGEConv

CHUNK_BYTES = 256 * 2**20


@torch.no_grad()
def layerwise_inference(
    model: GraphSAGE,
    graph: Graph,
    features: Tensor,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    progress: bool = True,
) -> Tensor:
    """The model's output for every vertex of the graph, computed without sampling.

    Each layer is computed for all vertices before the next one begins, in chunks of vertices, so the work is
    linear in the depth (a full neighbourhood per vertex grows exponentially). Means are taken where the features
    lie, on the CPU; the dense part runs on the model's device. In host memory there are at most three arrays of
    `[num_nodes, hidden]` at a time, besides `chunk_bytes` for a chunk; features that are memory-mapped stay on disk.

    Args:
        model: is put into evaluation mode, and back.
        graph: on the CPU.
        features: `[num_nodes, in_dim]`, on the CPU, maybe memory-mapped.
        chunk_bytes: bound of the input and output rows of one chunk, at least one vertex.
        progress: show a progress bar.

    Returns:
        `[num_nodes, out_dim]` on the CPU, in the vertices' order; dtype of the model's parameters.

    Raises:
        ValueError: the features do not fit the graph or the model, or one of them lies on a GPU.
    """
    if features.shape != (graph.num_nodes, model.convs[0].in_dim):
        raise ValueError(
            f"features have shape {tuple(features.shape)}; graph and model need "
            f"{(graph.num_nodes, model.convs[0].in_dim)}"
        )
    for name, device in (("graph", graph.device), ("features", features.device)):
        if device.type != "cpu":
            raise ValueError(f"the {name} lies on {device}; layer-wise inference reads it from host memory")
    if chunk_bytes < 1:
        raise ValueError(f"chunk_bytes is {chunk_bytes}; it must be at least 1")
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), disable=not progress
    )
    training = model.training
    model.eval()
    try:
        with bar:
            h = features
            for i in range(model.num_layers):
                task = bar.add_task(f"Inference, layer {i + 1} of {model.num_layers}", total=None)
                h = _layer(model, i, graph, h, chunk_bytes, partial(bar.update, task))
        return h
    finally:
        model.train(training)


def _layer(model: GraphSAGE, i: int, graph: Graph, h: Tensor, chunk_bytes: int, report: Callable[..., None]) -> Tensor:
    """Layer `i` for all vertices: `h [num_nodes, in_dim]` -> `[num_nodes, out_dim]` on the CPU."""
    conv = model.convs[i]
    assert isinstance(conv, SAGEConv)
    weight = conv.lin_self.weight
    step = max(1, chunk_bytes // ((conv.in_dim + conv.out_dim) * weight.element_size()))
    chunks = [(a, min(a + step, graph.num_nodes)) for a in range(0, graph.num_nodes, step)]
    # All vertices are sources and destinations alike: projecting first costs nothing and narrows what is gathered.
    project_first = conv.out_dim < conv.in_dim
    report(total=graph.num_nodes * (1 + project_first))
    neighbours = h
    if project_first:
        neighbours = torch.empty(graph.num_nodes, conv.out_dim, dtype=weight.dtype)
        for a, b in chunks:
            neighbours[a:b] = conv.lin_neigh(h[a:b].to(weight))
            report(advance=b - a)
    out = torch.empty(graph.num_nodes, conv.out_dim, dtype=weight.dtype)
    for a, b in chunks:
        x = h[a:b].to(weight)  # on the model's device
        mean = aggregate_mean(neighbours, _rows(graph, a, b)).to(weight)
        out[a:b] = model.activate(i, conv.lin_self(x) + mean if project_first else conv.combine(x, mean))
        report(advance=b - a)
    return out


def _rows(graph: Graph, begin: int, end: int) -> Block:
    """Vertices `begin..end` with all their in-neighbours; sources keep their global ids."""
    first, last = int(graph.indptr[begin]), int(graph.indptr[end])
    return Block(
        indptr=graph.indptr[begin : end + 1] - first,
        indices=graph.indices[first:last],
        num_src=graph.num_nodes,
        num_dst=end - begin,
    )
