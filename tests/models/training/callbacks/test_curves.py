"""The curves: what is remembered, what is drawn."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from models.training.callbacks import Curves


def epoch(number: int, **metrics: float) -> Any:
    return SimpleNamespace(
        current_epoch=number,
        is_global_zero=True,
        callback_metrics={k.replace("_", "/"): torch.tensor(v) for k, v in metrics.items()},
    )


def test_remembers_epochs_through_a_resume_and_draws_them(tmp_path: Path) -> None:
    first = Curves(tmp_path / "first" / "curves.png")
    first.on_train_epoch_end(epoch(0, train_loss=2.0, val_acc=0.5, other=9.0), None)  # type: ignore[arg-type]
    assert first.epochs == [{"epoch": 0.0, "train/loss": 2.0, "val/acc": 0.5}]

    resumed = Curves(tmp_path / "second" / "curves.png")
    resumed.load_state_dict(first.state_dict())
    last = epoch(1, train_loss=1.0, val_loss=1.5, train_acc=0.5, val_acc=0.75)
    resumed.on_train_epoch_end(last, None)  # type: ignore[arg-type]
    assert [e["epoch"] for e in resumed.epochs] == [0, 1]
    assert len(first.epochs) == 1
    resumed.on_train_end(last, None)  # type: ignore[arg-type]
    assert (tmp_path / "second" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "first").exists()


def test_a_run_without_an_epoch_draws_nothing(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.png")
    curves.on_train_end(epoch(0), None)  # type: ignore[arg-type]
    assert not curves.path.exists()
