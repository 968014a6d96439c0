"""Whether the dataset of a run and its model go together: several types of nodes and edges need a model for them."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig

from loader.datamodules.base import types_refused
from loader.datamodules.links import relation_missed
from loader.datasets import HeteroDataset, NodeDataset, RelationalData
from models.training.target_classes import chosen, object_of


def takes_types(cfg: DictConfig) -> bool:
    """Whether the model of a run is for datasets with types."""
    return bool(getattr(object_of("model", cfg.model), "takes_types", False))


def takes_tables(cfg: DictConfig) -> bool:
    """Whether the model of a run learns tasks on tables."""
    return bool(getattr(object_of("model", cfg.model), "takes_tables", False))


def check_types(cfg: DictConfig, data: NodeDataset | HeteroDataset | None = None) -> None:
    """Raises ValueError unless model and dataset both are for types, or both for one type; of links, unless a dataset
    with types has a relation of links.

    Args:
        cfg: of the run.
        data: the dataset, once it was read. Before, its class may say what it will be.
    """
    dataset: Any = object_of("dataset", cfg.dataset)
    kind = getattr(dataset, "kind", None) if data is None else type(data)
    name = cfg.dataset.get("name") or cfg.dataset.get("path") or "" if data is None else data.name
    one_type = f"dataset {name} has one type of nodes and edges, and"
    if kind is RelationalData:  # of a model on tables and another dataset, `watch_task` says it
        if not takes_tables(cfg):
            raise ValueError(f"dataset {name} has a task on tables, which model=rsage learns; give model=rsage")
        return
    if kind is NodeDataset and str(cfg.sampler.get("_target_")).endswith(".TreeSampler"):
        raise ValueError(f"{one_type} sampler=trees is for several, with times; take sampler=fused")
    if cfg.task == "link":
        missed = relation_missed(f"dataset {name}", kind is HeteroDataset, cfg.datamodule.get("edge_type"))
        if kind in (HeteroDataset, NodeDataset) and missed is not None:
            raise ValueError(missed)
        return
    who = f"model={chosen('model', cfg)}"
    if kind is HeteroDataset and not takes_types(cfg):
        raise ValueError(types_refused(f"dataset {name}", who))
    if kind is NodeDataset and takes_types(cfg):
        raise ValueError(f"{one_type} {who} is for several; take model=graphsage or gat")
