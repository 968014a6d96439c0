"""The record of what the stages did: both files, and what happens without it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest
import torch

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import FusedSampler
from loader.timing import Span
from models.training.callbacks import TimelineRecord
from models.training.callbacks.timeline_record import draw


def make_trainer(random_graph: Any, **changes: Any) -> Any:
    graph: Graph = random_graph(200, 1500)
    loader = NodeLoader(
        graph, torch.zeros(200, 4), None, torch.arange(200), FusedSampler([3, 2], num_threads=1), 10, prefetch=2
    )
    return SimpleNamespace(train_dataloader=loader, is_global_zero=True, **changes)


def fit(record: TimelineRecord, trainer: Any, epochs: int = 2) -> None:
    record.on_train_start(trainer, None)  # type: ignore[arg-type]
    for _ in range(epochs):
        batches = iter(trainer.train_dataloader)
        for i in range(len(trainer.train_dataloader)):  # and asks for no other then, as Lightning does not
            next(batches)
            trainer.is_last_batch = i + 1 == len(trainer.train_dataloader)
            record.on_train_batch_end(trainer, None, None, None, i)
    record.on_train_end(trainer, None)  # type: ignore[arg-type]


def test_writes_a_trace_and_a_picture(random_graph: Any, tmp_path: Path) -> None:
    trainer = make_trainer(random_graph)
    fit(TimelineRecord(tmp_path / "run" / "timeline", first=15, count=8), trainer)
    events = json.loads((tmp_path / "run" / "timeline.json").read_text())["traceEvents"]
    assert {e["args"]["mini-batch"] for e in events if e["ph"] == "X"} == set(range(15, 23))
    assert (tmp_path / "run" / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert trainer.train_dataloader.timeline is None


def test_an_epochs_last_training_has_its_bar(random_graph: Any, tmp_path: Path) -> None:
    trainer = make_trainer(random_graph)
    record = TimelineRecord(tmp_path / "timeline", first=15, count=8)
    fit(record, trainer)
    assert record.timeline is not None
    trained = [span.item for span in record.timeline.spans() if span.lane == "train"]
    assert trained == list(range(15, 23))  # the first epoch has 20 mini-batches


def test_labels_wider_than_their_bars_are_omitted(tmp_path: Path) -> None:
    spans = [Span("train", 1, 0.0, 0.9, False), Span("train", 2, 0.9, 0.901, False), Span("train", 3, 0.901, 1, False)]
    timeline: Any = SimpleNamespace(spans=lambda: spans, gaps=list)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw(timeline, tmp_path / "timeline.svg")
    shown = (tmp_path / "timeline.svg").read_text()
    assert [">1<" in shown, ">2<" in shown, ">3<" in shown] == [True, False, True]


def test_gaps_are_named(random_graph: Any, tmp_path: Path) -> None:
    trainer = make_trainer(random_graph)
    record = TimelineRecord(tmp_path / "timeline", first=15, count=30)
    record.on_train_start(trainer, None)  # type: ignore[arg-type]
    for epoch in range(3):
        batches = iter(trainer.train_dataloader)
        for i in range(20):
            next(batches)
            record.on_train_batch_start(trainer, None, i)
            trainer.is_last_batch = i == 19
            record.on_train_batch_end(trainer, None, None, None, i)
        if epoch == 0:
            record.on_validation_end(trainer, None)  # type: ignore[arg-type]
    assert record.timeline is not None
    gaps, spans = record.timeline.gaps(), record.timeline.spans()
    assert [name for name, _, _ in gaps] == ["validation", "end of an epoch"]
    for (_, begin, end), last in zip(gaps, (19, 39), strict=True):
        trained = {s.item: s for s in spans if s.lane == "train"}
        assert trained[last].end <= begin <= end
        assert begin < trained[last + 1].end
    record.on_train_end(trainer, None)  # type: ignore[arg-type]
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e.get("cat") == "gap"] == ["validation", "end of an epoch"]


def test_gaps_outside_the_record_are_omitted(random_graph: Any, tmp_path: Path) -> None:
    timeline = TimelineRecord(tmp_path / "timeline").timeline
    assert timeline is not None
    timeline.add_gap("before", 1.0, 2.0)
    assert timeline.gaps() == []
    timeline.add_host("train", 8, 2.5, 3.0)
    timeline.add_host("train", 9, 4.0, 5.0)
    timeline.add_gap("amid", 3.0, 4.0)
    timeline.add_gap("after", 5.0, 6.0)
    assert timeline.gaps() == [("amid", 0.5, 1.5)]
    draw(timeline, tmp_path / "timeline.svg", "a run")
    assert (tmp_path / "timeline.svg").is_file()


def test_a_disabled_record_writes_nothing(random_graph: Any, tmp_path: Path) -> None:
    trainer = make_trainer(random_graph)
    fit(TimelineRecord(tmp_path / "timeline", enabled=False), trainer)
    assert not list(tmp_path.iterdir())


def test_a_training_too_short_is_told(random_graph: Any, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="training ended before mini-batch 100"):
        fit(TimelineRecord(tmp_path / "timeline", first=100), make_trainer(random_graph), epochs=1)
    assert not list(tmp_path.iterdir())


def test_another_loader_is_told(tmp_path: Path) -> None:
    trainer = SimpleNamespace(train_dataloader=[torch.zeros(1)])
    with pytest.raises(TypeError, match="timeline=true needs a NodeLoader, the train loader is a list"):
        TimelineRecord(tmp_path / "timeline").on_train_start(trainer, None)  # type: ignore[arg-type]


def test_items_that_were_sampled_together_are_one_bar(tmp_path: Path) -> None:
    spans = [Span("sample", i, 1e-6 * i, 4e-3, True) for i in range(4, 8)]  # CUDA events of one launch
    spans += [Span("sample", 8, 5e-3, 6e-3, True), Span("sample", 9, 6e-3, 7e-3, True)]
    spans += [Span("train", i, 1e-3 * i, 1e-3 * (i + 1), True) for i in range(4, 8)]
    timeline: Any = SimpleNamespace(spans=lambda: spans, gaps=list)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw(timeline, tmp_path / "lanes.svg")
    text = (tmp_path / "lanes.svg").read_text()
    labels = [label for label in ("4-7", "4-5", ">8<", ">9<", ">7<") if label in text]
    assert labels == ["4-7", ">8<", ">9<", ">7<"]
