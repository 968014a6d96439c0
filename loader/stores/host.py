"""Features in host memory, or memory-mapped from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader import _core
from loader.machine.arguments import kind_of
from loader.machine.cpus import as_threads, available_cpus
from loader.machine.mapped import is_mapped, watch
from loader.stores.base import FeatureStore
from loader.stores.rows import RowFormat, RowOptions, StoreOfRows, check_ids

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Smaller outputs come from torch's allocator, which reuses blocks of that size by itself.
_POOLED_BYTES = 1 << 20
_LINE = 64  # bytes that a processor reads at a time
# Idle outputs kept for reuse: in the steady state the model returns one while the next is written.
_IDLE_BUFFERS = 4


class HostFeatures(StoreOfRows):
    """Rows of a CPU tensor, copied by threads of the C++ core without the GIL.

    The memory of an output returns to a pool when its last reference is gone, and a later gather uses it again. New
    memory of that size would take longer to map than the copy itself. At most four idle outputs are kept.

    Args:
        tensor: `[num_rows, ...]` of any type, contiguous, on the CPU; it may be memory-mapped, and is not copied
            unless `storage_dtype` differs.
        num_threads: threads of one gather, by default one per processor.
        options: see `RowOptions`. If `dtype` is another type, the gather converts rows on their way.

    Raises:
        TypeError: `tensor` is not a tensor, or a type cannot be converted.
        ValueError: `tensor` has no dimension, is not contiguous, not dense or not on the CPU; `num_threads` is not in
            1 to 1024.
    """

    def __init__(
        self,
        tensor: Tensor,
        num_threads: int | None = None,
        **options: Unpack[RowOptions],
    ) -> None:
        self._format, self._device = RowFormat(tensor, line=_LINE, **options), torch.device("cpu")
        self.tensor = self._stored(tensor, self._format)
        self.num_threads = available_cpus() if num_threads is None else as_threads(num_threads)
        watch(self.tensor)
        self._gatherer: _core.Gatherer | None = self._make_gatherer()
        self._pool = _core.BufferPool(_IDLE_BUFFERS)

    @property
    def asynchronous(self) -> bool:
        return False

    def gather(self, ids: Tensor) -> Tensor:
        """Returns the rows of `ids`, see `FeatureStore.gather`. Safe to call from several threads; they take turns.

        Raises:
            TypeError: `ids` is neither int32 nor int64.
            ValueError: an id is out of range, or `ids` is not a vector on the CPU.
            RuntimeError: the store was closed.
        """
        gatherer = self._gatherer
        if gatherer is None:
            raise RuntimeError("this HostFeatures was closed; make a new one")
        check_ids(ids)
        out = self._output(ids.numel())
        if self.dtype == self.storage_dtype:
            gatherer.gather(self.tensor, ids.contiguous(), out)
        else:
            codes = self._format.for_core(self._device)
            gatherer.gather_converted(self.tensor, ids.contiguous(), out, codes.get("code", ""), codes.get("scales"))
        return out

    def check(self) -> None:
        """Does nothing: `gather` raises its errors itself."""

    def close(self) -> None:
        """Frees the threads and the idle outputs."""
        self._gatherer = None
        self._pool.clear()

    def _make_gatherer(self) -> _core.Gatherer:
        return _core.Gatherer(self.num_threads, is_mapped(self.tensor))

    def _output(self, num_rows: int) -> Tensor:
        shape, nbytes = (num_rows, *self.row_shape), num_rows * self.dim * self.dtype.itemsize
        if nbytes < _POOLED_BYTES:
            return torch.empty(shape, dtype=self.dtype)
        return torch.frombuffer(self._pool.take(nbytes), dtype=self.dtype).view(shape)

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the rows, or those of its own, and threads of its own."""
        return {**self.__dict__, "_gatherer": None, "_pool": None, "_closed": self._gatherer is None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        closed = state.pop("_closed")
        self.__dict__.update(state)
        self._gatherer = None if closed else self._make_gatherer()
        self._pool = _core.BufferPool(_IDLE_BUFFERS)

    def __repr__(self) -> str:
        return f"HostFeatures({self._format.describe()}, num_threads={self.num_threads})"


def as_store(name: str, rows: Any) -> FeatureStore | None:
    """The store that was given, or that of a tensor.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(rows, type):
        raise TypeError(f"{name} is the class {rows.__name__}; give an object of it, e.g. {rows.__name__}(tensor)")
    if rows is None or isinstance(rows, FeatureStore):
        return rows
    if isinstance(rows, Tensor):
        return HostFeatures(rows)
    kind = type(rows)
    way = "torch.from_numpy" if kind.__module__ == "numpy" else "torch.as_tensor"
    raise TypeError(
        f"{name} is {kind_of(rows)}; it must be a torch tensor [rows, ...] ({way}), a store of loader.stores, or None"
    )
