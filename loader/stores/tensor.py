"""Rows of a tensor on the tensor's device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from loader.machine.arguments import kind_of
from loader.machine.mapped import whole
from loader.stores.rows import check_ids


class TensorRows:
    """Rows of a tensor on the CPU or on a GPU, by `torch.index_select`. For small tables, such as labels.

    Args:
        tensor: `[num_rows, ...]` of any type.
        dtype: of the rows that are returned, or None for the tensor's. Labels can so be kept in fewer bytes.

    Raises:
        TypeError: `tensor` is not a tensor.
        ValueError: `tensor` has no dimension.
    """

    def __init__(self, tensor: Tensor, dtype: torch.dtype | None = None) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"rows is {kind_of(tensor)}; it must be a torch tensor")
        if tensor.dim() == 0:
            raise ValueError("rows has no dimension; it must have at least one, that of its rows")
        self.tensor = tensor
        self._dtype = tensor.dtype if dtype is None else dtype

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
        return self._dtype

    @property
    def device(self) -> torch.device:
        return self.tensor.device

    @property
    def asynchronous(self) -> bool:
        return self.tensor.is_cuda

    def gather(self, ids: Tensor) -> Tensor:
        """Returns the rows of `ids`, see `FeatureStore.gather`; an id out of range is torch's error."""
        check_ids(ids)
        with whole(self.tensor):
            return self.tensor.index_select(0, ids).to(self._dtype)

    def check(self) -> None:
        """Does nothing: torch raises its errors itself."""

    def close(self) -> None:
        """Does nothing: the tensor belongs to the caller."""

    def __repr__(self) -> str:
        return f"TensorRows({list(self.tensor.shape)}, {self.dtype}, device='{self.device}')"


def narrowest_dtype(tensor: Tensor) -> torch.dtype:
    """The type with the fewest bytes that holds all elements of an integer tensor exactly; of another, its own."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool or not tensor.numel():
        return tensor.dtype
    least, most = (int(bound) for bound in torch.aminmax(tensor))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        held = torch.iinfo(dtype)
        if held.min <= least and most <= held.max and dtype.itemsize < tensor.dtype.itemsize:
            return dtype
    return tensor.dtype
