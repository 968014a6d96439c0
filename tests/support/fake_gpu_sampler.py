"""`CudaSampler` without a GPU: an engine that gives the CPU's mini-batches, and a `torch` whose GPU is host memory.

What Python does around a launch, room, groups, repetitions, streams, is then the same as on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass
from operator import gt
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from loader import _core
from loader.samplers.gpu import sampler as cuda
from loader.samplers.gpu import workspace as cuda_workspace
from loader.samplers.gpu.sampler import _OK, _OVERFLOW, _SEED_DUPLICATE, _SEED_RANGE


def at(address: int, length: int, dtype: torch.dtype) -> Tensor:
    """The memory at `address` as a tensor."""
    if not length:
        return torch.empty(0, dtype=dtype)
    memory = (ctypes.c_char * (length * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


class Stream:
    """A stream that notes what it waits for."""

    cuda_stream = 0

    def __init__(self) -> None:
        self.waited: list[Any] = []

    def wait_stream(self, other: Any) -> None:
        self.waited.append(other)

    def wait_event(self, event: Any) -> None:
        self.waited.append(event)


class Event:
    def record(self, stream: Any) -> None:
        self.stream = stream


@dataclass
class Launch:
    """What was launched: mini-batches, schedule and vertex set by number, thread blocks (0: all that fit)."""

    batches: int
    schedule: int
    vertex_set: int
    blocks: int


class FakeGPU:
    """Patches the modules of `CudaSampler`.

    Attributes:
        stream: the current one.
        launches: so far, of all samplers.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.stream = Stream()
        self.launches: list[Launch] = []
        fake_cuda = SimpleNamespace(
            current_stream=lambda *_: self.stream,
            current_device=lambda: None,
            synchronize=lambda *_: None,
            get_device_properties=lambda _: SimpleNamespace(multi_processor_count=132),
            device=lambda *_: contextlib.nullcontext(),
            stream=lambda *_: contextlib.nullcontext(),
            Event=Event,
        )
        for module in (cuda, cuda_workspace):
            patch.setattr(module, "torch", FakeTorch(fake_cuda))
            patch.setattr(module, "current_stream", lambda *_: self.stream)
        patch.setattr(cuda, "made_current", lambda *_: contextlib.nullcontext())
        patch.setattr(cuda, "require_cuda", lambda *_: None)
        patch.setattr(cuda, "cuda_device", lambda *_: torch.device("cpu"))
        patch.setattr(torch.Tensor, "record_stream", lambda *_: None)
        constants = {
            "cuda_bitmap_entries": lambda num_nodes, hops: (hops + 1) * (num_nodes // 32 + 1),
            "cuda_ranges": 64,
            "cuda_range_begins": 96,
            "cuda_workspace_totals": 16,
            "cuda_state_bytes": 256,
            "cuda_header_bytes": 256,
            "cuda_max_batches_per_launch": 16,
            "cuda_max_task_vertices": 2**40,
            "cuda_part_edges": 8192,
        }
        for name, value in constants.items():
            patch.setattr(_core, name, value, raising=False)
        for edge, node in ((32, 32), (64, 32), (64, 64)):
            dtypes = (torch.int32 if edge == 32 else torch.int64), (torch.int32 if node == 32 else torch.int64)
            patch.setattr(_core, f"CudaSampler_i{edge}_i{node}", self._engines(*dtypes), raising=False)

    def _engines(self, edge_dtype: torch.dtype, node_dtype: torch.dtype) -> Any:
        return lambda *arguments: FakeEngine(self, edge_dtype, node_dtype, *arguments)


class FakeTorch:
    """`torch` with another `cuda`, and nothing pinned."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def zeros(self, *sizes: Any, pin_memory: bool = False, **options: Any) -> Tensor:
        return torch.zeros(*sizes, **options)


class FakeEngine:
    """The extension's engine, see `loader/_core.pyi`."""

    def __init__(
        self,
        gpu: FakeGPU,
        edge_dtype: torch.dtype,
        node_dtype: torch.dtype,
        indptr: int,
        indices: int,
        num_nodes: int,
        *_: int,
    ) -> None:
        self.gpu, self.edge_dtype, self.node_dtype, self.num_nodes = gpu, edge_dtype, node_dtype, num_nodes
        self.indptr = at(indptr, num_nodes + 1, edge_dtype)
        self.indices = at(indices, int(self.indptr[-1]), node_dtype)
        self.added: list[tuple[int, tuple[int, ...]]] = []
        self.results: dict[int, tuple[int, int, int, list[int], list[int], int]] = {}
        self.most: list[int] = []
        self.number = 0

    def plan(
        self,
        fanouts: Any,
        replace: bool,
        pad: bool,
        frontiers: Any,
        edges: Any,
        indices_at: Any,
        indptr_at: Any,
        edge_ids_at: Any,
        num_seeds: int,
        tasks: int,
        schedule: int,
        vertex_set: int,
    ) -> tuple[int, ...]:
        self.fanouts, self.replace, self.frontiers, self.edges = list(fanouts), replace, list(frontiers), list(edges)
        self.indices_at, self.indptr_at, self.edge_ids_at = indices_at, indptr_at, edge_ids_at
        self.vertex_set = vertex_set
        hashed = 4 * frontiers[-1], frontiers[-1]
        return frontiers[-2] + num_seeds, tasks, 0, sum(edges), *(hashed if vertex_set else (0, 0))

    def use(self, *_: int) -> None:
        pass

    use_bitmaps = use_hash = use

    def add(self, *batch: int) -> int:
        self.number += 1
        self.added.append((self.number, batch))
        return self.number

    def launch(self, schedule: int, blocks: int, stream: int) -> int:
        self.gpu.launches.append(Launch(len(self.added), schedule, self.vertex_set, blocks))
        for number, batch in self.added:
            self.results[number] = self._sample(*batch)
        self.added.clear()
        return 1

    def finish(self, number: int, hops: int, stream: int) -> tuple[int, int, int, list[int], list[int], int, bool]:
        status, detail, done, frontiers, edges, tasks = self.results.pop(number)
        sizes = [*frontiers, *edges]
        grown = status == _OK and (not self.most or any(map(gt, sizes, self.most)))
        if grown:
            self.most = [*map(max, sizes, self.most or sizes)]
        return status, detail, done, frontiers, edges, tasks, grown

    def peek(self, number: int) -> tuple[int, int] | None:
        return self.results[number][:2]

    def _sample(
        self, seeds_at: int, num_seeds: int, key: int, vertices: int, edges: int, sizes_at: int
    ) -> tuple[int, int, int, list[int], list[int], int]:
        seeds = at(seeds_at, num_seeds, self.node_dtype)
        bad = seeds[(seeds < 0) | (seeds >= self.num_nodes)]
        if bad.numel():
            return _SEED_RANGE, int(bad[0]), 0, [], [], 0
        values, counts = seeds.unique(return_counts=True)
        if bool((counts > 1).any()):
            return _SEED_DUPLICATE, int(values[counts > 1][0]), 0, [], [], 0
        with_ids = bool(self.edge_ids_at)
        oracle = _core.HopwiseSampler(self.indptr, self.indices, self.fanouts, self.replace, with_ids, 1, 1)
        (sampled,) = oracle.sample([seeds], [key])
        frontiers, sizes, offsets, buffer = sampled.take()
        for done, frontier in enumerate(frontiers):  # as hop by hop: with each frontier the next hop's edges are known
            if frontier > self.frontiers[done] or (done < len(sizes) and sizes[done] > self.edges[done]):
                return _OVERFLOW, 0, done, frontiers, sizes, 0

        def edge_arrays(offsets: Any, lengths: list[int]) -> list[Tensor]:
            size = self.edge_dtype.itemsize
            return [at(edges + o * size, n, self.edge_dtype) for o, n in zip(offsets, lengths, strict=True)]

        def vertex_arrays(offsets: Any, lengths: list[int]) -> list[Tensor]:
            size = self.node_dtype.itemsize
            return [at(vertices + o * size, n, self.node_dtype) for o, n in zip(offsets, lengths, strict=True)]

        indptr = edge_arrays(self.indptr_at, [n + 1 for n in frontiers[:-1]])
        indices = vertex_arrays(self.indices_at, sizes)
        edge_ids = edge_arrays(self.edge_ids_at, sizes) if with_ids else []
        arrays = [at(vertices, frontiers[-1], self.node_dtype)]
        for hop in zip(indptr, indices, *([edge_ids] if with_ids else []), strict=True):
            arrays += hop
        for array, offset in zip(arrays, offsets, strict=True):
            if array.numel():
                array.copy_(torch.frombuffer(buffer, dtype=array.dtype, count=array.numel(), offset=offset))
        if sizes_at:
            at(sizes_at, len(frontiers) + len(sizes), torch.int64).copy_(torch.tensor(frontiers + sizes))
        return _OK, 0, len(sizes), frontiers, sizes, 0
