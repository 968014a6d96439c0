"""Mini-batches of positions: of a loader that makes the rest by hooks, and of torch's samplers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Any

import torch

from loader.graph import Graph
from loader.loaders.asked import seeded
from loader.loaders.base import Loader
from loader.machine.arguments import kind_of

NO_GRAPH = Graph(torch.zeros(2, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))


class Batches:
    """The mini-batches that a batch sampler of torch's gives in each epoch.

    What it draws from torch's generator follows from the seed and the epoch. If it has a generator of its own, or
    another state, its next epoch is another one each time, and a resumed run that finds other mini-batches is refused.

    Args:
        who: the loader.
        sampler: gives lists of positions.
        seed: of the loader.

    Raises:
        TypeError: it has no length.
    """

    def __init__(self, who: str, sampler: Iterable[Any], seed: int) -> None:
        if not hasattr(sampler, "__len__"):
            raise TypeError(f"{who} was given {kind_of(sampler)} to draw from; it must have a length: give it __len__")
        self._who, self._seed = who, seed
        self._sampler: Any = sampler
        source: Any = getattr(sampler, "sampler", sampler)
        self._ranks, self._rank = getattr(source, "num_replicas", 1), getattr(source, "rank", 0)
        self.digest: str | None = None  # of the epoch that was drawn last

    def __len__(self) -> int:
        return len(self._sampler)

    def draw(self, epoch: int, expected: str | None) -> list[list[int]]:
        """The mini-batches of `epoch`.

        Args:
            expected: their digest, if an epoch goes on.

        Raises:
            ValueError: they are others than expected, or more than the length said.
        """
        with seeded(self._seed, epoch, 2**63):
            drawn = [[int(i) for i in batch] for batch in islice(self._sampler, len(self) + 1)]
        if len(drawn) > len(self):
            raise ValueError(
                f"the sampler of this {self._who} gives more than its length, {len(self)}; correct __len__"
            )
        digest = blake2b(repr(drawn).encode(), digest_size=8).hexdigest()
        if expected is not None and digest != expected:
            raise ValueError(
                f"cannot resume: the sampler of this {self._who} gives other mini-batches in epoch {epoch} than when "
                "the state was saved; leave its generator out, or restore its state (set_epoch)"
            )
        self.digest = digest
        return drawn

    def number(self, batch: int) -> int:
        """The number of this process's mini-batch `batch` among those of all processes that share the sampler."""
        return batch * self._ranks + self._rank


class ToldSampler(torch.utils.data.Sampler[Any]):
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
