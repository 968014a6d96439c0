"""The GPU sampler: all hops of a mini-batch in one launch, bit-identical to the CPU's."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.gpu import cuda_device, current_stream, made_current, require_cuda
from loader.samplers.base import NeighborSampler, Request, Session, as_seeds, check_position
from loader.samplers.gpu.layout import Sampled, SampledBlock
from loader.samplers.gpu.workspace import HEADERS, QUEUES, SCHEDULES, VERTEX_SETS, Plan, Workspace
from loader.samples import Block, MiniBatch

__all__ = ["SCHEDULES", "VERTEX_SETS", "CudaSampler", "PaddedMiniBatch"]

_OK, _OVERFLOW, _SEED_RANGE, _SEED_DUPLICATE = range(4)
_WARPS_PER_BLOCK = 16

# Of the multiprocessors, for what is begun ahead of other work. Training and sampling take turns on a multiprocessor
# rather than share it, and sampling waits for memory most of the time: half of them cost training less than all for a
# shorter while. In one run on an H200, the loop of benchmarks/pipeline_gpu.py with several --blocks-per-sm in turns, an
# epoch took longer than training alone, with fanouts (15, 10, 5) and (10, 10, 10), by 4.0 and 5.5 % with all, 4.0 and
# 4.7 with three quarters, 3.5 and 4.2 with half, 4.4 and 5.8 with a quarter.
_SHARE_BESIDE = 0.5


@dataclass(eq=False)
class PaddedMiniBatch(MiniBatch):
    """A mini-batch in arrays of fixed size, for which the host waited for nothing (`pad_to_capacity`).

    Its numbers of vertices and edges are upper bounds. What is added reaches none of the seeds: vertex 0 at the end
    of `nodes`, rows without edges, edges of no row. So a model gives the seeds what it gives them on `trim()`.

    Attributes:
        sizes: `[2 L + 1]` int64 on the GPU, the true sizes: the frontiers, then the edges of each hop.
    """

    sizes: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """All tensors, `sizes` last."""
        return super().tensors() + ([] if self.sizes is None else [self.sizes])

    def memory(self) -> list[Tensor]:
        return super().memory() + ([] if self.sizes is None else [self.sizes])

    def trim(self) -> MiniBatch:
        """The sampled mini-batch without what was added, and without features and labels. Waits for its sizes."""
        assert self.sizes is not None
        hops = len(self.blocks)
        sizes = self.sizes.tolist()
        frontiers, edges = sizes[: hops + 1], sizes[hops + 1 :]
        blocks = []
        for h, block in zip(range(hops - 1, -1, -1), self.blocks, strict=True):
            blocks.append(
                Block(
                    block.indptr[: frontiers[h] + 1],
                    block.indices[: edges[h]],
                    frontiers[h + 1],
                    frontiers[h],
                    None if block.edge_ids is None else block.edge_ids[: edges[h]],
                )
            )
        return MiniBatch(
            self.nodes[: frontiers[-1]], tuple(frontiers), tuple(blocks), epoch=self.epoch, index=self.index
        )


class CudaSampler(NeighborSampler):
    """Samples on the GPU where the graph lies, on the current stream. Calls from several threads take turns.

    The graph's arrays lie in GPU memory, or in pinned host memory (`Graph.pin_memory`), which the kernel reads
    without a copy. Seeds are taken to the graph's device. There is one wait of the host a mini-batch, for the sizes,
    in the second half of `start`.

    Outputs are allocated by a guess that learns from earlier mini-batches, and bounded from above by the fanouts; a
    mini-batch that does not fit is sampled again with more room. Nothing is ever cut off.

    Args:
        schedule: how the hops are put on the GPU. `"cooperative"`: one launch, a barrier of the grid between hops.
            `"persistent"`: no barrier between hops, warps share a queue of (vertex, hop) tasks (PGSampler), so thread
            blocks need not be resident together; three more launches put the blocks in order. `"fused-static"`: the
            same without sharing: a warp works off what its own seeds lead to. `"hopwise"`: a launch for each phase
            of each hop, the baseline. `"auto"`: `cooperative` for mini-batches of up to 1.5 million edges and
            `hopwise` beyond, the faster one of the two in most settings (benchmarks/results/sampler_gpu_paper.json),
            and `hopwise` for what is begun ahead, see `start`.
        vertex_set: how the vertices of a mini-batch are told apart. `"bitmap"`: a bit for each vertex of the graph and
            hop, and a local id for each vertex; passes and memory grow with the graph (at 400 million vertices and two
            hops 1.95 GB for each of the mini-batches of a launch, eight in a loader). `"hash"`: a hash set of the
            mini-batch's size, with schedules `cooperative` and `hopwise`. `"auto"`: a hash set where the graph is
            large beside the mini-batch (see `choose_vertex_set`), a bitmap elsewhere and with the other schedules.
        blocks_per_sm: thread blocks on each multiprocessor, in (0, 1]: 0.5 takes every other multiprocessor and
            leaves the rest to training. 0: all, but with `schedule="auto"` half for what is begun ahead. More than one
            does not fit.
        batches_per_launch: so many mini-batches that were begun (`start`) are sampled by one launch, or by one series
            of launches hop by hop, sharing the multiprocessors; each is what it would have been alone. A mini-batch
            that is finished before that many were begun is launched with those that wait. Schedules `cooperative` and
            `hopwise`.
        pad_to_capacity: return `PaddedMiniBatch`es, whose sizes are upper bounds, without any wait of the host. Bad
            seeds then make an empty mini-batch, and an error at a later call. Not with fanout -1. Mini-batches of
            different numbers of seeds do not share a launch.
        device: the GPU for a graph in pinned memory; by default the current one.
        fanouts, num_hops, replace, edge_ids, seed: see `NeighborSampler`.

    Attributes:
        launches, launched, launched_set: number of kernels of the last launch, the schedule and the vertex set it had.

    Raises:
        RuntimeError: the build or the machine has no CUDA.
        ValueError: an option out of its range, or options that exclude each other; with the first mini-batch, a fanout
            for which the GPU has too little shared memory (those of compute capability 7.5: above 768).
    """

    picks = "pick.h"  # of csrc/sampler/, as the CPU's

    def __init__(
        self,
        fanouts: int | Sequence[int],
        num_hops: int | None = None,
        *,
        replace: bool = False,
        edge_ids: bool = False,
        seed: int = 0,
        schedule: str = "auto",
        vertex_set: str = "auto",
        blocks_per_sm: float = 0,
        batches_per_launch: int = 1,
        pad_to_capacity: bool = False,
        device: str | torch.device | None = None,
    ) -> None:
        super().__init__(fanouts, num_hops, replace=replace, edge_ids=edge_ids, seed=seed)
        require_cuda("a GPU sampler")
        if schedule != "auto" and schedule not in SCHEDULES:
            raise ValueError(f"schedule is {schedule!r}; it must be one of {['auto', *SCHEDULES]}")
        if vertex_set != "auto" and vertex_set not in VERTEX_SETS:
            raise ValueError(f"vertex_set is {vertex_set!r}; it must be one of {['auto', *VERTEX_SETS]}")
        if vertex_set == "hash" and schedule in QUEUES:
            raise ValueError(
                f"vertex_set is 'hash', but schedule='{schedule}' knows bitmaps alone; use schedule='cooperative' or "
                "'hopwise'"
            )
        if not 0 <= blocks_per_sm <= 1:
            raise ValueError(f"blocks_per_sm is {blocks_per_sm}; it must be in (0, 1], or 0 for the default")
        most = _core.cuda_max_batches_per_launch
        if not 1 <= batches_per_launch <= most:
            raise ValueError(f"batches_per_launch is {batches_per_launch}; it must be in 1 to {most}")
        self.schedule, self.vertex_set = schedule, vertex_set
        if batches_per_launch > 1 and schedule in QUEUES:
            raise ValueError(
                f"batches_per_launch is {batches_per_launch}; schedule='{self.schedule}' samples one mini-batch a "
                "launch, use schedule='cooperative' or 'hopwise'"
            )
        if pad_to_capacity and -1 in self.fanouts:
            raise ValueError(
                "pad_to_capacity needs an upper bound of the sizes, which fanout -1 has not; give 1 to 1024"
            )
        self.blocks_per_sm = float(blocks_per_sm)
        self.batches_per_launch = int(batches_per_launch)
        self.pad_to_capacity = bool(pad_to_capacity)
        self._device = cuda_device(device)
        multiprocessors = torch.cuda.get_device_properties(self._device).multi_processor_count

        def blocks(share: float) -> int:
            return max(1, round(share * multiprocessors)) if share else 0

        self._blocks = blocks(blocks_per_sm)
        self._blocks_ahead = blocks(blocks_per_sm or (_SHARE_BESIDE if schedule == "auto" else 0))
        self._most_warps = (self._blocks or multiprocessors) * _WARPS_PER_BLOCK
        self.launches = 0
        self.launched = self.launched_set = ""
        self._workspace: Workspace | None = None
        # Begun, not launched. Known weakly: nobody waits for one whose other half was dropped.
        self._waiting: list[weakref.ref[_Begun]] = []
        self._unchecked: list[_Begun] = []  # padded, not known to have had good seeds
        self._closed = False
        self._lock = threading.Lock()

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def asynchronous(self) -> bool:
        return True

    def sample(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> MiniBatch:
        return self._begin(graph, seeds, epoch, batch, ahead=False)()

    def open(self, graph: Graph) -> Session:
        return _CudaSession(self, graph)

    def start(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> Callable[[], MiniBatch]:
        """See `Sampler.start`. At most 64 mini-batches may be begun and not finished.

        The mini-batch is launched on the stream that is current now or, with `batches_per_launch`, when its launch
        is complete; its tensors belong to that stream. Another stream that they are used on has to wait for what
        that stream held when `start` returned; for a launch that came later, the stream that is current when the
        mini-batch is finished waits by itself. What is begun so is taken to run beside other work: `schedule="auto"`
        then means `hopwise` on half of the multiprocessors, which keeps none that the other work has waiting for it.
        """
        return self._begin(graph, seeds, epoch, batch, ahead=True)

    def _begin(self, graph: Graph, seeds: Tensor, epoch: int, batch: int, *, ahead: bool) -> Callable[[], MiniBatch]:
        check_position(epoch, batch)
        key = _core.batch_key(self.seed, epoch, batch)
        with self._lock:
            if self._closed:
                raise RuntimeError("this CudaSampler was closed; make a new one")
            with made_current(self._device):
                return self._start(graph, seeds, key, epoch, batch, ahead)

    def _start(
        self, graph: Graph, seeds: Tensor, key: int, epoch: int, batch: int, ahead: bool
    ) -> Callable[[], MiniBatch]:
        self._check_padded()
        space = self._workspace
        if space is None or space.graph is not graph:
            self._launch_waiting()
            space = self._workspace = Workspace(
                graph,
                self._device,
                self.schedule,
                self.vertex_set,
                self.fanouts,
                replace=self.replace,
                edge_ids=self.edge_ids,
                pad=self.pad_to_capacity,
                batches=self.batches_per_launch,
                warps=self._most_warps,
            )
        if seeds.device != self._device or seeds.dtype != graph.indices.dtype or not seeds.is_contiguous():
            seeds = as_seeds(graph, seeds).to(self._device, non_blocking=True)
        begun = _Begun(self, space, seeds, key, epoch, batch, ahead)
        if self.batches_per_launch > 1:
            begun.stream = current_stream(self._device.index)  # which holds the seeds
        waiting = self._alive()
        if self.pad_to_capacity and waiting and waiting[0].seeds.numel() != seeds.numel():
            self._launch_waiting()  # a launch has one capacity, which is that of its number of seeds
            waiting = []
        if len(waiting) + 1 == self.batches_per_launch:
            self._launch([*waiting, begun])
            self._waiting = []
        else:
            self._waiting.append(weakref.ref(begun))
        return begun.finish

    def _alive(self) -> list[_Begun]:
        """What waits to be launched."""
        alive = [begun for ref in self._waiting if (begun := ref()) is not None]
        if len(alive) < len(self._waiting):
            self._waiting = [weakref.ref(begun) for begun in alive]
        return alive

    def _launch_waiting(self) -> None:
        if waiting := self._alive():
            self._launch(waiting)
        self._waiting = []

    def _launch(self, together: list[_Begun], again: bool = False) -> None:
        """Launches them, on the current stream. The lock is held."""
        space = together[0].space
        stream = current_stream(self._device.index)
        space.wait_for_last_use(stream)
        plan = space.plan(max([b.seeds.numel() for b in together]), len(together), ahead=together[0].ahead)
        rooms = [self._make_room(plan) for _ in together]  # where memory runs out, nothing was launched
        engine = space.engine
        edges_at = plan.layout.edges_at
        for b, (memory, sizes) in zip(together, rooms, strict=True):
            if b.stream is not None and b.stream is not stream:
                stream.wait_stream(b.stream)
                b.seeds.record_stream(stream)
            b.stream, b.memory, b.sizes = stream, memory, sizes
            at = memory.data_ptr()
            told = 0 if sizes is None else sizes.data_ptr()
            b.sequence = engine.add(b.seeds.data_ptr(), b.seeds.numel(), b.key, at, at + edges_at, told)
        blocks = self._blocks_ahead if together[0].ahead else self._blocks
        self.launches = engine.launch(SCHEDULES[plan.schedule], blocks, stream.cuda_stream)
        self.launched, self.launched_set = plan.schedule, plan.vertex_set
        if again or self.batches_per_launch > 1:
            late = torch.cuda.Event()
            late.record(stream)
            for b in together:
                b.late = late
        for b in together:
            b.plan = plan  # last: another thread may be about to finish it
        if self.pad_to_capacity:
            self._unchecked += together

    def _make_room(self, plan: Plan) -> tuple[Tensor, Tensor | None]:
        """Memory for what a mini-batch is made of, and for its sizes where the host does not wait for them."""
        memory = torch.empty(plan.layout.length, dtype=plan.layout.dtype, device=self._device)
        if not self.pad_to_capacity:
            return memory, None
        return memory, torch.empty(2 * self.num_hops + 1, dtype=torch.int64, device=self._device)

    def _check_padded(self) -> None:
        """Raises for a padded mini-batch whose seeds turned out bad. Does not wait for any."""
        while self._unchecked:
            first = self._unchecked[0]
            state = first.space.engine.peek(first.sequence)
            if state is None and len(self._unchecked) < HEADERS:
                return
            del self._unchecked[0]
            if state is not None:
                _raise_for_seeds(state[0], state[1], first)

    def close(self) -> None:
        with self._lock:
            self._workspace = None
            self._waiting.clear()
            self._unchecked.clear()
            self._closed = True

    def __repr__(self) -> str:
        return (
            f"CudaSampler(fanouts={list(self.fanouts)}, schedule='{self.schedule}', vertex_set='{self.vertex_set}', "
            f"device='{self._device}')"
        )


class _CudaSession(Session):
    def __init__(self, sampler: CudaSampler, graph: Graph) -> None:
        self._sampler, self._graph = sampler, graph
        self.together = sampler.batches_per_launch

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], MiniBatch]]:
        return [self._sampler._begin(self._graph, *request, ahead=ahead) for request in group]


def _raise_for_seeds(status: int, detail: int, begun: _Begun) -> None:
    where = f" (epoch {begun.epoch}, mini-batch {begun.index})" if begun.sizes is not None else ""
    if status == _SEED_RANGE:
        last = begun.space.graph.num_nodes - 1
        raise ValueError(f"seeds holds vertex {detail}; valid ids are 0 to {last}{where}")
    if status == _SEED_DUPLICATE:
        raise ValueError(f"seeds holds vertex {detail} more than once; seeds must be distinct (torch.unique){where}")


class _Begun:
    """A mini-batch between the two halves of `start`. Keeps the seeds while the kernel may read them."""

    __slots__ = (
        "__weakref__",
        "ahead",
        "epoch",
        "index",
        "key",
        "late",
        "memory",
        "plan",
        "sampler",
        "seeds",
        "sequence",
        "sizes",
        "space",
        "stream",
    )

    def __init__(
        self, sampler: CudaSampler, space: Workspace, seeds: Tensor, key: int, epoch: int, index: int, ahead: bool
    ) -> None:
        self.sampler, self.space, self.seeds, self.key = sampler, space, seeds, key
        self.epoch, self.index, self.ahead = epoch, index, ahead
        self.plan: Plan | None = None  # once it is launched
        self.memory: Tensor | None = None
        self.sizes: Tensor | None = None
        self.sequence = 0
        self.stream: torch.cuda.Stream | None = None  # where it was launched; before, where it was begun
        self.late: torch.cuda.Event | None = None  # after a launch that came later than `start`

    def finish(self) -> MiniBatch:
        if self.plan is None:
            with self.sampler._lock:
                if self.plan is None:
                    if self.sampler._closed:
                        raise RuntimeError("this CudaSampler was closed; make a new one")
                    with torch.cuda.device(self.sampler._device):
                        self.sampler._launch_waiting()
        assert self.plan is not None
        if self.sampler.pad_to_capacity:
            return self._build(list(self.plan.frontiers), list(self.plan.edges))
        hops = self.sampler.num_hops
        while True:
            assert self.stream is not None
            with made_current(self.sampler._device):  # else the default stream would be another GPU's
                status, detail, done, frontiers, edges, tasks, grown = self.space.engine.finish(
                    self.sequence, hops, self.stream.cuda_stream
                )
            if status == _OK:
                break
            _raise_for_seeds(status, detail, self)
            before = self.plan
            # Where the frontier of a hop did not fit a hash set, the edges of the next are not known: -1.
            known = [n for n in edges[: done + 1] if n >= 0]
            with self.sampler._lock:
                self.space.learn(frontiers[: done + 1], known, tasks, did_fit=False)
                self._again()
            if before.vertex_set == "hash" and self.plan.has_room_of(before):
                raise RuntimeError(
                    f"a mini-batch of at most {before.frontiers[-1]} vertices does not fit a hash set for them, which "
                    "should not happen: report it, and use vertex_set='bitmap'"
                )
        if grown:
            with self.sampler._lock:
                self.space.learn(frontiers, edges, tasks, did_fit=True)
        return self._build(frontiers, edges)

    def _again(self) -> None:
        """Launches this mini-batch once more, alone, on its own stream. The lock is held."""
        with torch.cuda.device(self.sampler._device), torch.cuda.stream(self.stream):
            self.sampler._launch([self], again=True)

    def _build(self, frontiers: list[int], edges: list[int]) -> MiniBatch:
        sampler, memory = self.sampler, self.memory
        assert self.plan is not None
        assert memory is not None
        if self.late is not None:
            stream = current_stream(sampler._device.index)
            if stream is not self.stream:
                stream.wait_event(self.late)
                memory.record_stream(stream)
        layout = self.plan.layout
        nodes = layout.nodes(memory, frontiers[-1])
        hops = range(len(edges) - 1, -1, -1)
        blocks: tuple[Block, ...]
        if sampler.edge_ids:
            indices, indptr, ids = layout.cut(memory, frontiers, edges)
            if self.space.graph.edge_ids is not None:
                memory.record_stream(current_stream(sampler._device.index))
                ids = [self.space.edge_ids()[i] for i in ids]
            blocks = tuple([Block(indptr[h], indices[h], frontiers[h + 1], frontiers[h], ids[h]) for h in hops])
        else:
            sampled = Sampled(layout, memory, frontiers, edges)
            blocks = tuple([SampledBlock.of(sampled, h, frontiers[h + 1], frontiers[h]) for h in hops])
        if self.sizes is not None:
            return PaddedMiniBatch(
                nodes, tuple(frontiers), blocks, epoch=self.epoch, index=self.index, sizes=self.sizes
            )
        return MiniBatch(nodes, tuple(frontiers), blocks, epoch=self.epoch, index=self.index)
