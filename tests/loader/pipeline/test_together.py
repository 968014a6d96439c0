"""A first stage that begins several items together: order, bounds, errors and times; on a virtual clock."""

from __future__ import annotations

import gc
import itertools
import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from fake_cuda import FakeBatch, FakeCuda, StageOf, StageOfSeveral
from function_stage import FunctionStage

from loader.pipeline import Pipeline, StageStreams
from loader.pipeline.streams import TIMED
from loader.timing import Timeline

MODES = ["threads", "consumer"]


def make(
    cuda: FakeCuda, mode: str, together: int, depth: int = 2, fail_at: int | None = None
) -> tuple[Pipeline, StageOfSeveral]:
    first, asynchronous = StageOfSeveral(cuda, fail_at), mode == "consumer"
    stages = [
        FunctionStage("a", first, first.start, together, asynchronous=asynchronous),
        FunctionStage("b", StageOf(cuda), asynchronous=asynchronous),
    ]
    pipeline = Pipeline(stages, depth, streams=StageStreams(torch.device("cuda", 0), stages, cuda=cuda))
    assert pipeline.threaded == (mode == "threads")
    return pipeline, first


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("together", [2, 4, 7])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_items_are_begun_together_and_come_in_order(mode: str, together: int, depth: int) -> None:
    cuda = FakeCuda(together)
    pipeline, first = make(cuda, mode, together, depth)
    rng = random.Random(depth)
    for _ in range(2):  # two epochs; neither ends with a whole group
        seen = []
        for batch in pipeline.run(range(30)):
            batch.read(rng.random() * 2)
            seen.append(batch.value)
        assert seen == list(range(30))
        assert first.launches == [[0], *(list(range(i, min(i + together, 30))) for i in range(1, 30, together))]
        first.launches.clear()
    assert first.streams == {pipeline.streams.streams[0]}


@pytest.mark.parametrize("together", [1, 2, 4, 7])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_first_item_waits_for_no_other(together: int, depth: int) -> None:
    """Each launch takes a second, and the other stage one for each item."""
    cuda = FakeCuda()
    cuda.rng = SimpleNamespace(random=lambda: 1.0)
    pipeline, first = make(cuda, "consumer", together, depth)
    items = pipeline.run(itertools.count())
    batch = next(items)
    assert cuda.host == pytest.approx(1.0, abs=1e-3)
    assert batch.ready == pytest.approx(2.0, abs=1e-3)
    groups = math.ceil(depth / together)
    assert first.launches == [[0], *([1 + g * together + i for i in range(together)] for g in range(groups))]
    assert pipeline.stages[1].function.calls == 1
    next(items)
    assert pipeline.stages[1].function.calls == 2 + depth  # from now on so many are ready
    items.close()


@pytest.mark.parametrize("together", [2, 5])
@pytest.mark.parametrize("depth", [1, 3])
def test_the_number_of_begun_items_is_bounded(together: int, depth: int) -> None:
    pipeline, first = make(FakeCuda(), "consumer", together, depth)
    items = pipeline.run(itertools.count())
    most = 0
    for taken in range(1, 30):
        next(items)
        assert first.calls - taken >= (2 * depth if taken > 1 else depth)  # what it holds without groups
        most = max(most, first.calls - taken)
    assert most == pipeline.max_items == 2 * depth + together - 1
    items.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fail_at", [0, 1, 2, 4, 5, 7])
def test_an_error_surfaces_after_the_items_before_it(mode: str, fail_at: int) -> None:
    pipeline, first = make(FakeCuda(), mode, 4, fail_at=fail_at)
    items = pipeline.run(range(20))
    assert [next(items).value for _ in range(fail_at)] == list(range(fail_at))
    with pytest.raises(LookupError, match=f"item {fail_at}"):
        next(items)
    assert items.closed
    first.fail_at = None
    assert [batch.value for batch in pipeline.run(range(14))] == list(range(14))


