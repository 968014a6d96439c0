"""The part of a gather on a GPU that threads of the host take over: rows that the GPU would read over the bus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from loader import _core
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import counted_bytes
from loader.stores.rows import RowFormat, check_range
from loader.stores.staged import PinnedBuffer

_LEAST_IDS = 1 << 14  # with fewer, the GPU is done before the threads have their ids
_BUFFERS = 4
# On an H200, rows of 512 bytes in ascending order: parts of 2, 4, 8, 16 and 32 MiB gave 34.9, 37.1, 36.3, 37.9 and
# 37.7 GB/s. The first part is a sixteenth of that, each next one twice as large: so the bus has work early.
_PART_BYTES = 16 << 20
_FIRST_PART = 16
_SCRATCH = 1 << 16  # bytes on the GPU that torch takes to find the ids
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
            host_ms, gpu_ms: how long both took, in milliseconds from the begin of the gather.
        """
        host, gpu = taken / max(host_ms, 1e-3), (1 - taken) / max(gpu_ms, 1e-3)
        self.value += self.STEP * (host / (host + gpu) - self.value)
        self.value = min(max(self.value, self.LEAST), self.MOST)


class Launch(Protocol):
    """Puts a gather of `ids` into `out` on the current stream."""

    def __call__(self, ids: Tensor, out: Tensor, stood_in: int | None = None) -> None:
        """`stood_in`: how many of the ids stand for others and are in the cache; all others of these are, too."""


