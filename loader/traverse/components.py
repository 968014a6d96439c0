"""Connected components."""

from __future__ import annotations

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.gpu import current_stream_handle, made_current
from loader.machine.mapped import whole
from loader.traverse.arrays import back_lists, is_symmetric, memory_for, no_schedules, wait_for_host_arrays, where


@no_schedules
def connected_components(
    graph: Graph,
    *,
    device: torch.device | str | None = None,
    symmetric: bool | None = None,
    num_threads: int | None = None,
) -> Tensor:
    """The connected component of each node, named by its smallest node. The direction of edges does not count: on a
    directed graph these are the weakly connected components.

    The first neighbors of each node join most of the graph. If the graph is symmetric, the rest of the edges of the
    largest part is not read (Afforest: Sutton et al., IPDPS 2018).

    Args:
        graph: square; see `bfs`.
        device: see `bfs`.
        symmetric: True says that each edge has its reverse, False that this is not so. By default all edges are read
            once, to find out, and the answer is kept with the graph.
        num_threads: on the CPU, 1 to 1024; by default one per processor.

    Returns:
        `[num_nodes]`, of the type of `graph.indices`, on the device. Two nodes have the same label if a path of
        edges in any direction connects them.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
        NoGpuError: a GPU was asked for, and there is none.
    """
    at = where(graph, device, num_threads)
    lists = back_lists(graph, at.device)
    known = is_symmetric(graph, at, symmetric)
    labels = torch.empty(graph.num_nodes, dtype=graph.indices.dtype, device=at.device)
    if not at.on_gpu:
        with whole(*lists):
            _core.traverse_components(tuple(lists), known, labels, at.num_threads)
    elif graph.num_nodes:
        with made_current(at.device):
            memory, index = memory_for(lists, at.device), at.device.index
            stream = current_stream_handle(index)
            _core.traverse_components_cuda(tuple(lists), known, at.line, labels, memory, index, stream)
            wait_for_host_arrays(lists.indices)
    return labels
