"""The GPU sampler's memory for a graph, and the sizes of its mini-batches so far."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, ListCache, require_square
from loader.machine.cpus import available_cpus
from loader.machine.gpu import current_stream
from loader.samplers.base import NeighborSampler
from loader.samplers.gpu.layout import Layout
from loader.samplers.gpu.lists import LINE_BYTES, READS, choose_reads, indptr_on, is_uniform, list_cache_of, unit_bytes
from loader.samplers.picks import Keys, core_picks

_HEADERS = 64  # for mini-batches under way: this many more each time that all are taken
_WARPS_PER_BLOCK = 16
_HEADROOM = 1.25  # of the capacity of outputs over the largest mini-batch seen
QUEUES = ("fused-static", "persistent")  # schedules

# Of the multiprocessors, for mini-batches that are sampled beside other work. Training and sampling take turns on a
# multiprocessor rather than share it, and sampling waits for memory most of the time: half of them cost training less
# than all for a shorter while. In one run on an H200, the loop of benchmarks/pipeline_gpu.py with several
# --blocks-per-sm in turns, an epoch took longer than training by itself, with fanouts (15, 10, 5) and (10, 10, 10), by
# 4.0 and 5.5 % with all, 4.0 and 4.7 with three quarters, 3.5 and 4.2 with half, 4.4 and 5.8 with a quarter.
_SHARE_BESIDE = 0.5

# Above this many edges per mini-batch it is mostly faster to write blocks in order than to order them afterwards: the
# choice that costs least over the settings of benchmarks/results/sampler_gpu_paper.json (whole sampling), 0.4 % more
# than the better one, and 11 % at worst.
_MANY_EDGES = 1_500_000

# A hash set for graphs of this many vertices and more, if a mini-batch has room for at most a 48th of them; bitmaps
# elsewhere. On an H200, on the GPU alone (benchmarks/results/sampler_gpu_sets.json): at 10 million vertices bitmaps are
# 1.5 to 4.2 times as fast; at 30 million a hash set is by 1.03, where the mini-batch is small; at 100 million by 1.7 to
# 1.9 unless it has two million vertices; at 400 million always, by 1.6 to 3.6.
_HASH_FROM_VERTICES = 30_000_000
_HASH_SPARSITY = 48

SCHEDULES = {"cooperative": 0, "hopwise": 1, "fused-static": 2, "persistent": 3}
VERTEX_SETS = {"bitmap": 0, "hash": 1}
SCAN_SCHEDULES = {"nodes": 0, "split": 1, "tickets": 2, "merge_path": 3}
# At most this much GPU memory for the lines of a launch. Eight mini-batches of 2,048 seeds and fanouts (10, 10, 10) ask
# for 340 MB of ogbn-products' 495.
_MOST_STAGED = 2**30
_LINES_PER_EDGE = 0.5  # or sectors, before the first mini-batch told


def choose_vertex_set(num_nodes: int, room: int) -> str:
    """The kind of vertex set that is faster for a graph of `num_nodes` and mini-batches of at most `room` vertices."""
    return "hash" if num_nodes >= max(_HASH_FROM_VERTICES, _HASH_SPARSITY * room) else "bitmap"


def choose_schedule(edges: float, vertex_set: str, *, ahead: bool) -> str:
    """The schedule of `auto` for a mini-batch of this many edges.

    With a hash set, a mini-batch that is sampled `ahead`, beside training, takes a launch per phase and hop. Only with
    bitmaps it was measured that one launch costs training no more than this.
    """
    return "hopwise" if edges > _MANY_EDGES or (ahead and vertex_set == "hash") else "cooperative"


class GpuOptions(NeighborSampler):
    """The options that a session reads, see `CudaSampler`."""

    schedule: str
    vertex_set: str
    scan_schedule: str
    blocks_per_sm: float
    batches_per_launch: int
    reads: str
    pad_to_capacity: bool


class Plan(NamedTuple):
    """How mini-batches of some number of seeds are sampled: schedule and vertex set, room (`L + 1` and `L` elements),
    and number of thread blocks (0: all that are resident at once).
    """

    schedule: str
    vertex_set: str
    frontiers: list[int]
    edges: list[int]
    layout: Layout
    blocks: int

    def has_room_of(self, other: Plan) -> bool:
        """Whether it is of the same kind as `other` and no larger. Then a mini-batch that did not fit there does not
        fit here.
        """
        return (self.vertex_set, self.frontiers, self.edges) == (other.vertex_set, other.frontiers, other.edges)


class Workspace:
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
        ValueError: the graph lies elsewhere, is bipartite, or is too large for a queue's tasks; a fanout is too
            much for the GPU.
    """

    def __init__(self, sampler: GpuOptions, graph: Graph) -> None:
        require_square(graph, "CudaSampler")
        device, schedule = sampler.device, sampler.schedule
        for name, array in (("indptr", graph.indptr), ("indices", graph.indices)):
            if array.device != device and not (array.device.type == "cpu" and array.is_pinned()):
                raise ValueError(
                    f"the graph's {name} lies on {array.device} and is not pinned; a GPU sampler wants it on {device} "
                    f"(graph.to('{device}')) or in pinned memory (graph.pin_memory())"
                )
        cache = list_cache_of(sampler, graph)
        whole, (graph, picks) = graph, core_picks(sampler, graph, available_cpus())
        if cache is not None and graph is not whole:  # without the edges of weight 0
            cache = ListCache(graph, cache.vertices, device)
        if schedule in QUEUES and graph.num_nodes > _core.cuda_max_task_vertices:
            raise ValueError(
                f"the graph has {graph.num_nodes} vertices; a task of schedule='{schedule}' holds ids below "
                f"{_core.cuda_max_task_vertices}: use schedule='cooperative'"
            )
        self.graph, self.device, self.schedule, self.vertex_set = graph, device, schedule, sampler.vertex_set
        self.reads, self._uniform = choose_reads(sampler, graph), is_uniform(sampler)
        self._by_places = self.reads != "naive" or cache is not None
        self._fanouts, self._replace, self._labor = sampler.fanouts, sampler.replace, sampler.picking.labor
        self._scans = sampler.picking.scans
        self._picks = picks  # keeps the arrays that the kernels read
        self._edge_ids, self._pad, self._together = (
            sampler.edge_ids,
            sampler.pad_to_capacity,
            sampler.batches_per_launch,
        )
        self._edge_dtype, self._node_dtype = graph.indptr.dtype, graph.indices.dtype
        self.most_edges = torch.iinfo(self._edge_dtype).max
        multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
        self._blocks = {
            ahead: max(1, round(share * multiprocessors)) if share else 0
            for ahead, share in (
                (False, sampler.blocks_per_sm),
                (True, sampler.blocks_per_sm or (_SHARE_BESIDE if schedule == "auto" else 0)),
            )
        }
        self._warps = (self._blocks[False] or multiprocessors) * _WARPS_PER_BLOCK
        edge_bits, node_bits = (8 * t.itemsize for t in (self._edge_dtype, self._node_dtype))
        make_engine: Any = getattr(_core, f"CudaSampler_i{edge_bits}_i{node_bits}")
        self._indptr = indptr_on(graph, device)  # kept, as the kernels read it
        self.engine = make_engine(
            self._indptr,
            graph.indices,
            fanouts=self._fanouts,
            replace=self._replace,
            edge_ids=self._edge_ids,
            pad=self._pad,
            device=device.index or 0,
            picks=picks,
            scan=SCAN_SCHEDULES[sampler.scan_schedule],
            reads=READS[self.reads],
            **({} if cache is None else {"cached_begins": cache.begins, "cached_entries": cache.entries}),
        )
        self._cache = cache  # kept, as the kernels read it
        self._arrays: dict[str, Tensor] = {}
        self._zero: list[str] = []  # those of them that are zero between launches
        self._unclean = False  # they are not: a launch failed
        # Mini-batches that were begun and dropped may still be sampled, and arrays and headers be written then.
        self.close = weakref.finalize(self, _free, device, self._arrays, [self.engine])
        self.close.atexit = False
        self._stream = current_stream(device.index)
        self._largest: tuple[list[int], list[int]] = ([], [])
        self._most_tasks = self._most_lines = 0
        self._plans: dict[tuple[int, bool], Plan] = {}
        self._planned: Plan | None = None
        self._slots = 1  # mini-batches that the arrays have room for
        self._graph_edge_ids: Tensor | None = None

    def plan(self, num_seeds: int, together: int, stream: torch.cuda.Stream, ahead: bool) -> Plan:
        """The plan for mini-batches of up to `num_seeds` seeds, `together` of them per launch. Sets the engine to it.

        `stream` is the current one, and that of the launch. `ahead` as in `_choose`.
        """
        if stream is not self._stream:  # the arrays are there once: what the last stream holds comes first
            stream.wait_stream(self._stream)
            self._stream = stream
        if self._unclean:
            for name in self._zero:
                self._arrays[name].zero_()
            self._unclean = False
        if together > self._slots:  # room for as many as a launch may have, once one has more than one of them
            self._slots, self._planned = self._together, None
        plan = self._plans.get((num_seeds, ahead))
        if plan is None:
            frontiers, edges = self._capacities(num_seeds)
            vertex_set = self._choose_set(frontiers[-1])
            plan = self._plans[num_seeds, ahead] = Plan(
                self._choose(edges, vertex_set, ahead),
                vertex_set,
                frontiers,
                edges,
                Layout(frontiers, edges, self._edge_ids, self._node_dtype, self._edge_dtype),
                self._blocks[ahead],
            )
        if plan is not self._planned:
            self._planned = None  # the engine's settings change from here on, and making room may fail
            arrays = self.engine.plan(
                num_seeds=num_seeds,
                slots=self._slots,
                schedule=SCHEDULES[plan.schedule],
                vertex_set=VERTEX_SETS[plan.vertex_set],
                frontier_capacity=plan.frontiers,
                edge_capacity=plan.edges,
                indices_at=plan.layout.indices_at,
                indptr_at=plan.layout.indptr_at,
                edge_ids_at=plan.layout.edge_ids_at,
                edges_at=plan.layout.edges_at,
                tasks=self._tasks(plan, num_seeds),
                lines=self._lines(plan),
            )
            self._make_arrays(arrays)
            self.engine.use(self._arrays)
            self._planned = plan
        return plan

    def launch(self, batches: list[tuple[int, int, Keys, int, int]], plan: Plan) -> tuple[int, Sequence[Any]]:
        """Launches mini-batches by the plan. Returns the number of kernels, and the functions that finish each
        mini-batch.
        """
        if self.engine.free_headers < len(batches):
            size = _HEADERS * _core.cuda_header_bytes
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
        for name in [name for name, held in self._arrays.items() if held.numel() != wanted[name]]:
            # A kernel on the last stream may use it: it is given to others only when that is done.
            self._arrays.pop(name).record_stream(self._stream)
        for name, dtype, length, zero in arrays:
            if name not in self._arrays:
                make = torch.zeros if zero else torch.empty
                self._arrays[name] = make(length, dtype=getattr(torch, dtype), device=self.device)

    def _choose_set(self, room: int) -> str:
        """The vertex set of a mini-batch with room for this many vertices."""
        if self.vertex_set != "auto":
            return self.vertex_set
        if self._scans:
            return "hash"
        # These have only bitmaps.
        if self.schedule in QUEUES or (self.schedule == "cooperative" and self._by_places):
            return "bitmap"
        return choose_vertex_set(self.graph.num_nodes, room)

    def _choose(self, edges: list[int], vertex_set: str, ahead: bool) -> str:
        """The schedule of a mini-batch with room for this many edges at each hop."""
        if self.schedule != "auto":
            return self.schedule
        if self._by_places and (vertex_set == "hash" or not self._uniform):
            return "hopwise"
        return choose_schedule(sum(self._largest[1] or edges), vertex_set, ahead=ahead)

    def _capacities(self, num_seeds: int) -> tuple[list[int], list[int]]:
        """Room for the frontiers and the edges of each hop, in elements."""
        n, e = self.graph.num_nodes, self.graph.num_edges
        largest_frontiers, largest_edges = ([], []) if self._pad else self._largest
        frontiers, edges = [num_seeds], []
        for h, k in enumerate(self._fanouts):
            # A first guess for "all neighbours" is twice the mean degree; a wrong one is mended by a repetition.
            most_edges = frontiers[-1] * k if k != -1 else min(e, 2 * frontiers[-1] * (e // max(n, 1) + 1))
            if k != -1 and not self._replace:
                most_edges = min(most_edges, e)
            if self._pad and most_edges > self.most_edges:
                raise OverflowError(
                    f"a padded block has room for {most_edges} edges, which exceeds 32-bit edge ids; use a smaller "
                    "batch or smaller fanouts, or pad_to_capacity=False"
                )
            bounded = k != -1 and not self._labor  # LABOR picks `k` on average
            if k != -1 and not bounded:
                most_edges = int(_HEADROOM * most_edges) + 1024
            if h < len(largest_edges):
                learned = int(_HEADROOM * largest_edges[h]) + 1024
                most_edges = min(most_edges, learned) if bounded else learned
            most_edges = min(most_edges, self.most_edges)  # whether there are more, the kernel finds out
            edges.append(most_edges)
            most_nodes = min(n, frontiers[-1] + most_edges)
            if h + 1 < len(largest_frontiers):
                most_nodes = min(most_nodes, int(_HEADROOM * largest_frontiers[h + 1]) + 1024)
            frontiers.append(max(frontiers[-1], most_nodes))  # one array holds them all: it must not shrink
        return frontiers, edges

    def _tasks(self, plan: Plan, num_seeds: int) -> int:
        """Slots of a queue: a task for each vertex and hop, the seeds' own made twice at most, and parts of hubs."""
        if self.schedule not in QUEUES:
            return 0
        tasks = sum(plan.frontiers[1:-1]) + num_seeds * len(self._fanouts)
        tasks += sum(n // _core.cuda_part_edges + 1 for n, k in zip(plan.edges, self._fanouts, strict=True) if k == -1)
        if self.schedule == "fused-static":  # warps leave the ends of their chunks unused
            tasks += tasks // 2 + 512 * self._warps
        return max(tasks, int(_HEADROOM * self._most_tasks) + 1024)

    def _lines(self, plan: Plan) -> int:
        """Lines of pinned memory that a launch has room for. What does not fit there is read by the word."""
        if self.reads == "naive":
            return 0
        wanted = int(_HEADROOM * self._most_lines) or int(_LINES_PER_EDGE * self._slots * sum(plan.edges))
        unit = unit_bytes(self.reads)
        of_graph = self.graph.indices.nbytes // unit + LINE_BYTES // unit + 1
        return max(1, min(wanted + 1024, of_graph, _MOST_STAGED // unit))

    def learn(self, frontiers: list[int], edges: list[int], tasks: int, lines: int, *, did_fit: bool) -> None:
        """Remembers the largest sizes so far. Of a mini-batch that did not fit, these are the sizes of its first
        hops.
        """
        if not self._largest[0] or not did_fit:
            self._plans.clear()
            self._planned = None
        self._most_tasks = max(self._most_tasks, tasks)
        if lines > _HEADROOM * self._most_lines:
            self._planned = None  # there may be room for more
        self._most_lines = max(self._most_lines, lines)
        for most, sizes in zip(self._largest, (frontiers, edges), strict=True):
            most += [0] * (len(sizes) - len(most))
            most[: len(sizes)] = map(max, most, sizes)

    def edge_ids(self) -> Tensor:
        """The graph's edge ids on the device."""
        if self._graph_edge_ids is None:
            assert self.graph.edge_ids is not None
            self._graph_edge_ids = self.graph.edge_ids.to(self.device)
        return self._graph_edge_ids


def _free(device: torch.device, arrays: dict[str, Tensor], engine: list[Any]) -> None:
    torch.cuda.synchronize(device)
    arrays.clear()
    engine.clear()
