"""The checkpoint of the last steps: from the first one on, whatever their number."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.training.callbacks import StepCheckpoint


def saved_steps(every: int, steps: list[int], **trainer: Any) -> list[int]:
    saved: list[int] = []
    run: Any = SimpleNamespace(global_step=0, fast_dev_run=False, **trainer)
    run.save_checkpoint = lambda path: saved.append(run.global_step)
    callback = StepCheckpoint("step.ckpt", every)
    for step in steps:
        run.global_step = step
        callback.on_train_batch_end(run, None)  # type: ignore[arg-type]
    return saved


def test_saves_after_powers_of_two_then_regularly() -> None:
    assert saved_steps(10, list(range(1, 32))) == [1, 2, 4, 8, 10, 20, 30]
    assert saved_steps(1, [1, 2, 3]) == [1, 2, 3]


def test_accumulated_gradients_are_saved_once() -> None:
    assert saved_steps(10, [0, 0, 1, 1, 1, 2, 2]) == [1, 2]


def test_less_than_one_step_is_refused() -> None:
    with pytest.raises(ValueError, match="every_n_train_steps is 0; it must be at least 1"):
        StepCheckpoint(Path("step.ckpt"), 0)
