"""Options that do not go together are named before a run starts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from omegaconf import DictConfig
from run_options import config

from models.training.option_rules import check_rules, of_parts, of_values

Rules = Callable[[DictConfig], Iterator[str]]
WALKS = {"_target_": "loader.samplers.WalkSampler", "walk_length": 80, "num_negatives": 1}
EMBEDDER = {"context_size": 10}
RECORD = {"timeline": {"_target_": "models.training.callbacks.TimelineRecord"}}
# A case for each rule, in its order: what it changes, and how the message begins.
PARTS: list[tuple[dict[str, Any], str]] = [
    ({"model": {"heads": None}, "task": "link"}, "model=models.training.module.NodeClassifier does not go with task="),
    ({"sampler": WALKS, "task": "link"}, "sampler is WalkSampler, and task=link needs one with fanouts"),
    (
        {"model": {"_target_": "some.Net", "trained_rows": 8}, "trainer": {"gradient_clip_val": 0.5}},
        "trainer.gradient_clip_val is 0.5, but gradients of model.trained_rows are sparse: torch clips none; leave it",
    ),
    ({"model": EMBEDDER}, "model=node2vec learns from random walks, and fused gives none; take sampler=walks"),
    (
        {"model": EMBEDDER, "sampler": {**WALKS, "walk_length": 8}},
        "sampler.walk_length is 8; it must be at least 9 for model.context_size=10",
    ),
    (
        {"model": EMBEDDER, "sampler": WALKS, "features": {"_target_": "loader.stores.HostFeatures"}},
        "features is HostFeatures, but model=node2vec reads none; leave features out",
    ),
    ({"model": EMBEDDER, "sampler": {**WALKS, "num_negatives": 0}}, "sampler.num_negatives is 0, but"),
]
VALUES: list[tuple[dict[str, Any], str]] = [
    ({"new_links": 3, "mode": "predict"}, "new_links is 3, but only mode=predict of task=link writes links"),
    ({"dataset": {"task": "churn", "items": "a.csv"}}, "dataset.items is a.csv, but only mode=predict predicts items"),
    ({"embeddings": True}, "embeddings is true, but only mode=predict of classes, with exact_test=true, adds"),
    ({"trainer": {"devices": 10**6}}, "trainer.devices is 1000000; without a GPU (device=cpu) it is the number of pro"),
    ({"trainer": {"accelerator": "gpu"}}, "trainer.accelerator is gpu, but this run has no GPU (device=cpu); leave it"),
    ({"exact_test": False, "task": "link"}, "exact_test is false, but task=link is only tested on the whole graph"),
    ({"timeline": True}, "timeline is true, but no callback records one"),
    ({"trainer": {"min_epochs": 5, "max_epochs": 2}}, "trainer.min_epochs is 5, but training ends at trainer.max_ep"),
    ({"trainer": {"limit_test_batches": 2}}, "trainer.limit_test_batches is 2, but the whole graph is one batch there"),
    (
        {"trainer": {"overfit_batches": 1, "limit_train_batches": 2}},
        "trainer.limit_train_batches is 2, but trainer.overfit_batches=1 takes its place; leave one of them out",
    ),
    (
        {"trainer": {"overfit_batches": 0.1}, "task": "link"},
        "trainer.overfit_batches is 0.1, but the whole graph is one batch in validation, of which Lightning takes that",
    ),
    (
        {"schedule": {"monitor": "val/loss"}, "trainer": {"check_val_every_n_epoch": 2}},
        "schedule.monitor is val/loss, which is read after each epoch, but trainer.check_val_every_n_epoch is 2; give",
    ),
    (
        {"trainer": {"gradient_clip_algorithm": "value", "gradient_clip_val": None}},
        "trainer.gradient_clip_algorithm is value, but trainer.gradient_clip_val is None; give both, or none",
    ),
    (
        {"callbacks": {"best": {"filename": "a", "dirpath": "x"}, "step": {"filename": "a", "dirpath": "x"}}},
        "callbacks.step.filename is a, as callbacks.best.filename is, so one would replace the other; give another one",
    ),
    (
        {"callbacks": {"best": {"monitor": "val/acc", "every_n_train_steps": 2}}},
        "callbacks.best.every_n_train_steps is 2, but val/acc is of the validation before, not of the weights that",
    ),
    (
        {"callbacks": {"best": {"filename": "best", "enable_version_counter": False, "save_top_k": 3}}},
        "callbacks.best.save_top_k is 3, but all checkpoints have the name best, so one is left; give 'callbacks.",
    ),
    (
        {"callbacks": {"best": {"filename": "best", "monitor": "val/acc", "save_on_exception": True}}},
        "callbacks.best.save_on_exception is true, but its checkpoint would replace the best one, as both have the na",
    ),
    ({"features": {"dtype": "torch.float16"}}, "features.dtype is torch.float16, but the model's layers have float32"),
]
ALIKE_PARTS: list[tuple[dict[str, Any], str]] = [  # the same rules for other options
    (
        {"model": EMBEDDER, "sampler": WALKS, "trainer": {"gradient_clip_val": 0.5}},
        "trainer.gradient_clip_val is 0.5, but gradients of model=node2vec are sparse: torch clips none; leave it out",
    ),
]
ALIKE_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"trainer": {"sync_batchnorm": True}}, "trainer.sync_batchnorm is true, but this run has no GPU (device=cpu); le"),
    ({"model": {"cuda_graph": True}}, "model.cuda_graph is true, but this run has no GPU (device=cpu)"),
    ({"trainer": {"min_steps": 5, "max_steps": 2}}, "trainer.min_steps is 5, but training ends at trainer.max_st"),
    ({"trainer": {"limit_val_batches": 0.5}, "task": "link"}, "trainer.limit_val_batches is 0.5, but the whole graph"),
    ({"trainer": {"limit_predict_batches": 2}, "mode": "predict"}, "trainer.limit_predict_batches is 2, but the whole"),
    ({"timeline": True, "callbacks": RECORD, "model": EMBEDDER}, "timeline is true, but model=node2vec has no such st"),
    (
        {"callbacks": {"best": {"monitor": "train/loss", "train_time_interval": 2}}},
        "callbacks.best.train_time_interval is 2, but train/loss is of the epoch before, not of the weights that",
    ),
    ({"features": {"storage_dtype": "half"}}, "features.storage_dtype is half, but the model's layers have float32"),
    ({"embeddings": True, "mode": "predict", "exact_test": False}, "embeddings is true, but only mode=predict of clas"),
    (
        {"embeddings": True, "mode": "predict", "dataset": {"task": "churn"}},
        "embeddings is true, but only mode=predict",
    ),
]
CASES = [
    *((of_parts, *case) for case in [*PARTS, *ALIKE_PARTS]),
    *((of_values, *case) for case in [*VALUES, *ALIKE_VALUES]),
]


@pytest.mark.parametrize(("rules", "changes", "message"), CASES)
def test_options_that_do_not_go_together_are_named(rules: Rules, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as refused:
        check_rules(config(**changes), rules)
    assert "; " in str(refused.value)  # before the limit or the way out
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("rules", "cases"), [(of_parts, PARTS), (of_values, VALUES)])
def test_every_rule_has_a_case(rules: Rules, cases: list[Any]) -> None:
    assert inspect.getsource(rules).count("yield ") == len(cases)


def test_links_need_a_sampler_with_fanouts() -> None:
    for name in ("FullSampler", "fused"):
        cfg = config(task="link", sampler={"_target_": f"loader.samplers.{name}"})
        assert [*of_parts(cfg)] == [] if name == "fused" else "sampler is FullSampler" in next(of_parts(cfg))


def test_options_that_go_together_are_taken() -> None:
    links = {"task": "link", "mode": "predict"}
    for changes in (
        {},
        {"model": EMBEDDER, "sampler": {**WALKS, "walk_length": 9}},
        {"exact_test": False},
        {"new_links": 3, **links},
        {"embeddings": True, "mode": "predict"},
        {"dataset": {"task": "churn", "items": "a.csv"}, "mode": "predict"},
        {"timeline": True, "callbacks": RECORD},
        {"callbacks": {"best": {"filename": "b-{epoch}", "enable_version_counter": False, "save_top_k": 3}}},
        {"callbacks": {"best": {"filename": "best", "save_top_k": 3}}},  # Lightning numbers them
        {"callbacks": {"best": {"filename": "a", "dirpath": "x"}, "step": {"filename": "a", "dirpath": "y"}}},
        {"callbacks": {"step": {"every_n_train_steps": 2}}},
        {"callbacks": {"best": {"filename": "b-{step}", "monitor": "val/acc", "save_on_exception": True}}},
        {"callbacks": {"last": {"filename": "last", "save_on_exception": True}}},
        {"callbacks": {"own": {"filename": "x", "monitor": "val/acc", "save_top_k": 0, "save_on_exception": True}}},
        {"trainer": {"min_epochs": 5, "max_epochs": -1, "min_steps": 3, "max_steps": 3}},
        {"trainer": {"gradient_clip_algorithm": "value", "gradient_clip_val": 0.5}},
        {"trainer": {"limit_val_batches": 0.5, "limit_test_batches": 0, "limit_predict_batches": 2}},
        {"trainer": {"limit_test_batches": 0.5}, "exact_test": False},
        {"trainer": {"overfit_batches": 0.1}},
        {"trainer": {"overfit_batches": 2}, "task": "link"},
        {"schedule": {"monitor": "train/loss"}, "trainer": {"check_val_every_n_epoch": 2}},
        {"features": {"dtype": "float16"}, "trainer": {"precision": "bf16-mixed"}},
        {"features": {"dtype": "float32", "storage_dtype": "float16"}},
        {"features": {"dtype": "float16"}, "model": {"_target_": "mine.Net"}},
    ):
        check_rules(config(**changes), of_parts)
        check_rules(config(**changes), of_values)


@pytest.mark.parametrize(
    ("devices", "shown"), [([0, 1], "[0, 1]"), ([], "[]"), (None, "None"), ("0,", "'0,'"), (-1, "-1")]
)
def test_devices_are_processes_without_a_gpu(devices: Any, shown: str) -> None:
    limit = re.escape(f"trainer.devices is {shown}; without a GPU (device=cpu) it is the number of processes, 1 to ")
    with pytest.raises(ValueError, match=f"^{limit}[0-9]+ on this machine$"):
        check_rules(config(trainer={"devices": devices}), of_values)
    check_rules(config(trainer={"devices": devices}, device="cuda"), of_values)


@pytest.mark.parametrize("devices", [1, 2, "2", "auto"])
def test_a_number_of_processes_is_taken(devices: Any) -> None:
    check_rules(config(trainer={"devices": devices}), of_values)
