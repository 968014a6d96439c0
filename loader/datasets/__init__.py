"""Datasets: graphs with features, labels and splits, by name. `conf/dataset/` has one file per dataset."""

import importlib
import warnings
from typing import Any

from loader.datasets.base import Dataset
from loader.datasets.digits import Digits
from loader.datasets.distances import DistanceFeatures
from loader.datasets.edge_list_base import EdgeList, EdgeListDataset
from loader.datasets.entities import EntitiesDataset
from loader.datasets.errors import CacheError, DatasetError
from loader.datasets.hetero import HeteroDataset
from loader.datasets.hetero_npz import HeteroNpzDataset, write_hetero_npz
from loader.datasets.hetero_ogb import HeteroOGBDataset
from loader.datasets.hetero_pyg import HeteroPyGDataset
from loader.datasets.mat import MatDataset
from loader.datasets.named import open_dataset
from loader.datasets.node_dataset import NodeDataset
from loader.datasets.node_ids import NodeIds
from loader.datasets.npz import NpzDataset
from loader.datasets.ogb import OGBDataset
from loader.datasets.planetoid import PlanetoidDataset
from loader.datasets.pyg import PyGDataset, ShchurDataset
from loader.datasets.relational import RelationalData, RelationalDataset, RowColumn, TaskItems, write_relbench
from loader.datasets.table import TableDataset
from loader.datasets.table_columns import Column
from loader.datasets.table_record import TableRecord

__all__ = [
    "CacheError",
    "Column",
    "Dataset",
    "DatasetError",
    "Digits",
    "DistanceFeatures",
    "EdgeList",
    "EdgeListDataset",
    "EntitiesDataset",
    "HeteroDataset",
    "HeteroNpzDataset",
    "HeteroOGBDataset",
    "HeteroPyGDataset",
    "MatDataset",
    "NodeDataset",
    "NodeIds",
    "NpzDataset",
    "OGBDataset",
    "PlanetoidDataset",
    "PyGDataset",
    "RelationalData",
    "RelationalDataset",
    "RowColumn",
    "ShchurDataset",
    "TableDataset",
    "TableRecord",
    "TaskItems",
    "open_dataset",
    "write_hetero_npz",
    "write_relbench",
]


def __getattr__(name: str) -> Any:
    if name not in ("SyntheticDataset", "LargeSyntheticDataset"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        models = importlib.import_module("models.synthetic")
    except ImportError as error:
        raise AttributeError(f"{name} is in models.synthetic of a checkout, which does not import: {error}") from error
    warnings.warn(
        f"{name} is now models.synthetic.{name}; the old place goes with the next release", FutureWarning, stacklevel=2
    )
    return getattr(models, name)
