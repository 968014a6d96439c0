"""A graph prepared for walks on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, require_square
from loader.graph.checks import check_integers
from loader.machine.arguments import kind_of
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import current_stream, current_stream_handle, made_current
from loader.samplers.walk_frequencies import Frequencies
from loader.samplers.walk_law import WalkLaw
from loader.samplers.walk_lists import copies_of, metapath_lists, sorted_lists, weighted_lists
from loader.samplers.walk_next import Next
from loader.samplers.walk_next.faults import Fault
from loader.samplers.walk_next.walking import integer_weights
from loader.samplers.walked_graph import named

# From so many walkers on it pays to order them by node before each step, if the lists lie in the host's memory. On an
# H200, products-shaped graph, ms of a step: 0.68 as they come and 0.44 in order, which takes 0.08, for 200,000 walkers;
# 8.7, 2.8 and 0.2 for 2.4 million. With the lists in the GPU's memory it does not pay: 0.11, 0.10 and 0.2.
_TRANSIT_FROM = 200_000


class CudaWalkedGraph:
    """The arrays that walks on a GPU read.

    Calls from several threads take turns. Each call only puts work on the current stream, and its tensors belong to
    that stream.

    Walks that search in lists use a filter of the edges, which takes one byte of GPU memory per edge
    (csrc/walks/edge_filter.h).

    Args:
        graph: square, in the memory of `device` or in pinned memory.
        device: the GPU.
        num_threads: threads of the CPU, which makes the tables of weights.
        searches, weighted, metapath: see `loader.samplers.walked_graph.WalkedGraph`.

    Raises:
        ValueError: the graph lies elsewhere, is bipartite, or has no types for the metapath.
    """

    def __init__(
        self,
        graph: Graph,
        device: torch.device,
        *,
        searches: bool,
        weighted: bool,
        metapath: Sequence[int] | None,
        num_threads: int,
    ) -> None:
        require_square(graph, "a random walk")
        for name, array in (("indptr", graph.indptr), ("indices", graph.indices)):
            if array.device != device and not (array.device.type == "cpu" and array.is_pinned()):
                raise ValueError(
                    f"walks on {device} want a graph there or in pinned memory; its {name} lies on {array.device}; use "
                    f"graph.to('{device}') or graph.pin_memory()"
                )
        cells = None
        if weighted:  # the CPU makes the tables
            host = graph.to("cpu")
            part, cells = weighted_lists(host, num_threads)
            graph = graph if part is host else part.to(device)
        self._graph, self._device = graph, device
        self._lock = ForkSafeLock()
        self._path: list[int] = []
        self._places: Tensor | None = None
        indptr, indices, groups = graph.indptr, graph.indices, 0
        with torch.cuda.device(device):
            if metapath is not None:
                lists = metapath_lists(graph, metapath)
                indptr, indices, self._places = (a.to(device) for a in (lists.indptr, lists.indices, lists.places))
                self._path, groups = lists.path, lists.groups
            self._sorted: Tensor | None = None
            self._order: Tensor | None = None
            if searches:
                self._sorted, order = sorted_lists(graph)
                self._order = None if order is None else order.to(device)
            self._weighted = weighted
            self._copies: tuple[Tensor, Tensor] | None = None  # see copies_of
            self._looked = False
            if self._sorted is not None and self._sorted is not graph.indices:
                self._sorted = self._sorted.to(device)
            self._edge_ids = None if graph.edge_ids is None else graph.edge_ids.to(device)
            cells = None if cells is None else cells.to(device)
            self._bad = torch.zeros(2, dtype=torch.int64).pin_memory()
            self._weights: Tensor | None = None  # as integers
            with torch.inference_mode(False):  # so that they can be cleared outside of it
                self._fault = torch.zeros(5, dtype=torch.int64).pin_memory()  # of walks by a next
                self._reported = torch.zeros(1, dtype=torch.int32, device=device)  # whether it is another's
            self._step: Next | None = None  # whose walks may be under way
            self._engine = _core.CudaWalkEngine(indptr, indices, self._sorted, cells, groups, self._bad, device.index)
            if searches:
                self._filter = torch.zeros(_core.filter_words(graph.num_edges), dtype=torch.int64, device=device)
                self._engine.sift_by(self._filter, current_stream_handle(device.index))
            torch.cuda.current_stream().synchronize()  # walks come on any stream

    def walk(
        self, starts: Tensor, length: int, law: WalkLaw, key: int, *, edge_ids: bool = False, schedule: str = "auto"
    ) -> tuple[Tensor, Tensor | None]:
        """See `WalkedGraph.walk`, on the current stream; `schedule` is that of `WalkSampler`. A start that is no node
        gives a walk of no steps; `check` or a later call then raises.

        Raises:
            TypeError, ValueError: `starts` is no vector of integers, or a start of an earlier call was no node.
        """
        graph, device = self._graph, self._device
        starts = _as_starts(starts)
        with self._lock, made_current(device):
            self._check()
            starts = starts.to(device, non_blocking=True).contiguous()
            count = starts.shape[0]
            follows_sorted = law.accept is not None and not self._weighted
            if follows_sorted:
                self._find_copies()
            nodes = torch.empty((count, length + 1), dtype=graph.indices.dtype, device=device)
            places = torch.empty((count, length), dtype=graph.indptr.dtype, device=device) if edge_ids else None
            if self._steps(schedule, count, length, law):
                self._walk_by_steps(starts, length, law, key, nodes, places)
            else:
                self._engine.walk(
                    starts,
                    0,
                    key,
                    length,
                    law.stop_below,
                    law.home_below,
                    law.acceptance(weighted=self._weighted),
                    self._path,
                    nodes,
                    places,
                    current_stream_handle(device.index),
                )
            order = self._order if follows_sorted else self._places
            return nodes, None if places is None else named(places, order, self._edge_ids)

    def _steps(self, schedule: str, count: int, length: int, law: WalkLaw) -> bool:
        """Whether walkers are ordered by node before each step."""
        if schedule != "auto" or law.accept is not None or self._path:
            return schedule == "transit" and length > 0
        return count >= _TRANSIT_FROM and length > 0 and self._graph.indices.device.type == "cpu"

    def _walk_by_steps(
        self, starts: Tensor, length: int, law: WalkLaw, key: int, nodes: Tensor, places: Tensor | None
    ) -> None:
        stream = current_stream_handle(self._device.index)
        for step in range(length):
            order = (nodes[:, step] if step else starts).sort().indices
            self._engine.step(starts, key, length, law.stop_below, law.home_below, order, step, nodes, places, stream)

    def prepare(self, step: Next) -> None:
        """Makes what `step` reads, and its kernel's source; the kernel is compiled by its first walk.

        Raises:
            ValueError: `step` is not compiled.
        """
        if not step.compiled:
            raise ValueError(f"{step!r} has compiled=False, which Python runs on the CPU: use device='cpu'")
        step.gpu_header()
        if "weight" in step.uses and self._weights is None:
            with self._lock, made_current(self._device):
                self._weights = integer_weights(self._graph).to(self._device)
                torch.cuda.current_stream().synchronize()  # walks come on any stream

    def walk_by(self, starts: Tensor, length: int, step: Next, key: int) -> Tensor:
        """See `WalkedGraph.walk_by`, on the current stream. What `step` does that it may not do, `check` or a later
        call raise."""
        graph, device = self._graph, self._device
        starts = _as_starts(starts)
        with self._lock, made_current(device):
            if self._step not in (None, step):
                torch.cuda.synchronize(device)  # so that a fault has the name of who did it
            self._check()
            self._step = step
            starts = starts.to(device, non_blocking=True).contiguous()
            nodes = torch.empty((starts.shape[0], length + 1), dtype=graph.indices.dtype, device=device)
            self._engine.walk_by(
                step.gpu_header(),
                starts,
                0,
                key,
                length,
                step.turns,
                step.values,
                self._weights if "weight" in step.uses else None,
                step.searches,
                "by_weight" in step.uses,
                nodes,
                self._fault,
                self._reported,
                current_stream_handle(device.index),
            )
            return nodes

    def _find_copies(self) -> None:
        """Tells the engine, once, how often lists have a node."""
        if self._looked or self._sorted is None:
            return
        found = copies_of(self._graph, self._sorted)
        if found is not None:
            powers, most = (a.to(self._device) for a in found)
            self._copies = powers, most
            torch.cuda.current_stream().synchronize()  # walks come on any stream
            self._engine.set_copies(powers, most)
        self._looked = True

    def negatives(self, walkers: int, count: int, key: int, frequencies: Frequencies | None = None) -> Tensor:
        """See `WalkedGraph.negatives`, on the current stream."""
        device = self._device
        with self._lock, made_current(device):
            out = torch.empty(walkers, count, dtype=self._graph.indices.dtype, device=device)
            bound = self._graph.num_nodes if frequencies is None else frequencies.num_places
            self._engine.negatives(0, key, walkers, count, bound, out, current_stream_handle(device.index))
            return out if frequencies is None else frequencies.nodes(out)

    def check(self, *, wait: bool = False) -> None:
        """Raises ValueError if a start of a finished walk was no node, and NextError for what a next did.
        With `wait`, it first waits for all walks on the current stream.
        """
        if wait:
            assert self._device.index is not None
            current_stream(self._device.index).synchronize()
        with self._lock, made_current(self._device):
            self._check()

    def _check(self) -> None:
        self._engine.check()
        if self._step is not None and int(self._fault[0]):
            torch.cuda.synchronize(self._device)  # walks under way may go wrong, too
            fault = Fault(*self._fault.tolist())
            self._fault.zero_()
            self._reported.zero_()
            torch.cuda.current_stream().synchronize()
            raise self._step.error(fault, self._graph.num_nodes)

    def __del__(self) -> None:
        # Kernels under way read arrays that would be another's, and may say that a start was bad.
        if hasattr(self, "_engine"):
            torch.cuda.synchronize(self._device)


def _as_starts(starts: Tensor) -> Tensor:
    """`starts` as int32 or int64, wherever they lie."""
    if not isinstance(starts, Tensor):
        raise TypeError(f"seeds is {kind_of(starts)}; it must be a tensor of node ids (torch.as_tensor)")
    if starts.dim() != 1:
        raise ValueError(f"seeds has shape {list(starts.shape)}; it must have 1 dimension")
    check_integers("seeds", starts)
    if starts.dtype not in (torch.int32, torch.int64):
        starts = starts.to(torch.int64)
    return starts
