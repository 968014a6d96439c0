"""Which seeds go into which mini-batch: the order of an epoch, and its share for each rank."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

_MASK = 2**64 - 1


class SeedBatches:
    """The seeds of every mini-batch of every epoch, a pure function of the arguments.

    With `shuffle`, epoch `e` takes the seeds in the order of `torch.randperm` drawn from a generator that is seeded
    with a mix (two rounds of SplitMix64) of `(seed, e)`; no other random state is read or changed.

    Several ranks share each step: step `i` takes the next `world_size * batch_size` seeds of the order, and each
    rank an equal, contiguous part of them. At the last step, where fewer may be left, all parts stay equal: they
    become smaller, and when the rest does not divide by `world_size` the order is continued from its beginning, so
    at most `world_size - 1` seeds occur twice in an epoch. So every rank sees equally many mini-batches of equal
    sizes. With `drop_last` an incomplete last step is left out instead.

    Args:
        seeds: `[num_seeds]`, integer, not empty.
        batch_size: seeds of a mini-batch, on each rank.
        shuffle: draw a new order for each epoch.
        drop_last: leave the last, incomplete step out.
        seed: of the orders, `0 <= seed < 2**64`.
        rank, world_size: which part of each step to take.

    Raises:
        TypeError: `seeds` is not an integer tensor, `batch_size` not an integer.
        ValueError: anything else out of range, or no mini-batch is left by `drop_last`.
    """

    def __init__(
        self,
        seeds: Tensor,
        batch_size: int,
        *,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        check_batch_size("batch_size", batch_size)
        if not isinstance(seeds, Tensor):
            raise TypeError(f"seeds is a {type(seeds).__name__}; give a tensor of vertex ids (torch.as_tensor)")
        if seeds.dtype == torch.bool:
            raise TypeError("seeds has dtype torch.bool; turn a mask into ids with mask.nonzero().view(-1)")
        if seeds.is_floating_point() or seeds.is_complex():
            raise TypeError(f"seeds has dtype {seeds.dtype}; it must be an integer type")
        if seeds.dim() != 1:
            raise ValueError(f"seeds has shape {list(seeds.shape)}; it must have 1 dimension")
        if seeds.numel() == 0:
            raise ValueError("seeds is empty; a loader needs at least one seed")
        if not 0 <= seed <= _MASK:
            raise ValueError(f"seed is {seed}; it must be in [0, 2**64)")
        if world_size < 1:
            raise ValueError(f"world_size is {world_size}; it must be at least 1")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank}; with world_size {world_size} it must be 0 to {world_size - 1}")
        self.seeds = seeds
        self.batch_size = int(batch_size)
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self.seed = int(seed)
        self.rank = int(rank)
        self.world_size = int(world_size)
        if len(self) == 0:
            raise ValueError(
                f"drop_last leaves no mini-batch: {seeds.numel()} seeds are less than one step of "
                f"{world_size} x {batch_size}; lower batch_size or turn drop_last off"
            )

    def __len__(self) -> int:
        """Mini-batches of an epoch, the same on every rank."""
        step = self.batch_size * self.world_size
        full, rest = divmod(self.seeds.numel(), step)
        return full + (rest > 0 and not self.drop_last)

    def order(self, epoch: int) -> Tensor:
        """`[num_seeds]`: all seeds in the order of `epoch`, before they are shared among ranks."""
        if not self.shuffle:
            return self.seeds
        generator = torch.Generator().manual_seed(_mix(_mix(self.seed) ^ epoch))
        return self.seeds[torch.randperm(self.seeds.numel(), generator=generator)]

    def batch(self, order: Tensor, step: int) -> Tensor:
        """The seeds of this rank at `step` of an epoch of that `order`."""
        begin = step * self.batch_size * self.world_size
        left = order.numel() - begin
        size = min(self.batch_size, -(-left // self.world_size))
        begin += self.rank * size
        if begin + size <= order.numel():
            return order[begin : begin + size]
        return order[torch.arange(begin, begin + size) % order.numel()]

    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell sets (and orders) of seeds apart."""
        data = self.seeds.to("cpu", torch.int64).contiguous().numpy()
        return hashlib.sha256(data.data).hexdigest()[:16]


def check_batch_size(name: str, batch_size: int) -> None:
    """Raises unless `batch_size` is a positive integer; `name` is what the message calls it."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int):
        raise TypeError(f"{name} is {batch_size!r}; it must be an integer of at least 1")
    if batch_size < 1:
        raise ValueError(f"{name} is {batch_size}; it must be at least 1")


def _mix(x: int) -> int:
    """SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64-bit words that spreads every bit."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
