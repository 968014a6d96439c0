"""Features in the memory of several GPUs of one machine."""

from __future__ import annotations

import torch
from torch import Tensor

from loader.stores.device import DeviceFeatures
from study.peer_memory import peer_table


class ShardedFeatures(DeviceFeatures):
    """All rows in the memory of the GPUs that train on this machine: each process has a part of them on its GPU.

    Parts of some MiB lie on the GPUs in turns, one behind the other at one range of addresses, which each GPU reads
    (`peer_memory.py`). So the kernel that gathers, and the first layer that reads rows in place, are those
    of `DeviceFeatures`; rows on another GPU come over NVLink. With n processes a GPU holds an n-th of the rows. All
    processes of the run on this machine have to make the store, in the same order as others of its kind, and each
    reads its part of `tensor` only. One process alone has all rows on its GPU. Processes that start one after the
    other, as by `trainer.strategy=ddp`, would wait for each other: take `trainer.strategy=auto`, or torchrun.

    Args:
        tensor, device, lazy, options: see `DeviceFeatures`; all processes must give the same rows.

    Raises:
        TypeError, ValueError: as `DeviceFeatures`.
        RuntimeError: the build or the machine has no CUDA; the GPUs do not reach each other's memory, or there is too
            little of it; another process did not come.
    """

    serves_alone = True  # not one store of several, one for each type: other processes would be waited for

    def _placed(self, tensor: Tensor) -> Tensor:
        rows = self._format
        rows.check(tensor)

        def fill(part: Tensor, begin: int) -> None:
            first, last = begin // rows.nbytes, -(-(begin + part.numel()) // rows.nbytes)
            if rows.coded:
                some = rows.codes_of(tensor, first, last).view(-1)
            else:
                some = rows.narrowed(tensor[first:last]).contiguous().view(-1).view(torch.uint8)
            skipped = begin - first * rows.nbytes
            part.copy_(some[skipped : skipped + part.numel()])

        shape, dtype = (rows.num_rows, *rows.shape), rows.storage_dtype
        if rows.coded:
            shape, dtype = (rows.num_rows, rows.nbytes), torch.uint8
            tensor = tensor.cpu()
        if rows.num_rows * rows.nbytes == 0:
            return torch.empty(shape, dtype=dtype, device=self.device)
        return peer_table(shape, dtype, self.device, fill)
