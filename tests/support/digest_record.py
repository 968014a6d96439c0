"""What each process of a run trained on, written down at once: also a process that is killed leaves it."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class DigestRecord(Callback):
    """Writes one line per step, "epoch digest-of-the-mini-batch", to `folder/<rank>-<process id>`.

    Args:
        folder: of the files.
        seconds: that a step takes at least.
    """

    def __init__(self, folder: str, seconds: float = 0.0) -> None:
        self.folder = Path(folder)
        self.seconds = seconds

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f"{trainer.global_rank}-{os.getpid()}", "a") as file:
            file.write(f"{trainer.current_epoch} {batch.digest()}\n")
        time.sleep(self.seconds)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes a digest of the weights to `folder/weights`."""
        if trainer.is_global_zero:
            found = hashlib.sha256()
            for name, value in pl_module.state_dict().items():
                found.update(name.encode() + value.cpu().numpy().tobytes())
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "weights").write_text(found.hexdigest())


def records(folder: Path) -> dict[int, tuple[int, list[str]]]:
    """Rank -> process id and lines."""
    found = {}
    for path in folder.glob("*-*"):
        rank, pid = map(int, path.name.split("-"))
        found[rank] = pid, path.read_text().splitlines()
    return found
