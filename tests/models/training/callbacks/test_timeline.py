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
from models.training.callbacks.timeline import draw


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
    timeline: Any = SimpleNamespace(spans=lambda: spans)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw(timeline, tmp_path / "timeline.svg")
    shown = (tmp_path / "timeline.svg").read_text()
    assert [">1<" in shown, ">2<" in shown, ">3<" in shown] == [True, False, True]


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
    timeline: Any = SimpleNamespace(spans=lambda: spans)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw(timeline, tmp_path / "lanes.svg")
    text = (tmp_path / "lanes.svg").read_text()
    labels = [label for label in ("4-7", "4-5", ">8<", ">9<", ">7<") if label in text]
    assert labels == ["4-7", ">8<", ">9<", ">7<"]