class HostPart:
    """Gathers from a table of which the GPU has some rows in a cache, together with the GPU.

    The ids are cut in two. A kernel on a stream of its own gathers the last ones, wherever their rows lie. Of the first
    ones, a kernel reads the rows that are in the cache. Threads gather the others into a ring of pinned buffers, which
    are copied to the GPU and put in their places there, on the current stream. Where the ids are cut changes the time,
    but no byte. See `Share`.

    Args:
        table: `[num_rows, ...]` on the CPU, pinned, at least one row, of at least one element.
        slots: `[num_rows]` int32 on the GPU, where in the cache a row is, or -1.
        cached: id of a row in the cache.
        form: of the rows.
        num_threads: of the host.

    Attributes:
        share: of the ids.
        least: of fewer ids the GPU gathers all.

    Raises:
        RuntimeError: the buffers could not be locked.
    """

    def __init__(self, table: Tensor, slots: Tensor, cached: int, form: RowFormat, num_threads: int) -> None:
        self._table, self._slots, self._cached, self._format = table, slots, cached, form
        self._device = slots.device
        self._threads: _core.Gatherer | None = _core.Gatherer(num_threads)
        self._part = rows_per_part(form)
        with torch.cuda.device(self._device):
            self._ring = [PinnedBuffer(self._part * form.nbytes) for _ in range(_BUFFERS)]
            # As of the stage that gathers: a kernel that begins late keeps the bus idle.
            self._side = torch.cuda.Stream(self._device, priority=-3)
            self._wrong = torch.zeros(1, dtype=torch.bool, pin_memory=True)  # whether an id is out of range
        self._next = 0
        self._lock = ForkSafeLock()
        self._last: tuple[float, torch.cuda.Event, torch.cuda.Event, torch.cuda.Event] | None = None
        self.share = Share()
        self.least = _LEAST_IDS

    def gather(self, ids: Tensor, launch: Launch, forget: Callable[[], None]) -> Tensor:
        """The rows of `ids`. The host waits for the current stream, and until its threads are done.

        Args:
            ids: `[n]` int32 or int64, on the GPU, contiguous.
            launch: see `Launch`.
            forget: drops the report of an id out of range, if a kernel made one.

        Raises:
            ValueError: an id is out of range.
            RuntimeError: this was closed.
        """
        with self._lock:
            if self._threads is None:
                raise RuntimeError("this CachedFeatures was closed; make a new one")
            form, n, stream = self._format, ids.numel(), torch.cuda.current_stream(self._device)
            out = torch.empty((n, *form.shape), dtype=form.dtype, device=self._device)
            cut = self.share.of(n) if n >= self.least else 0
            if cut == 0:
                if n:
                    self._look(ids, stream)
                    self._check(ids, forget)
                    launch(ids, out)
                return out
            begin, host_end, gpu_end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
            begin.record(stream)
            self._side.wait_stream(stream)
            try:
                with torch.cuda.stream(self._side):
                    launch(ids[cut:], out[cut:])
                    gpu_end.record(self._side)
                self._gather_first(self._threads, ids, cut, out, launch, forget, stream)
                host_end.record(stream)
            finally:  # after an error, too: `ids` and `out` may go then
                stream.wait_stream(self._side)
            self._last = (cut / n, begin, host_end, gpu_end)
            return out

    def close(self) -> None:
        """Waits for the copies and frees threads and buffers."""
        with self._lock:
            if self._threads is None:
                return
            self._threads = None
            for buffer in self._ring:
                buffer.close()
            self._ring.clear()
            self._table = self._slots = torch.empty(0)

    def _gather_first(
        self,
        threads: _core.Gatherer,
        ids: Tensor,
        cut: int,
        out: Tensor,
        launch: Launch,
        forget: Callable[[], None],
        stream: torch.cuda.Stream,
    ) -> None:
        """Gathers `ids[:cut]` into `out[:cut]`."""
        safe = self._look(ids, stream)
        positions = self._cold(safe[:cut])
        self._check(ids, forget)
        del safe
        self._learn()
        first, count = ids[:cut], positions.numel()
        if count == 0:
            return launch(first, out[:cut], 0)
        here, arrived = torch.empty(count, dtype=ids.dtype, pin_memory=True), torch.cuda.Event()
        here.copy_(first.index_select(0, positions), non_blocking=True)
        arrived.record(stream)
        launch(first.index_fill(0, positions, self._cached), out[:cut], count)
        arrived.synchronize()
        self._copy(threads, here, positions, out, stream)

    def _look(self, ids: Tensor, stream: torch.cuda.Stream) -> Tensor:
        """The ids with those out of range replaced by others; `_check` will know whether there are any."""
        safe = ids.clamp(0, min(self._format.num_rows - 1, torch.iinfo(ids.dtype).max))
        self._wrong.copy_((safe != ids).any().view(1), non_blocking=True)
        self._looked = torch.cuda.Event()
        self._looked.record(stream)
        return safe

    def _cold(self, ids: Tensor) -> Tensor:
        """`[count]` int64: the positions of the ids that are not in the cache. Waits for the current stream."""
        return (self._slots.index_select(0, ids) < 0).nonzero().view(-1)

    def _check(self, ids: Tensor, forget: Callable[[], None]) -> None:
        """Raises ValueError if `_look` met an id out of range."""
        self._looked.synchronize()
        if bool(self._wrong):
            self._side.synchronize()  # its kernel may report the same
            forget()
            check_range(ids, self._format.num_rows)

    def _learn(self) -> None:
        """Moves the share by the times of the last gather, which are known if the GPU is done with it."""
        if self._last is None:
            return
        taken, begin, host_end, gpu_end = self._last
        if host_end.query() and gpu_end.query():
            self.share.learn(taken, begin.elapsed_time(host_end), begin.elapsed_time(gpu_end))
        self._last = None

    def _copy(
        self, threads: _core.Gatherer, ids: Tensor, positions: Tensor, out: Tensor, stream: torch.cuda.Stream
    ) -> None:
        """Gathers the rows of `ids`, which are on the CPU, and puts them to `positions` of `out`."""
        form, words = self._format, _words(out)
        room = torch.empty((min(self._part, ids.numel()), *form.shape), dtype=form.storage_dtype, device=self._device)
        begin, size = 0, max(1, self._part // _FIRST_PART)
        while begin < ids.numel():
            part = ids[begin : begin + size]
            buffer = self._ring[self._next]
            rows = buffer.rows(part.numel(), form)
            threads.gather(self._table, part, rows)
            here = room[: part.numel()].copy_(rows, non_blocking=True)
            buffer.event.record(stream)
            words.index_copy_(0, positions[begin : begin + size], _words(here.to(form.dtype)))
            self._next = (self._next + 1) % _BUFFERS
            begin, size = begin + size, min(2 * size, self._part)


def rows_per_part(form: RowFormat) -> int:
    """Rows of one of the host's buffers: no more than the table has."""
    return max(1, min(_PART_BYTES // max(form.nbytes, 1), form.num_rows))


def gpu_bytes(form: RowFormat, ids: int, id_bytes: int) -> int:
    """The most that torch's allocator counts for a gather of this many ids, beside what one without threads takes."""
    part = rows_per_part(form)
    # Three arrays of ids: in range; for the host's threads; for the kernel, which gets a cached id in place of theirs.
    pieces = [ids * id_bytes] * 3
    pieces += [8 * ids, 4 * ids, ids, ids]  # positions, slots, flags
    pieces += [part * form.nbytes, _SCRATCH]
    if form.dtype != form.storage_dtype:
        pieces.append(part * form.dim * form.dtype.itemsize)
    return sum(counted_bytes(nbytes) for nbytes in pieces)


def _words(rows: Tensor) -> Tensor:
    """`[n, words per row]`: rows of any type, as integers. torch does not move rows of every type to their places."""
    flat = rows.view(rows.shape[0], -1)
    nbytes = flat.shape[1] * flat.element_size()
    return flat.view(next(word for word in _WORDS if nbytes % word.itemsize == 0))
