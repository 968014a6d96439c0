"""The progress bar: shown in training, silent in tests."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from torch.utils.data import DataLoader

from models.training.callbacks import ProgressBar


class Logging(BoringModel):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("loss", 3.0)
        return super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_gets_a_bar(
    capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    loader = DataLoader(torch.utils.data.TensorDataset(torch.randn(4, 32)), collate_fn=lambda rows: rows[0][0][None])
    bar = ProgressBar()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[bar],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        default_root_dir=tmp_path,
    )
    model = Logging()
    trainer.fit(model, loader, loader)
    lines = capsys.readouterr().out.splitlines()
    assert any("Epoch 1/1" in line for line in lines) == terminal
    assert [line.startswith("epoch 1, ") and "loss 3.0000" in line for line in lines].count(True) == (not terminal)
    trainer.test(model, loader, verbose=False)
    assert "Test" not in capsys.readouterr().out
    assert bar.get_metrics(trainer, model).keys().isdisjoint({"v_num"})
