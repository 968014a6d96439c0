"""What of a graph in pinned memory a GPU sampler keeps in GPU memory."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from loader.graph import Graph
from loader.machine.forks import ForkSafeLock

_lock = ForkSafeLock()
_indptrs: weakref.WeakKeyDictionary[Graph, dict[torch.device, Tensor]] = weakref.WeakKeyDictionary()


def indptr_on(graph: Graph, device: torch.device) -> Tensor:
    """The graph's `indptr` on `device`, copied once for all samplers of the graph.

    It is read twice for each vertex that is sampled, and takes a few per cent of the memory of `indices`. If it takes
    more than half of the free memory of the device, it stays where it is.
    """
    if graph.indptr.device == device:
        return graph.indptr
    with _lock:
        copies = _indptrs.setdefault(graph, {})
        if device not in copies:
            free, _ = torch.cuda.mem_get_info(device)
            if 2 * graph.indptr.nbytes > free:
                return graph.indptr
            copies[device] = graph.indptr.to(device)
            torch.cuda.current_stream(device).synchronize()  # it is read on any stream
        return copies[device]
