"""`CudaSampler` without a GPU: an engine that gives the CPU's mini-batches, and a `torch` whose GPU is host memory.

What Python does around a launch, room, groups, repetitions, streams, is then the same as on a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from dataclasses import dataclass
from operator import gt
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from loader import _core
from loader.samplers import tree_options
from loader.samplers.gpu import hetero as cuda_hetero
from loader.samplers.gpu import sampler as cuda
from loader.samplers.gpu import session as cuda_session
from loader.samplers.gpu import workspace as cuda_workspace
from loader.samplers.gpu.session import _OK, _OVERFLOW, _SEED_DUPLICATE, _SEED_RANGE


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
        self.synchronized = 0

    def wait_stream(self, other: Any) -> None:
        self.waited.append(other)

    def synchronize(self) -> None:
        self.synchronized += 1


@dataclass
class Launch:
    """What was launched: mini-batches, schedule and node set by number, thread blocks (0: all that fit)."""

    batches: int
    schedule: int
    node_set: int
    blocks: int


class FakeGPU:
    """Patches the modules of `CudaSampler`.

    Attributes:
        stream: the current one.
        launches: so far, of all samplers.
        refuse_launch: the next one is refused, in the midst of its work.
        busy: nothing is done yet for those who do not wait.

    Args:
        engine: a module with engines to take instead of the fake ones, which alone note what was launched.
    """

    def __init__(self, patch: pytest.MonkeyPatch, engine: Any = None) -> None:
        self.stream = Stream()
        self.launches: list[Launch] = []
        self.refuse_launch = self.busy = False
        fake_cuda = SimpleNamespace(
            current_stream=lambda *_: self.stream,
            current_device=lambda: None,
            synchronize=lambda *_: None,
            get_device_properties=lambda _: SimpleNamespace(multi_processor_count=132),
            device=lambda *_: contextlib.nullcontext(),
            stream=lambda *_: contextlib.nullcontext(),
        )
        for module in (cuda_session, cuda_workspace):
            patch.setattr(module, "torch", FakeTorch(fake_cuda))
            patch.setattr(module, "current_stream", lambda *_: self.stream)
        patch.setattr(cuda_hetero, "current_stream", lambda *_: self.stream)
        patch.setattr(tree_options, "require_cuda", lambda *_: None)
        patch.setattr(tree_options, "cuda_device", lambda *_: torch.device("cpu"))
        patch.setattr(cuda_workspace, "free_when_done", lambda _, free: free())
        patch.setattr(cuda_session, "made_current", lambda *_: contextlib.nullcontext())
        patch.setattr(cuda, "require_cuda", lambda *_: None)
        patch.setattr(cuda, "cuda_device", lambda *_: torch.device("cpu"))
        patch.setattr(torch.Tensor, "record_stream", lambda *_: None)
        constants = {"cuda_header_bytes": 256, "cuda_max_batches_per_launch": 16}
        for name, value in constants.items():
            patch.setattr(_core, name, getattr(engine, name, value), raising=False)
        for edge, node in ((32, 32), (64, 32), (64, 64)):
            dtypes = (torch.int32 if edge == 32 else torch.int64), (torch.int32 if node == 32 else torch.int64)
            name = f"CudaSampler_i{edge}_i{node}"
            if engine is None:
                patch.setattr(_core, name, self._engines(*dtypes), raising=False)
            for found in (name, f"Hetero{name}", f"Tree{name}"):
                if hasattr(engine, found):
                    patch.setattr(_core, found, getattr(engine, found), raising=False)
        for name in ("cuda_hetero_header_bytes", "Times"):
            if hasattr(engine, name):
                patch.setattr(_core, name, getattr(engine, name), raising=False)

    def _engines(self, edge_dtype: torch.dtype, node_dtype: torch.dtype) -> Any:
        return lambda *arrays, **options: FakeEngine(self, edge_dtype, node_dtype, *arrays, **options)


class FakeTorch:
    """`torch` with another `cuda`, and nothing pinned."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def zeros(self, *sizes: Any, pin_memory: bool = False, **options: Any) -> Tensor:
        return torch.zeros(*sizes, **options)


@dataclass(eq=False)
class FakeResult:
    """What tells the sizes of a mini-batch, see `loader/_core.pyi`. Its header, by number, is its own until it did."""

    engine: FakeEngine
    header: int | None
    told: tuple[int, int, int, list[int], list[int], int]

    def wait(self) -> tuple[int, int, int, list[int], list[int], int, bool, int]:
        status, detail, done, frontiers, edges, counted = self._read()
        sizes, most = [*frontiers, *edges], self.engine.most
        grown = status == _OK and (not most or any(map(gt, sizes, most)))
        if grown:
            self.engine.most = [*map(max, sizes, most or sizes)]
        return status, detail, done, frontiers, edges, counted, grown, 0

    def peek(self) -> tuple[int, int] | None:
        return None if self.engine.gpu.busy else self._read()[:2]

    def _read(self) -> Any:
        assert self.header is not None, "a mini-batch is finished once"
        told = self.engine.written[self.header]
        assert told is self.told, "the header has another mini-batch's sizes"
        self._let_go()
        return told

    def _let_go(self) -> None:
        if self.header is not None:
            self.engine.free.append(self.header)
        self.header = None

    __del__ = _let_go


