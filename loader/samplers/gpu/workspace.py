"""What the GPU sampler keeps for a graph: device memory, and what it learned of the sizes of mini-batches."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.gpu import current_stream
from loader.samplers.gpu.layout import Layout

HEADERS = 64  # mini-batches that may be begun and not finished
_HEADROOM = 1.25  # of the capacity of outputs over the largest mini-batch seen
QUEUES = ("fused-static", "persistent")  # schedules

# Above so many edges a mini-batch, writing blocks in order at once is mostly faster than ordering them afterwards: the
# choice that costs least over the settings of benchmarks/results/sampler_gpu_paper.json (whole sampling), 0.4 % more
# than the better one, and 11 % at worst.
_MANY_EDGES = 1_500_000

# A hash set for graphs of so many vertices and more, if a mini-batch has room for at most a 48th of them; bitmaps
# elsewhere. On an H200, on the GPU alone (benchmarks/results/sampler_gpu_sets.json): at 10 million vertices bitmaps are
# 1.5 to 4.2 times as fast; at 30 million a hash set is by 1.03, where the mini-batch is small; at 100 million by 1.7 to
# 1.9 unless it has two million vertices; at 400 million always, by 1.6 to 3.6.
_HASH_FROM_VERTICES = 30_000_000
_HASH_SPARSITY = 48

SCHEDULES = {"cooperative": 0, "hopwise": 1, "fused-static": 2, "persistent": 3}
VERTEX_SETS = {"bitmap": 0, "hash": 1}


def choose_vertex_set(num_nodes: int, room: int) -> str:
    """The kind of vertex set that is faster for a graph of `num_nodes` and mini-batches of at most `room` vertices."""
    return "hash" if num_nodes >= max(_HASH_FROM_VERTICES, _HASH_SPARSITY * room) else "bitmap"


def choose_schedule(edges: float, *, ahead: bool) -> str:
    """The schedule of `auto` for a mini-batch of so many edges.

    One that is sampled `ahead`, beside other work on the GPU, does not ask for all multiprocessors at once: that keeps
    others from using those that are free already (benchmarks/pipeline_gpu.py --schedule shows it).
    """
    return "hopwise" if ahead or edges > _MANY_EDGES else "cooperative"


class Plan(NamedTuple):
    """How mini-batches of a number of seeds are sampled: by what, and with how much room, `L + 1` and `L` elements."""

    schedule: str
    vertex_set: str
    frontiers: list[int]
    edges: list[int]
    layout: Layout

    def has_room_of(self, other: Plan) -> bool:
        """Whether it is no larger than `other`, and of its kind: what did not fit there does not fit here."""
        return (self.vertex_set, self.frontiers, self.edges) == (other.vertex_set, other.frontiers, other.edges)


class Workspace:
    """What belongs to one graph on one device: sets, local ids, and the sizes of mini-batches so far.

    Args:
        graph: its arrays lie on `device` or in pinned host memory.
        device: the GPU.
        schedule: a key of `SCHEDULES`, or `"auto"`.
        vertex_set: a key of `VERTEX_SETS`, or `"auto"`.
        fanouts, replace, edge_ids, pad: of all mini-batches.
        batches: most mini-batches of one launch, each with arrays of its own from the first launch of several on.
        warps: of a launch; a queue has room for what each leaves unused.

    Attributes:
        engine: the sampler of the extension, set to the last plan.

    Raises:
        ValueError: the graph lies elsewhere, or is too large for a queue's tasks.
    """

    def __init__(
        self,
        graph: Graph,
        device: torch.device,
        schedule: str,
        vertex_set: str,
        fanouts: tuple[int, ...],
        *,
        replace: bool,
        edge_ids: bool,
        pad: bool,
        batches: int,
        warps: int,
    ) -> None:
        for name, array in (("indptr", graph.indptr), ("indices", graph.indices)):
            if array.device != device and not (array.device.type == "cpu" and array.is_pinned()):
                raise ValueError(
                    f"the graph's {name} lies on {array.device} and is not pinned; a GPU sampler wants it on {device} "
                    f"(graph.to('{device}')) or in pinned memory (graph.pin_memory())"
                )
        if schedule in QUEUES and graph.num_nodes > _core.cuda_max_task_vertices:
            raise ValueError(
                f"the graph has {graph.num_nodes} vertices; a task of schedule='{schedule}' holds ids below "
                f"{_core.cuda_max_task_vertices}: use schedule='cooperative'"
            )
        self.graph, self.device, self.schedule, self.vertex_set = graph, device, schedule, vertex_set
        self._fanouts, self._replace, self._edge_ids, self._pad = fanouts, replace, edge_ids, pad
        self._batches, self._warps = batches, warps
        self._edge_dtype, self._node_dtype = graph.indptr.dtype, graph.indices.dtype
        edge_bits, node_bits = (8 * t.itemsize for t in (self._edge_dtype, self._node_dtype))
        self._tensors = [
            torch.empty(batches * _core.cuda_workspace_totals, dtype=torch.int32, device=device),
            torch.zeros(batches * _core.cuda_state_bytes, dtype=torch.uint8, device=device),
            torch.zeros(HEADERS * _core.cuda_header_bytes, dtype=torch.uint8, pin_memory=True),
        ]
        make_engine: Any = getattr(_core, f"CudaSampler_i{edge_bits}_i{node_bits}")
        self.engine = make_engine(
            graph.indptr.data_ptr(),
            graph.indices.data_ptr(),
            graph.num_nodes,
            *(t.data_ptr() for t in self._tensors),
            HEADERS,
        )
        self._bitmaps: list[Tensor] = []  # sets and local ids, from the first plan with them on
        self._arrays: dict[str, Tensor] = {}
        self._hashed = False  # there was a plan with a hash set
        # Mini-batches that were begun and dropped may still be sampled, and the headers be written then.
        weakref.finalize(self, _free, device, self._tensors, self._bitmaps, self._arrays).atexit = False
        self._sizes: tuple[int, ...] = ()
        self._stream = current_stream(device.index)
        self._largest: tuple[list[int], list[int]] = ([], [])
        self._most_tasks = 0
        self._plans: dict[tuple[int, bool], Plan] = {}
        self._planned: Plan | None = None
        self._slots = 1  # mini-batches that the arrays have room for
        self._graph_edge_ids: Tensor | None = None

    def plan(self, num_seeds: int, together: int, *, ahead: bool) -> Plan:
        """The plan for mini-batches of up to `num_seeds`, `together` of them in one launch, with the engine set to it.

        `ahead` as in `_choose`.
        """
        if together > self._slots:
            self._make_slots()
        plan = self._plans.get((num_seeds, ahead))
        if plan is None:
            frontiers, edges = self._capacities(num_seeds)
            plan = self._plans[num_seeds, ahead] = Plan(
                self._choose(edges, ahead),
                self._choose_set(frontiers[-1]),
                frontiers,
                edges,
                Layout(frontiers, edges, self._edge_ids, self._node_dtype, self._edge_dtype),
            )
        if plan is not self._planned:
            self._planned = None  # the engine's settings change from here on, and making room may fail
            sizes = self.engine.plan(
                self._fanouts,
                self._replace,
                self._pad,
                plan.frontiers,
                plan.edges,
                plan.layout.indices_at,
                plan.layout.indptr_at,
                plan.layout.edge_ids_at,
                num_seeds,
                self._tasks(plan, num_seeds),
                SCHEDULES[plan.schedule],
                VERTEX_SETS[plan.vertex_set],
            )
            self._make_room(sizes)
            if plan.vertex_set == "hash":
                self._use_hash()
            else:
                self._use_bitmaps()
            self._planned = plan
        return plan

    def _make_slots(self) -> None:
        """Room for as many mini-batches as a launch may have, once one has more than one of them."""
        self._slots = self._batches
        self._may_be_in_use((*self._arrays.values(), *self._bitmaps))
        self._arrays.clear()
        self._bitmaps.clear()
        self._sizes, self._planned = (), None

    def _may_be_in_use(self, memory: Iterable[Tensor]) -> None:
        """By a kernel on the last stream: let go of after this, it is given to others only when that is done."""
        for used in memory:
            used.record_stream(self._stream)

    def _make_room(self, sizes: tuple[int, ...]) -> None:
        """Arrays at least as large as the plan wants them."""
        if not self._sizes or any(new > old for new, old in zip(sizes, self._sizes, strict=True)):
            self._may_be_in_use(self._arrays.values())
            sizes = tuple(map(max, sizes, self._sizes)) if self._sizes else sizes
            rows, tasks, picks_at, picks, table, found = (self._slots * n for n in sizes)

            def array(length: int, dtype: torch.dtype, *, zero: bool = False) -> Tensor:
                return (torch.zeros if zero else torch.empty)(length, dtype=dtype, device=self.device)

            arrays = {
                "row_begin": array(rows, self._edge_dtype),
                "row_degree": array(rows, torch.int32),
                "list": array(rows if self.schedule in ("auto", "cooperative") else 0, self._node_dtype),
                "tasks": array(tasks, torch.int64, zero=True),
                "picks_at": array(picks_at, torch.int32),
                "picks": array(picks, self._node_dtype),
                "positions": array(picks if self._edge_ids else 0, self._edge_dtype),
                "keys": array(table, self._node_dtype, zero=True),
                "local": array(table, self._node_dtype),
                "found": array(found, self._node_dtype),
                "places": array(found, torch.int32),
                "offsets": array(found, torch.int32),
                # Read in packs, the last of which may reach beyond what was written; nothing is made of that.
                "grouped": array(found, self._node_dtype, zero=True),
                "grouped_place": array(found, torch.int32),
                "counts": array(self._slots * _core.cuda_ranges if found else 0, torch.int32, zero=True),
                "begins": array(self._slots * _core.cuda_range_begins if found else 0, torch.int32),
            }
            self._arrays.clear()
            self._arrays.update(arrays)
            self._sizes = sizes
        rows, tasks, _, picks, _, _ = self._sizes
        a = {name: held.data_ptr() for name, held in self._arrays.items()}
        self.engine.use(
            a["row_begin"],
            a["row_degree"],
            a["list"],
            rows,
            a["tasks"],
            tasks,
            a["picks_at"],
            a["picks"],
            a["positions"],
            picks,
        )

    def _use_bitmaps(self) -> None:
        """A bit for each vertex and hop, their ranks, and a local id a vertex. A plan with a hash set does without."""
        n = self.graph.num_nodes
        words = _core.cuda_bitmap_entries(n, len(self._fanouts))
        if not self._bitmaps:
            self._bitmaps += (
                torch.zeros(max(self._slots * words, 1), dtype=torch.int32, device=self.device),
                torch.empty(self._slots * max(n, 1), dtype=self._node_dtype, device=self.device),
            )
        bitmaps, local = self._bitmaps
        self.engine.use_bitmaps(bitmaps.data_ptr(), words, local.data_ptr())

    def _use_hash(self) -> None:
        if not self._hashed:  # the first guess of a mini-batch's size, which is too high, may have taken bitmaps
            self._hashed = True
            self._may_be_in_use(self._bitmaps)
            self._bitmaps.clear()
        *_, table, found = self._sizes
        a = {name: held.data_ptr() for name, held in self._arrays.items()}
        self.engine.use_hash(
            a["keys"],
            a["local"],
            table,
            a["found"],
            a["places"],
            a["offsets"],
            a["grouped"],
            a["grouped_place"],
            found,
            a["counts"],
            a["begins"],
        )

    def _choose_set(self, room: int) -> str:
        """The vertex set of a mini-batch with room for so many vertices."""
        if self.vertex_set != "auto":
            return self.vertex_set
        if self.schedule in QUEUES:  # which know bitmaps alone
            return "bitmap"
        return choose_vertex_set(self.graph.num_nodes, room)

    def _choose(self, edges: list[int], ahead: bool) -> str:
        """The schedule of a mini-batch with room for so many edges at each hop."""
        if self.schedule != "auto":
            return self.schedule
        return choose_schedule(sum(self._largest[1] or edges), ahead=ahead)

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
            if h < len(largest_edges):
                learned = int(_HEADROOM * largest_edges[h]) + 1024
                most_edges = learned if k == -1 else min(most_edges, learned)
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

    def learn(self, frontiers: list[int], edges: list[int], tasks: int, *, did_fit: bool) -> None:
        """Remembers the largest sizes seen (of a mini-batch that did not fit: those of its first hops)."""
        if not self._largest[0] or not did_fit:
            self._plans.clear()
            self._planned = None
        self._most_tasks = max(self._most_tasks, tasks)
        for most, sizes in zip(self._largest, (frontiers, edges), strict=True):
            most += [0] * (len(sizes) - len(most))
            most[: len(sizes)] = map(max, most, sizes)

    def edge_ids(self) -> Tensor:
        """The graph's edge ids on the device."""
        if self._graph_edge_ids is None:
            assert self.graph.edge_ids is not None
            self._graph_edge_ids = self.graph.edge_ids.to(self.device)
        return self._graph_edge_ids

    def wait_for_last_use(self, stream: torch.cuda.Stream) -> None:
        """The workspace is one: a mini-batch on another stream waits for what the last one's stream holds."""
        if stream is not self._stream:
            stream.wait_stream(self._stream)
            self._stream = stream


def _free(device: torch.device, *memory: list[Tensor] | dict[str, Tensor]) -> None:
    torch.cuda.synchronize(device)
    for held in memory:
        held.clear()
