"""Rows of a tensor on the tensor's device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from loader.machine.arguments import kind_of
from loader.stores.rows import check_ids


class TensorRows:
    """Rows of a tensor on the CPU or on a GPU, by `torch.index_select`. For small tables, such as labels.

    Args:
        tensor: `[num_rows, ...]` of any type.

    Raises:
        TypeError: `tensor` is not a tensor.
        ValueError: `tensor` has no dimension.
    """

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"rows is {kind_of(tensor)}; it must be a torch tensor")
        if tensor.dim() == 0:
            raise ValueError("rows has no dimension; it must have at least one, that of its rows")
        self.tensor = tensor

    @property
    def num_rows(self) -> int:
        return self.tensor.shape[0]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[1:])

    @property
    def dim(self) -> int:
        return math.prod(self.row_shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype

    @property
    def device(self) -> torch.device:
        return self.tensor.device

    @property
    def asynchronous(self) -> bool:
        return self.tensor.is_cuda

    def gather(self, ids: Tensor) -> Tensor:
        """See `FeatureStore.gather`; an id out of range is torch's error."""
        check_ids(ids)
        return self.tensor.index_select(0, ids)

    def check(self) -> None:
        """Does nothing: torch raises its errors itself."""

    def close(self) -> None:
        """Does nothing: the tensor belongs to the caller."""

    def __repr__(self) -> str:
        return f"TensorRows({list(self.tensor.shape)}, {self.dtype}, device='{self.device}')"
