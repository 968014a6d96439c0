"""Features in pinned host memory, read by the GPU itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from loader.machine.gpu import cuda_device, require_cuda
from loader.machine.pinning import PinnedTensor
from loader.stores.kernel import KernelStore
from loader.stores.rows import RowFormat, RowOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


class PinnedFeatures(KernelStore):
    """All rows in pinned host memory, gathered by a kernel that reads them over the bus (zero-copy).

    The host does not gather rows, so no thread of it works. Each row is read in whole lines of 128 bytes, from the line
    in which it begins, as EMOGI does (Min et al., "EMOGI: Efficient Memory-access for Out-of-memory Graph-traversal in
    GPUs", VLDB 2020). See `KernelStore`.

    A GPU keeps few translations of the host's page addresses. With at least 32,768 ids and a table of at least 768 MiB,
    rows are therefore read roughly in the order in which they lie. The ids are sorted for this, unless they already
    come in such an order, as in the hops of a mini-batch (`csrc/features/cuda/order.cuh`).

    The tensor's memory is put on huge pages, which takes about a second per GiB, and is page-locked in place until
    `close()`. So there is no second copy of the rows. If the system cannot lock the memory (a memory-mapped file that
    may only be read), the rows are copied to memory of the store's own.

    Args:
        tensor: `[num_rows, ...]` of any type, contiguous, on the CPU. If it was locked in place, later gathers see
            changes that you make to it. Do not change it while the GPU reads it.
        device: the GPU, by default the current one.
        copy: keep a copy that begins on a line of 128 bytes. torch aligns memory only to 64 bytes, so a row of 128
            bytes may lie on two lines and take two requests in place of one. The copy makes rows of a few whole lines
            faster to read.
        options: see `RowOptions`. Another `storage_dtype` makes a copy.

    Attributes:
        in_place: whether the tensor's own memory was page-locked.

    Raises:
        TypeError, ValueError: as `RowFormat`; or `device` is no GPU.
        RuntimeError: the build or the machine has no CUDA, or the memory could not be locked.
    """

    def __init__(
        self,
        tensor: Tensor,
        device: str | int | torch.device | None = None,
        *,
        copy: bool = False,
        **options: Unpack[RowOptions],
    ) -> None:
        rows = RowFormat(tensor, **options)
        require_cuda("features=pinned")
        super().__init__(rows, cuda_device(device))
        with torch.cuda.device(self.device):
            table = PinnedTensor(rows.stored(tensor), copy=copy and not rows.coded)  # codes begin on a line
            self.in_place = table.tensor is tensor
            self._start(table.tensor, table.address, release=table.release)
