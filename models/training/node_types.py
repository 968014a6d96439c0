"""Whether the dataset of a run and its model go together: types of nodes and edges need a model that takes them."""

from __future__ import annotations

from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from loader.datamodules.base import types_refused
from loader.datasets.hetero_edges import HeteroEdgesDataset
from models.training.options import object_of


def check_types(cfg: DictConfig) -> None:
    """Raises ValueError for a dataset whose class says that it has types, before it is read.

    Args:
        cfg: of the run.
    """
    dataset: Any = object_of("dataset", cfg.dataset)
    if isinstance(dataset, type) and issubclass(dataset, HeteroEdgesDataset):
        named = cfg.dataset.get("name") or cfg.dataset.get("path") or dataset.__name__
        raise ValueError(types_refused(f"dataset {named}", taker(cfg)))


def taker(cfg: DictConfig) -> str:
    """What trains in this run, as the user calls it."""
    if cfg.task == "link":
        return "task=link"
    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    return f"model={choices.get('model') or cfg.model['_target_']}"
