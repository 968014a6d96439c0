"""Pipelines on streams: order of reads and writes, bounds, errors; on a virtual clock."""

from __future__ import annotations

import gc
import itertools
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_cuda import FakeBatch, FakeCuda, StageOf
from function_stage import FunctionStage
from small_loader import no_threads

from loader.pipeline import Pipeline, StageStreams
from loader.pipeline.streams import TIMED

MODES = ["threads", "consumer"]
NAMES = ("a", "b", "c")
DEVICE = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    assert no_threads()


def make(
    cuda: FakeCuda, mode: str, depth: int = 2, fail: dict[str, int] | None = None
) -> tuple[Pipeline, list[StageOf]]:
    functions = [StageOf(cuda, (fail or {}).get(name)) for name in NAMES]
    a, b, c = functions
    stages = [
        FunctionStage("a", a, a.start, asynchronous=True, priority=-1),
        FunctionStage("b", b, asynchronous=mode == "consumer"),
        FunctionStage("c", c, asynchronous=mode == "consumer"),
    ]
    pipeline = Pipeline(stages, depth, streams=StageStreams(DEVICE, stages, cuda=cuda))
    assert pipeline.threaded == (mode == "threads" and depth > 0)
    return pipeline, functions


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_read_before_it_is_written(mode: str, depth: int, seed: int) -> None:
    cuda = FakeCuda(seed)
    pipeline, functions = make(cuda, mode, depth)
    rng = random.Random(seed)
    for _ in range(2):  # two epochs, on the same streams
        seen = []
        for batch in pipeline.run(range(30)):
            batch.read(rng.random() * 2)
            assert cuda.current_stream() is cuda.default
            seen.append(batch.value)
        assert seen == list(range(30))
    assert [f.streams for f in functions] == [{s} for s in pipeline.streams.streams]
    assert len(cuda.streams) == 1 + len(NAMES)
    assert [s.priority for s in pipeline.streams.streams] == [-1, 0, 0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("last", [1, 2, 3, 4, 6, 9])
def test_a_failure_to_set_streams_is_an_error(mode: str, last: int) -> None:
    cuda = FakeCuda()
    pipeline, _ = make(cuda, mode)
    set_stream, calls = cuda.set_stream, itertools.count(1)

    def fail_once(stream: Any) -> None:
        if next(calls) == last:
            raise RuntimeError("an illegal memory access was encountered")
        set_stream(stream)

    cuda.set_stream = fail_once
    with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
        list(pipeline.run(range(20)))
    assert no_threads()


@pytest.mark.parametrize("mode", MODES)
def test_events_are_used_again(mode: str) -> None:
    cuda = FakeCuda()
    pipeline, _ = make(cuda, mode)
    counts = []
    for _ in range(3):
        for batch in pipeline.run(range(50)):
            batch.read(0.5)
        counts.append(cuda.events)
    # An event a run says when the consumer began to wait; the rest belongs to the items that can exist at a time.
    alive = pipeline.max_items + pipeline.max_consumed + 3
    assert counts[-1] <= alive * 2 * (len(NAMES) + 1) + 3


@pytest.mark.parametrize("depth", [1, 3])
def test_look_ahead_is_bounded(depth: int) -> None:
    cuda = FakeCuda()
    pipeline, functions = make(cuda, "consumer", depth)
    items = pipeline.run(itertools.count())
    for taken in range(1, 8):
        next(items)
        finished = taken + depth if taken > 1 else taken  # the first item is given out before others are finished
        assert functions[0].calls == finished + depth <= taken + pipeline.max_items
        assert functions[1].calls == functions[2].calls == finished


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_first_item_waits_for_no_other(depth: int) -> None:
    """Each stage takes a second an item; the host waits for the first stage, as for the sizes of a sample."""
    cuda = FakeCuda()
    cuda.rng = SimpleNamespace(random=lambda: 1.0)
    pipeline, _ = make(cuda, "consumer", depth)
    items = pipeline.run(range(20))
    first = next(items)
    assert cuda.host == pytest.approx(1.0, abs=1e-3)
    assert first.read(1.0) == pytest.approx(4.0, abs=1e-3)
    assert pipeline.streams.streams[0].now == pytest.approx(1.0 + depth, abs=1e-3)  # the next ones are begun
    second = next(items)
    assert cuda.host == pytest.approx(2.0 + depth, abs=1e-3)  # and those after it finished
    assert [first.value, second.value, *(batch.value for batch in items)] == list(range(20))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", [1, 3])
def test_the_host_stays_near_the_gpu(mode: str, depth: int) -> None:
    """The consumer launches work that takes long; the host waits until no more than `depth` items are unfinished."""
    cuda = FakeCuda()
    pipeline, _ = make(cuda, mode, depth)
    ends = []
    for batch in pipeline.run(range(20)):
        unfinished = sum(end > cuda.host for end in ends)
        assert unfinished <= pipeline.max_consumed - 1 == depth
        ends.append(batch.read(100.0))
    assert pipeline.stats.throttled > 0
    assert cuda.synchronizations > 0


@pytest.mark.parametrize("mode", MODES)
def test_items_in_the_consumers_stream_are_waited_for(mode: str) -> None:
    cuda = FakeCuda()
    _, written = cuda.launch(50.0)  # say, the copy of the graph to the GPU
    pipeline, _ = make(cuda, mode)
    items = pipeline.run(range(3))
    next(items)
    assert all(s.now >= written for s in pipeline.streams.streams)
    items.close()
    assert cuda.default.now >= max(s.now for s in pipeline.streams.streams)  # and the other way round


def test_a_dropped_run_is_waited_for() -> None:
    cuda = FakeCuda()
    pipeline, _ = make(cuda, "consumer")
    items = pipeline.run(itertools.count())
    for _ in range(2):
        next(items)
    ahead = max(s.now for s in pipeline.streams.streams)
    assert cuda.default.now < ahead
    del items
    assert cuda.default.now >= ahead


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_consumer_may_say_it_is_done(mode: str, count: int) -> None:
    """What the consumer does afterwards is no longer the item's; saying it again changes nothing."""
    cuda = FakeCuda()
    pipeline, _ = make(cuda, mode)
    items = pipeline.run(range(41))
    for batch in items:
        batch.read(2.0)
        for _ in range(count):
            items.done()
        cuda.launch(3.0)
    items.done()
    stats = pipeline.stats
    assert 30 / TIMED < stats.gpu_items <= 40 / TIMED
    assert stats.gpu_busy["train"] == pytest.approx((2 if count else 5) * stats.gpu_items, rel=0.01)


@pytest.mark.parametrize("fail_at", [0, 1, 4])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_an_error_surfaces_after_the_items_before_it(mode: str, name: str, fail_at: int) -> None:
    cuda = FakeCuda()
    pipeline, functions = make(cuda, mode, 3, {name: fail_at})
    items = pipeline.run(range(20))
    assert [next(items).value for _ in range(fail_at)] == list(range(fail_at))
    with pytest.raises(LookupError, match=f"item {fail_at}"):
        next(items)
    assert items.closed
    assert cuda.current_stream() is cuda.default
    assert next(items, None) is None
    for function in functions:
        function.fail_at = None
    assert [b.value for b in pipeline.run(range(3))] == [0, 1, 2]  # the pipeline itself goes on


class Quit(BaseException):
    """As SystemExit, which is no `Exception`."""


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("error", [LookupError, Quit])
@pytest.mark.parametrize("mode", MODES)
def test_an_error_of_the_source_surfaces(mode: str, error: type[BaseException], count: int) -> None:
    def source() -> Iterator[int]:
        yield from range(count)
        raise error("source")

    items = make(FakeCuda(), mode, depth=2)[0].run(source())
    # In the consumer's own thread what is no error, as an interrupt, is not held back until its turn comes: the first
    # item is given out when two more are begun.
    before = max(0, count - 2) if mode == "consumer" and error is Quit else count
    assert [next(items).value for _ in range(before)] == list(range(before))
    with pytest.raises(error, match="source"):
        next(items)
    assert items.closed


@pytest.mark.parametrize("end", ["close", "drop"])
@pytest.mark.parametrize("mode", MODES)
def test_ended_runs_leave_nothing(mode: str, end: str) -> None:
    cuda = FakeCuda()
    pipeline, functions = make(cuda, mode)
    alive: list[weakref.ref[FakeBatch]] = []
    made = functions[2].__call__

    def remember(item: FakeBatch) -> FakeBatch:
        batch = made(item)
        alive.append(weakref.ref(batch))
        return batch

    pipeline.stages[2].function = remember
    gc.disable()  # nothing is in a cycle
    try:
        for _ in range(200):
            items = pipeline.run(itertools.count())
            next(items)
            if end == "close":
                items.close()
            del items
        deadline = time.monotonic() + 30
        while any(ref() is not None for ref in alive):
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        gc.enable()
    assert len(cuda.streams) == 1 + len(NAMES)


@pytest.mark.parametrize("mode", MODES)
def test_times_of_the_streams_are_recorded(mode: str) -> None:
    cuda = FakeCuda()
    pipeline, _ = make(cuda, mode)
    for batch in pipeline.run(range(40)):
        batch.read(2.0)
    stats = pipeline.stats
    assert 30 / TIMED < stats.gpu_items <= 40 / TIMED
    assert set(stats.gpu_busy) == {*NAMES, "train"}
    assert stats.gpu_busy["train"] == pytest.approx(2 * stats.gpu_items, rel=0.01)
    assert 0 < stats.gpu_busy["a"] < stats.gpu_items
    if mode == "consumer":  # stages are shorter than training: only the first items are waited for
        assert stats.gpu_waiting < 10
    assert set(cuda.ranges) == set(NAMES)


def test_depth_0_stays_on_the_consumers_stream() -> None:
    cuda = FakeCuda()
    pipeline, functions = make(cuda, "threads", 0)
    assert [batch.value for batch in pipeline.run(range(5)) if batch.read(1.0)] == list(range(5))
    assert all(f.streams == {cuda.default} for f in functions)
    assert cuda.synchronizations == 0


def test_a_consumer_may_change_its_stream() -> None:
    cuda = FakeCuda()
    pipeline, _ = make(cuda, "consumer")
    other = cuda.Stream()
    for i, batch in enumerate(pipeline.run(range(10))):
        batch.read(1.0)
        cuda.set_stream(other if i % 2 else cuda.default)


def test_the_current_stream_is_the_callers_own() -> None:
    cuda = FakeCuda()
    streams, other = StageStreams(DEVICE, [FunctionStage("a", abs)], cuda=cuda), cuda.Stream()
    seen = []

    def elsewhere() -> None:
        seen.append(streams.current() is cuda.default)
        cuda.set_stream(streams.streams[0])
        seen.append(streams.current() is streams.streams[0])

    for stream in (cuda.default, other, other, cuda.default):
        cuda.set_stream(stream)
        assert streams.current() is stream
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert streams.current() is stream
    assert seen == [True] * 8


def test_an_unchanged_stream_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question makes an object, which the consumer's host thread would pay for with every item."""
    asked: list[int] = []
    handle = 0
    monkeypatch.setattr("loader.machine.gpu._streams", {})
    monkeypatch.setattr(torch._C, "_cuda_getCurrentStream", lambda device: (handle, device, 1), raising=False)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device_index, **_: asked.append(device_index) or object())
    streams = StageStreams(DEVICE, [])
    first = streams.current()
    assert all(streams.current() is first for _ in range(5))
    assert asked == [DEVICE.index]
    handle = 1
    assert streams.current() is not first
    assert asked == [DEVICE.index] * 2


