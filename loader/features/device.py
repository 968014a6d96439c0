"""Features in GPU memory."""

from __future__ import annotations

import torch
from torch import Tensor

from loader.cuda import cuda_device, require_cuda
from loader.features.kernel import KernelStore
from loader.features.rows import Rows


class DeviceFeatures(KernelStore):
    """All rows in GPU memory, gathered by a kernel that converts them on the way. See `KernelStore`.

    Args:
        tensor: `[num_nodes, ...]` of any type, contiguous, on the CPU or on `device`; there it is used as it is,
            without a copy, unless `storage_dtype` differs.
        device: the GPU, by default the tensor's, else the current one.
        dtype: type of the rows that `gather` returns, by default the one they are kept in.
        storage_dtype: type in which rows are kept, by default the tensor's; see `Rows` for what converts.

    Raises:
        TypeError, ValueError: as `Rows`; or `device` is no GPU, or not the one that the tensor lies on.
        RuntimeError: the build or the machine has no CUDA.
    """

    def __init__(
        self,
        tensor: Tensor,
        device: str | int | torch.device | None = None,
        dtype: torch.dtype | str | None = None,
        *,
        storage_dtype: torch.dtype | str | None = None,
    ) -> None:
        rows = Rows(tensor, storage_dtype, dtype, ("cpu", "cuda"))
        require_cuda("features=device")
        if device is None and tensor.device.type == "cuda":
            device = tensor.device
        super().__init__(rows, cuda_device(device))
        if tensor.device.type == "cuda" and tensor.device != self.device:
            raise ValueError(f"features lies on {tensor.device}, device is {self.device}; move one of them")
        with torch.cuda.device(self.device):
            table = rows.stored(tensor).to(self.device)
            self._start("device", table.data_ptr(), held=(table,))
