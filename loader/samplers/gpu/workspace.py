"""The GPU sampler's memory for a graph, and the sizes of its mini-batches so far."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, ListCache, require_square
from loader.machine.cpus import available_cpus
from loader.machine.freeing import free_when_done
from loader.machine.gpu import current_stream
from loader.samplers.core_picks import core_picks
from loader.samplers.gpu.lists import choose_reads, indptr_on, list_cache_of
from loader.samplers.gpu.pinned_reads import READS
from loader.samplers.gpu.sizes import HEADROOM, GpuOptions, Plan, Sizes
from loader.samplers.picks import Keys

_HEADERS = 64  # for mini-batches under way: this many more each time that all are taken


class Workspace(Sizes):
    """The arrays of the kernels for one graph on one device, and the sizes of its mini-batches so far.

    Args:
        sampler: how to sample.
        graph: its arrays lie on the sampler's device or in pinned host memory.

    Attributes:
        graph, device: as given.
        engine: the sampler of the extension, set to the last plan.
        reads: how lists are read, see `CudaSampler`; "naive" for those in GPU memory unless something else was asked
            for.
        most_edges: the most edges of a block that the type of `indptr` can count.

    Raises:
        ValueError: the graph lies elsewhere or is bipartite; a fanout is too much for the GPU.
    """

    def __init__(self, sampler: GpuOptions, graph: Graph) -> None:
        self._require(sampler, graph)
        device = sampler.device
        for name, array in (("indptr", graph.indptr), ("indices", graph.indices)):
            if array.device != device and not (array.device.type == "cpu" and array.is_pinned()):
                raise ValueError(
                    f"the graph's {name} lies on {array.device} and is not pinned; a GPU sampler wants it on {device} "
                    f"(graph.to('{device}')) or in pinned memory (graph.pin_memory())"
                )
        cache = list_cache_of(sampler, graph)
        whole, (graph, picks) = graph, core_picks(sampler, graph, available_cpus())
        if cache is not None and graph is not whole:  # without the edges of weight 0
            cache = ListCache(graph, cache.nodes, device)
        multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
        reads = self._choose_reads(sampler, graph)
        super().__init__(sampler, graph, reads, cached=cache is not None, multiprocessors=multiprocessors)
        self.device, self._together = device, sampler.batches_per_launch
        self._indptr, self._cache = indptr_on(graph, device), cache
        self._read: list[Any] = [graph.indices, self._indptr, cache, picks]  # by kernels, beside the arrays
        self.engine = self._make_engine(sampler, graph, picks)
        self._arrays: dict[str, Tensor] = {}
        self._zero: list[str] = []  # those of them that are zero between launches
        self._unclean = False  # they are not: a launch failed
        # Mini-batches that were begun and dropped may still be sampled, and arrays and headers be written then.
        in_use = [self.engine, *self._read]
        self.close = weakref.finalize(self, free_when_done, device, partial(_free, self._arrays, in_use))
        self.close.atexit = False
        self._stream = current_stream(device.index)
        self._plans: dict[tuple[int, bool], Plan] = {}
        self._planned: Plan | None = None
        self._graph_edge_ids: Tensor | None = None

    def _require(self, sampler: GpuOptions, graph: Graph) -> None:
        """Raises ValueError if the kernels do not sample such a graph, or not with these options."""
        require_square(graph, "CudaSampler")

    def _header_bytes(self) -> int:
        return _core.cuda_header_bytes

    def _choose_reads(self, sampler: GpuOptions, graph: Graph) -> str:
        return choose_reads(sampler, graph)

    def _make_engine(self, sampler: GpuOptions, graph: Graph, picks: Any) -> Any:
        """The extension's sampler of this graph. `picks`: see `core_picks`."""
        edge_bits, node_bits = (8 * t.itemsize for t in (self._edge_dtype, self._node_dtype))
        make: Any = getattr(_core, f"CudaSampler_i{edge_bits}_i{node_bits}")
        cache = self._cache
        return make(
            self._indptr,
            graph.indices,
            fanouts=self._fanouts,
            replace=self._replace,
            edge_ids=self._edge_ids,
            pad=self._pad,
            device=self.device.index or 0,
            picks=picks,
            reads=READS[self.reads],
            **({} if cache is None else {"cached_begins": cache.begins, "cached_entries": cache.entries}),
        )

    def plan(self, num_seeds: int, together: int, stream: torch.cuda.Stream, ahead: bool) -> Plan:
        """The plan for mini-batches of up to `num_seeds` seeds, `together` of them per launch. Sets the engine to it.

        `stream` is the current one, which the launch is put on. `ahead`: other work runs beside it.
        """
        if stream is not self._stream:  # the arrays are there once: what the last stream holds comes first
            stream.wait_stream(self._stream)
            self._stream = stream
        if self._unclean:
            for name in self._zero:
                self._arrays[name].zero_()
            self._unclean = False
        if together > self.slots:  # room for as many as a launch may have, once one has more than one of them
            self.slots, self._planned = self._together, None
        plan = self._plans.get((num_seeds, ahead))
        if plan is None:
            plan = self._plans[num_seeds, ahead] = self.new_plan(num_seeds, ahead)
        if plan is not self._planned:
            self._planned = None  # the engine's settings change from here on, and making room may fail
            arrays = self.engine.plan(**self.asked(plan, num_seeds))
            self._make_arrays(arrays)
            self.engine.use(self._arrays)
            self._planned = plan
        return plan

    def launch(
        self, batches: list[tuple[Tensor, Keys, Tensor, Tensor | None]], plan: Plan
    ) -> tuple[int, Sequence[Any]]:
        """Launches mini-batches by the plan. Returns the number of kernels, and the functions that finish each
        mini-batch.
        """
        if self.engine.free_headers < len(batches):
            size = _HEADERS * self._header_bytes()
            self.engine.add_headers(torch.zeros(size, dtype=torch.uint8, pin_memory=True))
        try:
            launched: tuple[int, Sequence[Any]] = self.engine.launch(batches, plan.blocks, self._stream.cuda_stream)
        except BaseException:
            self._unclean = True
            raise
        return launched

    def _make_arrays(self, arrays: list[tuple[str, str, int, bool]]) -> None:
        """Those that the engine asks for; those that have another length now are let go of."""
        self._zero = [name for name, _, _, zero in arrays if zero]
        wanted = {name: length for name, _, length, _ in arrays}
        others = [name for name, held in self._arrays.items() if held.numel() != wanted[name]]
        if others:
            # Kernels may use them. They are waited for, so that the memory is free before more is taken: otherwise a
            # budget of memory would have to count both. This happens a few times in a session.
            self._stream.synchronize()
        for name in others:
            del self._arrays[name]
        for name, dtype, length, zero in arrays:
            if name not in self._arrays:
                make = torch.zeros if zero else torch.empty
                with torch.inference_mode(False):  # so that they can be cleared outside of it
                    self._arrays[name] = make(length, dtype=getattr(torch, dtype), device=self.device)

    def learn(self, frontiers: list[int], edges: list[int], lines: int, *, did_fit: bool) -> None:
        """Remembers the largest sizes so far. Of a mini-batch that did not fit, these are the sizes of its first
        hops.
        """
        if not self._largest[0] or not did_fit:
            self._plans.clear()
            self._planned = None
        if lines > HEADROOM * self._most_lines:
            self._planned = None  # there may be room for more
        self._most_lines = max(self._most_lines, lines)
        for most, sizes in zip(self._largest, (frontiers, edges), strict=True):
            most += [0] * (len(sizes) - len(most))
            most[: len(sizes)] = map(max, most, sizes)

    def learn_rows(self, rows: Sequence[int]) -> None:
        """Remembers how many lists the hops looked at, of a graph with types."""

    def edge_ids(self) -> Tensor:
        """The graph's edge ids on the device."""
        if self._graph_edge_ids is None:
            assert self.graph.edge_ids is not None
            self._graph_edge_ids = self.graph.edge_ids.to(self.device)
        return self._graph_edge_ids


def _free(arrays: dict[str, Tensor], in_use: list[Any]) -> None:
    arrays.clear()
    in_use.clear()
