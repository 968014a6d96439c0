"""Features in GPU memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from loader.machine.gpu import cuda_device, require_cuda
from loader.samples import LazyRows
from loader.stores.abilities import Abilities
from loader.stores.kernel import KernelStore
from loader.stores.rows import RowFormat, RowOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


_MOST_LAZY = 2**31 - 1  # rows that are read in place, by ids of int32


class DeviceFeatures(KernelStore):
    """All rows in GPU memory, gathered by a kernel that converts them on the way. See `KernelStore`.

    Args:
        tensor: `[num_rows, ...]` of any type, contiguous, on the CPU or on `device`. A tensor on `device` is not
            copied, unless `storage_dtype` differs.
        device: the GPU, by default the tensor's, else the current one.
        lazy: True: a loader does not gather these features. Its mini-batches have `rows` in place of `x`, and the first
            layer of the model reads the features here, as `models.sage.GraphSAGE` does. The rows must be `[num_rows,
            F]` of floating point, and `dtype` the type that they are kept in, or of 8 bits; and fewer than 2^31. None:
            True if the rows are such.
        options: see `RowOptions`.

    Raises:
        TypeError, ValueError: as `RowFormat`; or `device` is no GPU, or not the GPU of the tensor; or the rows cannot
            be `lazy`.
        RuntimeError: the build or the machine has no CUDA.
    """

    def __init__(
        self,
        tensor: Tensor,
        device: str | int | torch.device | None = None,
        *,
        lazy: bool | None = False,
        **options: Unpack[RowOptions],
    ) -> None:
        rows = RowFormat(tensor, ("cpu", "cuda"), **options)
        as_stored = rows.coded or (rows.dtype.is_floating_point and rows.storage_dtype == rows.dtype)
        possible = len(rows.shape) == 1 and as_stored and rows.num_rows <= _MOST_LAZY
        if lazy and not possible:
            raise ValueError(
                "lazy rows are read as they are kept, [num_rows, F] of floating point or of 8 bits, fewer than 2^31; "
                f"these are {rows.describe()}: give lazy=False"
            )
        require_cuda(type(self).__name__)
        if device is None and tensor.device.type == "cuda":
            device = tensor.device
        super().__init__(rows, cuda_device(device))
        if tensor.device.type == "cuda" and tensor.device != self.device:
            raise ValueError(f"features lies on {tensor.device}, device is {self.device}; move one of them")
        with torch.cuda.device(self.device):
            table = self._placed(tensor)
            self._start(table, table.data_ptr())
        self.lazy = possible if lazy is None else lazy
        self._table: Tensor | None = table

    def _placed(self, tensor: Tensor) -> Tensor:
        """The table of `tensor`'s rows in GPU memory."""
        return self._format.stored(tensor.cpu() if self._format.coded else tensor, self.device)

    @property
    def can(self) -> Abilities:
        """What it can do besides gathering."""
        return Abilities(lazy=self.lazy)

    def lazy_rows(self, ids: Tensor) -> LazyRows:
        """The rows of `ids`, which are not gathered.

        Raises:
            RuntimeError: the store was closed.
        """
        self._open()
        assert self._table is not None
        if self._format.coded:
            return LazyRows(self._format.view_of(self._table), ids, self._scales, self.dtype, self._format.by_row)
        return LazyRows(self._table, ids)

    def close(self) -> None:
        """Waits for the GPU, and frees the rows when no mini-batch refers to them any more."""
        self._table = None
        super().close()
