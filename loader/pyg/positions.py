"""Mini-batches of positions: of a loader that makes the rest by hooks, and of torch's samplers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any

import torch

from loader.graph import Graph
from loader.loaders.base import Loader
from loader.loaders.own_batches import seeded
from loader.machine.arguments import as_index, kind_of, shown

NO_GRAPH = Graph(torch.zeros(2, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))


class Batches:
    """The mini-batches that a batch sampler of torch's gives in each epoch.

    What it draws from torch's generator follows from the seed and the epoch. If it has a generator of its own, or
    another state, its next epoch is another one each time, and a resumed run that finds other mini-batches is refused.

    Args:
        who: the loader.
        sampler: gives lists of positions.
        seed: of the loader.
        count: items of the loader, at least 1.

    Raises:
        TypeError: it has no length.
        ValueError: its length is 0.
    """

    def __init__(self, who: str, sampler: Any, seed: int, count: int) -> None:
        if not hasattr(sampler, "__len__"):
            raise TypeError(f"{who} was given {kind_of(sampler)} to draw from; it must have a length: give it __len__")
        self._who, self._seed, self._count = who, seed, count
        self._sampler = sampler
        self._length: int = len(sampler)
        if self._length == 0:
            raise ValueError(f"the sampler of this {who} has no mini-batch; lower batch_size, or turn drop_last off")
        self._ranks, self._rank = sharing(sampler)
        self.digest: str | None = None  # of the epoch that was drawn last

    def __len__(self) -> int:
        return self._length

    def draw(self, epoch: int, expected: str | None) -> list[list[int]]:
        """The mini-batches of `epoch`.

        Args:
            expected: their digest, if an epoch goes on.

        Raises:
            TypeError: one is no list of positions.
            ValueError: they are others than expected, or as many as the length did not say, or a position is none.
        """
        with seeded(self._seed, epoch, 2**63):
            drawn = [self._positions(batch) for batch in islice(self._sampler, len(self) + 1)]
        if len(drawn) != len(self):
            number = "more" if len(drawn) > len(self) else len(drawn)
            raise ValueError(
                f"the sampler of this {self._who} gives {number} mini-batches in epoch {epoch}, and its length was "
                f"{len(self)} when the loader was made; correct __len__, or make a loader for each length"
            )
        digest = blake2b(repr(drawn).encode(), digest_size=8).hexdigest()
        if expected is not None and digest != expected:
            raise ValueError(
                f"cannot resume: the sampler of this {self._who} gives other mini-batches in epoch {epoch} than when "
                "the state was saved; leave its generator out, or restore its state (set_epoch)"
            )
        self.digest = digest
        return drawn

    def _positions(self, batch: Any) -> list[int]:
        found = [as_index(i) for i in batch] if isinstance(batch, Iterable) else [None]
        positions = [i for i in found if i is not None]
        if len(positions) < len(found):
            raise TypeError(f"the sampler of this {self._who} gives {shown(batch)}; it must give lists of positions")
        for i in positions:
            if not -self._count <= i < self._count:
                raise ValueError(
                    f"the sampler of this {self._who} gives position {i}; there are {self._count} items, 0 to "
                    f"{self._count - 1}: positions count the items, and are no ids"
                )
        return positions

    def number(self, batch: int) -> int:
        """The number of this process's mini-batch `batch` among those of all processes that share the sampler."""
        return batch * self._ranks + self._rank


def sharing(sampler: Any) -> tuple[int, int]:
    """How many processes share a sampler or batch sampler of torch's, as a `DistributedSampler`, and which this is."""
    inner = getattr(sampler, "sampler", sampler)
    source: Any = sampler if hasattr(sampler, "num_replicas") else inner  # batch samplers that share by themselves
    return getattr(source, "num_replicas", 1), getattr(source, "rank", 0)


class EpochSampler(torch.utils.data.Sampler[Any]):
    """A user's sampler of torch's that passes the number of each epoch on to the loader which draws from it.

    Args:
        theirs: the sampler.
        loader: of the positions.
    """

    def __init__(self, theirs: Any, loader: Loader) -> None:
        self.theirs, self.loader = theirs, loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.theirs)

    def __len__(self) -> int:
        return len(self.theirs)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next epoch of the loader, and of the sampler if it has such a method."""
        if hasattr(self.theirs, "set_epoch"):
            self.theirs.set_epoch(epoch)
        self.loader.set_epoch(epoch)
