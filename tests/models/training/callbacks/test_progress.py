"""The progress bar: shown in training, silent in tests."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from torch.utils.data import DataLoader

from models.training.callbacks import ProgressBar


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
def test_a_test_has_no_bar_but_training_has(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
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
    model = BoringModel()
    trainer.fit(model, loader, loader)
    assert "Epoch 0/0" in capsys.readouterr().out
    trainer.test(model, loader, verbose=False)
    assert "Test" not in capsys.readouterr().out
    assert bar.get_metrics(trainer, model).keys().isdisjoint({"v_num"})