class FakeEngine:
    """The extension's engine, see `loader/_core.pyi`."""

    def __init__(
        self,
        gpu: FakeGPU,
        edge_dtype: torch.dtype,
        node_dtype: torch.dtype,
        indptr: Tensor,
        indices: Tensor,
        *,
        fanouts: Any,
        replace: bool,
        edge_ids: bool,
        pad: bool,
        device: int,
        picks: Any = None,
        reads: int = 0,
        cached_begins: Any = None,
        cached_entries: Any = None,
    ) -> None:
        assert picks is None  # the tests of this class are about sizes
        assert indptr.dtype == edge_dtype
        assert indices.dtype == node_dtype
        self.gpu, self.edge_dtype, self.node_dtype = gpu, edge_dtype, node_dtype
        self.indptr, self.indices, self.num_nodes = indptr, indices, indptr.numel() - 1
        self.fanouts, self.replace = list(fanouts), replace
        self.written: list[Any] = []  # the headers, and the numbers of those that no mini-batch has
        self.free: list[int] = []
        self.room: dict[str, int] = {}
        self.most: list[int] = []

    def plan(
        self,
        *,
        num_seeds: int,
        slots: int,
        schedule: int,
        node_set: int,
        frontier_capacity: Any,
        edge_capacity: Any,
        indices_at: Any,
        indptr_at: Any,
        edge_ids_at: Any,
        edges_at: int,
        lines: int,
    ) -> list[tuple[str, str, int, bool]]:
        self.frontiers, self.edges = list(frontier_capacity), list(edge_capacity)
        self.indices_at, self.indptr_at, self.edge_ids_at = indices_at, indptr_at, edge_ids_at
        self.edges_at, self.schedule, self.node_set = edges_at, schedule, node_set
        if slots != self.room.get("state"):
            self.room = {"state": slots}
        needed = {"row_begin": frontier_capacity[-2] + num_seeds}
        needed |= {"keys": 4 * frontier_capacity[-1]} if node_set else {"bitmaps": self.num_nodes}
        for name, length in needed.items():
            self.room[name] = max(self.room.get(name, 0), slots * length)
        zero = "state", "keys", "bitmaps"
        return [(name, "int32", length, name in zero) for name, length in self.room.items()]

    def use(self, arrays: dict[str, Tensor]) -> None:
        assert {name: held.numel() for name, held in arrays.items()} == self.room
        self.marks = arrays["keys" if self.node_set else "bitmaps"]

    def add_headers(self, memory: Tensor) -> None:
        assert memory.dtype == torch.uint8
        first, count = len(self.written), memory.numel() // _core.cuda_header_bytes
        self.written += [None] * count
        self.free += range(first, first + count)

    @property
    def free_headers(self) -> int:
        return len(self.free)

    def launch(self, batches: Any, blocks: int, stream: int) -> tuple[int, list[FakeResult]]:
        assert not self.marks.any(), "an earlier launch left marks"
        if self.gpu.refuse_launch:
            self.gpu.refuse_launch = False
            self.marks.fill_(1)
            raise RuntimeError("launching the sampler failed: out of resources")
        self.gpu.launches.append(Launch(len(batches), self.schedule, self.node_set, blocks))
        results = []
        for batch in batches:
            header = self.free.pop()
            self.written[header] = self._sample(*batch)
            results.append(FakeResult(self, header, self.written[header]))
        return 1, results

    def _sample(
        self, seeds: Tensor, keys: tuple[int, int, int], memory: Tensor, sizes_to: Tensor | None
    ) -> tuple[int, int, int, list[int], list[int], int]:
        assert seeds.dtype == self.node_dtype
        num_seeds, nodes = seeds.numel(), memory.data_ptr()
        edges = nodes + self.edges_at
        bad = seeds[(seeds < 0) | (seeds >= self.num_nodes)]
        if bad.numel():
            return _SEED_RANGE, int(bad[0]), 0, [], [], 0
        values, counts = seeds.unique(return_counts=True)
        if bool((counts > 1).any()):
            return _SEED_DUPLICATE, int(values[counts > 1][0]), 0, [], [], 0
        with_ids = bool(self.edge_ids_at)
        oracle = _core.HopwiseSampler(self.indptr, self.indices, self.fanouts, self.replace, with_ids, 1, 1)
        (sampled,) = oracle.sample([seeds], [keys[0]])
        try:
            frontiers, sizes, _, offsets, buffer = sampled.take()
        except OverflowError as error:  # of the first hop, in the tests
            return _OVERFLOW, 0, 0, [num_seeds], [int(re.findall(r"\d+", str(error))[0])], 0
        for done, frontier in enumerate(frontiers):  # as hop by hop: with each frontier the next hop's edges are known
            if frontier > self.frontiers[done] or (done < len(sizes) and sizes[done] > self.edges[done]):
                return _OVERFLOW, 0, done, frontiers, sizes, 0

        def edge_arrays(offsets: Any, lengths: list[int]) -> list[Tensor]:
            size = self.edge_dtype.itemsize
            return [at(edges + o * size, n, self.edge_dtype) for o, n in zip(offsets, lengths, strict=True)]

        def node_arrays(offsets: Any, lengths: list[int]) -> list[Tensor]:
            size = self.node_dtype.itemsize
            return [at(nodes + o * size, n, self.node_dtype) for o, n in zip(offsets, lengths, strict=True)]

        indptr = edge_arrays(self.indptr_at, [n + 1 for n in frontiers[:-1]])
        indices = node_arrays(self.indices_at, sizes)
        edge_ids = edge_arrays(self.edge_ids_at, sizes) if with_ids else []
        arrays = [at(nodes, frontiers[-1], self.node_dtype)]
        for hop in zip(indptr, indices, *([edge_ids] if with_ids else []), strict=True):
            arrays += hop
        for array, offset in zip(arrays, offsets, strict=True):
            if array.numel():
                array.copy_(torch.frombuffer(buffer, dtype=array.dtype, count=array.numel(), offset=offset))
        if sizes_to is not None:
            sizes_to.copy_(torch.tensor(frontiers + sizes))
        return _OK, 0, len(sizes), frontiers, sizes, 0
