"""Features in host memory, or memory-mapped from disk."""

from __future__ import annotations

import torch
from torch import Tensor

from loader import _core
from loader.machine.cpus import available_cpus
from loader.stores.rows import Rows, StoreOfRows, check_nodes

# Smaller outputs come from torch's allocator, which reuses blocks of that size by itself.
_POOLED_BYTES = 1 << 20
# Idle outputs kept for reuse: in the steady state the model returns one while the next is written.
_IDLE_BUFFERS = 4


class HostFeatures(StoreOfRows):
    """Rows of a CPU tensor, copied by threads of the C++ core without the GIL.

    Outputs lie in memory that returns to a pool when their last reference is gone, and is used for a later
    gather: fresh memory of that size would cost more to fault in than the copy itself. At most four idle outputs
    are kept.

    Args:
        tensor: `[num_nodes, ...]` of any type, contiguous, on the CPU; it may be memory-mapped, and is not copied
            unless `storage_dtype` differs.
        num_threads: threads of one gather, by default as many as there are processors.
        dtype: type of the rows that `gather` returns, by default the one they are kept in. Another one is converted
            to after the gather.
        storage_dtype: type in which rows are kept, by default the tensor's; see `Rows` for what converts.

    Raises:
        TypeError: `tensor` is not a tensor, or a type cannot be converted.
        ValueError: `tensor` has no dimension, is not contiguous or not on the CPU; `num_threads` < 1.
    """

    def __init__(
        self,
        tensor: Tensor,
        num_threads: int | None = None,
        *,
        dtype: torch.dtype | str | None = None,
        storage_dtype: torch.dtype | str | None = None,
    ) -> None:
        self._rows, self._device = Rows(tensor, storage_dtype, dtype), torch.device("cpu")
        self.tensor = self._rows.stored(tensor)
        self.num_threads = available_cpus() if num_threads is None else int(num_threads)
        self._gatherer: _core.Gatherer | None = _core.Gatherer(self.num_threads)
        self._pool = _core.BufferPool(_IDLE_BUFFERS)

    @property
    def asynchronous(self) -> bool:
        return False

    def gather(self, nodes: Tensor) -> Tensor:
        """See `FeatureStore.gather`. Safe to call from several threads; they take turns.

        Raises:
            TypeError: `nodes` is neither int32 nor int64.
            ValueError: an id is out of range, or `nodes` is not a vector on the CPU.
            RuntimeError: the store was closed.
        """
        gatherer = self._gatherer
        if gatherer is None:
            raise RuntimeError("this HostFeatures was closed; make a new one")
        check_nodes(nodes)
        out = self._output(nodes.numel())
        gatherer.gather(self.tensor, nodes.contiguous(), out)
        return out.to(self.dtype)

    def check(self) -> None:
        """Nothing to wait for: `gather` raises by itself."""

    def close(self) -> None:
        """Frees the threads and the idle outputs."""
        self._gatherer = None
        self._pool.clear()

    def _output(self, num_rows: int) -> Tensor:
        rows = self._rows
        shape, nbytes = (num_rows, *rows.shape), num_rows * rows.nbytes
        if nbytes < _POOLED_BYTES:
            return torch.empty(shape, dtype=rows.storage_dtype)
        return torch.frombuffer(self._pool.take(nbytes), dtype=rows.storage_dtype).view(shape)

    def __repr__(self) -> str:
        return f"HostFeatures({self._rows.describe()}, num_threads={self.num_threads})"
