"""The session of the GPU sampler: it launches groups of mini-batches, and finishes them one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.graph import HeteroGraph
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import current_stream, made_current
from loader.samplers.base import AnyGraph, Request, Session, as_seeds, check_position
from loader.samplers.gpu.padded import PaddedMiniBatch
from loader.samplers.gpu.pinned_reads import unit_bytes
from loader.samplers.gpu.sizes import GpuOptions, Plan
from loader.samplers.gpu.workspace import Workspace
from loader.samplers.picks import batch_keys
from loader.samples import Block, MiniBatch

_MOST_LAUNCHES = 50  # of a mini-batch; each has more room than the one before

_OK, _OVERFLOW, _SEED_RANGE, _SEED_DUPLICATE, _BAD_WEIGHT, _SEED_ORDER = range(6)


def check_launches(launches: int, num_seeds: int) -> None:
    """Raises RuntimeError if a mini-batch of `num_seeds` seeds was launched too often, see `_MOST_LAUNCHES`."""
    if launches == _MOST_LAUNCHES:
        raise RuntimeError(
            f"a mini-batch of {num_seeds} seeds does not fit after {launches} launches, which should not happen: "
            "report it, and sample on the CPU"
        )


class Begun:
    """A mini-batch that was launched. Keeps the seeds while the kernel may read them."""

    __slots__ = (
        "ahead",
        "counts",
        "epoch",
        "index",
        "memory",
        "num_seeds",
        "plan",
        "result",
        "room",
        "seeds",
        "session",
        "sizes",
        "stream",
    )

    plan: Plan
    memory: Tensor
    room: list[Tensor]  # of each array in it
    sizes: Tensor  # of a padded one
    counts: bool  # the lines of its launch: the first of those that share it
    stream: torch.cuda.Stream  # where it was launched
    result: Any  # of the extension: what tells the sizes

    def __init__(
        self, session: CudaSession, seeds: Tensor, num_seeds: int, epoch: int, index: int, ahead: bool
    ) -> None:
        self.session, self.seeds, self.num_seeds = session, seeds, num_seeds
        self.epoch, self.index, self.ahead = epoch, index, ahead

    def outputs(self) -> list[Tensor]:
        """The memory that its launch writes."""
        return [self.memory]

    def finish(self) -> Any:
        session = self.session
        space = session._opened()
        if session._pad:
            return session.build(self, list(self.plan.frontiers), list(self.plan.edges))
        with made_current(session._device):  # else the default stream would be another GPU's
            report = self.result.wait()
            launches = 1
            while report[0] != _OK:
                self._again(space, report)
                report = self.result.wait()
                launches += 1
                check_launches(launches, self.num_seeds)
        frontiers, edges, _, grown, lines = report[3:8]
        if grown:
            with session._lock:
                for rows in report[9:]:
                    space.learn_rows(rows)
                space.learn(frontiers, edges, lines, did_fit=True)
        if self.counts:
            session.lines += lines
        return session.build(self, frontiers, edges, *report[8:])

    def _again(self, space: Workspace, report: Sequence[Any]) -> None:
        """Launches this mini-batch, which did not fit, once more: alone, with more room, on its own stream."""
        session, before = self.session, self.plan
        with session._lock:
            session._outgrew(space, report)
            with torch.cuda.stream(self.stream):
                session._launch(space, [self])
        stream = current_stream(session._index)
        if stream is not self.stream:  # it waited for the first launch alone
            stream.wait_stream(self.stream)
            for t in self.outputs():
                t.record_stream(stream)
        if before.node_set == "hash" and self.plan.has_room_of(before):
            raise RuntimeError(
                f"a mini-batch of at most {before.frontiers[-1]} nodes does not fit a hash set for them, which "
                "should not happen: report it, and use node_set='bitmap'"
            )


class CudaSession(Session):
    """Samples one graph on the GPU. Calls from several threads take turns.

    Args:
        sampler: the configuration, with its GPU.
        graph: its arrays lie on that GPU, or in pinned host memory.

    Attributes:
        together: at most this many mini-batches are sampled by one launch.
        lines: 128-byte lines of pinned memory, or 32-byte sectors, that were copied for the mini-batches that were
            finished so far, if lists are read by these; those of padded mini-batches are not counted.
        reads: how lists are read, see `CudaSampler`.
        unit_bytes: of what is counted.
        launches, launched, launched_set: of the last launch, the number of kernels, the schedule and the node set.

    Raises:
        ValueError: the graph lies elsewhere, or the GPU has too little shared memory for a fanout.
    """

    workspace: type[Any] = Workspace
    begun: type[Begun] = Begun

    def __init__(self, sampler: GpuOptions, graph: AnyGraph) -> None:
        self.together = sampler.batches_per_launch
        self.launches = self.lines = 0
        self.launched = self.launched_set = ""
        self._device, self._seed = sampler.device, sampler.seed
        self._dtype = (graph.lists if isinstance(graph, HeteroGraph) else graph).indices.dtype
        self._index = sampler.device.index
        self._picking = sampler.picking
        self._num_hops, self._edge_ids, self._pad = sampler.num_hops, sampler.edge_ids, sampler.pad_to_capacity
        self._lock = ForkSafeLock()
        with torch.cuda.device(self._device):
            self._space: Workspace | None = self.workspace(sampler, graph)
        assert self._space is not None
        self.reads = self._space.reads
        self.unit_bytes = unit_bytes(self.reads)
        self._unchecked: deque[_Unchecked] = deque()

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> list[Callable[[], MiniBatch]]:
        """See `Session.begin`. The whole group is launched before this returns, `together` mini-batches at a time.

        The mini-batches are sampled on the stream that is current now, and their tensors belong to it. If another
        stream uses them, it has to wait for the work that is on this stream when the call returns. With `ahead`,
        `schedule="auto"` uses half of the multiprocessors.

        Raises:
            ValueError: a seed is no node, or picks without tables read a weight that is negative, infinite or NaN;
                also of an earlier padded mini-batch.
            OverflowError: a padded block would have more edges than the type of the graph's `indptr` can count. (For
                other blocks this is found when they are finished.)
            RuntimeError: the session was closed, or a launch was refused.
        """
        with self._lock:
            space = self._opened()
            space.graph.require_sound()
            if self._unchecked:
                self._check_padded()
            for request in group:
                check_position(request.epoch, request.batch)
            begun = list[Begun]()
            with made_current(self._device):
                for first in range(0, len(group), self.together):  # the GPU samples while the next ones are taken
                    taken = [self._take(request, ahead) for request in group[first : first + self.together]]
                    for together in self._launches(taken):
                        self._launch(space, together)
                    begun += taken
        return [b.finish for b in begun]

    def check(self) -> None:
        """Raises ValueError if the GPU has reported bad seeds or weights of a padded mini-batch. Does not wait for the
        GPU.
        """
        with self._lock:
            self._check_padded()

    def close(self) -> None:
        """Frees the GPU memory when its kernels are done. Mini-batches that were begun cannot be finished
        afterwards.
        """
        with self._lock:
            if self._space is not None:
                self._space.close()
            self._space = None
            self._unchecked.clear()

    def _as_seeds(self, seeds: Tensor) -> Tensor:
        return as_seeds(self._opened().graph, seeds)

    def _take(self, request: Request, ahead: bool) -> Begun:
        seeds, epoch, batch, _ = request
        as_it_is = isinstance(seeds, Tensor) and seeds.dim() == 1 and seeds.is_contiguous()
        if not as_it_is or seeds.dtype != self._dtype or seeds.device != self._device:
            seeds = self._as_seeds(seeds).to(self._device, non_blocking=True)
        return self.begun(self, seeds, seeds.numel(), epoch, batch, ahead)

    def _extra_output(self, begun: Begun) -> Tensor | None:
        """What else its launch writes to: its sizes, if it is padded."""
        if not self._pad:
            return None
        begun.sizes = torch.empty(2 * self._num_hops + 1, dtype=torch.int64, device=self._device)
        return begun.sizes

    def _outgrew(self, space: Workspace, report: Sequence[Any]) -> None:
        """Remembers what is known of a mini-batch that did not fit; see `Result.wait` of the extension."""
        status, detail, done, frontiers, edges, _, _, lines = report[:8]
        self._raise_for(status, detail)
        for rows in report[9:]:
            space.learn_rows(rows[: done + 1])
        # Where the frontier of a hop did not fit a hash set, the edges of the next are not known: -1.
        known = [n for n in edges[: done + 1] if n >= 0]
        for n in known:
            if n > space.most_edges:
                raise OverflowError(
                    f"a block of {n} edges exceeds 32-bit edge ids; use a smaller batch or smaller fanouts"
                )
        space.learn(frontiers[: done + 1], known, lines, did_fit=False)

    def _opened(self) -> Workspace:
        if self._space is None:
            raise RuntimeError("this session of a GPU sampler was closed; open another one")
        return self._space

    def _launches(self, begun: list[Begun]) -> Iterator[list[Begun]]:
        """What shares a launch: padded mini-batches only if they have as many seeds, which decide their capacity."""
        if not self._pad:
            yield begun
            return
        for _, same in groupby(begun, lambda b: b.num_seeds):
            yield list(same)

    def _launch(self, space: Workspace, together: list[Begun]) -> None:
        """Launches them, on the current stream. The lock is held."""
        device, stream, count, first = self._device, current_stream(self._index), len(together), together[0]
        most = first.num_seeds if count == 1 else max([b.num_seeds for b in together])
        plan = space.plan(most, count, stream, first.ahead)
        length, dtype, seed = plan.layout.length, plan.layout.dtype, self._seed
        batches = []
        for b in together:
            b.plan, b.stream, b.counts = plan, stream, b is first
            memory = b.memory = torch.empty(length, dtype=dtype, device=device)
            keys = batch_keys(self._picking, seed, b.epoch, b.index)
            batches.append((b.seeds, keys, memory, self._extra_output(b)))
        self.launches, results = space.launch(batches, plan)
        self.launched, self.launched_set = plan.schedule, plan.node_set
        if count == 1:
            first.result = results[0]
        else:
            for b, result in zip(together, results, strict=True):
                b.result = result
        for b in together:  # while the GPU samples
            b.room = plan.layout.split(b.memory)
        if self._pad:
            self._unchecked += [_Unchecked(b.result, b.seeds, b.epoch, b.index) for b in together]

    def _check_padded(self) -> None:
        while self._unchecked:
            first = self._unchecked[0]
            state = first.result.peek()
            if state is None:
                return
            self._unchecked.popleft()
            self._raise_for(state[0], state[1], f" (epoch {first.epoch}, mini-batch {first.batch})")

    def _raise_for(self, status: int, detail: int, where: str = "") -> None:
        if status == _SEED_RANGE:
            last = self._opened().num_nodes - 1
            raise ValueError(f"seeds holds node {detail}; valid ids are 0 to {last}{where}")
        if status == _SEED_DUPLICATE:
            raise ValueError(f"seeds holds node {detail} more than once; seeds must be distinct (torch.unique){where}")
        if status == _SEED_ORDER:
            raise ValueError(
                f"seeds of several node types are mixed, at node {detail}; give those of each type together, in their "
                f"order{where}"
            )
        if status == _BAD_WEIGHT:
            weights = self._opened().graph.edge_weights
            assert weights is not None
            weight = float(weights[detail])
            raise ValueError(f"edge_weights[{detail}] is {weight}; a weight must be finite and at least 0{where}")

    def build(self, begun: Begun, frontiers: list[int], edges: list[int], *more: Any) -> Any:
        """The mini-batch of these sizes, which lies in the memory of `begun`. `more`: what graphs with types tell."""
        space = self._opened()
        nodes, indices, indptr, ids, _ = begun.plan.layout.fit(begun.room, frontiers, edges)
        if ids and space.graph.edge_ids is not None:
            begun.memory.record_stream(current_stream(self._index))
            ids = [space.edge_ids()[i] for i in ids]
        blocks = tuple(
            [
                Block(indptr[h], indices[h], frontiers[h + 1], frontiers[h], ids[h] if ids else None)
                for h in range(len(edges) - 1, -1, -1)
            ]
        )
        if self._pad:
            return PaddedMiniBatch(
                nodes, tuple(frontiers), blocks, epoch=begun.epoch, index=begun.index, sizes=begun.sizes
            )
        return MiniBatch(nodes, tuple(frontiers), blocks, epoch=begun.epoch, index=begun.index)


class _Unchecked(NamedTuple):
    """A padded mini-batch that is not known to have had good seeds. Only the consumer holds its memory.

    Keeps the seeds while the kernel may read them.
    """

    result: Any
    seeds: Tensor
    epoch: int
    batch: int
