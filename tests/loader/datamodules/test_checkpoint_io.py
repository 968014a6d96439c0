"""Checkpoints are written whole, refused if damaged, read without code, and know their folder."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint
from small_datamodule import Recorder, make_datamodule, make_trainer

from loader.datamodules.checkpoint_io import SafeCheckpointIO

moved = pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")


class Scored(Recorder):
    """Its first epoch is the best."""

    def on_validation_epoch_end(self) -> None:
        self.log("score", -float(self.current_epoch))


def best(folder: Path) -> ModelCheckpoint:
    return ModelCheckpoint(folder, "best", monitor="score", mode="max", enable_version_counter=False, save_last=True)


def fit(folder: Path, epochs: int, resumed: Path | None = None, **options: Any) -> Any:
    trainer = make_trainer(
        folder,
        callbacks=[best(folder)],
        enable_checkpointing=True,
        max_epochs=epochs,
        num_sanity_val_steps=0,
        **options,
    )
    trainer.fit(Scored(folder / "log"), datamodule=make_datamodule(), ckpt_path=resumed)
    return trainer


def test_a_data_module_gives_it_and_keeps_another(tmp_path: Path) -> None:
    class Other(TorchCheckpointIO):
        pass

    tmp_path.joinpath("log").touch()
    for plugins, kind in (([], SafeCheckpointIO), ([Other()], Other)):
        trainer = make_trainer(tmp_path, max_epochs=1, plugins=plugins)
        trainer.fit(Recorder(tmp_path / "log"), datamodule=make_datamodule())
        assert type(trainer.strategy.checkpoint_io) is kind


def test_nothing_is_written_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Lightning's own way, a file in the folder for temporary ones is moved over the good one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    path = tmp_path / "folder" / "a.ckpt"
    SafeCheckpointIO().save_checkpoint({"a": 1}, path)
    assert SafeCheckpointIO().load_checkpoint(path)["a"] == 1
    assert os.listdir(path.parent) == ["a.ckpt"]


def test_a_failed_write_keeps_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    SafeCheckpointIO().save_checkpoint({"a": 1}, path)
    with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        SafeCheckpointIO().save_checkpoint({"a": lambda: 0}, path)
    assert SafeCheckpointIO().load_checkpoint(path)["a"] == 1
    assert os.listdir(tmp_path) == ["a.ckpt"]


def test_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    SafeCheckpointIO().save_checkpoint({"a": torch.zeros(1000)}, path)
    data = bytearray(path.read_bytes())
    data[data.index(bytes(500)) + 100] ^= 1
    path.write_bytes(data)
    assert torch.load(path, weights_only=True)["a"].abs().sum() > 0  # torch takes it
    with pytest.raises(ValueError, match=r"a\.ckpt cannot be used: it is damaged: the checksum of .* is wrong"):
        SafeCheckpointIO().load_checkpoint(path)
    path.write_bytes(data[:-100])
    with pytest.raises(ValueError, match=r"no archive of torch\.save, or was cut short; give an earlier one"):
        SafeCheckpointIO().load_checkpoint(path)
    with pytest.raises(FileNotFoundError, match=r"b\.ckpt is not there"):
        SafeCheckpointIO().load_checkpoint(tmp_path / "b.ckpt")
    torch.save([1], path)
    with pytest.raises(ValueError, match="is no checkpoint of Lightning"):
        SafeCheckpointIO().load_checkpoint(path)


class Planted:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["PLANTED"],)


def test_code_in_a_checkpoint_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", str(tmp_path / "planted"))
    torch.save({"a": Planted()}, tmp_path / "a.ckpt")
    with pytest.raises(ValueError, match=r"a\.ckpt holds objects of other types .* give weights_only=False"):
        SafeCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")
    assert not (tmp_path / "planted").exists()


@moved
@pytest.mark.parametrize("how", ["copied", "moved"])
def test_a_moved_folder_keeps_its_own_best(tmp_path: Path, how: str) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    fit(here, 2)
    first = torch.load(here / "best.ckpt", weights_only=True)["epoch"]
    assert first == 0
    if how == "copied":
        shutil.copytree(here, there)
        (here / "best.ckpt").write_bytes(b"of another run")
    else:
        here.rename(there)
    trainer = fit(there, 4, there / "last.ckpt")
    callback = trainer.checkpoint_callback
    assert callback.best_model_path == str(there / "best.ckpt")
    assert torch.load(there / "best.ckpt", weights_only=True)["epoch"] == 0  # no later one is better
    if how == "copied":
        assert (here / "best.ckpt").read_bytes() == b"of another run"
    trainer.test(Scored(there / "log"), datamodule=make_datamodule(), ckpt_path="best", verbose=False)


@moved
def test_a_folder_without_best_begins_anew(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    fit(here, 2)
    there.mkdir()
    shutil.copy(here / "last.ckpt", there)
    callback = fit(there, 4, there / "last.ckpt").checkpoint_callback
    assert callback.best_model_path == str(there / "best.ckpt")
    assert torch.load(there / "best.ckpt", weights_only=True)["epoch"] == 1  # that after the last one


@pytest.mark.parametrize("path", ["http://127.0.0.1:9/best.ckpt", "s3://bucket/best.ckpt", "/etc/hostname/best.ckpt"])
def test_paths_elsewhere_are_left_out(tmp_path: Path, path: str) -> None:
    state = {"dirpath": str(tmp_path), "best_model_path": path, "best_model_score": torch.tensor(9.0)}
    state |= {"kth_best_model_path": path, "last_model_path": path, "best_k_models": {path: torch.tensor(9.0)}}
    torch.save({"callbacks": {"ModelCheckpoint{}": state, "other": 1}}, tmp_path / "a.ckpt")
    (found, other) = SafeCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")["callbacks"].values()
    assert found == {
        "dirpath": str(tmp_path), "best_model_path": "", "best_model_score": None, "kth_best_model_path": "",
        "last_model_path": "", "best_k_models": {},
    }  # fmt: skip
    assert other == 1


def test_folders_that_moved_together_stay_together(tmp_path: Path) -> None:
    """The best one and the last one of somebody's own run lie in two folders."""
    for name in ("a/best", "a/last", "b/best", "b/last"):
        (tmp_path / name).mkdir(parents=True)
    for run in ("a", "b"):
        (tmp_path / run / "best" / "best.ckpt").touch()
    state = {"dirpath": str(tmp_path / "a" / "best"), "best_model_path": str(tmp_path / "a" / "best" / "best.ckpt")}
    SafeCheckpointIO().save_checkpoint({"callbacks": {"best": state}}, tmp_path / "a" / "last" / "last.ckpt")
    for run in ("a", "b"):
        if run == "b":
            shutil.copy(tmp_path / "a" / "last" / "last.ckpt", tmp_path / "b" / "last")
        found = SafeCheckpointIO().load_checkpoint(tmp_path / run / "last" / "last.ckpt")["callbacks"]["best"]
        assert found["dirpath"] == str(tmp_path / run / "best")
        assert found["best_model_path"] == str(tmp_path / run / "best" / "best.ckpt")
