"""The random numbers of a resumed run."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class RandomState(Callback):
    """Keeps the state of torch's generators in checkpoints, so that dropout goes on where it was.

    With it a resumed run on the CPU ends with the bits of one that was never interrupted; the mini-batches need
    no generator, they are the same anyway. A checkpoint that is written in a step, because that failed, or amid
    accumulated gradients has the state from before the first mini-batch that the resumed run repeats; on a GPU only
    the latter. Of several processes, each goes on with its own state; if there are more than before, further ones
    begin with those of the first ones.
    """

    _OF_RANKS = "random_states"

    def __init__(self) -> None:
        self._restored: dict[str, Any] | None = None
        self._of_ranks: list[dict[str, Any]] | None = None
        self._repeated: dict[str, Any] | None = None  # before the first mini-batch whose gradients are in no weights

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._repeated = None
        if self._restored is None:
            return
        if self._of_ranks:
            self._restored = self._of_ranks[trainer.global_rank % len(self._of_ranks)]
        torch.set_rng_state(self._restored["cpu"].cpu())
        if torch.cuda.is_available() and len(self._restored["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all([state.cpu() for state in self._restored["cuda"]])
        self._restored = self._of_ranks = None

    def on_train_batch_start(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        on_cpu = trainer.strategy.root_device.type == "cpu"
        # On a GPU it costs as much as a launch. A run on a CPU is not to open a GPU that the machine has.
        if self._repeated is None and (on_cpu or trainer.accumulate_grad_batches > 1):
            self._repeated = {"cpu": torch.get_rng_state(), "cuda": []} if on_cpu else self._now()

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        if not trainer.fit_loop._should_accumulate():
            self._repeated = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        # Lightning has all processes call this, but not if one of them was interrupted.
        if trainer.world_size > 1 and not trainer.interrupted:
            states: list[Any] = [None] * trainer.world_size
            torch.distributed.all_gather_object(states, self.state_dict())
            checkpoint[self._OF_RANKS] = states

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._of_ranks = checkpoint.get(self._OF_RANKS)

    def state_dict(self) -> dict[str, Any]:
        return self._now() if self._repeated is None else self._repeated

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored = state_dict

    @staticmethod
    def _now() -> dict[str, Any]:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {"cpu": torch.get_rng_state(), "cuda": cuda}
