"""How large the mini-batches of a GPU sampler become, and what a workspace for them takes. This needs no GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from loader.graph import Graph
from loader.samplers.base import NeighborSampler
from loader.samplers.gpu.layout import Layout
from loader.samplers.gpu.pinned_reads import LINE_BYTES, is_uniform, unit_bytes

HEADROOM = 1.25  # of the capacity of outputs over the largest mini-batch seen
REMOVED_SCHEDULES = ("fused-static", "persistent")  # PGSampler's, named in an error for one release


def with_headroom(n: int) -> int:
    """Room for somewhat more than the most that was seen."""
    return int(HEADROOM * n) + 1024


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

# A hash set for graphs of this many nodes and more, if a mini-batch has room for at most a 48th of them; bitmaps
# elsewhere. On an H200, on the GPU alone (benchmarks/results/sampler_gpu_sets.json): at 10 million nodes bitmaps are
# 1.5 to 4.2 times as fast; at 30 million a hash set is by 1.03, where the mini-batch is small; at 100 million by 1.7 to
# 1.9 unless it has two million nodes; at 400 million always, by 1.6 to 3.6.
HASH_FROM_NODES = 30_000_000
HASH_SPARSITY = 48

# A pipeline's mini-batches that a GPU samples together: it takes it 0.4 times as long as one by one, hop by hop, and
# more bring little (benchmarks/results/sampler_gpu.json, benchmarks/pipeline_gpu.py --batches-per-launch). With trees a
# step on rel-f1 with loading took 2.06 ms in place of 2.19 (one H200, in turns). A sampler that is to take less memory
# takes one: the workspace has room for as many.
TOGETHER = 8

SCHEDULES = {"cooperative": 0, "hopwise": 1}
NODE_SETS = {"bitmap": 0, "hash": 1}
# At most this much GPU memory for the lines of a launch. Eight mini-batches of 2,048 seeds and fanouts (10, 10, 10) ask
# for 340 MB of ogbn-products' 495.
_MOST_STAGED = 2**30
_LINES_PER_EDGE = 0.5  # or sectors, before the first mini-batch told


def choose_node_set(num_nodes: int, room: int) -> str:
    """The kind of node set that is faster for a graph of `num_nodes` and mini-batches of at most `room` nodes."""
    return "hash" if num_nodes >= max(HASH_FROM_NODES, HASH_SPARSITY * room) else "bitmap"


def choose_schedule(edges: float, node_set: str, *, ahead: bool) -> str:
    """The schedule of `auto` for a mini-batch of this many edges.

    With a hash set, a mini-batch that is sampled `ahead`, beside training, takes a launch per phase and hop. Only with
    bitmaps it was measured that one launch costs training no more than this.
    """
    return "hopwise" if edges > _MANY_EDGES or (ahead and node_set == "hash") else "cooperative"


class GpuOptions(NeighborSampler):
    """The options that a session reads, see `CudaSampler`. Itself it samples nothing, and only tells sizes."""

    schedule: str = "auto"
    node_set: str = "auto"
    blocks_per_sm: float = 0
    batches_per_launch: int = 1
    reads: str = "auto"
    pad_to_capacity: bool = False


class Plan(NamedTuple):
    """How mini-batches of some number of seeds are sampled: schedule and node set, room (`L + 1` and `L` elements),
    and number of thread blocks (0: all that are resident at once).
    """

    schedule: str
    node_set: str
    frontiers: list[int]
    edges: list[int]
    layout: Layout
    blocks: int
    rows: list[int] = []  # noqa: RUF012 - of a graph with types, the lists of each hop; nobody changes it

    def has_room_of(self, other: Plan) -> bool:
        """Whether it is of the same kind as `other` and no larger. Then a mini-batch that did not fit there does not
        fit here.
        """
        mine = self.node_set, self.frontiers, self.edges, self.rows
        return mine == (other.node_set, other.frontiers, other.edges, other.rows)


class Sizes:
    """The sizes of a graph's mini-batches: how large they can be, and how large they were so far.

    Args:
        sampler: how to sample.
        graph: only its sizes are read, so its arrays may be meta tensors.
        reads: how lists are read, see `CudaSampler`.
        cached: whether some lists are in GPU memory beside others.
        multiprocessors: of the GPU.

    Attributes:
        graph, reads: as given.
        most_edges: the most edges of a block that the type of `indptr` can count.
        slots: mini-batches that the arrays have room for.
    """

    def __init__(self, sampler: GpuOptions, graph: Graph, reads: str, *, cached: bool, multiprocessors: int) -> None:
        schedule = sampler.schedule
        self.graph, self.schedule, self.node_set, self.reads = graph, schedule, sampler.node_set, reads
        self._uniform = is_uniform(sampler)
        self._by_places = reads != "naive" or cached
        self._fanouts, self._replace, self._labor = sampler.fanouts, sampler.replace, sampler.picking.labor
        self._scans = sampler.picking.scans
        self._edge_ids, self._pad = sampler.edge_ids, sampler.pad_to_capacity
        self._edge_dtype, self._node_dtype = graph.indptr.dtype, graph.indices.dtype
        self.most_edges = torch.iinfo(self._edge_dtype).max
        self.num_nodes = graph.num_src
        self._multiprocessors = multiprocessors
        self._blocks = {
            ahead: max(1, round(share * multiprocessors)) if share else 0
            for ahead, share in (
                (False, sampler.blocks_per_sm),
                (True, sampler.blocks_per_sm or (_SHARE_BESIDE if schedule == "auto" else 0)),
            )
        }
        self._largest: tuple[list[int], list[int]] = ([], [])
        self._most_lines = 0
        self.slots = 1

    @property
    def bounded(self) -> bool:
        """Whether the fanouts bound the size of a mini-batch."""
        return -1 not in self._fanouts and not self._labor  # LABOR picks `k` on average

    def new_plan(self, num_seeds: int, ahead: bool) -> Plan:
        """The plan for mini-batches of up to `num_seeds` seeds, by what is known of their sizes."""
        frontiers, edges = self.capacities(num_seeds, ([], []) if self._pad else self._largest)
        node_set = self._choose_set(frontiers[-1])
        return Plan(
            self._choose(edges, node_set, ahead),
            node_set,
            frontiers,
            edges,
            Layout(frontiers, edges, self._edge_ids, self._node_dtype, self._edge_dtype),
            self._blocks[ahead],
        )

    def asked(self, plan: Plan, num_seeds: int) -> dict[str, Any]:
        """What the extension's `plan` is asked."""
        return {
            "num_seeds": num_seeds,
            "slots": self.slots,
            "schedule": SCHEDULES[plan.schedule],
            "node_set": NODE_SETS[plan.node_set],
            "frontier_capacity": plan.frontiers,
            "edge_capacity": plan.edges,
            "indices_at": plan.layout.indices_at,
            "indptr_at": plan.layout.indptr_at,
            "edge_ids_at": plan.layout.edge_ids_at,
            "edges_at": plan.layout.edges_at,
            "lines": self._lines(plan, num_seeds),
        }

    def capacities(self, num_seeds: int, largest: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
        """Room for the frontiers and the edges of each hop, in elements.

        Args:
            largest: frontiers and edges of the largest mini-batch so far; empty if there was none. Then they are the
                most that is possible, if that is `bounded`.
        """
        n, e = self.num_nodes, self.graph.num_edges
        largest_frontiers, largest_edges = largest
        frontiers, edges = [num_seeds], []
        for h, k in enumerate(self._fanouts):
            # A first guess for "all neighbors" is twice the mean degree; a wrong one is mended by a repetition.
            most_edges = frontiers[-1] * k if k != -1 else min(e, 2 * frontiers[-1] * (e // max(n, 1) + 1))
            if k != -1 and not self._replace:
                most_edges = min(most_edges, e)
            if self._pad and most_edges > self.most_edges:
                raise OverflowError(
                    f"a padded block has room for {most_edges} edges, which exceeds 32-bit edge ids; use a smaller "
                    "batch or smaller fanouts, or pad_to_capacity=False"
                )
            bounded = k != -1 and not self._labor
            if k != -1 and not bounded:
                most_edges = with_headroom(most_edges)
            if h < len(largest_edges):
                learned = with_headroom(largest_edges[h])
                most_edges = min(most_edges, learned) if bounded else learned
            most_edges = min(most_edges, self.most_edges)  # whether there are more, the kernel finds out
            edges.append(most_edges)
            most_nodes = min(n, frontiers[-1] + most_edges)
            if h + 1 < len(largest_frontiers):
                most_nodes = min(most_nodes, with_headroom(largest_frontiers[h + 1]))
            frontiers.append(max(frontiers[-1], most_nodes))  # one array holds them all: it must not shrink
        return frontiers, edges

    def _choose_set(self, room: int) -> str:
        """The node set of a mini-batch with room for this many nodes."""
        if self.node_set != "auto":
            return self.node_set
        if self._scans and self.schedule == "cooperative":  # bitmaps go with a scan only hop by hop
            return "hash"
        if self.schedule == "cooperative" and self._by_places:
            return "bitmap"
        return choose_node_set(self.num_nodes, room)

    def _choose(self, edges: list[int], node_set: str, ahead: bool) -> str:
        """The schedule of a mini-batch with room for this many edges at each hop."""
        if self.schedule != "auto":
            return self.schedule
        if self._by_places and (node_set == "hash" or not self._uniform):
            return "hopwise"
        if self._scans and node_set == "bitmap":
            return "hopwise"
        return choose_schedule(sum(self._largest[1] or edges), node_set, ahead=ahead)

    def _lines(self, plan: Plan, num_seeds: int) -> int:
        """Lines of pinned memory that a launch has room for. What does not fit there is read by the word."""
        if self.reads == "naive":
            return 0
        wanted = int(HEADROOM * self._most_lines) or int(_LINES_PER_EDGE * self.slots * sum(plan.edges))
        unit = unit_bytes(self.reads)
        of_graph = self.graph.indices.nbytes // unit + LINE_BYTES // unit + 1
        lines = min(wanted + 1024, of_graph, _MOST_STAGED // unit)
        if self.bounded:  # a pick asks for one line
            lines = min(lines, self.slots * sum(self.capacities(num_seeds, ([], []))[1]) + 1024)
        return max(1, lines)
