"""Metrics and seconds of each epoch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models.training.callbacks import epoch_record
from models.training.callbacks.epoch_record import EpochRecord

MODULE: Any = SimpleNamespace(device=torch.device("cpu"))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(epoch_record, "time", clock)
    return clock


def epoch(record: EpochRecord, clock: Clock, number: int, validation: float = 50.0) -> None:
    """Two seconds of training, then validation, then one more second."""
    trainer: Any = SimpleNamespace(
        sanity_checking=False,
        current_epoch=number,
        callback_metrics={"val/acc": torch.tensor(number / 8), "other": torch.tensor(0.0)},
    )
    record.on_train_epoch_start(trainer, MODULE)
    clock.now += 2
    record.on_validation_start(trainer, MODULE)
    clock.now += validation
    record.on_validation_end(trainer, MODULE)
    clock.now += 1
    record.on_epoch_logged(trainer, MODULE)
    clock.now += 7


def test_rows_hold_metrics_and_the_seconds_of_training(clock: Clock) -> None:
    record = EpochRecord()
    for number in range(2):
        epoch(record, clock, number)
    assert record.epochs == [
        {"epoch": 0.0, "seconds": 3.0, "val/acc": 0.0},
        {"epoch": 1.0, "seconds": 6.0, "val/acc": 0.125},
    ]


def test_a_resumed_run_goes_on(clock: Clock) -> None:
    first, second = EpochRecord(), EpochRecord()
    epoch(first, clock, 0)
    second.load_state_dict(first.state_dict())
    epoch(second, clock, 1)
    assert [row["seconds"] for row in second.epochs] == [3.0, 6.0]


def test_the_best_checkpoint_takes_nothing_back(clock: Clock) -> None:
    record = EpochRecord()
    epoch(record, clock, 0)
    saved = {"epochs": list(record.epochs), "seconds": 3.0}
    epoch(record, clock, 1)
    record.load_state_dict(saved)
    assert len(record.epochs) == 2
    assert record.state_dict()["seconds"] == 6.0
