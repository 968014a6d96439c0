"""Exact inference: layer by layer over the whole graph, every vertex with all its in-neighbours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from torch import Tensor

from loader.graph import Graph, require_graph
from loader.machine.arguments import as_size, kind_of
from loader.machine.gpu import free_bytes
from loader.machine.mapped import is_mapped
from loader.machine.pages import read_ahead
from loader.ops import aggregate_mean
from loader.samples import Block
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
    """The model's output for every vertex of the graph, computed without sampling; see `layerwise_outputs`.

    Returns:
        `[num_nodes, out_dim]` on the CPU, in the vertices' order; dtype of the model's parameters.
    """
    return layerwise_outputs(model, graph, features, chunk_bytes=chunk_bytes, progress=progress)[0]


@torch.no_grad()
def layerwise_outputs(
    model: GraphSAGE,
    graph: Graph,
    features: Tensor,
    *,
    embeddings: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    progress: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """The model's output for every vertex of the graph, and what its last layer reads, computed without sampling.

    Each layer is computed for all vertices before the next one begins, in chunks of vertices, so the work is
    linear in the depth (a full neighbourhood per vertex grows exponentially). The dense part runs on the model's
    device. Means are taken there, too, where it is a GPU whose memory has room for the rows of all vertices; the graph
    comes along, whole or, without room for it, in chunks. Else they are taken on the CPU. In host memory there are at
    most three arrays of `[num_nodes, hidden]` at a time, besides `chunk_bytes` for a chunk; features that are
    memory-mapped stay on disk.

    Args:
        model: is put into evaluation mode, and back.
        graph: on the CPU, or on the model's GPU.
        features: `[num_nodes, in_dim]`, on the CPU, maybe memory-mapped, or on the model's GPU.
        embeddings: whether to return what the last layer reads, too.
        chunk_bytes: bound of the input and output rows of one chunk, at least one vertex.
        progress: show a progress bar.

    Returns:
        `[num_nodes, out_dim]`, and with `embeddings` `[num_nodes, hidden]`, else None. Both are on the CPU, in the
        vertices' order, and of the dtype of the model's parameters.

    Raises:
        TypeError: `graph` is no `Graph`, `features` no tensor, or `chunk_bytes` no integer.
        ValueError: the features do not fit the graph or the model, one of them lies on a GPU that is not the model's,
            or `embeddings` are asked of a model of one layer, which has none.
    """
    require_graph(graph)
    if not isinstance(features, Tensor):
        raise TypeError(f"features is {kind_of(features)}; it must be a torch tensor (torch.from_numpy)")
    if features.shape != (graph.num_nodes, model.convs[0].in_dim):
        raise ValueError(
            f"features have shape {tuple(features.shape)}; graph and model need "
            f"{(graph.num_nodes, model.convs[0].in_dim)}"
        )
    here = next(model.parameters()).device
    for name, device in (("graph", graph.device), ("features", features.device)):
        if device.type != "cpu" and device != here:
            raise ValueError(f"the {name} lies on {device}, the model on {here}; move the {name} there, or to the CPU")
    as_size("chunk_bytes", chunk_bytes)
    if embeddings and model.num_layers == 1:
        raise ValueError("the model has one layer, so it has no hidden rows that could be embeddings; leave them out")
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), disable=not progress
    )
    training = model.training
    model.eval()
    try:
        with bar:
            h, hidden = features, None
            pieces = _GraphPieces(graph, here, chunk_bytes)
            for i in range(model.num_layers):
                if embeddings and i == model.num_layers - 1:
                    hidden = h.cpu()
                task = bar.add_task(f"Inference, layer {i + 1} of {model.num_layers}", total=None)
                h = _layer(model, i, pieces, h, chunk_bytes, partial(bar.update, task))
        return h.cpu(), hidden
    finally:
        model.train(training)


class _GraphPieces:
    """Vertices with all their in-neighbours, piece by piece, where means are taken."""

    def __init__(self, graph: Graph, device: torch.device, chunk_bytes: int) -> None:
        self.graph = graph
        self.device = device
        self._chunk_bytes = chunk_bytes
        own = graph.indptr, graph.indices
        self._arrays: tuple[Tensor, Tensor] | None = own if graph.device.type != "cpu" else None
        self._in_file = is_mapped(graph.indices)

    def room_for(self, num_bytes: int) -> bool:
        """Whether the model's GPU has so much memory to spare, next to what a chunk needs."""
        if self.device.type != "cuda":
            return False
        return num_bytes + 4 * self._chunk_bytes < 0.9 * free_bytes(self.device)

    def rows(self, begin: int, end: int, device: torch.device) -> Block:
        """Vertices `begin..end` with all their in-neighbours; sources keep their global ids."""
        graph = self.graph
        first, last = int(graph.indptr[begin]), int(graph.indptr[end])
        if self._in_file:
            read_ahead(graph.indices[first:last])
        indptr, indices = (graph.indptr, graph.indices) if device.type == "cpu" else self._moved()
        block = Block(
            indptr=indptr[begin : end + 1].to(device) - first,
            indices=indices[first:last].to(device),
            num_src=graph.num_nodes,
            num_dst=end - begin,
        )
        if device.type != "cpu" and block.num_edges:  # the core's kernels do not look, its CPU code does
            low, high = (int(bound) for bound in block.indices.aminmax())
            if low < 0 or high >= graph.num_nodes:
                raise ValueError(
                    f"the graph has an edge from source {low if low < 0 else high}; valid ids are 0 to "
                    f"{graph.num_nodes - 1}"
                )
        return block

    def _moved(self) -> tuple[Tensor, Tensor]:
        """The graph's arrays on the GPU if they fit there, else as they are."""
        if self._arrays is None:
            arrays = self.graph.indptr, self.graph.indices
            fit = self.room_for(sum(t.numel() * t.element_size() for t in arrays))
            self._arrays = (arrays[0].to(self.device), arrays[1].to(self.device)) if fit else arrays
        return self._arrays


