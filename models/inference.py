"""Exact inference: layer by layer over the whole graph, every node with all its in-neighbors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from torch import Tensor, nn

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
    """The model's output for every node of the graph, computed without sampling; see `layerwise_outputs`.

    Returns:
        `[num_nodes, out_dim]` on the CPU, in the nodes' order; dtype of the model's parameters.
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
    """The model's output for every node of the graph, and what its last layer reads, computed without sampling.

    Each layer is computed for all nodes before the next one begins, in chunks of nodes, so the work is
    linear in the depth (a full neighborhood per node grows exponentially). The dense part runs on the model's
    device. Means are taken there, too, where it is a GPU whose memory has room for the rows of all nodes; the graph
    comes along, whole or, without room for it, in chunks. Else they are taken on the CPU. In host memory there are at
    most three arrays of `[num_nodes, hidden_channels]` at a time, besides `chunk_bytes` for a chunk; features that are
    memory-mapped stay on disk.

    Args:
        model: is put into evaluation mode, and back.
        graph: on the CPU, or on the model's GPU.
        features: `[num_nodes, in_dim]`, on the CPU, maybe memory-mapped, or on the model's GPU.
        embeddings: whether to return what the last layer reads, too.
        chunk_bytes: bound of the input and output rows of one chunk, at least one node.
        progress: show a progress bar.

    Returns:
        `[num_nodes, out_dim]`, and with `embeddings` `[num_nodes, hidden_channels]`, else None. Both are on the CPU,
        in the nodes' order, and of the dtype of the model's parameters.

    Raises:
        TypeError: `graph` is no `Graph`, `features` no tensor, or `chunk_bytes` no integer.
        ValueError: the features do not fit the graph or the model, one of them lies on a GPU that is not the model's,
            or `embeddings` are asked of a model of one layer, which has none.
    """
    return _outputs(
        model,
        lambda i, pieces, h, report: _layer(model, i, pieces, h, chunk_bytes, report),
        model.num_layers,
        graph,
        features,
        width=model.first.in_dim,
        embeddings=embeddings,
        chunk_bytes=chunk_bytes,
        progress=progress,
    )


@torch.no_grad()
def blockwise_outputs(
    model: nn.Module,
    layer: Callable[[int, Tensor, Block, Tensor], Tensor],
    num_layers: int,
    graph: Graph,
    features: Tensor,
    *,
    embeddings: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    progress: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """The output of any layers for every node of the graph, and what the last one reads, computed without sampling.

    As `layerwise_outputs`, for layers that are given as a function: for each chunk of nodes, the rows of these and
    of all their in-neighbors are gathered, and a layer is computed from them on the model's device.

    Args:
        model: is put into evaluation mode, and back; its parameters tell device and dtype.
        layer: `(i, x, block, nodes)` -> the rows of layer `i` for the destination nodes of `block`, from the rows `x`
            of its source nodes; `nodes` `[block.num_src]` are their ids in the graph, int64.
        num_layers: of the model.
        graph, features, embeddings, progress: see `layerwise_outputs`.
        chunk_bytes: bound of the rows of one chunk, each edge counted as one row, at least one node.

    Returns:
        See `layerwise_outputs`.

    Raises:
        TypeError, ValueError: see `layerwise_outputs`.
    """
    return _outputs(
        model,
        lambda i, pieces, h, report: _any_layer(model, partial(layer, i), pieces, h, chunk_bytes, report),
        num_layers,
        graph,
        features,
        width=None,
        embeddings=embeddings,
        chunk_bytes=chunk_bytes,
        progress=progress,
    )


def _outputs(
    model: nn.Module,
    compute: Callable[[int, _GraphParts, Tensor, Callable[..., None]], Tensor],
    num_layers: int,
    graph: Graph,
    features: Tensor,
    *,
    width: int | None,
    embeddings: bool,
    chunk_bytes: int,
    progress: bool,
) -> tuple[Tensor, Tensor | None]:
    """Layer after layer by `compute`; `width` is that of the features, if it is known. Else as `layerwise_outputs`."""
    require_graph(graph, hetero=False)
    if not isinstance(features, Tensor):
        raise TypeError(f"features is {kind_of(features)}; it must be a torch tensor (torch.from_numpy)")
    needed = (graph.num_nodes, features.shape[-1] if width is None else width)
    if features.shape != needed:
        raise ValueError(f"features have shape {tuple(features.shape)}; graph and model need {needed}")
    here = next(model.parameters()).device
    for name, device in (("graph", graph.device), ("features", features.device)):
        if device.type != "cpu" and device != here:
            raise ValueError(f"the {name} lies on {device}, the model on {here}; move the {name} there, or to the CPU")
    as_size("chunk_bytes", chunk_bytes)
    if embeddings and num_layers == 1:
        raise ValueError("the model has one layer, so it has no hidden rows that could be embeddings; leave them out")
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), disable=not progress
    )
    training = model.training
    model.eval()
    try:
        with bar:
            h, hidden = features, None
            pieces = _GraphParts(graph, here, chunk_bytes)
            for i in range(num_layers):
                if embeddings and i == num_layers - 1:
                    hidden = h.cpu()
                task = bar.add_task(f"Inference, layer {i + 1} of {num_layers}", total=None)
                h = compute(i, pieces, h, partial(bar.update, task))
        return h.cpu(), hidden
    finally:
        model.train(training)