@pytest.mark.parametrize("mode", MODES)
def test_an_ended_run_drops_begun_items(mode: str) -> None:
    pipeline, first = make(FakeCuda(), mode, 4)
    gc.disable()  # nothing is in a cycle
    try:
        for _ in range(20):
            items = pipeline.run(range(6))  # a whole group, and two that nobody finishes
            next(items)
            items.close()
            del items
        assert first.made
        assert all(ref() is None for ref in first.made)
    finally:
        gc.enable()
    assert [batch.value for batch in pipeline.run(range(4))] == [0, 1, 2, 3]


def test_an_error_nobody_met_keeps_nothing_alive() -> None:
    """The run is closed while an error of the source waits for its turn."""

    def source() -> Iterator[int]:
        yield from range(3)
        raise LookupError("source")

    pipeline, first = make(FakeCuda(), "consumer", 4)
    gc.disable()  # nothing is in a cycle
    try:
        items = pipeline.run(source())
        next(items)
        assert len(first.made) == 3
        items.close()
        assert all(ref() is None for ref in first.made)
    finally:
        gc.enable()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("together", [2, 4, 8])
def test_an_item_counts_its_share_of_time(mode: str, together: int) -> None:
    cuda = FakeCuda()
    pipeline, first = make(cuda, mode, together)
    cuda.rng = SimpleNamespace(random=lambda: 1.0)
    for batch in pipeline.run(range(161)):
        batch.read(3.0)
    assert sum(map(len, first.launches)) == 161
    stats = pipeline.stats
    assert 140 / TIMED < stats.gpu_items <= 1 + 160 / TIMED
    assert stats.gpu_busy["a"] == pytest.approx(1.0 + (stats.gpu_items - 1) / together, rel=0.01)  # the first is alone
    assert stats.gpu_busy["b"] == pytest.approx(stats.gpu_items, rel=0.01)


def test_a_timeline_shows_the_group_per_item() -> None:
    cuda = FakeCuda()
    pipeline, _ = make(cuda, "consumer", 4)
    pipeline.timeline = Timeline(first=5, count=8)
    for batch in pipeline.run(range(17)):
        batch.read(5.0)
    spans = {s.item: s for s in pipeline.timeline.spans() if s.gpu and s.lane == "a"}
    assert set(spans) == set(range(5, 13))
    for first in (5, 9):
        group = [spans[first + i] for i in range(4)]
        assert all(s.end - s.begin > 0 for s in group)
        assert max(s.end for s in group) - min(s.end for s in group) < 1e-4
        assert max(s.begin for s in group) - min(s.begin for s in group) < 1e-4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fail_at", [0, 1, 4, 5, 7])
def test_a_failed_group_fails_in_its_turn(mode: str, fail_at: int) -> None:
    pipeline, first = make(FakeCuda(), mode, 4)

    def start(group: Sequence[int]) -> Sequence[Callable[[], FakeBatch]]:
        if fail_at in group:
            raise LookupError(f"item {fail_at}")
        return first.start(group)

    pipeline.stages[0].start = start
    items = pipeline.run(range(20))
    begun = 0 if fail_at == 0 else 1 + (fail_at - 1) // 4 * 4  # the first one is alone
    assert [next(items).value for _ in range(begun)] == list(range(begun))
    with pytest.raises(LookupError, match=f"item {fail_at}"):
        next(items)
    assert items.closed


@pytest.mark.parametrize("mode", MODES)
def test_a_stage_answers_for_each_item(mode: str) -> None:
    pipeline, first = make(FakeCuda(), mode, 4)
    pipeline.stages[0].start = lambda group: first.start(group)[: max(1, len(group) - 1)]
    items = pipeline.run(range(20))
    assert next(items).value == 0
    with pytest.raises(ValueError, match="stage 'a' began 4 items and returned 3 functions"):
        next(items)


