"""The sequence of an epoch's mini-batches, and the turns that ranks take in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from loader.machine.arguments import as_flag, as_size


class Turn(NamedTuple):
    """A mini-batch to make.

    Attributes:
        epoch: which epoch it belongs to.
        number: of the mini-batch in the epoch, counted over all ranks.
        repeats: whether it repeats a mini-batch of another rank, to fill up the last step of the ranks.
    """

    epoch: int
    number: int
    repeats: bool = False


class BatchSequence:
    """The mini-batches of an epoch, numbered from 0. They do not depend on the number of ranks.

    Mini-batch `i` has the items at positions `i * batch_size` to `(i + 1) * batch_size` of the epoch's order; the last
    one may be smaller. Ranks take turns: at step `s` rank `r` makes mini-batch `first + s * world_size + r`. At the
    last step there may be fewer mini-batches left than ranks. The ranks without one then repeat mini-batches from the
    beginning of the epoch, so that every rank has the same number of steps. A resumed run continues the sequence
    exactly, also with another number of ranks.

    Args:
        num_items: number of items of the epoch.
        batch_size: items of a mini-batch.
        drop_last: leave out the last mini-batch if it is smaller than the others.
        rank, world_size: the rank whose turns these are, and the number of ranks.

    Raises:
        TypeError, ValueError: a number is out of its range, or `drop_last` leaves no mini-batch.
    """

    def __init__(
        self, num_items: int, batch_size: int, *, drop_last: bool = False, rank: int = 0, world_size: int = 1
    ) -> None:
        self.batch_size = as_size("batch_size", batch_size)
        self.world_size = as_size("world_size", world_size)
        self.rank = as_size("rank", rank, least=0)
        if self.rank >= self.world_size:
            raise ValueError(
                f"rank is {self.rank}; with world_size {self.world_size} it must be 0 to {self.world_size - 1}"
            )
        self.num_items = as_size("num_items", num_items, least=0)
        self.drop_last = as_flag("drop_last", drop_last)
        full, rest = divmod(self.num_items, self.batch_size)
        self.num_batches = full + (rest > 0 and not self.drop_last)
        if self.num_items == 0:
            raise ValueError("num_items is 0; an epoch needs at least 1")
        if self.num_batches == 0:
            raise ValueError(
                f"drop_last leaves no mini-batch: {num_items} seeds are less than one of {batch_size}; lower "
                "batch_size or turn drop_last off"
            )

    def steps(self, first: int = 0) -> int:
        """The number of mini-batches that each rank makes from number `first` to the end of the epoch."""
        return -(-(self.num_batches - first) // self.world_size)

    def turn(self, epoch: int, step: int, first: int = 0) -> Turn:
        """The turn of this rank at `step`, counted from number `first`."""
        number = first + step * self.world_size + self.rank
        return Turn(epoch, number % self.num_batches, number >= self.num_batches)

    def size(self, number: int) -> int:
        """The number of items of mini-batch `number`."""
        return min(self.batch_size, self.num_items - number * self.batch_size)


class Turns:
    """The turns of a rank in the rest of an epoch, from mini-batch `first` on."""

    def __init__(self, sequence: BatchSequence, epoch: int, first: int = 0) -> None:
        self._sequence, self._epoch, self._first = sequence, epoch, first

    def __len__(self) -> int:
        return self._sequence.steps(self._first)

    def __iter__(self) -> Iterator[Turn]:
        return (self._sequence.turn(self._epoch, step, self._first) for step in range(len(self)))
