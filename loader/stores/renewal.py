"""A cache of rows that takes in what the next gathers need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
            "tally": torch.zeros(_core.renewal_tally_bytes, dtype=torch.uint8, device=device),
        }
        self._device, self._arrays = device, (cache, *arrays.values())  # which the core does not keep
        self._core = _core.CudaRenewal(cache, **arrays)
        self._lock = ForkSafeLock()
        self._read = torch.cuda.Event() if device.type == "cuda" else None  # the last gather is done with the cache
        self._noted: Sequence[Tensor] | None = None  # the group whose uses are written down

    @contextmanager
    def alone(self) -> Iterator[None]:
        """The current stream waits for the gathers before, and those after wait for what it does here."""
        with self._lock:
            if self._read is None:
                yield
                return
            stream = current_stream(self._device.index)
            stream.wait_event(self._read)
            try:
                yield
            finally:
                self._read.record(stream)

    def begin(self, group: Sequence[Tensor], gather: Callable[[Tensor], Tensor]) -> list[Callable[[], Tensor]]:
        """Announces gathers that come next, in this order.

        Args:
            group: at most `loader._core.most_together` tensors of ids, on the GPU, contiguous.
            gather: launches a gather of ids on the current stream, and returns the rows as they are cached.

        Returns:
            A function per gather that gathers on the current stream and returns the rows.
        """
        ids = tuple(group)
        following = [torch.empty(each.shape, dtype=torch.uint8, device=self._device) for each in ids]
        return [partial(self._gather, ids, following, turn, gather) for turn in range(len(ids))]

    def _gather(
        self, group: tuple[Tensor, ...], following: list[Tensor], turn: int, gather: Callable[[Tensor], Tensor]
    ) -> Tensor:
        with self.alone():
            stream = 0 if self._read is None else current_stream_handle(self._device.index)
            if self._noted is not group:
                self._note(group, following, turn, stream)
            ids, next_uses = group[turn], following[turn]
            rows = gather(ids)
            self._core.renew(*_address(ids), next_uses.data_ptr(), turn, rows.data_ptr(), stream)
            return rows

    def _note(self, group: tuple[Tensor, ...], following: list[Tensor], first: int, stream: int) -> None:
        """Writes down the uses of the gathers from `first` on, and drops those of a group before."""
        self._core.forget(stream)
        for turn in range(len(group) - 1, first - 1, -1):
            for tensor in (group[turn], following[turn]):
                if tensor.is_cuda:  # it may have come from another stream, and be dropped before its turn
                    tensor.record_stream(current_stream(self._device.index))
            self._core.note(*_address(group[turn]), following[turn].data_ptr(), turn, stream)
        self._noted = group


def _address(ids: Tensor) -> tuple[int, bool, int]:
    return ids.data_ptr(), ids.dtype == torch.int64, ids.numel()