def test_asynchronous_stages_run_ahead_without_threads() -> None:
    def threaded(asynchronous: tuple[bool, ...], depth: int = 2, *, streams: bool = True) -> bool:
        names = NAMES[: len(asynchronous)]
        stages = [FunctionStage(n, abs, asynchronous=a) for n, a in zip(names, asynchronous, strict=True)]
        own = StageStreams(DEVICE, stages, cuda=FakeCuda()) if streams else None
        return Pipeline(stages, depth, streams=own).threaded

    assert not threaded((True, True, True))
    assert not threaded((True,))
    assert threaded((True, False, True))
    assert threaded((False, True, True))
    assert threaded((True, True, True), streams=False)
    assert not threaded((False, False), 0)


def test_streams_of_other_stages_are_refused() -> None:
    streams = StageStreams(DEVICE, [FunctionStage("b", abs)], cuda=FakeCuda())
    with pytest.raises(ValueError, match="the streams are for stages"):
        Pipeline([FunctionStage("a", abs)], 2, streams=streams)


def test_priorities_may_be_left_out() -> None:
    stages = [FunctionStage("a", abs, priority=-1), FunctionStage("b", abs, priority=-3)]
    for prioritize, expected in ((True, [-1, -3]), (False, [0, 0])):
        streams = StageStreams(DEVICE, stages, prioritize=prioritize, cuda=FakeCuda())
        assert [s.priority for s in streams.streams] == expected


def test_a_missing_wait_would_be_found() -> None:
    """The fake itself: reading on another stream without waiting, or without telling the allocator, fails."""
    cuda = FakeCuda()
    batch = StageOf(cuda)(0)
    other: Callable[[], float] = lambda: batch.read(0.1)  # noqa: E731
    cuda.set_stream(cuda.Stream())
    with pytest.raises(AssertionError, match="complete at"):
        other()
