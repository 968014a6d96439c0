"""The callbacks of a trainer."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer


def callbacks_of(trainer: Trainer) -> list[Any]:
    """The trainer's own list of its callbacks, which Lightning's class does not declare."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    return callbacks
