"""Breadth-first search: the number of edges to each node."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.arguments import as_flag, as_size
from loader.machine.gpu import current_stream_handle, made_current
from loader.machine.mapped import whole
from loader.traverse.arrays import (
    Lists,
    Where,
    as_nodes,
    back_lists,
    memory_for,
    no_schedules,
    onward_lists,
    wait_for_host_arrays,
    where,
)

_FARTHEST = 2**31 - 1


@no_schedules
def bfs(
    graph: Graph,
    source: int | Sequence[int] | Tensor,
    *,
    device: torch.device | str | None = None,
    symmetric: bool | None = None,
    direction_optimizing: bool = True,
    return_predecessors: bool = False,
    num_threads: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """The number of edges on a shortest path from `source` to each node, along the direction of edges.

    The search goes level by level. A level that would read most edges asks each node that was not reached yet for one
    in-neighbor that was (direction-optimizing: Beamer et al., SC 2012).

    Args:
        graph: square, on the CPU, on a GPU, or in pinned memory, where a GPU reads it without a copy.
        source: a node, or several: then paths begin at the nearest one.
        device: where to search: "cpu" or a GPU. By default where the graph lies.
        symmetric: True says that each edge has its reverse. Then the lists of the graph serve both directions. False
            says that this is not so: then the graph with all edges turned round is made by the first call, and kept
            with the graph. By default all edges are read once, to find out.
        direction_optimizing: False goes forward in all levels.
        return_predecessors: return also the node before each node. This takes one more pass over the edges, and the
            CPU.
        num_threads: on the CPU, 1 to 1024; by default one per processor.

    Returns:
        `[num_nodes]` int32 on the device; -1 if there is no path. With `return_predecessors` also `[num_nodes]`, of the
        type of `graph.indices`: of all nodes that may come before on a shortest path the smallest one; -1 for
        sources and for nodes without a path.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
        NoGpuError: a GPU was asked for, and there is none.
    """
    at = where(graph, device, num_threads)
    sources = as_nodes(graph, source, "source")
    wants = as_flag("return_predecessors", return_predecessors)
    if wants and at.on_gpu:
        raise ValueError(f"return_predecessors is True, but the search runs on {at.device}; use device='cpu'")
    back = back_lists(graph, at.device)
    onward = onward_lists(graph, at, symmetric)
    turns = as_flag("direction_optimizing", direction_optimizing)
    return _search(at, onward, back, sources, _FARTHEST, turns, wants)


@no_schedules
def k_hop(
    graph: Graph,
    seeds: int | Sequence[int] | Tensor,
    k: int,
    *,
    device: torch.device | str | None = None,
    num_threads: int | None = None,
) -> Tensor:
    """The k-hop neighborhood of `seeds`: the number of edges from each node to the nearest seed, at most `k`.

    It goes from a node to its in-neighbors, against the direction of edges, as samplers do. So it finds the nodes
    that mini-batches of `seeds` with `k` hops can read.

    Args:
        graph: square; see `bfs`.
        seeds: a node, or several.
        k: hops, at least 0.
        device, num_threads: see `bfs`.

    Returns:
        `[num_nodes]` int32 on the device: 0 for seeds, at most `k`, and -1 for nodes that are farther away.

    Raises:
        TypeError, ValueError, NoGpuError: see `bfs`.
    """
    at = where(graph, device, num_threads)
    sources = as_nodes(graph, seeds, "seeds")
    most = as_size("k", k, least=0, most=_FARTHEST)
    found = _search(at, back_lists(graph, at.device), None, sources, most, False, False)
    assert isinstance(found, Tensor)
    return found


def _search(
    at: Where, onward: Lists, back: Lists | None, sources: Tensor, most: int, turns: bool, wants: bool
) -> Tensor | tuple[Tensor, Tensor]:
    num_nodes = onward.indptr.numel() - 1
    behind = tuple(back) if back is not None and (turns or wants) else None
    if at.on_gpu:
        with made_current(at.device):
            distances = torch.empty(num_nodes, dtype=torch.int32, device=at.device)
            if num_nodes:
                memory, index = memory_for(onward, at.device), at.device.index
                on_gpu = sources.to(at.device)
                stream = current_stream_handle(index)
                _core.traverse_bfs_cuda(
                    tuple(onward), behind, at.line, on_gpu, most, turns, distances, memory, index, stream
                )
                wait_for_host_arrays(onward.indices, onward.indices if back is None else back.indices)
            return distances
    distances = torch.empty(num_nodes, dtype=torch.int32)
    before = torch.empty(num_nodes, dtype=onward.indices.dtype) if wants else None
    with whole(*onward, *(behind or ())):
        _core.traverse_bfs(tuple(onward), behind, sources, most, turns, distances, before, at.num_threads)
    return distances if before is None else (distances, before)
