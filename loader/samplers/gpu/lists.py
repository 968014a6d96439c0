"""How a GPU sampler reads a graph in pinned memory, and what of it lies in GPU memory."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from loader.graph import Graph, ListCache
from loader.machine.forks import ForkSafeLock
from loader.samplers.gpu.pinned_reads import is_uniform, unit_bytes
from loader.samplers.gpu.sizes import GpuOptions

_AUTO = "sectors"  # of a graph in pinned memory
_MOST_UNITS = 2**32  # that kernels number

_lock = ForkSafeLock()
# Each with the state of the graph that it is of.
_indptrs: weakref.WeakKeyDictionary[Graph, dict[torch.device, tuple[tuple[int, ...], Tensor]]]
_indptrs = weakref.WeakKeyDictionary()


def indptr_on(graph: Graph, device: torch.device) -> Tensor:
    """The graph's `indptr` on `device`, copied once for all samplers of the graph, and again after it was written to.

    It is read twice for each node that is sampled, and takes a few per cent of the memory of `indices`. If it takes
    more than half of the free memory of the device, it stays where it is.
    """
    if graph.indptr.device == device:
        return graph.indptr
    with _lock:
        copies = _indptrs.setdefault(graph, {})
        state, copy = copies.pop(device, (None, None))
        if copy is None or state != graph._state():
            free, _ = torch.cuda.mem_get_info(device)
            if 2 * graph.indptr.nbytes > free:
                return graph.indptr
            copy = graph.indptr.to(device)
            torch.cuda.current_stream(device).synchronize()  # it is read on any stream
        copies[device] = graph._state(), copy
        return copy


def choose_reads(sampler: GpuOptions, graph: Graph) -> str:
    """How a sampler reads the lists of a graph, see `CudaSampler`.

    Picks that scan lists read them whole, so that a warp's requests are for whole lines already.

    Raises:
        ValueError: the lists have more lines, or sectors, than 32 bits number.
    """
    is_auto, one_launch = sampler.reads == "auto", sampler.schedule == "cooperative"
    if is_auto and (graph.indices.device == sampler.device or sampler.picking.scans):
        return "naive"
    if is_auto and one_launch and (sampler.node_set == "hash" or not is_uniform(sampler)):
        return "naive"
    reads = _AUTO if is_auto else sampler.reads
    units = graph.indices.nbytes // unit_bytes(reads)
    if reads == "naive" or units < _MOST_UNITS:
        return reads
    if is_auto:
        return "naive"
    raise ValueError(
        f"reads is {reads!r}, but the lists have {units} units of {unit_bytes(reads)} bytes, and kernels number "
        f"{_MOST_UNITS - 1}; leave reads out"
    )


def list_cache_of(sampler: GpuOptions, graph: Graph) -> ListCache | None:
    """The cached lists that the sampler reads.

    Raises:
        ValueError: there are some, but on another GPU, or the sampler's options do not read them.
    """
    cache = graph.list_cache
    if cache is None:
        return None
    if cache.device != sampler.device:
        raise ValueError(
            f"the graph's cached lists lie on {cache.device}, the sampler is for {sampler.device}; give both the same "
            "GPU"
        )
    check_reads_caches(sampler)
    return cache


def check_reads_caches(sampler: GpuOptions) -> None:
    """Raises ValueError if the sampler's options do not read cached lists."""
    one_launch = sampler.schedule == "cooperative"
    if sampler.picking.scans or (one_launch and not is_uniform(sampler)):
        scans = "labor=True" if sampler.picking.labor else "weight_tables=False"
        what = scans if sampler.picking.scans else f"schedule='{sampler.schedule}'"
        raise ValueError(
            f"the graph has cached lists, which {what} does not read for these picks; use a graph without "
            "(graph.pin_memory()), or leave the option out"
        )
    if one_launch and sampler.node_set == "hash":
        raise ValueError(
            "the graph has cached lists, which schedule='cooperative' with node_set='hash' does not read; use "
            "schedule='hopwise', or 'auto'"
        )
