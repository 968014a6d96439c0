"""The global sequence of mini-batches, the ranks' turns in it, and its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader.items import BatchSequence, Turn


def turns(sequence: BatchSequence, first: int = 0, epoch: int = 0) -> list[Turn]:
    return [sequence.turn(epoch, step, first) for step in range(sequence.steps(first))]


def merged(ranks: list[list[Turn]]) -> list[Turn]:
    """All turns, in the order of the global sequence."""
    return [turn for step in zip(*ranks, strict=True) for turn in step]


@given(
    n=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    world_size=st.integers(1, 5),
    drop_last=st.booleans(),
    data=st.data(),
)
def test_ranks_take_turns_in_one_sequence(
    n: int, batch_size: int, world_size: int, drop_last: bool, data: st.DataObject
) -> None:
    if drop_last and n < batch_size:
        return
    options: dict[str, Any] = {"drop_last": drop_last, "world_size": world_size}
    sequences = [BatchSequence(n, batch_size, rank=rank, **options) for rank in range(world_size)]
    single = BatchSequence(n, batch_size, drop_last=drop_last)
    assert single.num_batches == (n // batch_size if drop_last else -(-n // batch_size))

    sizes = [single.size(number) for number in range(single.num_batches)]
    assert all(1 <= size <= batch_size for size in sizes)
    assert all(size == batch_size for size in sizes[:-1])
    assert sum(sizes) == (n - n % batch_size if drop_last else n)

    first = data.draw(st.integers(0, single.num_batches))
    ranks = [turns(sequence, first, epoch=3) for sequence in sequences]
    assert len({len(rank) for rank in ranks}) == 1  # every rank has as many steps
    every = merged(ranks)
    own = [turn for turn in every if not turn.repeats]
    assert own == turns(single, first, epoch=3)
    assert [turn.number for turn in own] == list(range(first, single.num_batches))
    repeated = every[len(own) :]  # only the last step is filled up, and from the beginning of the epoch
    assert len(repeated) < world_size
    assert repeated == [Turn(3, i % single.num_batches, True) for i in range(len(repeated))]


@given(st.integers(1, 200), st.integers(0, 6), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_another_number_of_ranks_continues_the_sequence(batches: int, steps: int, before: int, after: int) -> None:
    steps = min(steps, BatchSequence(batches, 1, world_size=before).steps())
    begun = [turns(BatchSequence(batches, 1, rank=r, world_size=before))[:steps] for r in range(before)]
    first = min(steps * before, batches)
    rest = [turns(BatchSequence(batches, 1, rank=r, world_size=after), first) for r in range(after)]
    numbers = [turn.number for turn in merged(begun) + merged(rest) if not turn.repeats]
    assert numbers == list(range(batches))


def test_surplus_ranks_repeat_mini_batches() -> None:
    ranks = [turns(BatchSequence(5, 3, rank=rank, world_size=5)) for rank in range(5)]
    assert ranks == [[Turn(0, 0)], [Turn(0, 1)], [Turn(0, 0, True)], [Turn(0, 1, True)], [Turn(0, 0, True)]]


def test_sizes_may_be_integers_of_numpy() -> None:
    sequence = BatchSequence(100, np.int64(7), rank=np.int32(1), world_size=np.uint8(3))
    numbers = (sequence.batch_size, sequence.rank, sequence.world_size)
    assert numbers == (7, 1, 3)
    assert all(type(number) is int for number in numbers)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"num_items": 0}, ValueError, "num_items is 0; an epoch needs at least 1"),
        ({"batch_size": -3}, ValueError, "batch_size is -3"),
        ({"batch_size": 2.5}, TypeError, "batch_size is 2.5"),
        ({"batch_size": True}, TypeError, "batch_size is True"),
        ({"world_size": 0}, ValueError, "world_size is 0"),
        ({"world_size": 2.5}, TypeError, "world_size is 2.5; it must be an integer"),
        ({"rank": 0.5, "world_size": 2}, TypeError, "rank is 0.5; it must be an integer"),
        ({"rank": True, "world_size": 2}, TypeError, "rank is True; it must be an integer"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank is 2"),
        ({"rank": -1}, ValueError, "rank is -1"),
        ({"batch_size": 101, "drop_last": True}, ValueError, "drop_last leaves no mini-batch: 100 .* 101; lower"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BatchSequence(**{"num_items": 100, "batch_size": 10, **change})
