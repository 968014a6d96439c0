"""The protocol of all feature stores: vertex ids in, rows out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class FeatureStore(Protocol):
    """Rows of features by vertex id, wherever they are kept. All stores of the same rows return equal bytes."""

    @property
    def num_nodes(self) -> int:
        """Number of rows."""

    @property
    def dim(self) -> int:
        """Features a row."""

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the rows that `gather` returns."""

    @property
    def device(self) -> torch.device:
        """Where the rows that `gather` returns lie."""

    @property
    def asynchronous(self) -> bool:
        """Whether `gather` only puts work on the current stream: the host does not wait, nor work itself."""

    def gather(self, nodes: Tensor) -> Tensor:
        """The rows of `nodes`.

        Args:
            nodes: `[n]`, int32 or int64, in `[0, num_nodes)`, on the CPU or on `device`; ids may repeat.

        Returns:
            `[n, dim]` on `device`; row `i` belongs to `nodes[i]`. The caller owns it.

        Raises:
            ValueError: an id is out of range; the message names the first one.
        """

    def close(self) -> None:
        """Frees threads and memory; the store cannot be used afterwards."""
