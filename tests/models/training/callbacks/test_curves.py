"""The curves: what is remembered, what is drawn."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest
import torch

from models.training.callbacks import Curves
from models.training.callbacks.curves import best_epoch, title_of_run


def epoch(number: int, best: Any = None, **metrics: float) -> Any:
    return SimpleNamespace(
        current_epoch=number,
        is_global_zero=True,
        sanity_checking=False,
        checkpoint_callback=best,
        callback_metrics={k.replace("_", "/"): torch.tensor(v) for k, v in metrics.items()},
    )


def end_epoch(curves: Curves, trainer: Any, *, validated: bool = True) -> None:
    if validated:
        curves.on_validation_end(trainer, None)  # type: ignore[arg-type]
    curves.on_epoch_logged(trainer, None)  # type: ignore[arg-type]


def drawn(curves: Curves, title: str = "", watched: tuple[str, str] | None = None) -> str:
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        curves.draw(title, watched)
    return curves.path.read_text()


def test_remembers_epochs_through_a_resume_and_draws_them(tmp_path: Path) -> None:
    first = Curves(tmp_path / "first" / "curves.png")
    end_epoch(first, epoch(0, train_loss=2.0, val_acc=0.5, other=9.0))
    assert first.epochs == [{"epoch": 0.0, "train/loss": 2.0, "val/acc": 0.5}]

    resumed = Curves(tmp_path / "second" / "curves.png")
    resumed.load_state_dict(first.state_dict())
    last = epoch(1, train_loss=1.0, val_loss=1.5, train_acc=0.5, val_acc=0.75)
    end_epoch(resumed, last)
    assert [e["epoch"] for e in resumed.epochs] == [0, 1]
    assert len(first.epochs) == 1
    resumed.on_train_end(last, None)  # type: ignore[arg-type]
    assert (tmp_path / "second" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "first").exists()


def test_a_run_without_an_epoch_draws_nothing(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.png")
    curves.on_train_end(epoch(0), None)  # type: ignore[arg-type]
    assert not curves.path.exists()


def test_the_picture_names_run_and_best_epoch(tmp_path: Path) -> None:
    best = SimpleNamespace(monitor="val/auc", mode="max")  # another metric than those drawn
    curves = Curves(tmp_path / "run" / "curves.svg")
    for number, auc in enumerate((0.5, 0.8, 0.8)):
        end_epoch(curves, epoch(number, best, train_loss=1.0, val_acc=0.4, val_auc=auc))
    data = SimpleNamespace(data=SimpleNamespace(name="digits"))
    trainer = SimpleNamespace(is_global_zero=True, checkpoint_callback=best, datamodule=data)
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        curves.on_train_end(trainer, torch.nn.Linear(1, 1))  # type: ignore[arg-type]
    shown = curves.path.read_text()
    for words in (f">Linear on digits, {tmp_path / 'run'}<", ">best epoch 2: val/auc 0.8<", ">accuracy, share from 0"):
        assert words in shown


def test_epochs_without_a_value_are_named(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.svg", score="auc")
    for number in range(6):
        loss = float("nan") if number == 4 else 1.0
        # Lightning still has the values of the validation before.
        end_epoch(curves, epoch(number, train_loss=loss, val_loss=1.0, val_auc=0.5), validated=number in (2, 5))
    shown = drawn(curves)
    for words in (
        "train: no value in epoch 5<", "val: no value in epochs 1-2, 4-5<", "train: not measured<", ">auc, from 0 to 1"
    ):  # fmt: skip
        assert words in shown
    assert "best epoch" not in shown


def test_the_sanity_check_is_no_validation(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.png")
    trainer = epoch(0, val_acc=0.5)
    trainer.sanity_checking = True
    end_epoch(curves, trainer)
    assert curves.epochs == [{"epoch": 0.0}]


@pytest.mark.parametrize(
    ("watched", "found"),
    [(None, None), (("val/acc", "max"), (2, 0.9)), (("val/loss", "min"), (3, 0.1)), (("val/auc", "max"), None)],
)
def test_the_best_epoch_is_the_first(watched: tuple[str, str] | None, found: tuple[int, float] | None) -> None:
    rows = [
        {"epoch": 0.0, "val/acc": 0.5, "val/loss": float("nan")},
        {"epoch": 1.0, "val/acc": 0.9, "val/loss": 0.2},
        {"epoch": 2.0, "val/acc": 0.9, "val/loss": 0.1},
    ]
    assert best_epoch(rows, watched) == found


def test_a_run_below_this_folder_is_named_shortly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module: Any = SimpleNamespace(net=SimpleNamespace(architecture="gat"))
    assert title_of_run(SimpleNamespace(), module, tmp_path / "runs" / "first") == "gat, runs/first"  # type: ignore[arg-type]


def test_the_best_of_several_validations_is_named(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.svg")
    best = SimpleNamespace(monitor="val/acc", mode="max")
    for number, values in enumerate([(0.25, 0.5), (0.75, 0.5), (0.25, 0.625)]):
        for value in values[:-1]:
            curves.on_validation_end(epoch(number, best, val_acc=value), None)  # type: ignore[arg-type]
        resumed = Curves(curves.path)  # amid an epoch
        resumed.load_state_dict(curves.state_dict())
        curves = resumed
        end_epoch(curves, epoch(number, best, val_acc=values[-1]))
    assert best_epoch(curves.epochs, ("val/acc", "max")) == (2, 0.75)
    assert [e["val/acc"] for e in curves.epochs] == [0.5, 0.5, 0.625]
    assert "best epoch 2: val/acc 0.75" in drawn(curves, watched=("val/acc", "max"))


def test_a_last_validation_without_a_score_counts_not(tmp_path: Path) -> None:
    curves = Curves(tmp_path / "curves.svg")
    best = SimpleNamespace(monitor="val/acc", mode="max")
    for value in (0.75, float("nan")):
        curves.on_validation_end(epoch(0, best, val_acc=value), None)  # type: ignore[arg-type]
    curves.on_epoch_logged(epoch(0, best, val_acc=float("nan")), None)  # type: ignore[arg-type]
    curves.on_validation_end(epoch(1, best, val_acc=0.875), None)  # type: ignore[arg-type]
    resumed = Curves(curves.path)  # at the end of the epoch
    resumed.load_state_dict(curves.state_dict())
    assert best_epoch([*resumed.epochs], ("val/acc", "max")) == (1, 0.75)
    end_epoch(resumed, epoch(1, best), validated=False)
    assert best_epoch(resumed.epochs, ("val/acc", "max")) == (2, 0.875)
