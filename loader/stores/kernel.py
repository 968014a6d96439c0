"""The base class of the stores whose gather is one kernel."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.machine.freeing import free_when_done
from loader.machine.gpu import current_stream_handle, made_current
from loader.stores.rows import RowFormat, StoreOfRows, check_ids, check_range

ALL = 2**63 - 1  # ids below it: any


class KernelStore(StoreOfRows):
    """Rows gathered by one kernel on the current stream of `device`. The host never waits.

    A subclass puts the rows where the GPU can read them and calls `_start`. Ids on the CPU are copied to the GPU first.
    If they are not in pinned memory, the host waits for that copy. Several threads and streams may gather at the same
    time.

    For an id out of range the kernel returns zeros, and does not read outside the table. It writes the first such id to
    pinned memory. `check()`, or the next `gather` that finds it there, raises.
    """

    needs_gpu = True

    def __init__(self, rows: RowFormat, device: torch.device) -> None:
        self._format, self._device = rows, device
        self._gatherer: _core.CudaGatherer | None = None
        self._scales: Tensor | None = None  # of codes, on the GPU
        self._finalizer: weakref.finalize | None = None

    @property
    def asynchronous(self) -> bool:
        return True

    def gather(self, ids: Tensor) -> Tensor:
        """Returns the rows of `ids`, see `FeatureStore.gather`."""
        gatherer, ids = self._open(), self._near(ids)
        with made_current(self._device):
            ids = ids.contiguous()
            out = self._empty(ids)
            self._launch(gatherer, ids, out)
            return out

    def check(self) -> None:
        """Waits for the GPU, then raises ValueError if an id was out of range."""
        gatherer = self._open()
        torch.cuda.synchronize(self._device)
        with torch.cuda.device(self._device):
            gatherer.raise_bad_id(torch.cuda.current_stream(self._device).cuda_stream)

    def close(self) -> None:
        """Waits for the GPU and frees the rows."""
        self._gatherer = self._scales = None
        if self._finalizer is not None:
            self._finalizer()
        self._format.forget_scales()

    def _open(self) -> _core.CudaGatherer:
        if self._gatherer is None:
            raise RuntimeError(f"this {type(self).__name__} was closed; make a new one")
        return self._gatherer

    def _near(self, ids: Tensor) -> Tensor:
        """Ids that are of the right kind, on the GPU."""
        check_ids(ids)
        if ids.device != self._device:
            if ids.device.type != "cpu":
                raise ValueError(f"ids lies on {ids.device}; it must lie on the CPU or on {self._device}")
            ids = ids.to(self._device, non_blocking=True)
        if self.dim == 0:
            check_range(ids, self.num_rows)  # there is nothing to launch
        return ids

    def _launch(
        self,
        gatherer: _core.CudaGatherer,
        ids: Tensor,
        out: Tensor,
        *,
        misses_below: int = ALL,
        marks: Tensor | None = None,
    ) -> None:
        """Gathers the rows of `ids` into `out`, on the current stream, in the order in which they lie, if that pays.

        `misses_below`: rows that are not in the cache, of ids from this one on, are left as they are.
        `marks`: those of the core's `mark_misses`. Only marked rows are read.
        """
        nbytes = gatherer.scratch_bytes(ids.numel()) if misses_below else 0  # what is cached needs no order
        scratch = torch.empty(nbytes, dtype=torch.uint8, device=self._device) if nbytes else None
        stream = current_stream_handle(self._device.index)
        gatherer.gather(ids, out, scratch, stream, misses_below=misses_below, marks=marks)

    def _empty(self, ids: Tensor) -> Tensor:
        """Memory for the rows of `ids`."""
        return torch.empty((ids.numel(), *self._format.shape), dtype=self._format.dtype, device=self._device)

    def _start(
        self,
        table: Tensor,
        address: int,
        *,
        release: Callable[[], None] | None = None,
        **cache: Any,
    ) -> None:
        """Makes the gatherer of the rows of `table`.

        Args:
            table: `[num_rows, ...]`, or codes, on the GPU or, pinned, on the CPU.
            address: where the GPU sees it.
            release: frees what is not a tensor, once the GPU is done.
            cache: of a table with a cache: `cache`, `slots` and `hits`, see `_core.CudaGatherer`.
        """
        raised = torch.zeros(1, dtype=torch.int32, device=self._device)
        notes = torch.zeros(_core.cuda_notes_bytes, dtype=torch.uint8, pin_memory=True)
        coded = self._format.for_core(self._device)
        # The memory was filled on the current stream; gathers come on any.
        torch.cuda.current_stream(self._device).synchronize()
        self._gatherer = _core.CudaGatherer(
            table, address, str(self.dtype), raised=raised, notes=notes, **cache, **coded
        )
        self._scales = coded.get("scales")
        memory = [table, raised, notes, *cache.values(), *([coded["scales"]] if coded else [])]
        self._finalizer = weakref.finalize(self, free_when_done, self._device, partial(_free, memory, release))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._format.describe()}, device='{self._device}')"


def _free(memory: list[Tensor], release: Callable[[], None] | None) -> None:
    if release is not None:
        release()
    memory.clear()
