"""The part of a gather on a GPU that threads of the host take over: rows that the GPU would read over the bus."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import counted_bytes
from loader.stores.rows import RowFormat
from loader.stores.staged import UploadRing

_LEAST_IDS = 1 << 14  # with fewer, the GPU is done before the threads have their ids
_BUFFER_BYTES = 8 << 20
_ROOM_BYTES = 64 << 20  # of rows on the GPU that are on their way to their places
_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


class Share:
    """The share of a gather's ids that the host takes: that with which it and the GPU are done at the same time.

    Each gather tells how fast both were. The share goes a quarter of the way to that which would have suited it.

    Attributes:
        value: in `LEAST` to `MOST`. It is never 0: the host's speed would not be known any more.
    """

    LEAST, MOST, FIRST, STEP = 0.05, 0.9, 0.55, 0.25

    def __init__(self) -> None:
        self.value = self.FIRST

    def of(self, ids: int) -> int:
        """How many of this many ids."""
        return int(self.value * ids)

    def learn(self, taken: float, host_ms: float, gpu_ms: float) -> None:
        """Moves the share.

        Args:
            taken: the share that the host had, in (0, 1).
            host_ms, gpu_ms: how long both took, in milliseconds.
        """
        host, gpu = taken / max(host_ms, 1e-3), (1 - taken) / max(gpu_ms, 1e-3)
        self.value += self.STEP * (host / (host + gpu) - self.value)
        self.value = min(max(self.value, self.LEAST), self.MOST)


class Launch(Protocol):
    """Puts a gather of `ids` into `out` on the current stream."""

    def __call__(self, ids: Tensor, out: Tensor, *, only_cached: bool = False) -> None:
        """`only_cached`: rows that are not in the cache are left as they are."""


class HostPart:
    """Gathers from a table of which the GPU has some rows in a cache, together with the GPU.

    The ids are cut in two. A kernel on a stream of its own gathers the last ones, wherever their rows lie. Of the first
    ones, a kernel there reads the rows that are in the cache. Threads gather the others into a ring of pinned buffers,
    which are copied to the GPU and put in their places there, on the current stream. Where the ids are cut changes the
    time, but no byte. See `Share`.

    A gather has two halves. If the next one is begun before the last one is finished, its kernels follow those of the
    last one at once, and its ids are on the host when the threads ask for them.

    Args:
        table: `[num_rows, ...]` on the CPU, pinned, at least one row, of at least one element.
        cached: `[count]` int64 on the CPU, ids of the rows in the cache.
        device: the GPU.
        form: of the rows.
        num_threads: of the host.

    Attributes:
        share: of the ids.
        least: of fewer ids the GPU gathers all.

    Raises:
        RuntimeError: the buffers could not be locked.
    """

    def __init__(self, table: Tensor, cached: Tensor, device: torch.device, form: RowFormat, num_threads: int) -> None:
        self._device, self._format = device, form
        # Rows that are not converted are words: torch does not move rows of every type to their places.
        convert = form.dtype != form.storage_dtype
        flat = table.view(form.num_rows, -1)
        self._table = flat if convert else flat.view(_word(form.nbytes, int(table.storage_offset()) * table.itemsize))
        self._out_dtype = form.dtype if convert else self._table.dtype
        self._room = rows_of_room(form)
        kept = torch.zeros(form.num_rows, dtype=torch.bool)
        kept[cached] = True
        self._kept = torch.from_numpy(np.packbits(kept.numpy(), bitorder="little"))
        self._ring: UploadRing | None = UploadRing(form, _BUFFER_BYTES, device, num_threads)
        with torch.cuda.device(device):
            # As of the stage that gathers: a kernel that begins late keeps the bus idle.
            self._side = torch.cuda.Stream(self._device, priority=-3)
        self._lock = ForkSafeLock()  # of threads, ring and times: one gather is finished at a time
        self._begin_lock = ForkSafeLock()  # of the side stream: the kernels of a gather follow each other on it
        # Of gathers whose kernels may still run: the host's share, its time, and events around the kernels.
        self._times: deque[tuple[float, float, torch.cuda.Event, torch.cuda.Event]] = deque()
        self.share = Share()
        self.least = _LEAST_IDS

    def begin(self, ids: Tensor, launch: Launch, forget: Callable[[], None]) -> Callable[[], Tensor]:
        """Begins a gather, and returns what finishes it, on the stream that is the current one then.

        The host does not wait here. To finish it, the host waits for the ids, and until its threads are done.

        Args:
            ids: `[n]` int32 or int64, on the GPU, contiguous.
            launch: see `Launch`.
            forget: drops the report of an id out of range, if a kernel made one.

        Returns:
            A function without arguments, to be called once. It returns the rows of `ids`. It raises ValueError if an id
            is out of range, and RuntimeError if this was closed.

        Raises:
            RuntimeError: this was closed.
        """
        with self._begin_lock:
            self._open()
            n, side = ids.numel(), self._side
            stream = torch.cuda.current_stream(self._device)
            cut = self.share.of(n) if n >= self.least else 0
            # In page-locked memory, of which torch keeps some: the system would have to clear other memory first.
            here, cold = (torch.empty(count, dtype=ids.dtype, pin_memory=True) for count in (n, cut))
            positions = torch.empty(cut, dtype=torch.int64, pin_memory=True)
            here.copy_(ids, non_blocking=True)
            arrived, begin, end = torch.cuda.Event(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
            arrived.record(stream)
            side.wait_event(arrived)
            # `out` is memory of this stream, whose kernels write it while others are still at work.
            with torch.cuda.stream(side):
                out = torch.empty((n, self._table.shape[1]), dtype=self._out_dtype, device=self._device)
                ids.record_stream(side)
                begin.record(side)
                if cut:
                    launch(ids[:cut], out[:cut], only_cached=True)
                if cut < n:
                    launch(ids[cut:], out[cut:])
                end.record(side)
            return partial(self._finish, here, arrived, cold, positions, out, forget, begin, end)

    def close(self) -> None:
        """Waits for the copies and frees threads and buffers."""
        with self._lock:
            if self._ring is not None:
                self._ring.close()
                self._ring = None
                self._table = self._kept = torch.empty(0)

    def _finish(
        self,
        here: Tensor,
        arrived: torch.cuda.Event,
        cold: Tensor,
        positions: Tensor,
        out: Tensor,
        forget: Callable[[], None],
        begin: torch.cuda.Event,
        end: torch.cuda.Event,
    ) -> Tensor:
        with self._lock:
            ring, stream = self._open(), torch.cuda.current_stream(self._device)
            self._learn()
            out.record_stream(stream)
            arrived.synchronize()
            clock = time.perf_counter()
            try:
                count = ring.threads.not_kept(self._kept, self._format.num_rows, here, cold, positions)
            except ValueError:
                end.synchronize()  # a kernel may report the same
                forget()
                raise
            if count:
                self._copy(ring, cold[:count], positions[:count], out, stream)
            if len(cold):
                self._times.append((len(cold) / len(here), (time.perf_counter() - clock) * 1e3, begin, end))
            stream.wait_event(end)
            return out.view(self._format.dtype).view(len(here), *self._format.shape)

    def _open(self) -> UploadRing:
        if self._ring is None:
            raise RuntimeError("this CachedFeatures was closed; make a new one")
        return self._ring

    def _learn(self) -> None:
        """Moves the share by the times of the gathers that the GPU is done with."""
        while self._times and self._times[0][3].query():
            taken, host_ms, begin, end = self._times.popleft()
            self.share.learn(taken, host_ms, begin.elapsed_time(end))

    def _copy(self, ring: UploadRing, ids: Tensor, positions: Tensor, out: Tensor, stream: torch.cuda.Stream) -> None:
        """Puts the rows of `ids`, which are on the CPU as `positions` are, to these places of `out`."""
        part, places = self._room, positions.to(self._device, non_blocking=True)
        room = torch.empty((min(part, len(ids)), out.shape[1]), dtype=self._table.dtype, device=self._device)
        for begin in range(0, len(ids), part):
            wanted = ids[begin : begin + part]
            near = room[: len(wanted)]
            ring.core.upload(self._table, wanted, near, stream.cuda_stream)
            out.index_copy_(0, places[begin : begin + part], near.to(out.dtype))


def rows_of_room(form: RowFormat) -> int:
    """Rows that are on their way at a time: no more than the table has."""
    return max(1, min(_ROOM_BYTES // max(form.nbytes, 1), form.num_rows))


def gpu_bytes(form: RowFormat, ids: int) -> int:
    """The most that torch's allocator counts for a gather of this many ids, beside what one without threads takes."""
    part = min(rows_of_room(form), ids)
    pieces = [8 * ids, part * form.nbytes]  # places, room
    if form.dtype != form.storage_dtype:
        pieces.append(part * form.dim * form.dtype.itemsize)
    return sum(counted_bytes(nbytes) for nbytes in pieces)


def _word(*lengths: int) -> torch.dtype:
    """The widest integers of which all these numbers of bytes are multiples."""
    return next(word for word in _WORDS if all(length % word.itemsize == 0 for length in lengths))
