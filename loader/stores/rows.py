"""Options and format of rows, and checks of tables and ids, for all stores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypedDict

import torch
from torch import Tensor

from loader.machine.arguments import check_dense, kind_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

CONVERTIBLE = (torch.float32, torch.float16, torch.bfloat16)


class RowOptions(TypedDict, total=False):
    """Options of every store, given by keyword.

    Attributes:
        dtype: element type of the rows that `gather` returns, or its name, e.g. "float16"; by default (None)
            `storage_dtype`. What is too large for it becomes infinite.
        storage_dtype: element type in which the store keeps the rows, or its name; by default (None) that of the
            tensor. Numbers that are too large for it are refused.
    """

    dtype: torch.dtype | str | None
    storage_dtype: torch.dtype | str | None


class RowFormat:
    """The rows of a store: their number, their shape, and the element types in which they are kept and returned.

    Args:
        tensor: `[num_rows, ...]`.
        device_types: types of the devices that the tensor may lie on.
        options: see `RowOptions`.

    float32, float16 and bfloat16 can be converted to each other, rounded to nearest even as by `Tensor.to`. A NaN stays
    a NaN, but its payload is not defined. Rows of other types are returned in their own type.

    Raises:
        TypeError: `tensor` is not a tensor, or a type cannot be converted.
        ValueError: `tensor` has no dimension, is not contiguous or lies elsewhere.
    """

    def __init__(
        self,
        tensor: Tensor,
        device_types: tuple[str, ...] = ("cpu",),
        **options: Unpack[RowOptions],
    ) -> None:
        if unknown := options.keys() - RowOptions.__annotations__:
            raise TypeError(
                f"{min(unknown)} is no option of this store; all know {', '.join(RowOptions.__annotations__)}"
            )
        if not isinstance(tensor, Tensor):
            raise TypeError(f"features is {kind_of(tensor)}; give a torch tensor (torch.from_numpy)")
        check_dense("features", tensor)
        if tensor.requires_grad:  # it would stay as it is, without a word
            raise ValueError(
                "features requires a gradient, and gathered rows carry none; give features.detach(), and look up "
                "learned rows in the model: torch.nn.Embedding of batch.input_nodes"
            )
        if tensor.dim() == 0:
            raise ValueError("features has no dimension; it must be [num_rows, ...]")
        if tensor.device.type not in device_types:
            raise ValueError(f"features lies on {tensor.device}; it must lie on {' or '.join(device_types)}: .cpu()")
        if not tensor.is_contiguous():
            raise ValueError(f"features has strides {tensor.stride()}; it must be contiguous: .contiguous()")
        self.num_rows = tensor.shape[0]
        self.shape = tuple(tensor.shape[1:])
        self.dim = math.prod(self.shape)
        self.storage_dtype = _converted("storage_dtype", options.get("storage_dtype"), tensor.dtype)
        self.dtype = _converted("dtype", options.get("dtype"), self.storage_dtype)
        self.nbytes = self.dim * self.storage_dtype.itemsize  # of a row, as it is kept

    def stored(self, tensor: Tensor) -> Tensor:
        """`tensor` in the type in which it is kept, or `tensor` itself if it has that type.

        Raises:
            ValueError: a finite number is too large for that type.
        """
        if tensor.dtype == self.storage_dtype:
            return tensor
        if tensor.numel():
            ends = torch.stack(torch.aminmax(tensor))
            if bool((ends.to(self.storage_dtype).isinf() & ends.isfinite()).any()):
                most = torch.finfo(self.storage_dtype).max
                raise ValueError(
                    f"storage_dtype is {self.storage_dtype}, whose numbers end at {most:g}, and features go from "
                    f"{float(ends[0]):g} to {float(ends[1]):g}; scale them, or take bfloat16"
                )
        return tensor.to(self.storage_dtype)

    def describe(self) -> str:
        """For a `repr`."""
        kept = "" if self.storage_dtype == self.dtype else f", storage_dtype={self.storage_dtype}"
        return f"num_rows={self.num_rows}, row_shape={self.shape}, dtype={self.dtype}{kept}"


class StoreOfRows:
    """The properties of a store's rows. A subclass sets `_format` and `_device`.

    Attributes:
        needs_gpu: whether the store works only with a GPU.
    """

    needs_gpu = False

    _format: RowFormat
    _device: torch.device

    @property
    def num_rows(self) -> int:
        return self._format.num_rows

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._format.shape

    @property
    def dim(self) -> int:
        return self._format.dim

    @property
    def dtype(self) -> torch.dtype:
        return self._format.dtype

    @property
    def storage_dtype(self) -> torch.dtype:
        """Element type in which the rows are kept."""
        return self._format.storage_dtype

    @property
    def device(self) -> torch.device:
        return self._device


def check_ids(ids: Tensor) -> None:
    """Raises TypeError or ValueError unless `ids` is a vector of int32 or int64."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"ids is {kind_of(ids)}; it must be a torch tensor of int32 or int64 (torch.as_tensor)")
    if ids.dtype != torch.int64 and ids.dtype != torch.int32:
        way = "ids.nonzero().view(-1)" if ids.dtype == torch.bool else "ids.long()"
        raise TypeError(f"ids has dtype {ids.dtype}; it must be torch.int32 or torch.int64: {way}")
    if ids.dim() != 1:
        raise ValueError(f"ids has shape {list(ids.shape)}; it must have 1 dimension")


def check_range(ids: Tensor, num_rows: int) -> None:
    """Raises ValueError, which names the first id that is out of range."""
    bad = ((ids < 0) | (ids >= num_rows)).nonzero()
    if bad.numel():
        i = int(bad[0])
        raise ValueError(f"ids[{i}] is {int(ids[i])}; the table has {num_rows} rows, valid ids are 0 to {num_rows - 1}")


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
