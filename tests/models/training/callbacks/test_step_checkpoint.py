"""The checkpoint of the last steps: from the first one on, whatever their number, and when a run is interrupted."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from small_datamodule import NUM_BATCHES, Recorder, lines, make_datamodule, make_trainer

from models.training.callbacks import StepCheckpoint

pytestmark = pytest.mark.usefixtures("ctrl_c")


def saved_steps(every: int, steps: list[int], **changes: Any) -> list[tuple[int, int]]:
    """The steps that are saved of those after each mini-batch, each with the number of mini-batches begun by then."""
    saved: list[tuple[int, int]] = []
    begun = 0
    options = {"global_step": 0, "fast_dev_run": False, "max_steps": -1, "ckpt_path": None, **changes}
    run: Any = SimpleNamespace(**options)
    run.save_checkpoint = lambda path: saved.append((run.global_step, begun))
    callback, module = StepCheckpoint("step.ckpt", every), LightningModule()
    callback.on_train_start(run, module)
    for step in steps:
        begun += 1
        callback.on_train_batch_start(run, module)
        run.global_step = step
        callback.on_train_batch_end(run, module)
    callback.on_train_end(run, module)
    return saved


def test_saves_after_powers_of_two_then_regularly() -> None:
    assert [step for step, _ in saved_steps(10, list(range(1, 32)))] == [1, 2, 4, 8, 10, 20, 30]
    assert [step for step, _ in saved_steps(1, [1, 2, 3])] == [1, 2, 3]


def test_saves_before_the_next_batch_or_at_end() -> None:
    assert saved_steps(10, [1, 2, 3, 4]) == [(1, 2), (2, 3), (4, 4)]
    assert saved_steps(1, [1, 2], max_steps=2) == [(1, 2), (2, 2)]


def test_accumulated_gradients_are_saved_once() -> None:
    assert saved_steps(10, [0, 0, 1, 1, 1, 2, 2]) == [(1, 4), (2, 7)]


def test_a_trial_of_one_batch_saves_nothing() -> None:
    assert saved_steps(1, [1, 2], fast_dev_run=True) == []


def test_less_than_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match="every_n_train_steps is 0; it must be at least 1"):
        StepCheckpoint(Path("step.ckpt"), 0)


class Pressing(Callback):
    """Sends a signal to this process at a place of a run."""

    def __init__(self, place: str, step: int, signum: int, times: int = 1) -> None:
        self.place, self.step, self.signum, self.left = place, step, signum, times

    def press(self, trainer: Trainer, place: str) -> None:
        while (place, trainer.global_step) == (self.place, self.step) and self.left:
            self.left -= 1
            os.kill(os.getpid(), self.signum)

    def on_before_backward(self, trainer: Trainer, *_: Any) -> None:
        self.press(trainer, "step")

    def on_validation_batch_start(self, trainer: Trainer, *_: Any) -> None:
        self.press(trainer, "validation")

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        self.press(trainer, "epoch")


def interrupted(folder: Path, log: Path, pressing: Pressing) -> StepCheckpoint:
    saving = StepCheckpoint(folder / "step.ckpt", 10**6)
    with pytest.raises(SystemExit):
        make_trainer(
            folder, max_epochs=3, callbacks=[pressing, saving], enable_checkpointing=True, num_sanity_val_steps=0
        ).fit(Recorder(log), datamodule=make_datamodule())
    return saving


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("place", "step", "saved"),
    [
        ("step", 4, 5),  # the step ends first
        ("step", NUM_BATCHES - 1, NUM_BATCHES),  # the last one of an epoch
        ("validation", NUM_BATCHES, NUM_BATCHES),
        ("epoch", NUM_BATCHES, NUM_BATCHES),
    ],
)
def test_a_signal_saves_the_step_and_loses_nothing(
    tmp_path: Path, signum: int, place: str, step: int, saved: int
) -> None:
    before = signal.getsignal(signal.SIGINT)
    alone, cut, resumed = (tmp_path / name for name in ("alone.log", "cut.log", "resumed.log"))
    make_trainer(tmp_path, max_epochs=3, num_sanity_val_steps=0).fit(Recorder(alone), datamodule=make_datamodule())
    try:
        saving = interrupted(tmp_path, cut, Pressing(place, step, signum))
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from an interrupt on
    # SIGTERM lets the validation, and the step that begins an epoch, end.
    assert saving.saved == torch.load(saving.path, weights_only=True)["global_step"]
    assert saving.saved in (saved, saved + (signum == signal.SIGTERM))
    make_trainer(tmp_path, max_epochs=3, num_sanity_val_steps=0).fit(
        Recorder(resumed), datamodule=make_datamodule(), ckpt_path=saving.path
    )
    assert lines(resumed) == lines(alone)[saving.saved :]
    validated = lines(alone, "val")
    assert lines(resumed, "val") == validated[-len(lines(resumed, "val")) :]
    assert set(lines(cut, "val") + lines(resumed, "val")) == set(validated)


def test_a_second_ctrl_c_saves_nothing(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        saving = interrupted(tmp_path, tmp_path / "log", Pressing("step", 4, signal.SIGINT, times=2))
    finally:
        signal.signal(signal.SIGINT, before)
    assert saving.saved < 5
    assert torch.load(saving.path, weights_only=True)["global_step"] == saving.saved


def test_a_fit_leaves_the_handler_that_was_there(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    make_trainer(
        tmp_path, max_epochs=1, callbacks=[StepCheckpoint(tmp_path / "s.ckpt")], enable_checkpointing=True
    ).fit(Recorder(tmp_path / "log"), datamodule=make_datamodule())
    assert signal.getsignal(signal.SIGINT) is before
