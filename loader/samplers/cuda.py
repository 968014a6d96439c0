"""The GPU sampler: all hops of a mini-batch in one launch, bit-identical to the CPU's."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from loader import _core
from loader.cuda import require_cuda
from loader.graph import Graph
from loader.minibatch import Block, MiniBatch
from loader.samplers.base import Sampler, as_seeds, check_position

SCHEDULES = {"cooperative": 0, "hopwise": 1}
_OK, _OVERFLOW, _SEED_RANGE, _SEED_DUPLICATE = range(4)
_HEADROOM = 1.25  # of the capacity of outputs over the largest mini-batch seen


class CudaSampler(Sampler):
    """Samples on the GPU where the graph lies, on the current stream. Calls from several threads take turns.

    The graph's arrays lie in GPU memory, or in pinned host memory (`Graph.pin_memory`), which the kernel reads
    without a copy. Seeds are taken to the graph's device. There is one wait of the host a mini-batch, for the sizes.

    Outputs are allocated by a guess that learns from earlier mini-batches, and bounded from above by the fanouts; a
    mini-batch that does not fit is sampled again with more room. Nothing is ever cut off.

    Args:
        schedule: `"cooperative"`: one launch, grid barriers between the phases of a hop; `"hopwise"`: a launch for
            each phase, the baseline; `"auto"`: `cooperative`. The two were within 9 % of each other on an H200
            (benchmarks/results/sampler_gpu.json), and one launch asks less of the host.
        blocks_per_sm: thread blocks on each multiprocessor; 0: the kernel's own choice, one. No more are launched than
            fit at the same time, which the registers of most kernels limit to one.
        device: the GPU for a graph in pinned memory; by default the current one.
        fanouts, num_hops, replace, edge_ids, seed: see `Sampler`.

    Raises:
        RuntimeError: the build or the machine has no CUDA.
    """

    def __init__(
        self,
        fanouts: int | Sequence[int],
        num_hops: int | None = None,
        *,
        replace: bool = False,
        edge_ids: bool = False,
        seed: int = 0,
        schedule: str = "auto",
        blocks_per_sm: int = 0,
        device: str | torch.device | None = None,
    ) -> None:
        super().__init__(fanouts, num_hops, replace=replace, edge_ids=edge_ids, seed=seed)
        require_cuda("a GPU sampler")
        if schedule != "auto" and schedule not in SCHEDULES:
            raise ValueError(f"schedule is {schedule!r}; it must be one of {['auto', *SCHEDULES]}")
        if not 0 <= blocks_per_sm <= 32:
            raise ValueError(f"blocks_per_sm is {blocks_per_sm}; it must be in 0 to 32")
        self.schedule = "cooperative" if schedule == "auto" else schedule
        self.blocks_per_sm = int(blocks_per_sm)
        index = torch.cuda.current_device()
        device = torch.device("cuda", index) if device is None else torch.device(device)
        self._device = torch.device("cuda", index if device.index is None else device.index)
        self.launches = 0  # kernels of the last mini-batch
        self._workspace: _Workspace | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def device(self) -> torch.device:
        return self._device

    def sample(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> MiniBatch:
        check_position(epoch, batch)
        key = _core.batch_key(self.seed, epoch, batch)
        with self._lock:
            if self._closed:
                raise RuntimeError("this CudaSampler was closed; make a new one")
            if torch.cuda.current_device() != self.device.index:
                with torch.cuda.device(self.device):
                    return self._sample_here(graph, seeds, key, epoch, batch)
            return self._sample_here(graph, seeds, key, epoch, batch)

    def _sample_here(self, graph: Graph, seeds: Tensor, key: int, epoch: int, batch: int) -> MiniBatch:
        if self._workspace is None or self._workspace.graph is not graph:
            self._workspace = _Workspace(graph, self.device)
        if seeds.device != self.device or seeds.dtype != graph.indices.dtype or not seeds.is_contiguous():
            seeds = as_seeds(graph, seeds).to(self.device, non_blocking=True)
        return self._sample(self._workspace, seeds, key, epoch, batch)

    def _sample(self, space: _Workspace, seeds: Tensor, key: int, epoch: int, batch: int) -> MiniBatch:
        graph = space.graph
        stream = torch.cuda.current_stream(self.device.index)
        space.wait_for_last_use(stream)
        num_seeds = seeds.numel()
        while True:
            plan = space.plan(self.fanouts, self.replace, self.edge_ids, num_seeds)
            buffers = [torch.empty(n, dtype=dtype, device=self.device) for n, dtype in plan.buffers]
            status, detail, done, frontiers, edges, self.launches = space.engine.sample(
                seeds.data_ptr(),
                num_seeds,
                key,
                buffers[0].data_ptr(),
                buffers[-1].data_ptr() + plan.edges_at,
                SCHEDULES[self.schedule],
                self.blocks_per_sm,
                stream.cuda_stream,
            )
            if status == _OK:
                break
            if status == _SEED_RANGE:
                raise ValueError(f"seeds holds vertex {detail}; valid ids are 0 to {graph.num_nodes - 1}")
            if status == _SEED_DUPLICATE:
                raise ValueError(f"seeds holds vertex {detail} more than once; seeds must be distinct (torch.unique)")
            space.learn(self.fanouts, frontiers[: done + 1], edges[: done + 1], did_fit=False)
        space.learn(self.fanouts, frontiers, edges, did_fit=True)
        sizes = [frontiers[-1], *edges, *(n + 1 for n in frontiers[:-1])]
        arrays = plan.cut(buffers, sizes + edges if self.edge_ids else sizes)
        hops = self.num_hops
        nodes, indices, indptr = arrays[0], arrays[1 : 1 + hops], arrays[1 + hops : 1 + 2 * hops]
        edge_ids: Sequence[Tensor | None] = arrays[1 + 2 * hops :] if self.edge_ids else [None] * hops
        if self.edge_ids and graph.edge_ids is not None:
            edge_ids = [space.edge_ids()[ids] for ids in arrays[1 + 2 * hops :]]
        blocks = tuple(
            Block(indptr[h], indices[h], frontiers[h + 1], frontiers[h], edge_ids[h]) for h in range(hops - 1, -1, -1)
        )
        return MiniBatch(nodes, tuple(frontiers), blocks, epoch=epoch, index=batch)

    def close(self) -> None:
        with self._lock:
            self._workspace = None
            self._closed = True

    def __repr__(self) -> str:
        return f"CudaSampler(fanouts={list(self.fanouts)}, schedule='{self.schedule}', device='{self.device}')"


class _Plan:
    """Where the outputs of a mini-batch lie: vertices, then edges, in one buffer if they have one type, else in two.

    Args:
        frontiers, edges: capacities, in elements.
        edge_ids: whether there is room for them.
        vertex_dtype, edge_dtype: of the buffers.
    """

    def __init__(
        self,
        frontiers: list[int],
        edges: list[int],
        edge_ids: bool,
        vertex_dtype: torch.dtype,
        edge_dtype: torch.dtype,
    ) -> None:
        self.frontiers, self.edges = frontiers, edges
        self.vertex_room = [_aligned(n) for n in (frontiers[-1], *edges)]
        self.edge_room = [_aligned(n + 1) for n in frontiers[:-1]]
        if edge_ids:
            self.edge_room += [_aligned(n) for n in edges]
        num_vertices, num_edges = sum(self.vertex_room), sum(self.edge_room)
        if vertex_dtype == edge_dtype:
            self.buffers = [(num_vertices + num_edges, vertex_dtype)]
            self.edges_at = num_vertices * vertex_dtype.itemsize
        else:
            self.buffers = [(num_vertices, vertex_dtype), (num_edges, edge_dtype)]
            self.edges_at = 0

    def cut(self, buffers: list[Tensor], sizes: list[int]) -> list[Tensor]:
        """The used part of each array: nodes, indices of each hop, indptr of each hop, edge ids of each hop."""
        cuts = []
        for size, room in zip(sizes, self.vertex_room + self.edge_room, strict=True):
            cuts += [size, room - size]
        if len(buffers) == 1:
            return list(buffers[0].split_with_sizes(cuts)[::2])
        split = 2 * len(self.vertex_room)
        return [
            *buffers[0].split_with_sizes(cuts[:split])[::2],
            *buffers[1].split_with_sizes(cuts[split:])[::2],
        ]


def _aligned(n: int) -> int:
    """`n` rounded up so that every array begins at a multiple of 128 bytes."""
    return (n + 31) // 32 * 32


class _Workspace:
    """What belongs to one graph on one device: bitmaps, local ids, and the sizes of mini-batches so far."""

    def __init__(self, graph: Graph, device: torch.device) -> None:
        for name, array in (("indptr", graph.indptr), ("indices", graph.indices)):
            if array.device != device and not (array.device.type == "cpu" and array.is_pinned()):
                raise ValueError(
                    f"the graph's {name} lies on {array.device} and is not pinned; a GPU sampler wants it on {device} "
                    f"(graph.to('{device}')) or in pinned memory (graph.pin_memory())"
                )
        self.graph, self.device = graph, device
        n = graph.num_nodes
        words = (n + 31) // 32
        edge_type, node_type = (str(t.dtype).removeprefix("torch.int") for t in (graph.indptr, graph.indices))
        self._tensors = [
            torch.zeros(max(words, 1), dtype=torch.int32, device=device),
            torch.zeros(max(words, 1), dtype=torch.int32, device=device),
            torch.empty(max(n, 1), dtype=graph.indices.dtype, device=device),
            torch.empty(_core.cuda_workspace_totals, dtype=torch.int64, device=device),
            torch.zeros(_core.cuda_header_bytes, dtype=torch.uint8, device=device),
            torch.zeros(_core.cuda_header_bytes, dtype=torch.uint8, pin_memory=True),
        ]
        self._rows: tuple[Tensor, Tensor] | None = None
        engine = getattr(_core, f"CudaSampler_i{edge_type}_i{node_type}")
        self.engine = engine(
            graph.indptr.data_ptr(), graph.indices.data_ptr(), n, *(t.data_ptr() for t in self._tensors)
        )
        self._stream = torch.cuda.current_stream(device)
        self._largest: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}
        self._plans: dict[tuple[tuple[int, ...], bool, bool, int], _Plan] = {}
        self._planned: _Plan | None = None
        self._edge_ids: Tensor | None = None

    def plan(self, fanouts: tuple[int, ...], replace: bool, edge_ids: bool, num_seeds: int) -> _Plan:
        """The plan for mini-batches of `num_seeds`, with the engine set to it."""
        key = (fanouts, replace, edge_ids, num_seeds)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _Plan(
                *self._capacities(fanouts, replace, num_seeds),
                edge_ids,
                self.graph.indices.dtype,
                self.graph.indptr.dtype,
            )
        if plan is not self._planned:
            rows = plan.frontiers[-2]
            if self._rows is None or self._rows[0].numel() < rows:
                for array in self._rows or ():
                    array.record_stream(self._stream)  # a kernel may still be at it
                self._rows = (
                    torch.empty(rows, dtype=self.graph.indptr.dtype, device=self.device),
                    torch.empty(rows, dtype=torch.int32, device=self.device),
                )
            hops = len(fanouts)
            vertex_at = [sum(plan.vertex_room[:i]) for i in range(len(plan.vertex_room))]
            edge_at = [sum(plan.edge_room[:i]) for i in range(len(plan.edge_room))]
            self.engine.plan(
                fanouts,
                replace,
                plan.frontiers,
                plan.edges,
                vertex_at[1:],
                edge_at[:hops],
                edge_at[hops:],
                *(t.data_ptr() for t in self._rows),
            )
            self._planned = plan
        return plan

    def _capacities(self, fanouts: tuple[int, ...], replace: bool, num_seeds: int) -> tuple[list[int], list[int]]:
        """Room for the frontiers and the edges of each hop, in elements."""
        n, e = self.graph.num_nodes, self.graph.num_edges
        largest_frontiers, largest_edges = self._largest.get(fanouts, ([], []))
        frontiers, edges = [num_seeds], []
        for h, k in enumerate(fanouts):
            # A first guess for "all neighbours" is twice the mean degree; a wrong one is mended by a repetition.
            most_edges = frontiers[-1] * k if k != -1 else min(e, 2 * frontiers[-1] * (e // max(n, 1) + 1))
            if k != -1 and not replace:
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

    def learn(self, fanouts: tuple[int, ...], frontiers: list[int], edges: list[int], *, did_fit: bool) -> None:
        """Remembers the largest sizes seen (of a mini-batch that did not fit: those of its first hops)."""
        if fanouts not in self._largest or not did_fit:
            self._plans.clear()
        largest = self._largest.setdefault(fanouts, ([], []))
        for known, new in zip(largest, (frontiers, edges), strict=True):
            known += [0] * (len(new) - len(known))
            known[: len(new)] = map(max, known, new)

    def edge_ids(self) -> Tensor:
        """The graph's edge ids on the device."""
        if self._edge_ids is None:
            assert self.graph.edge_ids is not None
            self._edge_ids = self.graph.edge_ids.to(self.device)
        return self._edge_ids

    def wait_for_last_use(self, stream: torch.cuda.Stream) -> None:
        """The workspace is one: a mini-batch on another stream waits for what the last one's stream holds."""
        if stream != self._stream:
            stream.wait_stream(self._stream)
            self._stream = stream
