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

    The rows of a mini-batch are never collected on the host, and no thread of it works. Each row is read in whole
    lines of 128 bytes from the line that it begins in, as EMOGI does (Min et al., "EMOGI: Efficient Memory-access
    for Out-of-memory Graph-traversal in GPUs", VLDB 2020). See `KernelStore`.

    A GPU keeps few translations of the host's pages. Over a table of 768 MiB and more, 32,768 ids and more are
    therefore read in the order in which their rows lie, roughly, which it finds out first, unless they come in such
    an order, as in the hops of a mini-batch (`csrc/features/cuda/order.cuh`).

    The tensor's memory is put on huge pages, about a second per GiB, locked in place, and unlocked by `close()`, so the
    rows exist once. Where the system does not lock it (a memory-mapped file that may only be read), they are copied to
    memory of the store's own.

    Args:
        tensor: `[num_rows, ...]` of any type, contiguous, on the CPU. It must not be changed by the GPU's reading;
            changes by the host are seen by later gathers when it was locked in place.
        device: the GPU, by default the current one.
        copy: keep a copy that begins on a line of 128 bytes. Rows of a few whole lines are read faster from one where
            the tensor's own memory, which torch aligns to 64 bytes, does not begin on such a line: rows of 128 bytes
            then take one request instead of two.
        options: see `RowOptions`. Another `storage_dtype` makes a copy.

    Attributes:
        in_place: whether the tensor's own memory was locked.

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
            table = PinnedTensor(rows.stored(tensor), copy=copy)
            self.in_place = table.tensor is tensor
            self._start(table.tensor, table.address, release=table.release)
