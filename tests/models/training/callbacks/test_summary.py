"""The table at the end of a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rich.console import Console

from models.training.callbacks import RunSummary, StageTimes
from models.training.callbacks.summary import summary_table

ACCURACIES = {"test/train_acc": 1.0, "test/val_acc": 0.9734, "test/test_acc": 0.5}


def lines(text: str) -> list[str]:
    """Words of each line, without the frame."""
    return [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]


def test_accuracies_times_and_shares() -> None:
    times = StageTimes()
    times.epoch_seconds, times.training_seconds = [1.0, 3.0, 2.5], 8.0
    times.stage_seconds = {"sample": 4.0, "train": 6.0, "waiting": 0.5}
    times.moved_bytes = {"gather": 3 * 2**30}
    times.max_bytes = 5 * 2**20
    times.placement = {"sample": "FusedSampler on cpu", "ahead": "a thread a stage runs ahead"}
    console = Console(width=120)
    with console.capture() as captured:
        console.print(summary_table(ACCURACIES, times))
    shown = lines(captured.get())
    assert "accuracy, train 100.00% all neighbours, best checkpoint" in shown
    assert "accuracy, val 97.34% all neighbours, best checkpoint" in shown
    assert "accuracy, test 50.00% all neighbours, best checkpoint" in shown
    assert "seconds an epoch 2.5 median of 3, validation excluded" in shown
    assert "time, sample 4.00 s 50% of training, FusedSampler on cpu" in shown
    assert "bytes, gather 3.00 GiB rows of features read" in shown
    assert "mini-batches ahead <= 5 MiB a thread a stage runs ahead" in shown
    assert "time, train 6.00 s 75% of training" in shown
    assert "time, waiting 0.50 s 6% of training" in shown


@pytest.mark.parametrize(
    ("replayed", "row"), [((150, 166), "150 of 166"), ((0, 166), "0 of 166 model.cuda_graph says")]
)
def test_on_a_gpu_one_sees_how_many_steps_were_replayed(replayed: tuple[int, int], row: str) -> None:
    times = StageTimes()
    times.stage_seconds = {"train": 6.0}
    console = Console(width=120)
    with console.capture() as captured:
        console.print(summary_table(ACCURACIES, times, replayed))
    assert any(line.startswith(f"steps by CUDA graphs {row}") for line in lines(captured.get()))


def test_without_times_there_are_accuracies_alone() -> None:
    assert summary_table(ACCURACIES, None).row_count == 3
    assert summary_table(ACCURACIES, StageTimes()).row_count == 3


@pytest.mark.parametrize("first", [True, False])
def test_is_printed_after_the_test_by_one_process(first: bool, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = SimpleNamespace(
        is_global_zero=first, callback_metrics={**ACCURACIES, "val/loss": 3.0}, callbacks=[StageTimes()]
    )
    RunSummary().on_test_end(trainer, None)  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert ("accuracy, val" in shown) == first
    assert "loss" not in shown


@pytest.mark.parametrize("first", [True, False])
def test_what_runs_where_is_printed_at_the_start(first: bool, capsys: pytest.CaptureFixture[str]) -> None:
    datamodule = SimpleNamespace(placement=lambda: {"sample": "FusedSampler on cpu", "train": "cpu"})
    trainer = SimpleNamespace(is_global_zero=first, datamodule=datamodule)
    RunSummary().on_train_start(trainer, None)  # type: ignore[arg-type]
    assert ("sample: FusedSampler on cpu" in capsys.readouterr().out) == first
    trainer.datamodule = None
    RunSummary().on_train_start(trainer, None)  # type: ignore[arg-type]
