"""A cache of rows that takes in what the next gathers need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from loader import _core
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import current_stream, current_stream_handle

BYTES_PER_SLOT = 12  # its row, and its places in the two lists of rows that go and come
BYTES_PER_ROW = 1  # the gather that reads it next
_HOT, _NO_USE = 0x80, 0x7F  # see csrc/features/cuda/renewal.h


class Renewal:
    """Replaces rows of a cache after each gather, for a group of gathers that is known ahead.

    Of the rows that are cached and those that the gather brought, those stay that the group's next gathers read, the
    soonest first. After them stay the rows that were cached at the beginning, the hot ones.

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
        self._read = self._event()  # the last gather is done with the cache
        self._noted: _Group | None = None  # the group whose uses are written down

    @contextmanager
    def alone(self) -> Iterator[_core.CudaRenewal]:
        """The current stream waits for the gathers before, and those after wait for what it does here.

        Raises:
            RuntimeError: this was closed.
        """
        with self._lock:
            if self._core is None:
                raise RuntimeError("the store of this gather was closed; make a new one")
            self._wait_for(self._read)
            try:
                yield self._core
            finally:
                if self._read is not None:
                    self._read.record(current_stream(self._device.index))

    def begin(self, ids: Sequence[Tensor], gather: Callable[[Tensor], Tensor]) -> list[Callable[[], Tensor]]:
        """Announces gathers that come next, in this order.

        Args:
            ids: those of each gather, on the GPU, contiguous; of at most `loader._core.most_together` gathers.
            gather: launches a gather of ids on the current stream, and returns the rows as they are cached.

        Returns:
            A function per gather, to be called once. It gathers on the current stream and returns the rows.
        """
        sizes = [each.numel() for each in ids]
        following = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device).split(sizes)
        group = _Group(list(zip(ids, following, strict=True)), self._event())
        return [partial(self._gather, group, turn, gather) for turn in range(len(group.gathers))]

    def close(self) -> None:
        """Lets go of the GPU memory. The GPU must be done with it."""
        with self._lock:
            self._core, self._noted, self._arrays = None, None, ()

    def _gather(self, group: _Group, turn: int, gather: Callable[[Tensor], Tensor]) -> Tensor:
        with self.alone() as core:
            self._wait_for(group.begun)
            ids, following = self._used(group, turn)
            if len(group.gathers) == 1:  # nothing is known of the next ones
                return gather(ids)
            stream = self._stream()
            if self._noted is not group:
                self._note(core, group, turn, stream)
            rows = gather(ids)
            core.renew(*_address(ids), following.data_ptr(), turn, rows.data_ptr(), stream)
            group.gathers[turn] = None  # the ids may keep a whole mini-batch
            return rows

    def _note(self, core: _core.CudaRenewal, group: _Group, first: int, stream: int) -> None:
        """Writes down the uses of the gathers from `first` on, and drops those of a group before."""
        self._noted = None
        core.forget(stream)
        for turn in range(len(group.gathers) - 1, first - 1, -1):
            ids, following = self._used(group, turn)
            core.note(*_address(ids), following.data_ptr(), turn, stream)
        self._noted = group

    def _used(self, group: _Group, turn: int) -> tuple[Tensor, Tensor]:
        """What belongs to a gather. The current stream reads it: it may be of another stream."""
        found = group.gathers[turn]
        if found is None:
            raise RuntimeError(f"gather {turn} of its group was made already")
        for tensor in found:
            if tensor.is_cuda:
                tensor.record_stream(current_stream(self._device.index))
        return found

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

    def _stream(self) -> int:
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


def _address(ids: Tensor) -> tuple[int, bool, int]:
    return ids.data_ptr(), ids.dtype == torch.int64, ids.numel()
