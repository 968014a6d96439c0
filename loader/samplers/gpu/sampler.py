"""The GPU sampler: all hops of a mini-batch in one launch, with the same bytes as on the CPU."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import Self

from loader import _core
from loader.graph import HeteroGraph, require_graph
from loader.machine.arguments import as_flag, as_number, as_size, check_known
from loader.machine.gpu import cuda_device, require_cuda
from loader.machine.renamed_arguments import renamed
from loader.samplers.base import OTHERS_OPTIONS, AnyGraph, NeighborSampler, PickOptions, tell_ignored_times
from loader.samplers.gpu.padded import PaddedMiniBatch
from loader.samplers.gpu.pinned_reads import READS, is_uniform
from loader.samplers.gpu.session import CudaSession
from loader.samplers.gpu.sizes import NODE_SETS, REMOVED_SCHEDULES, SCHEDULES, GpuOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["NODE_SETS", "SCHEDULES", "CudaSampler", "CudaSession", "PaddedMiniBatch"]


@renamed({"vertex_set": "node_set"})
class CudaSampler(GpuOptions):
    """Samples on the GPU that the graph lies on, on the current stream. Calls from several threads take turns.

    The graph's arrays lie in GPU memory, or in pinned host memory (`Graph.pin_memory`), which the kernel reads without
    a copy, see `reads`. Of a graph in pinned memory `indptr` is copied to the GPU if it fits there. Seeds are copied to
    the GPU. The host waits once per mini-batch: for the sizes, when the mini-batch is
    finished.

    The tables for picks by weight lie where the graph's `indices` lie, see `Weighed`. LABOR, and picks by weight
    without tables, read whole lists. All give the same bytes as on the CPU.

    The room for a mini-batch is estimated from earlier mini-batches, and is at most what the fanouts allow. If a
    mini-batch does not fit, it is sampled again with more room. So no mini-batch is cut off.

    Args:
        schedule: how the GPU works through the hops. `"cooperative"`: one launch, with a barrier of the grid between
            hops. `"hopwise"`: a launch per phase and hop. `"auto"`: `cooperative` for mini-batches of up to 1.5 million
            edges and `hopwise` for larger ones, which is the faster one of the two in most settings
            (benchmarks/results/sampler_gpu_paper.json); with a hash set, `hopwise` also for mini-batches that are
            prefetched; with bitmaps, `hopwise` always for LABOR, and for picks by weight without tables. A
            `HeteroGraph` is sampled by one launch, for these picks with a hash set.
        node_set: how the sampler finds out whether a mini-batch has a node already. `"bitmap"`: a bit per node of
            the graph and hop, and a local id per node. Time and memory then grow with the graph: 400 million nodes
            and two hops take 1.95 GB per mini-batch of a launch, of which a loader has eight. `"hash"`: a hash set of
            the size of the mini-batch. `"auto"`: a hash set if the graph is large beside the mini-batch (see
            `choose_node_set`) and the schedule and the picks allow it, else a bitmap.
        blocks_per_sm: thread blocks per multiprocessor, 0 to 1. 0.5 uses every second multiprocessor and leaves the
            others to training. 0, the default, puts as many on each as fit: one, or two if a graph has several types
            and a fanout is above 20 or -1. With `schedule="auto"`, prefetched mini-batches use every second
            multiprocessor.
        batches_per_launch: at most this many mini-batches of a group (`CudaSession.begin`) are sampled by one launch,
            or hop by hop by one series of launches. They share the multiprocessors, and are the same as if each were
            sampled by itself.
        reads: how the lists of a graph in pinned memory are read, over the bus. `"naive"`: each pick by itself.
            `"aligned"`: by whole 128-byte lines, each once for all mini-batches of a launch. `"sectors"`: by the same
            lines, but of each only the 32-byte sectors that are needed and those between them, by one request. What was
            read is kept in GPU memory until the launch is done, up to 1 GiB, with a table of 0.5 to 6 % of the lists'
            size. `"auto"`: `"sectors"` for a graph in pinned memory, else `"naive"`. (The names are those of EMOGI,
            VLDB 2020, which reads whole lists and so knows no sectors.) Schedule `hopwise` reads by the line, and
            `cooperative` does for uniform picks with bitmaps. LABOR, and picks by weight without tables, read whole
            lists anyway.
        pad_to_capacity: return `PaddedMiniBatch` objects, whose sizes are upper bounds, so that the host never waits.
            Bad seeds or weights then give an empty mini-batch, and an error at a later call. Fanout -1 is not possible.
            Mini-batches of different numbers of seeds do not share a launch.
        device: the GPU for a graph in pinned memory; by default the current one.
        fanouts, num_hops, options: see `NeighborSampler`.

    Raises:
        RuntimeError: the build or the machine has no CUDA.
        ValueError: an option is out of its range, or options exclude each other; when a graph is opened: the GPU has
            too little shared memory for a fanout (at compute capability 7.5: for fanouts above 768).
    """

    picks = "pick.h"  # of csrc/sampler/, as the CPU's

    def __init__(
        self,
        fanouts: int | Sequence[int] | Mapping[Any, Any] = (),
        num_hops: int | None = None,
        *,
        schedule: str = "auto",
        node_set: str = "auto",
        blocks_per_sm: float = 0,
        batches_per_launch: int = 1,
        reads: str = "auto",
        pad_to_capacity: bool = False,
        device: str | torch.device | None = None,
        **options: Unpack[PickOptions],
    ) -> None:
        if "scan_schedule" in options:
            raise TypeError("scan_schedule was removed in 0.2: all lists are scanned as by 'tickets'; leave it out")
        known = list(inspect.signature(NeighborSampler).parameters)
        check_known(type(self).__name__, options, known, OTHERS_OPTIONS)
        super().__init__(fanouts, num_hops, **options)
        require_cuda("a GPU sampler")
        if schedule in REMOVED_SCHEDULES:
            raise ValueError(f"schedule='{schedule}' was removed in 0.2; take schedule='auto'")
        if schedule != "auto" and schedule not in SCHEDULES:
            raise ValueError(f"schedule is {schedule!r}; it must be one of {['auto', *SCHEDULES]}")
        if node_set != "auto" and node_set not in NODE_SETS:
            raise ValueError(f"node_set is {node_set!r}; it must be one of {['auto', *NODE_SETS]}")
        if not 0 <= as_number("blocks_per_sm", blocks_per_sm) <= 1:
            raise ValueError(f"blocks_per_sm is {blocks_per_sm}; it must be in (0, 1], or 0 for the default")
        most = _core.cuda_max_batches_per_launch
        self.batches_per_launch = as_size("batches_per_launch", batches_per_launch, most=most)
        self.schedule, self.node_set = schedule, node_set
        if reads == "merged":
            raise ValueError("reads='merged' was removed in 0.2; take reads='auto'")
        if reads != "auto" and reads not in READS:
            raise ValueError(f"reads is {reads!r}; it must be one of {['auto', *READS]}")
        if reads not in ("auto", "naive"):
            if self.picking.scans:
                scans = "labor=True" if self.picking.labor else "weight_tables=False"
                raise ValueError(f"reads='{reads}' is for picks, but {scans} reads whole lists; leave reads out")
            if schedule == "cooperative" and (node_set == "hash" or not is_uniform(self)):
                raise ValueError(
                    f"reads='{reads}' goes with schedule='hopwise', and for uniform picks and bitmaps with "
                    f"'cooperative'; schedule is '{schedule}': leave one of them out"
                )
        self.reads = reads
        if pad_to_capacity and -1 in self.fanouts:
            raise ValueError(
                "pad_to_capacity needs an upper bound of the sizes, but fanout -1 has none; give 1 to 1024"
            )
        if self.picking.scans:
            option = "labor=True" if self.picking.labor else "weight_tables=False"
            if schedule == "cooperative" and node_set == "bitmap":
                raise ValueError(
                    f"{option} with node_set='bitmap' takes a launch per phase, but schedule is 'cooperative'; use "
                    "schedule='hopwise', or node_set='hash'"
                )
            if pad_to_capacity and self.picking.labor:
                raise ValueError(
                    "pad_to_capacity needs an upper bound of the sizes, but labor=True has none; leave one of them out"
                )
        self.blocks_per_sm = float(blocks_per_sm)
        self.pad_to_capacity = as_flag("pad_to_capacity", pad_to_capacity)
        self._device = cuda_device(device)

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def asynchronous(self) -> bool:
        return True

    def _moved(self, device: torch.device) -> Self:
        return self._with(_device=cuda_device(device))

    def open(self, graph: AnyGraph) -> CudaSession:
        self.require_open()
        require_graph(graph)
        tell_ignored_times(self, graph)
        if isinstance(graph, HeteroGraph):
            from loader.samplers.gpu.hetero import HeteroCudaSession

            return HeteroCudaSession(self, graph)
        self.require_one_type()
        return CudaSession(self, graph)

    def __repr__(self) -> str:
        return (
            f"CudaSampler(fanouts={list(self.fanouts)}, schedule='{self.schedule}', node_set='{self.node_set}', "
            f"device='{self._device}')"
        )