@pytest.mark.parametrize("together", [2, 3, 8])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_later_stage_takes_several_together(together: int, depth: int) -> None:
    seen: list[list[int]] = []

    def start(group: Sequence[int]) -> Sequence[Callable[[], int]]:
        seen.append(list(group))
        return [lambda item=item: 10 * item for item in group]

    stages = [FunctionStage("a", abs), FunctionStage("b", abs, start, together), FunctionStage("c", abs)]
    pipeline = Pipeline(stages, depth)
    assert pipeline.max_items == max(depth, together) + 2 * depth + together - 1
    for length in (0, 1, 2, 20):
        seen.clear()
        assert list(pipeline.run(range(length))) == [10 * i for i in range(length)]
        assert seen == [[0], *(list(range(i, min(i + together, length))) for i in range(1, length, together))][:length]


def test_the_stage_before_a_group_works_on() -> None:
    """While a group is handed out, the stage before makes the next one."""
    made: list[int] = []
    next_group = threading.Event()

    def make(item: int) -> int:
        made.append(item)
        if item == 8:
            next_group.set()
        return item

    def start(group: Sequence[int]) -> Sequence[Callable[[], int]]:
        return [partial(int, item) for item in group]

    items = Pipeline([FunctionStage("a", make), FunctionStage("b", abs, start, 4)], 1).run(range(100))
    assert [next(items), next(items)] == [0, 1]  # of the group 1 to 4
    assert next_group.wait(60)
    assert made == list(range(9))
    items.close()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_later_stage_groups_on_streams(asynchronous: bool) -> None:
    cuda = FakeCuda()
    work = StageOf(cuda)

    def start(group: Sequence[FakeBatch]) -> Sequence[Callable[[], FakeBatch]]:
        return [lambda batch=batch: work(batch) for batch in group]

    stages = [
        FunctionStage("a", StageOf(cuda), asynchronous=True),
        FunctionStage("b", work, start, 3, asynchronous=asynchronous),
    ]
    pipeline = Pipeline(stages, 2, streams=StageStreams(torch.device("cuda", 0), stages, cuda=cuda))
    assert pipeline.threaded
    seen = []
    for batch in pipeline.run(range(40)):
        batch.read(1.0)  # which fails if the batch is not complete
        seen.append(batch.value)
    assert seen == list(range(40))


@pytest.mark.parametrize("fail_at", [1, 2, 3, 5])
@pytest.mark.parametrize("late", [False, True])
def test_a_later_group_fails_in_its_turn(fail_at: int, late: bool) -> None:
    def finish(item: int) -> int:
        if late and item == fail_at:
            raise LookupError(f"item {item}")
        return item

    def start(group: Sequence[int]) -> Sequence[Callable[[], int]]:
        if not late and fail_at in group:
            raise LookupError(f"item {fail_at}")
        return [lambda item=item: finish(item) for item in group]

    items = Pipeline([FunctionStage("a", abs), FunctionStage("b", abs, start, 3)], 2).run(range(20))
    before = fail_at if late else 1 + (fail_at - 1) // 3 * 3
    assert [next(items) for _ in range(before)] == list(range(before))
    with pytest.raises(LookupError, match=f"item {fail_at}"):
        next(items)
    assert items.closed


def test_a_group_that_cannot_begin_fails_whole() -> None:
    """An error before the stage began takes the place of the group's first item, not of the one that raised it."""

    class Refused(FakeBatch):
        def record_stream(self, stream: object) -> None:
            if self.value == 3:
                raise LookupError("no stream")
            super().record_stream(stream)

    cuda = FakeCuda()
    stages = [
        FunctionStage("a", lambda item: Refused(cuda, item, 0.0)),
        FunctionStage("b", abs, lambda group: [partial(FakeBatch, cuda, batch.value, 0.0) for batch in group], 4),
    ]
    items = Pipeline(stages, 4, streams=StageStreams(torch.device("cuda", 0), stages, cuda=cuda)).run(range(20))
    assert next(items).value == 0
    with pytest.raises(LookupError, match="no stream"):
        next(items)
