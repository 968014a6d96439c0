"""The table at the end of a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from rich.console import Console

from models.callbacks import RunSummary, StageTimes
from models.callbacks.summary import summary_table

ACCURACIES = {"test/train_acc": 1.0, "test/val_acc": 0.9734, "test/test_acc": 0.5}


def lines(text: str) -> list[str]:
    """Words of each line, without the frame."""
    return [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]


def test_accuracies_times_and_shares() -> None:
    times = StageTimes()
    times.epoch_seconds, times.training_seconds = [1.0, 3.0, 2.5], 8.0
    times.stage_seconds = {"sample": 4.0, "train": 6.0, "waiting": 0.5}
    console = Console(width=120)
    with console.capture() as captured:
        console.print(summary_table(ACCURACIES, times))
    shown = lines(captured.get())
    assert "accuracy, train 100.00% all neighbours, best checkpoint" in shown
    assert "accuracy, val 97.34% all neighbours, best checkpoint" in shown
    assert "accuracy, test 50.00% all neighbours, best checkpoint" in shown
    assert "seconds an epoch 2.5 median of 3, validation excluded" in shown
    assert "time, sample 4.00 s 50% of training" in shown
    assert "time, train 6.00 s 75% of training" in shown
    assert "time, waiting 0.50 s 6% of training" in shown


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
