"""The order of an epoch: a keyed permutation, which is computed and not stored."""

from __future__ import annotations

import torch
from torch import Tensor

from loader import _core
from loader.machine.arguments import as_flag, as_seed, as_size
from loader.machine.gpu import current_stream_handle, made_current

_MAX_ITEMS = 2**62  # beyond it the squares in csrc/items/permutation.h would overflow


class Order:
    """The order in which an epoch takes its items.

    With `shuffle` the order of each epoch is a permutation whose key is drawn from all 64 bits of `seed` and from the
    epoch (csrc/items/permutation.h). Nothing is stored. Each position is computed by itself, with the same result on
    the CPU and on a GPU.

    Args:
        num_items: number of items of an epoch, `1 <= num_items <= 2**62`.
        shuffle: whether the order is a permutation; else it is that of the list.
        seed: of the permutations, `0 <= seed < 2**64`.

    Raises:
        TypeError, ValueError: an argument is no integer, or out of its range.
    """

    def __init__(self, num_items: int, *, shuffle: bool, seed: int = 0) -> None:
        if as_size("num_items", num_items) > _MAX_ITEMS:
            raise ValueError(f"num_items is {num_items}; at most 2**62 can be put in order")
        self.num_items = num_items
        self.shuffle = as_flag("shuffle", shuffle)
        self.seed = as_seed(seed)
        self._key = (-1, 0)  # epoch, and its key

    def at(
        self, epoch: int, first: int, count: int, device: torch.device, *, length: int = 1, stride: int = 1
    ) -> Tensor | slice:
        """The items at `count` positions of the order of `epoch`.

        Args:
            first: the first position.
            device: where to put the result. On a GPU it is written on the current stream.
            length, stride: the positions are runs of `length` that begin `stride` apart; the last run may be shorter.

        Returns:
            `[count]` int64; or a slice, if the items follow each other in the list.
        """
        if not self.shuffle and (length == stride or count <= length):
            return slice(first, first + count)
        if not self.shuffle:
            i = torch.arange(count, device=device)
            return first + i // length * stride + i % length
        known = self._key  # read once: an iterator that was dropped may still ask for another epoch
        if known[0] != epoch:
            known = self._key = (epoch, _core.order_key(self.seed, epoch))
        out = torch.empty(count, dtype=torch.int64, device=device)
        if device.type == "cpu":
            _core.items_at(self.num_items, known[1], first, length, stride, out)
        else:
            with made_current(device):
                stream = current_stream_handle(device.index)
                _core.cuda_items_at(self.num_items, known[1], first, length, stride, out, stream)
        return out
