"""What a run refuses before it starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from models.training.module import NodeClassifier
from models.training.run_checks import (
    check_checkpoint,
    check_length,
    check_metrics,
    check_read,
    computed_metrics,
    watch_loss,
)

NODES, NONE = torch.arange(3), torch.arange(0)


def config(**changes: Any) -> DictConfig:
    plain = {
        "optimized_metric": "val/acc",
        "callbacks": {"best": {"monitor": "val/acc"}, "early_stopping": {"monitor": "val/acc"}, "curves": None},
        "trainer": {"max_epochs": 9, "max_steps": -1, "limit_val_batches": None, "check_val_every_n_epoch": 1},
    }
    return OmegaConf.merge(OmegaConf.create(plain), OmegaConf.create(changes))  # type: ignore[return-value]


def splits(val: torch.Tensor = NODES, test: torch.Tensor = NODES) -> dict[str, torch.Tensor]:
    return {"train": NODES, "val": val, "test": test}


@pytest.mark.parametrize("name", ["max_epochs", "max_steps", "limit_train_batches"])
def test_a_run_without_a_step_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"trainer.{name} is 0, so nothing would be trained; give at least 1"):
        check_length(OmegaConf.create({name: 0}))
    check_length(OmegaConf.create({name: 1}))


def test_a_model_of_features_needs_some() -> None:
    data = SimpleNamespace(name="mine")
    with pytest.raises(ValueError, match="dataset mine has no features, which the model reads; add some, let dataset"):
        check_read(SimpleNamespace(sizes={"num_features": 0}, data=data))
    check_read(SimpleNamespace(sizes={"num_nodes": 3}, data=data))


@pytest.mark.parametrize(("num_classes", "train"), [(0, NONE), (3, NONE), (3, NODES)])
def test_without_labels_the_loss_is_watched(num_classes: int, train: torch.Tensor) -> None:
    cfg = OmegaConf.merge(config(), {"callbacks": {"best": {"mode": "max"}, "early_stopping": {"mode": "max"}}})
    data = SimpleNamespace(num_classes=num_classes, splits={**splits(), "train": train})
    assert watch_loss(cfg, SimpleNamespace(data=data)) == (train is NONE)
    expected = ("train/loss", "min") if train is NONE else ("val/acc", "max")
    assert cfg.optimized_metric == expected[0]
    assert {(one.monitor, one.mode) for one in cfg.callbacks.values() if one is not None} == {expected}


def test_all_metrics_of_a_full_run_are_computed() -> None:
    check_metrics(config(), splits())
    assert len(computed_metrics(config(), splits())) == 7


@pytest.mark.parametrize(
    ("changes", "val", "test", "message"),
    [
        (
            {},
            NONE,
            NODES,
            "optimized_metric is val/acc, but the val split of the dataset is empty; change that, or give "
            "optimized_metric=train/acc callbacks.best.monitor=train/acc callbacks.early_stopping=null",
        ),
        (
            {"exact_test": False, "optimized_metric": "test/test_acc"},
            NODES,
            NODES,
            "optimized_metric is test/test_acc, but exact_test is false, which computes test/acc only; change",
        ),
        ({"trainer": {"limit_val_batches": 0}}, NODES, NODES, "but trainer.limit_val_batches is 0; change"),
        (
            {"trainer": {"check_val_every_n_epoch": 10}},
            NODES,
            NODES,
            "but trainer.check_val_every_n_epoch is 10 and trainer.max_epochs 9; change",
        ),
        (
            {"optimized_metric": "test/test_acc"},
            NODES,
            NONE,
            "optimized_metric is test/test_acc, but the test split of the dataset is empty; change that, or give "
            "optimized_metric=val/acc",
        ),
    ],
)
def test_a_metric_that_is_not_computed_is_refused(
    changes: dict[str, Any], val: torch.Tensor, test: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message.replace("/", "/")):
        check_metrics(config(**changes), splits(val, test))


def test_an_unused_empty_split_is_allowed() -> None:
    check_metrics(config(), splits(test=NONE))
    watched = {"best": {"monitor": "train/acc"}, "early_stopping": None}
    check_metrics(config(optimized_metric="train/acc", callbacks=watched), splits(val=NONE))


@pytest.fixture
def model() -> NodeClassifier:
    return NodeClassifier(3, 2, hidden=4)


def write(path: Path, model: NodeClassifier, **changes: Any) -> Path:
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
    path = write(tmp_path / "a.ckpt", NodeClassifier(5, 2, hidden=8))
    with pytest.raises(ValueError, match=r"of another model: num_features was 5 and is 3, hidden was 8 and is 4; give"):
        check_checkpoint(path, model, model.hparams)


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ckpt", NodeClassifier(3, 2, hidden=4, optimizer={"name": "SGD"}))
    other = NodeClassifier(3, 2, hidden=4, optimizer={"name": "Adam"})
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
