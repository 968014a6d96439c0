"""The metrics that a run watches are among those that it logs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import run_options
import torch
from omegaconf import DictConfig, OmegaConf

from models.training.watched_metrics import check_metrics, check_monitors, computed_metrics, watch_loss

NODES, NONE = torch.arange(3), torch.arange(0)


def config(**changes: Any) -> DictConfig:
    plain = {
        "optimized_metric": "val/acc",
        "callbacks": {"best": {"monitor": "val/acc"}, "early_stopping": {"monitor": "val/acc"}, "curves": None},
        "trainer": {"max_epochs": 9, "max_steps": -1, "limit_val_batches": None, "check_val_every_n_epoch": 1},
    }
    return run_options.changed(plain, changes)


def splits(val: torch.Tensor = NODES, test: torch.Tensor = NODES) -> dict[str, torch.Tensor]:
    return {"train": NODES, "val": val, "test": test}


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"callbacks": {"best": {"monitor": "val/accc"}}},
            r"callbacks.best.monitor is 'val/accc'.*did you mean val/acc\?",
        ),
        ({"optimized_metric": None}, "optimized_metric is 'None'; it must be one of train/loss"),
        (
            {"optimized_metric": "train/acc", "model": {"_target_": "models.training.embedder.NodeEmbedder"}},
            "optimized_metric is 'train/acc'; it must be one of train/loss, val/loss",
        ),
        (
            {
                "task": "link",
                "optimized_metric": "val/auc",
                "model": {"_target_": "models.training.link_predictor.LinkPredictor"},
                "trainer": {"limit_val_batches": 0},
            },
            "optimized_metric is val/auc, but trainer.limit_val_batches is 0; .* optimized_metric=train/loss",
        ),
        (
            {
                "optimized_metric": "val/auroc",
                "dataset": {"task": "churn"},
                "model": {"_target_": "models.training.task_predictor.TaskPredictor"},
                "trainer": {"check_val_every_n_epoch": 9, "max_epochs": 3},
            },
            "optimized_metric is val/auroc, but trainer.check_val_every_n_epoch is 9 and trainer.max_epochs 3; change",
        ),
        ({"task": "link", "optimized_metric": 3}, "optimized_metric is '3'; it must be one of train/loss"),
    ],
)
def test_a_metric_that_is_not_logged_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check_monitors(run_options.config(**changes))


@pytest.mark.parametrize(
    ("part", "monitor", "mode", "wanted"),
    [
        ("callbacks.best", "val/loss", "max", "min"),
        ("callbacks.early_stopping", "train/loss", "max", "min"),
        ("callbacks.best", "val/acc", "min", "max"),
        ("schedule", "val/acc", "min", "max"),
    ],
)
def test_a_mode_that_takes_the_worst_is_refused(part: str, monitor: str, mode: str, wanted: str) -> None:
    for given in (mode, wanted):
        cfg = run_options.config()
        OmegaConf.update(cfg, part, {"monitor": monitor, "mode": given}, force_add=True)
        if given == wanted:
            check_monitors(cfg)
            continue
        which = {"max": "largest", "min": "smallest"}[mode]
        message = f"^{part}.monitor is {monitor} and {part}.mode is {mode}, so the {which} {monitor} would count as the"
        with pytest.raises(ValueError, match=f"{message} best; give {part}.mode={wanted}$"):
            check_monitors(cfg)
        cfg.mode = "predict"
        check_monitors(cfg)


@pytest.mark.parametrize(
    ("part", "options"),
    [
        ("callbacks.best", {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint"}),
        ("callbacks.mine", {"_target_": "lightning.pytorch.callbacks.EarlyStopping", "patience": 2}),
        ("schedule", {"name": "ReduceLROnPlateau"}),
    ],
)
def test_a_default_mode_counts_where_none_is(part: str, options: dict[str, Any]) -> None:
    cfg = run_options.config()
    OmegaConf.update(cfg, part, {**options, "monitor": "val/acc"}, force_add=True)
    with pytest.raises(ValueError, match=rf"{part}.mode is left out, which means min, so the smallest val/acc would"):
        check_monitors(cfg)
    OmegaConf.update(cfg, part, {"monitor": "val/loss"}, force_add=True)
    check_monitors(cfg)


@pytest.mark.parametrize("score", ["val/acc", "f1", "ac"])
def test_a_drawn_score_is_one_that_is_logged(score: str) -> None:
    def config(score: str) -> DictConfig:
        return run_options.config(
            callbacks={"curves": {"_target_": "models.training.callbacks.Curves", "score": score}}
        )

    check_monitors(config("loss"))
    with pytest.raises(ValueError, match=f"^callbacks.curves.score is '{score}'; it must be one of loss, acc$"):
        check_monitors(config(score))


def test_a_metric_is_watched_for_its_best_value() -> None:
    for metric, mode in (("val/loss", "min"), ("train/acc", "max")):
        watched = {"monitor": metric, "mode": mode}
        check_monitors(run_options.config(callbacks={"best": watched}, schedule=watched))


def test_a_sweep_may_optimize_a_test_of_tables() -> None:
    model = {"_target_": "models.training.task_predictor.TaskPredictor"}
    callbacks = {"best": {"monitor": "val/auroc"}}
    given = {"model": model, "callbacks": callbacks, "dataset": {"task": "churn"}, "exact_test": False}
    check_monitors(run_options.config(optimized_metric="test/auroc", **given))


def test_callbacks_may_watch_metrics_of_own_models() -> None:
    check_monitors(
        run_options.config(model={"_target_": "torch.nn.Linear"}, callbacks={"best": {"monitor": "val/mine"}})
    )