class _GraphParts:
    """Nodes with all their in-neighbors, piece by piece, where means are taken."""

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
        """Nodes `begin..end` with all their in-neighbors; sources keep their global ids."""
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
    model: GraphSAGE, i: int, pieces: _GraphParts, h: Tensor, chunk_bytes: int, report: Callable[..., None]
) -> Tensor:
    """Layer `i` for all nodes: `h [num_nodes, in_dim]` -> `[num_nodes, out_dim]`, on the CPU or the model's GPU."""
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

    # All nodes are sources and destinations alike: projecting first costs nothing and narrows what is gathered.
    project_first = conv.out_dim < conv.in_dim

    def device_for(dim: int) -> torch.device:
        """The model's where it has room for a row of `dim` for every node."""
        return weight.device if pieces.room_for(num_nodes * dim * weight.element_size()) else torch.device("cpu")

    dim = conv.out_dim if project_first else conv.in_dim
    where = device_for(dim)
    copy_first = not project_first and (h.device != where or h.dtype != weight.dtype)  # a mean has the type of its rows
    report(total=num_nodes * (1 + (project_first or copy_first)))
    neighbors = h
    if project_first or copy_first:
        neighbors = torch.empty(num_nodes, dim, dtype=weight.dtype, device=where)
        for a, b in chunks:
            x = rows(a, b)
            neighbors[a:b] = conv.lin_neigh(x) if project_first else x
            report(advance=b - a)
    out = torch.empty(num_nodes, conv.out_dim, dtype=weight.dtype, device=device_for(conv.out_dim))
    for a, b in chunks:
        x = rows(a, b)
        mean = aggregate_mean(neighbors, pieces.rows(a, b, where)).to(weight)
        out[a:b] = model.activate(i, conv.lin_self(x) + mean if project_first else conv.combine(x, mean))
        report(advance=b - a)
    return out


def _any_layer(
    model: nn.Module,
    layer: Callable[[Tensor, Block, Tensor], Tensor],
    pieces: _GraphParts,
    h: Tensor,
    chunk_bytes: int,
    report: Callable[..., None],
) -> Tensor:
    """A layer for all nodes: `h [num_nodes, width]` -> `[num_nodes, its width]`, on the CPU or the model's GPU."""
    graph, like = pieces.graph, next(model.parameters())
    ends = graph.indptr.cpu()
    in_file = is_mapped(h)
    report(total=graph.num_nodes)
    out: Tensor | None = None
    a, width = 0, h.shape[1]
    while a < graph.num_nodes:
        room = max(1, chunk_bytes // (max(width, 1) * like.element_size()))  # rows of nodes, and of edges
        b = int(torch.searchsorted(ends, int(ends[a]) + room, right=True)) - 1
        b = min(max(b, a + 1), a + room, graph.num_nodes)
        block, nodes = with_own_sources(pieces.rows(a, b, h.device), a)
        if in_file:
            read_ahead(h[a:b])
        here = Block(block.indptr.to(like.device), block.indices.to(like.device), block.num_src, block.num_dst)
        rows = layer(h[nodes].to(like), here, nodes.to(like.device))
        if out is None:
            width = max(width, rows.shape[1])
            place = like.device if pieces.room_for(graph.num_nodes * rows.shape[1] * like.element_size()) else "cpu"
            out = torch.empty(graph.num_nodes, rows.shape[1], dtype=like.dtype, device=place)
        out[a:b] = rows
        report(advance=b - a)
        a = b
    assert out is not None
    return out


def with_own_sources(block: Block, first: int) -> tuple[Block, Tensor]:
    """A block of the nodes from `first` on, whose sources have global ids, with local ids in their place.

    Returns:
        The block, and the ids of its sources, int64: the destinations, then the others by ascending id.
    """
    last = first + block.num_dst
    indices = block.indices.long()
    others = torch.unique(indices[(indices < first) | (indices >= last)])
    own = torch.arange(first, last, device=indices.device)
    local = torch.where(
        (indices >= first) & (indices < last), indices - first, block.num_dst + torch.searchsorted(others, indices)
    )
    nodes = torch.cat((own, others))
    return Block(block.indptr, local.to(block.indices.dtype), nodes.numel(), block.num_dst), nodes
