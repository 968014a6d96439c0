"""What the stores share: checks of tables, ids and types."""

from __future__ import annotations

import math

import torch
from torch import Tensor

CONVERTIBLE = (torch.float32, torch.float16, torch.bfloat16)


class Rows:
    """What a store keeps and what it returns: the shape of a row and the two element types.

    Args:
        tensor: `[num_nodes, ...]`.
        storage_dtype: type in which the rows are kept, by default the tensor's.
        dtype: type in which they are returned, by default the one they are kept in.
        device_types: where the tensor may lie.

    float32, float16 and bfloat16 convert into each other, rounded to nearest even as `Tensor.to` does (a NaN stays
    a NaN, its payload is not defined); any other type is returned as it is.

    Raises:
        TypeError: `tensor` is not a tensor, or a type cannot be converted.
        ValueError: `tensor` has no dimension, is not contiguous or lies elsewhere.
    """

    def __init__(
        self,
        tensor: Tensor,
        storage_dtype: torch.dtype | str | None = None,
        dtype: torch.dtype | str | None = None,
        device_types: tuple[str, ...] = ("cpu",),
    ) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"features is a {type(tensor).__name__}; give a torch tensor (torch.from_numpy)")
        if tensor.dim() == 0:
            raise ValueError("features has no dimension; it must be [num_nodes, ...]")
        if tensor.device.type not in device_types:
            raise ValueError(f"features lies on {tensor.device}; it must lie on {' or '.join(device_types)}: .cpu()")
        if not tensor.is_contiguous():
            raise ValueError(f"features has strides {tensor.stride()}; it must be contiguous: .contiguous()")
        self.num_nodes = tensor.shape[0]
        self.shape = tuple(tensor.shape[1:])
        self.dim = math.prod(self.shape)
        self.storage_dtype = _converted("storage_dtype", storage_dtype, tensor.dtype)
        self.dtype = _converted("dtype", dtype, self.storage_dtype)
        self.nbytes = self.dim * self.storage_dtype.itemsize  # of a row, as it is kept

    def stored(self, tensor: Tensor) -> Tensor:
        """`tensor` in the type in which it is kept; itself where it already has that type."""
        return tensor if tensor.dtype == self.storage_dtype else tensor.to(self.storage_dtype)

    def describe(self) -> str:
        """For a `repr`."""
        kept = "" if self.storage_dtype == self.dtype else f", storage_dtype={self.storage_dtype}"
        return f"num_nodes={self.num_nodes}, row_shape={self.shape}, dtype={self.dtype}{kept}"


class StoreOfRows:
    """The properties by which a store says what it returns, and where; a subclass sets `_rows` and `_device`.

    Attributes:
        needs_gpu: whether it cannot be without one.
    """

    needs_gpu = False

    _rows: Rows
    _device: torch.device

    @property
    def num_nodes(self) -> int:
        return self._rows.num_nodes

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._rows.shape

    @property
    def dim(self) -> int:
        return self._rows.dim

    @property
    def dtype(self) -> torch.dtype:
        return self._rows.dtype

    @property
    def storage_dtype(self) -> torch.dtype:
        """Element type in which the rows are kept."""
        return self._rows.storage_dtype

    @property
    def device(self) -> torch.device:
        return self._device


def check_nodes(nodes: Tensor) -> None:
    """Raises TypeError or ValueError unless `nodes` is a vector of int32 or int64."""
    if nodes.dtype != torch.int64 and nodes.dtype != torch.int32:
        raise TypeError(f"nodes has dtype {nodes.dtype}; it must be torch.int32 or torch.int64")
    if nodes.dim() != 1:
        raise ValueError(f"nodes has shape {list(nodes.shape)}; it must have 1 dimension")


def check_range(nodes: Tensor, num_nodes: int) -> None:
    """Raises ValueError, naming the first of the ids that is out of range."""
    bad = ((nodes < 0) | (nodes >= num_nodes)).nonzero()
    if bad.numel():
        i = int(bad[0])
        raise ValueError(
            f"nodes[{i}] is {int(nodes[i])}; the table has {num_nodes} rows, valid ids are 0 to {num_nodes - 1}"
        )


def as_dtype(name: str, dtype: torch.dtype | str) -> torch.dtype:
    """`torch.float16` or its name, "float16", as a configuration gives it."""
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{name} is {dtype!r}; it must be a torch.dtype or its name, e.g. float16")
    return found


def _converted(name: str, wanted: torch.dtype | str | None, given: torch.dtype) -> torch.dtype:
    if wanted is None:
        return given
    dtype = as_dtype(name, wanted)
    if dtype != given and not (dtype in CONVERTIBLE and given in CONVERTIBLE):
        raise TypeError(
            f"{name} is {dtype} for rows of {given}; only float32, float16 and bfloat16 convert into each other"
        )
    return dtype
