"""The progress bar: shown in training, silent in tests."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.demos.boring_classes import BoringModel
from torch.utils.data import DataLoader

from models.training.callbacks import ProgressBar
from models.training.callbacks.epoch_record import EpochRecord


class Logging(BoringModel):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("train/loss", 3.0, prog_bar=True)
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("val/loss", float(self.current_epoch + 1))
        return super().validation_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_a_bar_below_the_lines(
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
    said = [line for line in lines if "epoch 1, " in line]  # after what moves the cursor
    assert len(said) == 1
    assert "train/loss 3.0000" in " ".join(lines)  # the terminal may break the line
    trainer.test(model, loader, verbose=False)
    assert "Test" not in capsys.readouterr().out


def test_the_bar_leaves_out_what_lines_have(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"v_num": 1, "train/loss": 0.5, "val/acc": 0.25, "norm": 2.0}
    monkeypatch.setattr(RichProgressBar, "get_metrics", lambda *_: found)
    shown = ProgressBar().get_metrics(None, None)  # type: ignore[arg-type]
    assert shown == {"norm": 2.0}  # of a user's own model


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
def test_epochs_without_validation_have_no_value(
    capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    loader = DataLoader(torch.utils.data.TensorDataset(torch.randn(4, 32)), collate_fn=lambda rows: rows[0][0][None])
    record = EpochRecord()
    Trainer(
        accelerator="cpu", max_epochs=4, check_val_every_n_epoch=2, callbacks=[ProgressBar(), record], logger=False,
        enable_checkpointing=False, enable_model_summary=False, default_root_dir=tmp_path,
    ).fit(Logging(), loader, loader)  # fmt: skip
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    assert [line.partition("val/loss ")[2] for line in lines] == ["", "2.0000", "", "4.0000"]
    assert [row.get("val/loss") for row in record.epochs] == [None, 2.0, None, 4.0]


class LoggingLast(BoringModel):
    def on_train_epoch_end(self) -> None:
        self.log("train/loss", float(self.current_epoch + 1))


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_what_ends_an_epoch_is_of_that_epoch(
    capsys: pytest.CaptureFixture[str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    loader = DataLoader(torch.utils.data.TensorDataset(torch.randn(4, 32)), collate_fn=lambda rows: rows[0][0][None])
    record, saving = EpochRecord(), ModelCheckpoint(tmp_path, save_top_k=-1)
    trainer = Trainer(
        accelerator="cpu", max_epochs=3, callbacks=[saving, ProgressBar(), record], logger=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(LoggingLast(), loader)
    assert trainer.checkpoint_callbacks == [saving]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    assert [line.partition("train/loss ")[2] for line in lines] == ["1.0000", "2.0000", "3.0000"]
    assert [row["train/loss"] for row in record.epochs] == [1.0, 2.0, 3.0]
    saved = [torch.load(path)["callbacks"]["EpochRecord"]["epochs"] for path in sorted(tmp_path.glob("*.ckpt"))]
    assert saved == [record.epochs[:epoch] for epoch in (1, 2, 3)]
