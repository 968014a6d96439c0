"""Where the time of an epoch goes: the sums, with a clock that the test moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from models.training.callbacks import StageTimes, stage_times


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stage_times, "time", clock)
    return clock


def run_epoch(times: StageTimes, trainer: Any, clock: Clock, batches: int) -> None:
    """Each batch: 1 s until it is there (0.25 s of it moving), 3 s to train. Then 50 s of validation."""
    times.on_train_epoch_start(trainer, None)  # type: ignore[arg-type]
    run_batches(times, trainer, clock, batches)


def run_batches(times: StageTimes, trainer: Any, clock: Clock, batches: int) -> None:
    """The batches of `run_epoch`, without the start of the epoch: so Lightning resumes one in the middle."""
    for _ in range(batches):
        clock.now += 1
        trainer.datamodule.move_seconds += 0.25
        times.on_train_batch_start()
        clock.now += 3
        times.on_train_batch_end()
    times.on_validation_start(trainer, None)  # type: ignore[arg-type]
    clock.now += 50
    trainer.datamodule.move_seconds += 7
    times.on_validation_end(trainer, None)  # type: ignore[arg-type]
    times.on_train_epoch_end(trainer, None)  # type: ignore[arg-type]


def make_trainer(**train_loader: Any) -> Any:
    return SimpleNamespace(
        num_training_batches=5,
        datamodule=SimpleNamespace(move_seconds=100.0),
        train_dataloader=SimpleNamespace(**train_loader),
    )


def test_validation_and_partial_epochs_are_left_out(clock: Clock) -> None:
    times = StageTimes()
    stats = SimpleNamespace(busy={"sample": 8.0, "gather": 2.5}, waiting=0.5)
    trainer = make_trainer(stats=stats)
    assert times.median_epoch is None
    run_epoch(times, trainer, clock, batches=2)  # resumed in the middle
    run_epoch(times, trainer, clock, batches=5)
    run_epoch(times, trainer, clock, batches=5)
    times.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert times.epoch_seconds == [20.0, 20.0]
    assert times.median_epoch == 20.0
    assert times.training_seconds == 48.0
    assert times.stage_seconds == {"sample": 8.0, "gather": 2.5, "move": 3.0, "train": 36.0, "waiting": 0.5}
    assert list(times.stage_seconds) == ["sample", "gather", "move", "train", "waiting"]
    assert stats.busy == {"sample": 8.0, "gather": 2.5}  # the loader's own are not touched


def test_a_resumed_epoch_starts_with_the_training(clock: Clock) -> None:
    clock.now = 1000.0  # of a machine that started long ago
    times, trainer = StageTimes(), make_trainer()
    times.on_train_start(trainer, None)  # type: ignore[arg-type]
    run_batches(times, trainer, clock, batches=2)
    times.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert times.training_seconds == 8.0
    assert times.epoch_seconds == []
    assert times.stage_seconds == {"move": 0.5, "train": 6.0}


def test_a_loader_without_statistics_leaves_its_stages_out(clock: Clock) -> None:
    times, trainer = StageTimes(), make_trainer()
    trainer.datamodule = SimpleNamespace(move_seconds=0.0)
    run_epoch(times, trainer, clock, batches=5)
    trainer.datamodule = None
    times.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert times.stage_seconds == {"train": 15.0}


def test_on_a_gpu_the_streams_say_the_times(clock: Clock) -> None:
    stats = SimpleNamespace(
        busy={"sample": 0.1, "gather": 0.1},
        waiting=0.5,
        items=12,
        gpu_items=10,
        gpu_busy={"sample": 4.0, "gather": 1.0, "train": 20.0},
        gpu_waiting=0.25,
        moved={"gather": 4096},
    )
    times, trainer = StageTimes(), make_trainer(stats=stats, max_bytes=77)
    trainer.datamodule.placement = lambda: {"sample": "CudaSampler on cuda:0"}
    times.on_train_start(trainer, None)  # type: ignore[arg-type]
    run_epoch(times, trainer, clock, batches=5)
    times.on_train_end(trainer, None)  # type: ignore[arg-type]
    assert times.stage_seconds == pytest.approx({"sample": 4.8, "gather": 1.2, "train": 24.0, "waiting": 0.3})
    assert times.host_waiting == 0.5
    assert times.moved_bytes == {"gather": 4096}
    assert times.placement == {"sample": "CudaSampler on cuda:0"}
    assert times.max_bytes == 77
