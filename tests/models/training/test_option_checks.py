"""Options of Lightning's trainer, places and parts of a configuration are looked at before a run starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from models.training.option_checks import (
    check_depth,
    check_monitors,
    check_parts,
    check_places,
    check_test,
    check_trainer,
)


def config(**changes: Any) -> DictConfig:
    plain = {
        "task": "node",
        "device": "cpu",
        "optimized_metric": "val/acc",
        "run_dir": "run",
        "checkpoint_dir": "run/checkpoints",
        "result_path": None,
        "dataset": {"_target_": "loader.datasets.Digits"},
        "sampler": {"_target_": "loader.samplers.fused"},
        "features": {"_target_": "loader.stores.auto_features"},
        "model": {"_target_": "models.training.module.NodeClassifier"},
        "datamodule": {"_target_": "loader.datamodules.nodes.GraphDataModule"},
        "trainer": {"_target_": "lightning.pytorch.Trainer"},
        "callbacks": {"best": {"monitor": "val/acc"}, "curves": None},
        "logger": None,
    }
    return OmegaConf.merge(OmegaConf.create(plain), OmegaConf.create(changes))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epochs": "x"}, "max_epochs is 'x'; it must be an integer of at least -1"),
        ({"max_epochs": 1.5}, "max_epochs is 1.5; it must be an integer"),
        ({"max_epochs": -2}, "max_epochs is -2; it must be at least -1"),
        ({"max_steps": "x"}, "max_steps is 'x'; it must be an integer"),
        ({"min_epochs": -1}, "min_epochs is -1; it must be at least 0"),
        ({"devices": 0}, "devices is 0; it must be at least 1"),
        ({"devices": "x"}, "devices is 'x'; it must be an integer"),
        ({"num_nodes": 0}, "num_nodes is 0; it must be at least 1"),
        ({"accumulate_grad_batches": 0}, "accumulate_grad_batches is 0; it must be at least 1"),
        ({"check_val_every_n_epoch": 0}, "check_val_every_n_epoch is 0; it must be at least 1"),
        ({"log_every_n_steps": "x"}, "log_every_n_steps is 'x'; it must be an integer"),
        ({"limit_train_batches": "x"}, "limit_train_batches is 'x'; it must be a number"),
        ({"limit_val_batches": 1.5}, "limit_val_batches is 1.5; it must be a share from 0.0 to 1.0, or an integer"),
        ({"limit_test_batches": -1}, "limit_test_batches is -1; it must be a share"),
        ({"overfit_batches": float("nan")}, "overfit_batches is nan; it must be a share"),
        ({"val_check_interval": 0}, "val_check_interval is 0; it must be above 0, or null"),
        ({"fast_dev_run": "yes"}, "fast_dev_run is 'yes'; it must be an integer of at least 0"),
        ({"deterministic": "maybe"}, "deterministic is 'maybe'; it must be True or False"),
        ({"inference_mode": "no"}, "inference_mode is 'no'; it must be True or False"),
        ({"gradient_clip_val": -1}, "gradient_clip_val is -1; it must be at least 0 and finite"),
        ({"val_check_interval": "0:0:0:-5"}, "val_check_interval is '0:0:0:-5'; it must be days:hours:minutes:sec"),
        ({"profiler": "fast"}, "profiler is 'fast'; it must be null, one of simple, advanced"),
        ({"profiler": 3}, "profiler is 3; it must be null, one of simple, advanced"),
        ({"accelerator": "tpu"}, "accelerator is 'tpu'; it must be one of auto, cpu, gpu, cuda"),
        ({"devices": [0, 1]}, r"devices is \[0, 1\]; without a GPU \(device=cpu\) it is the number of processes"),
        ({"devices": []}, r"devices is \[\]; without a GPU"),
        ({"devices": None}, "devices is None; without a GPU"),
        ({"devices": "0,"}, "devices is '0,'; without a GPU"),
        ({"devices": -1}, "devices is -1; without a GPU"),
        ({"devices": 10**6}, "devices is 1000000; without a GPU .* 1 to [0-9]+ on this machine"),
        ({"max_time": 12}, "max_time is 12; it must be days:hours:minutes:seconds"),
        ({"max_time": "an hour"}, "max_time is 'an hour'; it must be days:hours:minutes:seconds"),
        ({"accelerator": "gpu"}, r"accelerator is gpu, but this run has no GPU \(device=cpu\)"),
        ({"callbacks": 3}, "callbacks is set by the group callbacks; leave it out"),
        ({"logger": True}, "logger is set by the group logger; leave it out"),
    ],
)
def test_a_bad_option_of_the_trainer_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^trainer\.{message}"):
        check_trainer(config(trainer=options))


def test_what_lightning_takes_is_taken() -> None:
    for options in (
        {"max_epochs": -1, "max_steps": -1, "max_time": "00:01:00:00", "devices": "auto", "deterministic": "warn"},
        {"max_epochs": None, "devices": [0, 1], "val_check_interval": 0.25, "limit_val_batches": 1.0},
        {"max_time": {"minutes": 5}, "devices": "2", "val_check_interval": 10, "limit_train_batches": 7},
        {"fast_dev_run": True, "devices": -1, "benchmark": None, "gradient_clip_val": 0.5, "overfit_batches": 0.0},
        {"fast_dev_run": 3, "devices": 2, "benchmark": False, "num_sanity_val_steps": -1},
    ):
        check_trainer(config(trainer=options, device="cuda"))
    for devices in (1, 2, "2", "auto"):
        check_trainer(config(trainer={"devices": devices, "profiler": "simple"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"callbacks": {"early_stopping": {"patience": -1}}}, "callbacks.early_stopping.patience is -1; it must be at"),
        ({"callbacks": {"early_stopping": {"patience": "x"}}}, "callbacks.early_stopping.patience is 'x'; it must be"),
        ({"callbacks": {"curves": 3}}, "callbacks.curves is 3; it must be null, or have a _target_"),
        ({"callbacks": {"best": {"filename": 3}}}, "callbacks.best.filename is 3; it must be text"),
        ({"logger": {"csv": {"name": 3}}}, "logger.csv.name is 3; it must be text"),
        ({"model": {"cuda_graph": True}}, "model.cuda_graph is true, but this run has no GPU"),
    ],
)
def test_a_bad_option_beside_the_trainer_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        check_trainer(config(**changes))


WALKS = {"_target_": "loader.samplers.WalkSampler", "walk_length": 80, "num_negatives": 1}
EMBEDDER = {"context_size": 10}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datamodule": None}, "datamodule is None; it must have a _target_"),
        ({"model": 3}, "model is 3; it must have a _target_"),
        ({"model": EMBEDDER}, "model=node2vec learns from random walks, and fused gives none; take sampler=walks"),
        ({"model": EMBEDDER, "task": "link"}, "model=node2vec does not go with task=link"),
        ({"sampler": WALKS, "task": "link"}, "sampler=walks does not go with task=link"),
        ({"sampler": {"_target_": "loader.samplers.FullSampler"}, "task": "link"}, "sampler=full has no fanouts"),
        (
            {"model": EMBEDDER, "sampler": {**WALKS, "walk_length": 8}},
            "sampler.walk_length is 8, model.context_size 10; a walk must have at least as many nodes as a window",
        ),
        (
            {"model": EMBEDDER, "sampler": WALKS, "features": {"_target_": "loader.stores.HostFeatures"}},
            "features is HostFeatures, but model=node2vec reads none; leave features out",
        ),
        ({"model": EMBEDDER, "sampler": {**WALKS, "num_negatives": 0}}, "sampler.num_negatives is 0, but"),
    ],
)
def test_parts_that_do_not_go_together_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check_parts(config(**changes))


def test_parts_that_go_together_are_taken() -> None:
    check_parts(config())
    check_parts(config(model=EMBEDDER, sampler={**WALKS, "walk_length": 9}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run_dir": None}, "run_dir is None; it must be the path of a folder"),
        ({"run_dir": "{file}"}, "run_dir is .*file; that is no folder that can be written to or made"),
        ({"checkpoint_dir": "{file}/below"}, "checkpoint_dir is .*below; that is no folder"),
        ({"result_path": "{folder}"}, "result_path is .*, which is a folder; it must be the path of a file"),
        ({"result_path": "{file}/result.json"}, "result_path is .*file; that is no folder"),
        ({"result_path": 3}, "result_path is 3; it must be the path of a file"),
        ({"callbacks": {"step": {"path": None}}}, "callbacks.step.path is None; it must be the path of a file"),
        ({"callbacks": {"best": {"dirpath": "{file}"}}}, "callbacks.best.dirpath is .*file; that is no folder"),
        ({"logger": {"csv": {"save_dir": "{file}"}}}, "logger.csv.save_dir is .*file; that is no folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "file").touch()

    def placed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: placed(held) for key, held in value.items()}
        return value.format(file=tmp_path / "file", folder=tmp_path) if isinstance(value, str) else value

    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        check_places(config(**{"run_dir": str(tmp_path / "run"), **placed(changes)}))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_place_that_can_be_made_is_taken(tmp_path: Path) -> None:
    check_places(
        config(run_dir=str(tmp_path / "a" / "b"), checkpoint_dir=str(tmp_path), result_path=str(tmp_path / "r"))
    )
    assert not list(tmp_path.iterdir())


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
    ],
)
def test_a_metric_that_is_not_logged_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check_monitors(config(**changes))


def test_callbacks_may_watch_metrics_of_own_models() -> None:
    check_monitors(config(model={"_target_": "torch.nn.Linear"}, callbacks={"best": {"monitor": "val/mine"}}))


def test_hops_and_layers_that_differ_are_named() -> None:
    model = SimpleNamespace(net=SimpleNamespace(num_layers=2))
    two, three = SimpleNamespace(num_hops=2), SimpleNamespace(num_hops=3)
    check_depth(model, SimpleNamespace(sampler=two, eval_sampler=two))
    check_depth(SimpleNamespace(), SimpleNamespace(sampler=three))
    with pytest.raises(
        ValueError, match=r"^eval_sampler samples 3 hops, the model has 2 layers; give eval_sampler.num"
    ):
        check_depth(model, SimpleNamespace(sampler=two, eval_sampler=three))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exact_test": "maybe"}, "exact_test is 'maybe'; it must be True or False"),
        ({"exact_test": False, "task": "link"}, "exact_test is false, but task=link is only tested on the whole graph"),
        ({"exact_test": False, "model": {"context_size": 5}}, "exact_test is false, but model=node2vec is only tested"),
    ],
)
def test_impossible_tests_are_refused(changes: dict[str, Any], message: str) -> None:
    check_test(config(exact_test=True))
    check_test(config(exact_test=False))
    with pytest.raises((TypeError, ValueError), match=message):
        check_test(config(**changes))