def _layer(
    model: GraphSAGE, i: int, pieces: _GraphPieces, h: Tensor, chunk_bytes: int, report: Callable[..., None]
) -> Tensor:
    """Layer `i` for all vertices: `h [num_nodes, in_dim]` -> `[num_nodes, out_dim]`, on the CPU or the model's GPU."""
    conv, num_nodes = model.convs[i], pieces.graph.num_nodes
    assert isinstance(conv, SAGEConv)
    weight = conv.lin_self.weight
    step = max(1, chunk_bytes // ((conv.in_dim + conv.out_dim) * weight.element_size()))
    chunks = [(a, min(a + step, num_nodes)) for a in range(0, num_nodes, step)]
    in_file = is_mapped(h)

    def rows(a: int, b: int) -> Tensor:
        if in_file:
            read_ahead(h[a:b])
        return h[a:b].to(weight)  # on the model's device

    # All vertices are sources and destinations alike: projecting first costs nothing and narrows what is gathered.
    project_first = conv.out_dim < conv.in_dim

    def device_for(dim: int) -> torch.device:
        """The model's where it has room for a row of `dim` for every vertex."""
        return weight.device if pieces.room_for(num_nodes * dim * weight.element_size()) else torch.device("cpu")

    dim = conv.out_dim if project_first else conv.in_dim
    where = device_for(dim)
    copy_first = not project_first and (h.device != where or h.dtype != weight.dtype)  # a mean has the type of its rows
    report(total=num_nodes * (1 + (project_first or copy_first)))
    neighbours = h
    if project_first or copy_first:
        neighbours = torch.empty(num_nodes, dim, dtype=weight.dtype, device=where)
        for a, b in chunks:
            x = rows(a, b)
            neighbours[a:b] = conv.lin_neigh(x) if project_first else x
            report(advance=b - a)
    out = torch.empty(num_nodes, conv.out_dim, dtype=weight.dtype, device=device_for(conv.out_dim))
    for a, b in chunks:
        x = rows(a, b)
        mean = aggregate_mean(neighbours, pieces.rows(a, b, where)).to(weight)
        out[a:b] = model.activate(i, conv.lin_self(x) + mean if project_first else conv.combine(x, mean))
        report(advance=b - a)
    return out
