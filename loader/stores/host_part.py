"""The part of a gather on a GPU that threads of the host take over: rows that the GPU would read over the bus."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from loader import _core
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import counted_bytes
from loader.stores.rows import RowFormat, check_range
from loader.stores.staged import UploadRing

_LEAST_IDS = 1 << 14  # with fewer, the GPU is done before the threads have their ids
_BUFFER_BYTES = 8 << 20
_ROOM_BYTES = 64 << 20  # of rows on the GPU that are on their way to their places
_COUNTS_BYTES = 8 * (2 + _core.miss_ranges)
_WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


class Share:
    """The share of the rows that the host takes, of those that are not in the cache: that with which it and the GPU are
    done at the same time.

    Each gather tells how fast both were. The share goes a quarter of the way to that which would have suited it. The
    host takes the rows from one place of the table on: a GPU reads the faster the smaller the part of host memory is
    that it reads from. This place follows from where the rows of the gathers before lay.

    Args:
        rows_a_range: the table is looked at in ranges of this many rows.
        ranges: how many these are.

    Attributes:
        value: in `LEAST` to `MOST`. It is never 0: the host's speed would not be known any more.
    """

    LEAST, MOST, FIRST, STEP = 0.05, 0.9, 0.55, 0.25

    def __init__(self, rows_a_range: int, ranges: int) -> None:
        self.value = self.FIRST
        # NumPy's: calls of torch give way to other threads of Python, which takes longer than such small sums.
        self._rows_a_range, self._reads = rows_a_range, np.zeros(ranges)

    def first(self, num_rows: int) -> int:
        """The id of the host's first row."""
        reads = self._reads
        before = reads.cumsum(0)
        wanted = (1 - self.value) * float(before[-1])
        if not wanted:
            return int((1 - self.value) * num_rows)
        at = min(int(np.searchsorted(before, wanted)), len(before) - 1)
        within = 1 - (float(before[at]) - wanted) / max(float(reads[at]), 1e-9)
        return min(int((at + within) * self._rows_a_range), num_rows)

    def learn(self, taken: float, host_ms: float, gpu_ms: float) -> None:
        """Moves the share.

        Args:
            taken: the share that the host had, in (0, 1).
            host_ms, gpu_ms: how long both took, in milliseconds.
        """
        host, gpu = taken / max(host_ms, 1e-3), (1 - taken) / max(gpu_ms, 1e-3)
        self.value += self.STEP * (host / (host + gpu) - self.value)
        self.value = min(max(self.value, self.LEAST), self.MOST)

    def count(self, reads: np.ndarray) -> None:
        """Tells how many rows of a gather, of those that are not in the cache, lay in each range."""
        # A new one: `first` may be at work on the old one.
        self._reads = self._reads + self.STEP * (reads - self._reads)


