"""A checkpoint is refused unless training can go on from it, with this model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule

from models.training.checkpoints import check_checkpoint, check_left
from models.training.module import NodeClassifier
from models.training.pyg_classifier import PyGClassifier


@pytest.fixture
def model() -> NodeClassifier:
    return NodeClassifier(3, 2, hidden_channels=4)


def write(path: Path, model: LightningModule, **changes: Any) -> Path:
    parts = {
        "state_dict": model.state_dict(),
        "optimizer_states": [],
        "loops": {},
        "hyper_parameters": dict(model.hparams),
    }
    torch.save({name: part for name, part in {**parts, **changes}.items() if part is not None}, path)
    return path


def test_a_checkpoint_of_the_same_model_is_taken(model: NodeClassifier, tmp_path: Path) -> None:
    check_checkpoint(write(tmp_path / "a.ckpt", model), model, model.hparams)


def test_a_checkpoint_of_another_model_names_the_changes(model: NodeClassifier, tmp_path: Path) -> None:
    path = write(tmp_path / "a.ckpt", NodeClassifier(5, 2, hidden_channels=8))
    with pytest.raises(
        ValueError, match=r"of another model: num_features was 5 and is 3, hidden_channels was 8 and is 4; give"
    ):
        check_checkpoint(path, model, model.hparams)


def test_a_checkpoint_of_another_activation_is_refused(tmp_path: Path) -> None:
    def made(act: str) -> PyGClassifier:
        return PyGClassifier(3, 2, architecture="gcn", hidden_channels=4, act=act)

    path = write(tmp_path / "a.ckpt", made("elu"))
    check_checkpoint(path, made("elu"), made("elu").hparams)
    with pytest.raises(ValueError, match=r"of another model: act was elu and is relu; give the options"):
        check_checkpoint(path, made("relu"), made("relu").hparams)


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ckpt", NodeClassifier(3, 2, hidden_channels=4, optimizer={"name": "SGD"}))
    other = NodeClassifier(3, 2, hidden_channels=4, optimizer={"name": "Adam"})
    with pytest.raises(ValueError, match=r"optimizer was {'name': 'SGD'} and is {'name': 'Adam'}; give those"):
        check_checkpoint(path, other, dict(other.hparams))


def test_a_checkpoint_of_other_names_is_refused(model: NodeClassifier, tmp_path: Path) -> None:
    path = write(tmp_path / "a.ckpt", model, state_dict={})
    with pytest.raises(ValueError, match=r"has shape none there and \[.*\] here; give the options \(and the dataset\)"):
        check_checkpoint(path, model, model.hparams)


def test_weights_without_the_rest_are_refused(model: NodeClassifier, tmp_path: Path) -> None:
    path = write(tmp_path / "a.ckpt", model, loops=None)
    with pytest.raises(ValueError, match="which holds no loops, so training cannot go on from it"):
        check_checkpoint(path, model, model.hparams)


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut off"])
def test_another_file_is_no_checkpoint(model: NodeClassifier, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.ckpt").write_bytes(content)
    with pytest.raises(ValueError, match=r"which is no checkpoint of train\.py or is damaged") as refused:
        check_checkpoint(tmp_path / "a.ckpt", model, model.hparams)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("unit", "when"), [("steps", "after step"), ("epochs", "in epoch")])
def test_an_end_before_the_checkpoint_is_refused(unit: str, when: str) -> None:
    saved = {"global_step": 7, "loops": {"fit_loop": {"epoch_progress": {"current": {"started": 7}}}}}
    for most in (None, -1, 7, 8):
        check_left(Path("step.ckpt"), saved, {f"max_{unit}": most})
    with pytest.raises(
        ValueError, match=rf"step.ckpt, written {when} 7, but trainer.max_{unit} is 6, so nothing is left"
    ):
        check_left(Path("step.ckpt"), saved, {f"max_{unit}": 6})


def test_a_time_before_the_checkpoint_is_refused() -> None:
    saved = {"callbacks": {"Timer": {"time_elapsed": {"train": 90.5}}}}
    for most in (None, "00:00:01:31", {"minutes": 2}):
        check_left(Path("step.ckpt"), saved, {"max_time": most})
    check_left(Path("step.ckpt"), {}, {"max_time": "00:00:00:01"})
    for less in ("00:00:01:30", {"minutes": 1}):
        with pytest.raises(ValueError, match=r"step.ckpt, written after 90.5 s of training, but trainer.max_time is"):
            check_left(Path("step.ckpt"), saved, {"max_time": less})
