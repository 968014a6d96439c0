"""A cache of rows that takes in what the next gathers need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from loader import _core
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import current_stream, current_stream_handle

BYTES_PER_SLOT = 12  # its row, and its places in the two lists of rows that go and come
BYTES_PER_ROW = 1  # the gather that reads it next
_HOT, _NO_USE = 0x80, 0x7F  # see csrc/features/cuda/renewal.h


class Gathers(Protocol):
    """Gathers of a store, whole and in parts. They only put work on the current stream."""

    def gather(self, ids: Tensor) -> Tensor:
        """The rows of `ids`, in the type in which they are cached."""

    def empty(self, ids: Tensor) -> Tensor:
        """Memory for these rows."""

    def raise_bad_id(self) -> None:
        """Raises what an earlier gather reported, and clears the report."""

    def mark_misses(self, ids: Tensor) -> Tensor:
        """Marks which of the rows are not cached."""

    def read_misses(self, ids: Tensor, marks: Tensor, rows: Tensor) -> None:
        """Gathers these into their places in `rows`. The cache may change meanwhile."""

    def read_cached(self, ids: Tensor, rows: Tensor) -> None:
        """Gathers the others."""


class Renewal:
    """Replaces rows of a cache after each gather, for a group of gathers that is known ahead.

    Of the rows that are cached and those that the gather brought, those stay that the group's next gathers read, the
    soonest first. After them stay the rows that were cached at the beginning, the hot ones.

    The bus does not wait for any of this. Rows that are not cached are read on a stream of their own, one gather right
    behind the other. Meanwhile another stream chooses which rows go and come, and marks what the next gather has to
    read. Only the copies of the rows that come wait for the bus.

    A gather that reads the cache belongs under `alone()`, whoever asks for it: its rows must not be replaced under it.

    Args:
        cache: `[count, ...]`, the cached rows on a GPU.
        slots: `[num_rows]` int32 there, where in `cache` each row is, or -1. Both change.
        hot: `[count]` int64 on the CPU, the rows that are in `cache` now.
    """

    def __init__(self, cache: Tensor, slots: Tensor, hot: Tensor) -> None:
        device, count, num_rows = cache.device, len(hot), len(slots)
        uses = torch.full((-(-num_rows // 4) * 4,), _NO_USE, dtype=torch.uint8)
        uses[hot] |= _HOT
        lists = torch.empty(2, count, dtype=torch.int32, device=device)
        arrays = {
            "slots": slots,
            "owners": hot.to(torch.int32).to(device),  # from 2^31 on these wrap, as the core wants it
            "uses": uses.to(device),
            "leaving": lists[0],
            "coming": lists[1],
            "tally": torch.empty(_core.renewal_tally_bytes, dtype=torch.uint8, device=device),
        }
        self._device = device
        self._arrays = (cache, *arrays.values())  # which the core does not keep
        self._core: _core.CudaRenewal | None = _core.CudaRenewal(cache, **arrays)
        self._lock = ForkSafeLock()
        self._choice, self._bus = self._side_stream(), self._side_stream()
        self._read = self._event()  # the last gather is done with the cache
        self._noted: _Group | None = None  # the group whose uses are written down

    @contextmanager
    def alone(self) -> Iterator[_core.CudaRenewal]:
        """The current stream waits for the gathers before, and those after wait for what it does here.

        Raises:
            RuntimeError: this was closed, or a renewal failed.
        """
        with self._lock:
            if self._core is None:
                raise RuntimeError("the store of this gather was closed, or renewing its cache failed; make a new one")
            self._wait_for(self._read)
            try:
                yield self._core
            finally:
                if self._read is not None:
                    self._read.record(current_stream(self._device.index))

    def whole(self, gather: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
        """A gather that is not in parts, under `alone()`. The bus waits for it: it may clear the report of a bad id."""
        try:
            return gather(ids)
        finally:
            if self._bus is not None:
                self._bus.wait_stream(current_stream(self._device.index))

    def begin(self, ids: Sequence[Tensor], gathers: Gathers) -> list[Callable[[], Tensor]]:
        """Announces gathers that come next, in this order.

        Args:
            ids: those of each gather, on the GPU, contiguous; of at most `loader._core.most_together` gathers.
            gathers: what launches them.

        Returns:
            A function per gather, to be called once. It returns the rows, which are complete on the current stream.
        """
        sizes = [each.numel() for each in ids]
        following = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device).split(sizes)
        group = _Group(list(zip(ids, following, strict=True)), self._event())
        return [partial(self._gather, group, turn, gathers) for turn in range(len(group.gathers))]

    def close(self) -> None:
        """Lets go of the GPU memory. The GPU must be done with it."""
        with self._lock:
            self._core, self._noted, self._arrays = None, None, ()

    def _gather(self, group: _Group, turn: int, gathers: Gathers) -> Tensor:
        with self.alone() as core:
            self._wait_for(group.begun)
            ids, following = group.gather(turn)
            self._reads(ids)
            if len(group.gathers) == 1:  # nothing is known of the next ones
                return self.whole(gathers.gather, ids)
            with self._on(self._bus):  # which may still read what reported: it is cleared after that, not amid it
                gathers.raise_bad_id()
            with self._on(self._choice) as choice:
                if self._noted is not group:
                    self._note(core, group, turn, choice)
                self._reads(ids)
                marks = gathers.mark_misses(ids)
                marked = self._event()
            with self._on(self._bus) as bus:
                self._wait_for(marked)
                self._reads(ids, marks)
                # Of the bus's memory: what the current stream did with it before, the bus need not wait for.
                rows = gathers.empty(ids)
                gathers.read_misses(ids, marks, rows)
            self._reads(rows)
            gathers.read_cached(ids, rows)
            stream = self._handle()
            try:
                core.renew(ids, following, turn, rows, choice, bus, stream)
            except BaseException:
                self._core = None  # slots may name rows that were not copied
                raise
            group.gathers[turn] = None  # the ids may keep a whole mini-batch
            return rows

    def _note(self, core: _core.CudaRenewal, group: _Group, first: int, stream: int) -> None:
        """Writes down the uses of the gathers from `first` on, and drops those of a group before."""
        self._noted = None
        self._wait_for(group.begun)
        core.forget(stream)
        for turn in range(len(group.gathers) - 1, first - 1, -1):
            ids, following = group.gather(turn)
            self._reads(ids, following)
            core.note(ids, following, turn, stream)
        self._noted = group

    def _reads(self, *tensors: Tensor) -> None:
        """The current stream reads them, or writes to them: they may be of another stream."""
        for tensor in tensors:
            if tensor.is_cuda:
                tensor.record_stream(current_stream(self._device.index))

    def _side_stream(self) -> torch.cuda.Stream | None:
        """One that waits for the current one, and goes first as that of a gather does; None on the CPU."""
        if self._device.type != "cuda":
            return None
        stream = torch.cuda.Stream(self._device, priority=-3)
        stream.wait_stream(current_stream(self._device.index))
        return stream

    @contextmanager
    def _on(self, stream: torch.cuda.Stream | None) -> Iterator[int]:
        """Makes it the current stream, for a `with` block that has its handle."""
        with torch.cuda.stream(stream):
            yield self._handle()

    def _event(self) -> torch.cuda.Event | None:
        """Recorded on the current stream; None on the CPU, where tests run."""
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event()
        event.record(current_stream(self._device.index))
        return event

    def _wait_for(self, event: torch.cuda.Event | None) -> None:
        if event is not None:
            current_stream(self._device.index).wait_event(event)

    def _handle(self) -> int:
        return current_stream_handle(self._device.index) if self._device.type == "cuda" else 0


@dataclass(eq=False)
class _Group:
    """Gathers that are announced together.

    Attributes:
        gathers: ids of each, and `[n]` uint8, which of the next ones reads each row; None after the gather.
        begun: the ids are there; None on the CPU.
    """

    gathers: list[tuple[Tensor, Tensor] | None]
    begun: torch.cuda.Event | None

    def gather(self, turn: int) -> tuple[Tensor, Tensor]:
        """What belongs to a gather that was not made yet."""
        found = self.gathers[turn]
        if found is None:
            raise RuntimeError(f"gather {turn} of its group was made already")
        return found
