"""Features in GPU memory."""

from __future__ import annotations

import torch
from torch import Tensor

from loader.machine.gpu import cuda_device, require_cuda
from loader.samples import LazyRows
from loader.stores.kernel import KernelStore
from loader.stores.rows import Rows


class DeviceFeatures(KernelStore):
    """All rows in GPU memory, gathered by a kernel that converts them on the way. See `KernelStore`.

    Args:
        tensor: `[num_nodes, ...]` of any type, contiguous, on the CPU or on `device`; there it is used as it is,
            without a copy, unless `storage_dtype` differs.
        device: the GPU, by default the tensor's, else the current one.
        dtype: type of the rows that `gather` returns, by default the one they are kept in.
        storage_dtype: type in which rows are kept, by default the tensor's; see `Rows` for what converts.
        lazy: a loader leaves the features of its mini-batches here, as `MiniBatch.rows` in the place of `x`, for a
            first layer that reads them in place, as `models.sage.GraphSAGE` does. For `[num_nodes, F]` of floating
            point, returned in the type they are kept in; None: where they are such.

    Raises:
        TypeError, ValueError: as `Rows`; or `device` is no GPU, or not the one that the tensor lies on; or rows that
            cannot be `lazy`.
        RuntimeError: the build or the machine has no CUDA.
    """

    def __init__(
        self,
        tensor: Tensor,
        device: str | int | torch.device | None = None,
        dtype: torch.dtype | str | None = None,
        *,
        storage_dtype: torch.dtype | str | None = None,
        lazy: bool | None = False,
    ) -> None:
        rows = Rows(tensor, storage_dtype, dtype, ("cpu", "cuda"))
        possible = len(rows.shape) == 1 and rows.dtype.is_floating_point and rows.storage_dtype == rows.dtype
        if lazy and not possible:
            raise ValueError(
                f"lazy rows are read as they are kept, [num_nodes, F] of floating point; these are {rows.describe()}: "
                "give lazy=False"
            )
        require_cuda("features=device")
        if device is None and tensor.device.type == "cuda":
            device = tensor.device
        super().__init__(rows, cuda_device(device))
        if tensor.device.type == "cuda" and tensor.device != self.device:
            raise ValueError(f"features lies on {tensor.device}, device is {self.device}; move one of them")
        with torch.cuda.device(self.device):
            table = rows.stored(tensor).to(self.device)
            self._start("device", table.data_ptr(), held=(table,))
        self.lazy = possible if lazy is None else lazy
        self._table: Tensor | None = table

    def lazy_rows(self, nodes: Tensor) -> LazyRows:
        """The rows of `nodes`, left where they are.

        Raises:
            RuntimeError: the store was closed.
        """
        self._open()
        assert self._table is not None
        return LazyRows(self._table, nodes)

    def close(self) -> None:
        """Waits for the GPU and frees the rows, as soon as no mini-batch refers to them."""
        self._table = None
        super().close()
