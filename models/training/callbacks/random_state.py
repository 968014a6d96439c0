"""The random numbers of a resumed run."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class RandomState(Callback):
    """Keeps the state of torch's generators in checkpoints, so that dropout goes on where it was.

    With it a resumed run on the CPU ends with the bits of one that was never interrupted; the mini-batches need
    no generator, they are the same anyway.
    """

    def __init__(self) -> None:
        self._restored: dict[str, Any] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._restored is None:
            return
        torch.set_rng_state(self._restored["cpu"].cpu())
        if torch.cuda.is_available() and len(self._restored["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all([state.cpu() for state in self._restored["cuda"]])
        self._restored = None

    def state_dict(self) -> dict[str, Any]:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {"cpu": torch.get_rng_state(), "cuda": cuda}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict
