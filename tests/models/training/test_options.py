"""An option that has none of the values declared for it is named before a run starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from run_options import config
from train_runs import CONF

from models.training.options import OPTIONS, check_values, declared_values, described


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epochs": "x"}, "max_epochs is 'x'; it must be an integer of at least -1"),
        ({"max_epochs": 1.5}, "max_epochs is 1.5; it must be an integer"),
        ({"max_epochs": -2}, "max_epochs is -2; it must be an integer of at least -1, but not 0"),
        ({"max_steps": "x"}, "max_steps is 'x'; it must be an integer"),
        ({"min_epochs": -1}, "min_epochs is -1; it must be an integer of at least 0"),
        ({"devices": 0}, "devices is 0; it must be auto, -1 or indices of GPUs, or an integer of at least 1"),
        ({"devices": "x"}, "devices is 'x'; it must be auto, -1 or indices of GPUs, or an integer"),
        ({"num_nodes": 0}, "num_nodes is 0; it must be an integer of at least 1"),
        ({"accumulate_grad_batches": 0}, "accumulate_grad_batches is 0; it must be an integer of at least 1"),
        ({"check_val_every_n_epoch": 0}, "check_val_every_n_epoch is 0; it must be an integer of at least 1"),
        ({"log_every_n_steps": "x"}, "log_every_n_steps is 'x'; it must be an integer"),
        ({"limit_train_batches": "x"}, "limit_train_batches is 'x'; it must be a share from 0.0 to 1.0, or an integer"),
        ({"limit_val_batches": 1.5}, "limit_val_batches is 1.5; it must be a share from 0.0 to 1.0, or an integer"),
        ({"limit_test_batches": -1}, "limit_test_batches is -1; it must be a share"),
        ({"overfit_batches": float("nan")}, "overfit_batches is nan; it must be a share"),
        (
            {"val_check_interval": 0},
            r"val_check_interval is 0; it must be a share from 0.0 to 1.0, or .* \(but not 0\), or days:",
        ),
        ({"fast_dev_run": "yes"}, "fast_dev_run is 'yes'; it must be true or false, or an integer of at least 0"),
        ({"deterministic": "maybe"}, "deterministic is 'maybe'; it must be warn, or true or false"),
        ({"inference_mode": "no"}, "inference_mode is 'no'; it must be true or false"),
        ({"gradient_clip_val": -1}, "gradient_clip_val is -1; it must be at least 0 and finite"),
        (
            {"val_check_interval": "0:0:0:-5"},
            "val_check_interval is '0:0:0:-5'; it must be a share .*, or days:hours:minutes:sec",
        ),
        ({"profiler": "fast"}, "profiler is 'fast'; it must be null, one of simple, advanced"),
        ({"profiler": 3}, "profiler is 3; it must be null, one of simple, advanced"),
        ({"accelerator": None}, "accelerator is None; it must be one of auto, cpu, gpu, cuda"),
        ({"accelerator": "tpu"}, "accelerator is 'tpu'; it must be one of auto, cpu, gpu, cuda"),
        ({"benchmark": 1}, "benchmark is 1; it must be true or false"),
        ({"gradient_clip_algorithm": 1}, "gradient_clip_algorithm is 1; it must be norm or value"),
        ({"max_time": 12}, "max_time is 12; it must be days:hours:minutes:seconds"),
        ({"max_time": "an hour"}, "max_time is 'an hour'; it must be days:hours:minutes:seconds"),
        ({"callbacks": 3}, "callbacks is 3; it must be set by the group callbacks: leave it out"),
        ({"logger": True}, "logger is True; it must be set by the group logger: leave it out"),
    ],
)
def test_a_bad_option_of_the_trainer_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^trainer\.{message}"):
        check_values(config(trainer=options))


def test_what_lightning_takes_is_taken() -> None:
    for options in (
        {"max_epochs": -1, "max_steps": -1, "max_time": "00:01:00:00", "devices": "auto", "deterministic": "warn"},
        {"max_epochs": None, "devices": [0, 1], "val_check_interval": 0.25, "limit_val_batches": 1.0},
        {"max_time": {"minutes": 5}, "devices": "2", "val_check_interval": 10, "limit_train_batches": 7},
        {"fast_dev_run": True, "devices": -1, "benchmark": None, "gradient_clip_val": 0.5, "overfit_batches": 0.0},
        {"fast_dev_run": 3, "devices": 2, "benchmark": False, "num_sanity_val_steps": -1},
    ):
        check_values(config(trainer=options, device="cuda"))
    check_values(config(trainer={"devices": "auto", "profiler": "simple"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"callbacks": {"early_stopping": {"patience": -1}}}, "callbacks.early_stopping.patience is -1; it must be an"),
        ({"callbacks": {"early_stopping": {"patience": "x"}}}, "callbacks.early_stopping.patience is 'x'; it must be"),
        ({"callbacks": {"curves": 3}}, "callbacks.curves is 3; it must be null, or have a _target_"),
        ({"callbacks": {"best": {"filename": 3}}}, "callbacks.best.filename is 3; it must be text"),
        ({"logger": {"csv": {"name": 3}}}, "logger.csv.name is 3; it must be text"),
    ],
)
def test_a_bad_option_beside_the_trainer_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check_values(config(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run_dir": None}, "run_dir is None; it must be the path of a folder"),
        ({"run_dir": "{file}"}, "run_dir is .*file'; it must be the path of a folder that can be written to or made"),
        (
            {"checkpoint_dir": "{file}/below"},
            "checkpoint_dir is .*below'; it must be the path of a folder that can be written to",
        ),
        (
            {"result_path": "{folder}"},
            "result_path is .*; it must be the path of a file, in a folder that can be written to or made",
        ),
        (
            {"result_path": "{file}/result.json"},
            "result_path is .*json'; it must be the path of a file, in a folder that can be",
        ),
        ({"result_path": 3}, "result_path is 3; it must be the path of a file"),
        ({"callbacks": {"step": {"path": None}}}, "callbacks.step.path is None; it must be the path of a file"),
        (
            {"callbacks": {"best": {"dirpath": "{file}"}}},
            'callbacks.best.dirpath is .*file\'; it must be "", or the path of a folder',
        ),
        (
            {"logger": {"csv": {"save_dir": "{file}"}}},
            'logger.csv.save_dir is .*file\'; it must be "", or the path of a folder',
        ),
    ],
)
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    (tmp_path / "file").touch()

    def placed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: placed(held) for key, held in value.items()}
        return value.format(file=tmp_path / "file", folder=tmp_path) if isinstance(value, str) else value

    with pytest.raises(ValueError, match=f"^{message}"):
        check_values(config(**{"run_dir": str(tmp_path / "run"), **placed(changes)}))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_place_that_can_be_made_is_taken(tmp_path: Path) -> None:
    check_values(
        config(run_dir=str(tmp_path / "a" / "b"), checkpoint_dir=str(tmp_path), result_path=str(tmp_path / "r"))
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "unlimited"), [("max_epochs", -1), ("max_steps", -1), ("limit_train_batches", "null")]
)
def test_a_run_without_a_step_is_refused(name: str, unlimited: object) -> None:
    way = f"but not 0, with which nothing would be trained: give {unlimited} for no limit"
    with pytest.raises(ValueError, match=f"^trainer.{name} is 0; it must be .*, {way}$"):
        check_values(config(trainer={name: 0}))
    check_values(config(trainer={name: 1}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exact_test": "maybe"}, "exact_test is 'maybe'; it must be true or false"),
        ({"embeddings": None}, "embeddings is None; it must be true or false"),
        ({"new_links": 0}, "new_links is 0; it must be an integer of at least 1"),
        (
            {"seed": 2**32},
            r"seed is 4294967296; it must be an integer of at least 0 and below 2\*\*32: sampler.seed and",
        ),
        ({"device": "cuda:7"}, "device is 'cuda:7'; it must be auto, cpu or cuda: CUDA_VISIBLE_DEVICES=<nu"),
    ],
)
def test_a_bad_option_of_the_run_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        check_values(config(**changes))


def test_options_of_runs_are_declared() -> None:
    run, trainer = OmegaConf.load(CONF / "train.yaml"), OmegaConf.load(CONF / "trainer" / "default.yaml")
    assert {str(key) for key in run} - {"defaults", "datamodule", "hydra"} == OPTIONS[""].keys() - {"task"}
    assert {str(key) for key in trainer} - {"_target_"} <= OPTIONS["trainer"].keys()


@pytest.mark.parametrize("path", sorted((CONF / "features").glob("*.yaml")), ids=lambda path: path.stem)
def test_options_of_stores_are_declared(path: Path) -> None:
    options = {str(key) for key in OmegaConf.load(path) if not str(key).startswith("_")}
    assert options - {"device"} <= OPTIONS["features"].keys()


def test_values_are_shown_in_words() -> None:
    assert declared_values("seed") == "integer of at least 0 and below 2**32"
    assert declared_values("trainer.max_epochs") == "integer of at least -1, but not 0, or null"
    assert declared_values("callbacks.best.mode") == "min or max"
    assert declared_values("trainer.accelerator") == "one of auto, cpu, gpu, cuda"
    assert declared_values("model.hidden_channels") == ""
    assert "\nfeatures.gpu_share: in (0, 1], or null\n" in described()
    assert "trainer.logger" not in described()
