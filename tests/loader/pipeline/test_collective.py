"""A stage whose work several processes do together: a run that is closed early leaves nobody waiting."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from function_stage import FunctionStage

from loader.pipeline import Pipeline, Stage
from loader.pipeline.threads import begun_groups

RANKS = 3
PATIENCE = 20.0  # seconds until a barrier breaks, which fails a test


class Meeting(Stage):
    """Meets the stages of the other ranks, here threads, once a group."""

    name, collective = "meeting", True

    def __init__(self, barrier: threading.Barrier, together: int) -> None:
        self.barrier, self.together = barrier, together
        self.groups: list[list[int]] = []
        self.lock = threading.Lock()

    def begin(self, group: Sequence[int]) -> Sequence[Callable[[], int]]:
        with self.lock:  # never two threads of one rank
            self.barrier.wait(PATIENCE)
            self.groups.append(list(group))
        return [partial(int, item) for item in group]

    def absent(self) -> None:
        with self.lock:
            self.barrier.wait(PATIENCE)
            self.groups.append([])


def ranks(body: Callable[[int], None]) -> None:
    """Calls the function once a rank, each in a thread, and raises what they raise."""
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            body(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def pipelines(depth: int, together: int, more: int, fail_at: int | None = None) -> list[Pipeline]:
    """One pipeline a rank; the first stage of rank 0 fails at an item."""
    barrier, rng = threading.Barrier(RANKS), random.Random(depth)

    def made(rank: int) -> Pipeline:
        def late(item: int) -> int:
            time.sleep(rng.random() * 0.001)
            if rank == 0 and item == fail_at:
                raise LookupError(f"item {item}")
            return item

        after = [FunctionStage(f"after{i}", late, lambda group: [partial(late, i) for i in group]) for i in range(more)]
        return Pipeline([FunctionStage("first", late), Meeting(barrier, together), *after], depth)

    return [made(rank) for rank in range(RANKS)]


def meetings(pipeline: Pipeline) -> list[list[int]]:
    stage = pipeline.stages[1]
    assert isinstance(stage, Meeting)
    return stage.groups


@pytest.mark.parametrize("depth", [0, 1, 2, 4])
@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("more", [0, 1])
def test_runs_closed_early_leave_nobody_waiting(depth: int, together: int, more: int) -> None:
    made = pipelines(depth, together, more)

    def body(rank: int) -> None:
        rng = random.Random(rank)
        for length, taken in ((20, 0), (20, 1), (20, 5), (20, 19), (20, 20), (4, 3), (1, 1), (0, 0)):
            items = made[rank].run(range(length))
            assert [next(items) for _ in range(taken)] == list(range(taken))
            time.sleep(rng.random() * 0.02)
            items.close()

    ranks(body)
    counts = {len(meetings(pipeline)) for pipeline in made}
    assert len(counts) == 1


@pytest.mark.parametrize("fail_at", [0, 1, 2, 7])
@pytest.mark.parametrize("together", [1, 3])
def test_an_error_of_one_rank_stops_nobody_else(fail_at: int, together: int) -> None:
    made = pipelines(2, together, 1, fail_at)

    def body(rank: int) -> None:
        items = made[rank].run(range(20))
        assert [next(items) for _ in range(fail_at)] == list(range(fail_at))
        if rank:
            assert next(items) == fail_at  # the others are amid this step when rank 0 fails
            items.close()
        else:
            with pytest.raises(LookupError, match=f"item {fail_at}"):
                next(items)

    ranks(body)
    assert len({len(meetings(pipeline)) for pipeline in made}) == 1


def test_a_dropped_run_meets_the_others() -> None:
    made = pipelines(2, 3, 1)

    def body(rank: int) -> None:
        for epoch in range(3):
            for item in made[rank].run(range(20)):
                if item == 3 + epoch:
                    break

    ranks(body)
    for pipeline in made:
        for thread in list(pipeline.threads):
            thread.join()
    assert len({len(meetings(pipeline)) for pipeline in made}) == 1


@pytest.mark.parametrize("together", [1, 2, 5])
def test_begun_groups_are_those_of_a_loop(together: int) -> None:
    for length in range(12):
        for room in range(14):
            begin, groups = 0, 0
            while begin < min(room, length):
                begin += together if groups else 1
                groups += 1
            assert begun_groups(length, room, together) == (groups, min(begin, length))


def test_a_collective_stage_needs_place_and_length() -> None:
    meeting = Meeting(threading.Barrier(1), 2)
    with pytest.raises(ValueError, match="stage 'meeting' is collective; such a stage is neither first nor asynch"):
        Pipeline([meeting], 2)
    pipeline = Pipeline([FunctionStage("first", abs), meeting], 2)
    with pytest.raises(TypeError, match="a collective stage needs a source with a length, not a generator"):
        pipeline.run(i for i in range(3))
    with pytest.raises(NotImplementedError, match="stage 'first' is collective and has no `absent`"):
        pipeline.stages[0].absent()
