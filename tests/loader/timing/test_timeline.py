"""Spans of the stages, by the host's clock and by the streams', and the trace made of them."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest
import torch
from fake_cuda import FakeCuda, StageOf
from function_stage import FunctionStage

from loader.pipeline import Pipeline, StageStreams
from loader.timing import Span, Timeline


def record(depth: int, count: int = 4) -> Timeline:
    """Two stages of 3 ms on the host, and a consumer of 3 ms."""

    def nap(x: int) -> int:
        time.sleep(0.003)
        return x

    pipeline = Pipeline([FunctionStage("sample", nap), FunctionStage("gather", nap)], depth)
    pipeline.timeline = Timeline(first=3, count=count)
    for _ in range(2):  # items are counted over both runs
        for x in pipeline.run(range(5)):
            nap(x)
    return pipeline.timeline


def overlaps(a: Span, b: Span) -> bool:
    return a.begin < b.end and b.begin < a.end


def test_every_stage_of_the_chosen_items_is_there() -> None:
    spans = record(depth=2).spans()
    assert {s.item for s in spans} == {3, 4, 5, 6}
    for lane in ("gather", "train"):
        assert [s.item for s in spans if s.lane == lane] == [3, 4, 5, 6]
        assert all(s.end - s.begin >= 0.003 for s in spans if s.lane == lane)
    halves = [s for s in spans if s.lane == "sample"]  # an item is begun there, and finished
    assert sorted(s.item for s in halves) == [3, 3, 4, 4, 5, 5, 6, 6]
    for item in (3, 4, 5, 6):
        assert sum(s.end - s.begin for s in halves if s.item == item) >= 0.003
    assert min(s.begin for s in spans) == 0
    assert not any(s.gpu for s in spans)


def test_the_timeline_shows_overlapping_stages() -> None:
    def beside(timeline: Timeline) -> bool:
        spans = timeline.spans()
        return any(overlaps(a, b) for a in spans for b in spans if a.lane != b.lane)

    assert beside(record(depth=2))
    assert not beside(record(depth=0))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_streams_have_lanes_of_their_own(asynchronous: bool) -> None:
    cuda = FakeCuda()
    functions = [StageOf(cuda), StageOf(cuda)]
    names = ("sample", "gather")
    stages = [
        FunctionStage(n, f, f.start if n == "sample" else None, asynchronous=asynchronous)
        for n, f in zip(names, functions, strict=True)
    ]
    pipeline = Pipeline(stages, 2, streams=StageStreams(torch.device("cuda", 0), stages, cuda=cuda))
    assert pipeline.threaded != asynchronous
    pipeline.timeline = Timeline(first=2, count=3)
    for batch in pipeline.run(range(12)):
        batch.read(1.5)
    spans = [s for s in pipeline.timeline.spans() if s.gpu]
    for lane in (*names, "train"):
        own = [s for s in spans if s.lane == lane]
        assert [s.item for s in own] == [2, 3, 4]
        assert all(a.end <= b.begin + 1e-9 for a, b in itertools.pairwise(own))
    for item in (2, 3, 4):
        sample, gather, train = (next(s for s in spans if (s.lane, s.item) == (x, item)) for x in (*names, "train"))
        assert sample.end <= gather.begin + 1e-9
        assert gather.end <= train.begin + 1e-9
        assert train.end - train.begin == pytest.approx(1.5, rel=0.01)
    assert {s.lane for s in pipeline.timeline.spans() if not s.gpu} == {*names, "train"}


def test_nothing_overlaps_at_depth_0() -> None:
    cuda = FakeCuda()
    functions = [StageOf(cuda), StageOf(cuda)]
    names = ("sample", "gather")
    stages = [FunctionStage(n, f) for n, f in zip(names, functions, strict=True)]
    pipeline = Pipeline(stages, 0, streams=StageStreams(torch.device("cuda", 0), stages, cuda=cuda))
    pipeline.timeline = Timeline(first=1, count=2)
    for batch in pipeline.run(range(5)):
        batch.read(1.5)
    cuda.host = cuda.default.now
    spans = sorted((s for s in pipeline.timeline.spans() if s.gpu), key=lambda s: s.begin)
    assert [(s.lane, s.item) for s in spans] == [(lane, i) for i in (1, 2) for lane in (*names, "train")]
    assert all(a.end <= b.begin + 1e-9 for a, b in itertools.pairwise(spans))


def test_viewers_can_read_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "trace.json"
    timeline = record(depth=1)
    timeline.write_chrome(path, ("sample", "gather", "train"))
    events = json.loads(path.read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == len(timeline.spans()) == 16  # two of the first stage, which begins an item and finishes it
    assert {(e["cat"], e["tid"]) for e in spans} == {("sample", 0), ("gather", 1), ("train", 2)}
    assert all(e["ts"] >= 0 for e in spans)
    assert all(e["dur"] > 3000 for e in spans if e["cat"] != "sample")
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {"sample", "gather", "train"}


@pytest.mark.parametrize(("first", "count", "message"), [(-1, 1, "first is -1"), (0, 0, "count is 0")])
def test_bad_arguments_are_refused(first: int, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Timeline(first, count)
