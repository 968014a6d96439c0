"""Features in host memory, or memory-mapped from disk."""

from __future__ import annotations

import torch
from torch import Tensor

from loader import _core
from loader.threads import available_cpus

# Smaller outputs come from torch's allocator, which reuses blocks of that size by itself.
_POOLED_BYTES = 1 << 20
# Idle outputs kept for reuse: in the steady state the model returns one while the next is written.
_IDLE_BUFFERS = 4


class HostFeatures:
    """Rows of a CPU tensor, copied by threads of the C++ core without the GIL.

    Outputs lie in memory that returns to a pool when their last reference is gone, and is used for a later
    gather: fresh memory of that size would cost more to fault in than the copy itself. At most four idle outputs
    are kept.

    Args:
        tensor: `[num_nodes, dim]` of any type, contiguous, on the CPU; it may be memory-mapped, and is not copied.
        num_threads: threads of one gather, by default as many as there are processors.

    Raises:
        TypeError: `tensor` is not a tensor.
        ValueError: `tensor` has not 2 dimensions, is not contiguous or not on the CPU; `num_threads` < 1.
    """

    def __init__(self, tensor: Tensor, num_threads: int | None = None) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"features is a {type(tensor).__name__}; give a torch tensor (torch.from_numpy)")
        if tensor.dim() != 2:
            raise ValueError(f"features has shape {list(tensor.shape)}; it must be [num_nodes, dim]")
        if tensor.device.type != "cpu":
            raise ValueError(f"features lies on {tensor.device}; HostFeatures needs it on the CPU: .cpu()")
        if not tensor.is_contiguous():
            raise ValueError(f"features has strides {tensor.stride()}; it must be contiguous: .contiguous()")
        self.tensor = tensor
        self.num_threads = available_cpus() if num_threads is None else int(num_threads)
        self._gatherer: _core.Gatherer | None = _core.Gatherer(self.num_threads)
        self._pool = _core.BufferPool(_IDLE_BUFFERS)

    @property
    def num_nodes(self) -> int:
        return self.tensor.shape[0]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[1:])

    @property
    def dim(self) -> int:
        return self.tensor.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

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
        if nodes.dim() != 1:
            raise ValueError(f"nodes has shape {list(nodes.shape)}; it must have 1 dimension")
        out = self._output(nodes.numel())
        gatherer.gather(self.tensor, nodes.contiguous(), out)
        return out

    def check(self) -> None:
        """Nothing to wait for: `gather` raises by itself."""

    def close(self) -> None:
        """Frees the threads and the idle outputs."""
        self._gatherer = None
        self._pool.clear()

    def _output(self, num_rows: int) -> Tensor:
        nbytes = num_rows * self.dim * self.tensor.element_size()
        if nbytes < _POOLED_BYTES:
            return torch.empty(num_rows, self.dim, dtype=self.dtype)
        return torch.frombuffer(self._pool.take(nbytes), dtype=self.dtype).view(num_rows, self.dim)

    def __repr__(self) -> str:
        return (
            f"HostFeatures(num_nodes={self.num_nodes}, dim={self.dim}, dtype={self.dtype}, "
            f"num_threads={self.num_threads})"
        )
