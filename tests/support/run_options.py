"""Configurations of runs, as small as the checks of their options allow."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf


def config(**changes: Any) -> DictConfig:
    """A small configuration that nothing refuses, with some changes."""
    plain = {
        "task": "node",
        "mode": "train",
        "device": "cpu",
        "optimized_metric": "val/acc",
        "exact_test": True,
        "embeddings": False,
        "new_links": 10,
        "timeline": False,
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
    return changed(plain, changes)


def changed(plain: dict[str, Any], changes: dict[str, Any]) -> DictConfig:
    """Options with some changes."""
    return OmegaConf.merge(OmegaConf.create(plain), OmegaConf.create(changes))  # type: ignore[return-value]