class Misses(NamedTuple):
    """Ids of rows that are not in the cache, on the GPU, in any order.

    Attributes:
        found: int64, so that one copy brings it to the host. First `2 + ranges` counts: how many ids there are; 1 if
            any id of the gather is out of range; and how many of all ids of rows that are not in the cache lie in each
            range of the table. Behind them lie the ids, of the type of the gather's ids: room for `n`, or for none.
        positions: `[n]` int64, or `[0]`: where in the gather these are.
    """

    found: Tensor
    positions: Tensor

    @staticmethod
    def words(n: int, dtype: torch.dtype, ranges: int) -> int:
        """The length of `found` for `n` ids of a type."""
        return 2 + ranges + -(-n * dtype.itemsize // 8)


class Kernels(Protocol):
    """What a store puts on the current stream."""

    def find_misses(self, ids: Tensor, first: int) -> Misses:
        """Those of `ids` from `first` on, which is at most the number of rows."""

    def launch(self, ids: Tensor, out: Tensor, *, misses_below: int) -> None:
        """A gather of `ids` into `out`. Rows that are not in the cache, of ids from `misses_below` on, are left as they
        are.
        """

    def forget(self) -> None:
        """Drops the report of an id out of range, if a kernel that is done made one."""


class HostPart:
    """Gathers from a table of which the GPU has some rows in a cache, together with the GPU.

    The table is cut in two. A kernel on a stream of its own gathers the rows before the cut, and those that are in the
    cache, wherever they lie. Another one finds the other ids. Threads gather their rows into a ring of pinned buffers,
    which are copied to the GPU and put in their places there, on the current stream. Where the table is cut changes the
    time, but no byte. See `Share`.

    A gather has two halves. If the next one is begun before the last one is finished, its kernels follow those of the
    last one at once, and its ids are on the host when the threads ask for them.

    Args:
        table: `[num_rows, ...]` on the CPU, pinned, at least one row, of at least one element.
        device: the GPU.
        form: of the rows.
        num_threads: of the host.
        rows_a_range: see `Share`.
        ranges: the same.

    Attributes:
        share: of the host.
        least: of fewer ids the GPU gathers all.

    Raises:
        RuntimeError: the buffers could not be locked.
    """

    def __init__(
        self,
        table: Tensor,
        device: torch.device,
        form: RowFormat,
        num_threads: int,
        *,
        rows_a_range: int,
        ranges: int,
    ) -> None:
        self._device, self._format = device, form
        # Rows that are not converted are words: torch does not move rows of every type to their places.
        convert = form.dtype != form.storage_dtype
        flat = table.view(form.num_rows, -1)
        self._table = flat if convert else flat.view(_word(form.nbytes, int(table.storage_offset()) * table.itemsize))
        self._columns = form.dim if convert else self._table.shape[1]
        self._out_dtype = form.dtype if convert else self._table.dtype
        self._room = rows_of_room(form)
        self._ring: UploadRing | None = UploadRing(form, _BUFFER_BYTES, device, num_threads)
        with torch.cuda.device(device):
            # As of the stage that gathers: a kernel that begins late keeps the bus idle.
            self._side = torch.cuda.Stream(self._device, priority=-3)
        self._ranges = ranges
        self._lock = ForkSafeLock()  # of threads, ring and times: one gather is finished at a time
        self._begin_lock = ForkSafeLock()  # of the side stream: the kernels of a gather follow each other on it
        # Of gathers whose kernels may still run: the host's share, its time, and events around the kernels.
        self._times: deque[tuple[float, float, torch.cuda.Event, torch.cuda.Event]] = deque()
        self.share = Share(rows_a_range, ranges)
        self.least = _LEAST_IDS

    def begin(self, ids: Tensor, kernels: Kernels) -> Callable[[], Tensor]:
        """Begins a gather, and returns what finishes it, on the stream that is the current one then.

        The host does not wait here. To finish it, the host waits for the ids, and until its threads are done.

        Args:
            ids: `[n]` int32 or int64, on the GPU, contiguous.
            kernels: of the store.

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
            num_rows = self._format.num_rows
            first = self.share.first(num_rows) if n >= self.least else num_rows
            ready, arrived = torch.cuda.Event(), torch.cuda.Event()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            ready.record(stream)
            misses = kernels.find_misses(ids, first)
            here = torch.empty(len(misses.found), dtype=torch.int64, pin_memory=True)
            here.copy_(misses.found, non_blocking=True)
            arrived.record(stream)
            side.wait_event(ready)
            # `out` is memory of this stream, whose kernels write it while others are still at work.
            with torch.cuda.stream(side):
                out = torch.empty((n, self._columns), dtype=self._out_dtype, device=self._device)
                ids.record_stream(side)
                begin.record(side)
                kernels.launch(ids, out, misses_below=first)
                end.record(side)
            return partial(self._finish, ids, here, misses.positions, arrived, out, kernels, begin, end)

    def close(self) -> None:
        """Waits for the copies and frees threads and buffers."""
        with self._lock:
            if self._ring is not None:
                self._ring.close()
                self._ring = None
                self._table = torch.empty(0)

    def _finish(
        self,
        ids: Tensor,
        found: Tensor,
        positions: Tensor,
        arrived: torch.cuda.Event,
        out: Tensor,
        kernels: Kernels,
        begin: torch.cuda.Event,
        end: torch.cuda.Event,
    ) -> Tensor:
        with self._lock:
            ring, stream = self._open(), torch.cuda.current_stream(self._device)
            self._learn()
            for used in (out, positions):
                used.record_stream(stream)
            arrived.synchronize()
            clock = time.perf_counter()
            array = found.numpy()
            counts, misses = array[: 2 + self._ranges], array[2 + self._ranges :]
            count, is_bad = counts[:2].tolist()
            if is_bad:
                end.synchronize()  # a kernel reports the same
                kernels.forget()
                check_range(ids, self._format.num_rows)
            if count:
                wanted = misses.view(np.int64 if ids.dtype == torch.int64 else np.int32)[:count]
                self._copy(ring, torch.from_numpy(wanted), positions, out, stream)
            if len(misses):
                self.share.count(counts[2:])
            total = int(counts[2:].sum())
            if 0 < count < total:
                self._times.append((count / total, (time.perf_counter() - clock) * 1e3, begin, end))
            stream.wait_event(end)
            if out.dtype != self._format.dtype:
                out = out.view(self._format.dtype)
            shape = (len(ids), *self._format.shape)
            return out if out.shape == shape else out.view(shape)

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
        """Puts the rows of `ids`, which are on the CPU, to the first of these places of `out`."""
        part = self._room
        width = self._table.shape[1]
        room = torch.empty((min(part, len(ids)), width), dtype=self._table.dtype, device=self._device)
        for begin in range(0, len(ids), part):
            wanted = ids[begin : begin + part] if len(ids) > part else ids
            near = room[: len(wanted)] if len(wanted) < len(room) else room
            ring.core.upload(self._table, wanted, near, stream.cuda_stream)
            if self._format.coded:
                near = self._format.decoded(near, wanted).view(len(wanted), self._columns)
            out.index_copy_(0, positions[begin : begin + len(wanted)], near.to(out.dtype))


def rows_of_room(form: RowFormat) -> int:
    """Rows that are on their way at a time: no more than the table has."""
    return max(1, min(_ROOM_BYTES // max(form.nbytes, 1), form.num_rows))


def gpu_bytes(form: RowFormat, ids: int) -> int:
    """The most that torch's allocator counts for a gather of this many ids, beside what one without threads takes.

    The ids of one more gather may be found already.
    """
    part = min(rows_of_room(form), ids)
    pieces = [part * form.nbytes, *[8 * ids + _COUNTS_BYTES, 8 * ids] * 2]  # room; counts and ids, positions
    if form.dtype != form.storage_dtype:
        pieces.append(part * form.dim * form.dtype.itemsize)
    if form.coded:  # decoded as float32, by scales that are picked by the ids
        pieces += [part * form.dim * 4, 8 * part, 4 * part]
    return sum(counted_bytes(nbytes) for nbytes in pieces)


def _word(*lengths: int) -> torch.dtype:
    """The widest integers of which all these numbers of bytes are multiples."""
    return next(word for word in _WORDS if all(length % word.itemsize == 0 for length in lengths))
