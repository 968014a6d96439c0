"""Shortest paths by weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.graph.checks import check_length
from loader.machine.arguments import as_number, kind_of
from loader.machine.gpu import current_stream_handle, made_current
from loader.machine.mapped import whole
from loader.machine.memo import Memo, version_of
from loader.traverse.arrays import as_nodes, memory_for, no_schedules, onward_weights, wait_for_host_arrays, where
from loader.traverse.search import bfs

_TYPES = (torch.float32, torch.float64, torch.int32, torch.int64)

_known = Memo()


@no_schedules
def sssp(
    graph: Graph,
    source: int | Sequence[int] | Tensor,
    weights: Tensor | None = None,
    *,
    device: torch.device | str | None = None,
    symmetric: bool | None = None,
    delta: float | None = None,
    num_threads: int | None = None,
) -> Tensor:
    """The length of a shortest path from `source` to each node, along the direction of edges.

    The length of a path is the sum of its weights from left to right, in the type of the weights. Of all paths the
    least length is returned, so the result is exact and does not depend on the order of work. Nodes come in near and
    far piles (Davidson et al., IPDPS 2014). On a GPU, edges to nodes whose path cannot become shorter are
    passed over (the out-criterion of Crauser et al., MFCS 1998).

    Args:
        graph: square; see `bfs`.
        source: a node, or several: then paths begin at the nearest one.
        weights: `[num_edges]`, float32, float64, int32 or int64, of the edges in the order of `graph.indices`, finite
            and at least 0. By default `graph.edge_weights`. For a GPU they lie there or in pinned memory. What is made
            of them is kept for the next call, until torch sees that they were written to. It does not see what is
            written through NumPy: pass a copy then.
        device: see `bfs`.
        symmetric: True says that each edge has its reverse, of the same weight; see `bfs`.
        delta: the near pile has the paths that are at most this much longer than the shortest one of it. More means
            fewer steps, and more edges that are read again. By default 4 times the mean weight over the mean degree,
            and at least the least weight. On a GPU it doubles after 16 piles in a row of few edges. It changes no
            result.
        num_threads: see `bfs`.

    Returns:
        `[num_nodes]`, of the type of the weights, on the device. If there is no path: infinity, or -1 for integers.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
        OverflowError: a shortest path is longer than the largest number of its type.
        NoGpuError: a GPU was asked for, and there is none.
    """
    at = where(graph, device, num_threads)
    sources = as_nodes(graph, source, "source")
    given = _weights(graph, weights, at.device)
    with whole(given):
        least, mean = _looked_at(given)
    if delta is None:
        step = max(float(least), 4 * mean * graph.num_nodes / max(graph.num_edges, 1))
    else:
        step = as_number("delta", delta)
        if not 0 < step < math.inf:
            raise ValueError(f"delta is {delta}; it must be finite and above 0")
    step = _in_range(step, given.dtype)
    with whole(given):
        onward, moved = onward_weights(graph, at, given, symmetric)
    lengths = torch.empty(graph.num_nodes, dtype=given.dtype, device=at.device)
    if at.on_gpu:
        with made_current(at.device):
            memory, on_gpu, index = memory_for(onward, at.device), sources.to(at.device), at.device.index
            stream = current_stream_handle(index)
            _core.traverse_sssp_cuda(tuple(onward), moved, at.line, on_gpu, step, least, lengths, memory, index, stream)
            wait_for_host_arrays(onward.indices, moved)
    else:
        with whole(*onward, moved):
            _core.traverse_sssp(tuple(onward), moved, sources, step, lengths, at.num_threads)
    if given.is_floating_point():
        most = torch.finfo(given.dtype).max
        if mean * graph.num_edges > most:  # else no path has a length beyond it, which would be infinite, as of none
            hops = bfs(graph, source, device=at.device, num_threads=num_threads)
            assert isinstance(hops, Tensor)
            if bool((lengths.isinf() & (hops >= 0)).any()):
                raise OverflowError(
                    f"a shortest path is longer than {most:.3g}, the largest length of {given.dtype}; give weights of "
                    "float64, or divide them"
                )
        return lengths
    largest = torch.iinfo(given.dtype).max
    if bool((lengths == largest - 1).any()):
        raise OverflowError(
            f"a shortest path is longer than {largest - 2}, the largest length of {given.dtype}; give weights of "
            f"{'int64' if given.dtype == torch.int32 else 'float64'}"
        )
    return torch.where(lengths == largest, -1, lengths)


def _weights(graph: Graph, weights: Tensor | None, device: torch.device) -> Tensor:
    if weights is None:
        weights = graph.edge_weights
        if weights is None:
            raise ValueError("the graph has no edge_weights; give weights, or use bfs to count edges")
    if not isinstance(weights, Tensor):
        raise TypeError(f"weights is {kind_of(weights)}; it must be a torch tensor (torch.as_tensor)")
    if weights.dtype not in _TYPES:
        raise TypeError(f"weights has dtype {weights.dtype}; it must be float32, float64, int32 or int64")
    if weights.dim() != 1:
        raise ValueError(f"weights has {weights.dim()} dimensions; it must have 1")
    check_length("weights", weights, graph.num_edges, f"the graph has {graph.num_edges} edges")
    if device.type == "cpu" and weights.device.type != "cpu":
        raise ValueError(f"weights lies on {weights.device}, the traversal runs on the CPU; use weights.cpu()")
    if device.type != "cpu" and weights.device != device and not (weights.device.type == "cpu" and weights.is_pinned()):
        raise ValueError(
            f"weights lies on {weights.device}; the traversal runs on {device}: use weights.to('{device}') or "
            "weights.pin_memory()"
        )
    return weights.contiguous()


def _looked_at(weights: Tensor) -> tuple[float, float]:
    """The least of the weights and their mean; they are checked, too. All of it is done once."""

    def look() -> tuple[float, float]:
        if weights.numel() == 0:
            return 0, 0.0
        low, high = (x.item() for x in torch.aminmax(weights))
        if not low >= 0 or math.isinf(high):  # NaN is neither
            edge = int((~(weights >= 0) | torch.isinf(weights)).nonzero()[0])
            raise ValueError(f"weights[{edge}] is {weights[edge].item()}; a weight must be finite and at least 0")
        return low, float(weights.sum(dtype=torch.float64)) / weights.numel()

    return _known.get(weights, version_of(weights), "range", look)


def _in_range(step: float, dtype: torch.dtype) -> float:
    """`step`, above 0 and as large as the type allows."""
    if dtype.is_floating_point:
        least, most = torch.finfo(dtype).tiny, torch.finfo(dtype).max
    else:
        least, most = 1, 2.0 ** (30 if dtype == torch.int32 else 62)
    return min(max(step, least), most)
