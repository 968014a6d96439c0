"""Heterogeneous datasets that torch_geometric reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from loader.datasets.cache import CachedArrays
from loader.datasets.hetero import HeteroDataset
from loader.datasets.hetero_edges import HeteroEdges, HeteroEdgesDataset
from loader.datasets.library_reader import ReaderFiles
from loader.datasets.node_dataset import SPLITS
from loader.datasets.splits import ids_of
from loader.machine.optional import import_optional

_FILES = ("adjM.npz", "features_0.npz", "features_1.npz", "labels.npy", "train_val_test_idx.npz")
# name: (torch_geometric's class, files, origin, number of classes)
_DATASETS = {
    "dblp": (
        "DBLP",
        (*_FILES, "features_2.npy", "node_types.npy"),
        "https://www.dropbox.com/s/yh4grpeks87ugr2/DBLP_processed.zip?dl=1",
        4,
    ),
    "imdb": (
        "IMDB",
        (*_FILES, "features_2.npz"),
        "https://www.dropbox.com/s/g0btk9ctr1es39x/IMDB_processed.zip?dl=1",
        3,
    ),
}


class HeteroPyGDataset(ReaderFiles, HeteroEdgesDataset):
    """dblp or imdb (Fu et al. 2020, MAGNN, arXiv:2002.01680) with their official splits, at `data_dir/dblp` and
    `data_dir/imdb`.

    dblp: authors with labels, papers, terms, and conferences. Conferences have one-hot features, as in that paper. In
    torch_geometric's dataset they have none, and a model cannot tell them apart. imdb: movies with labels, directors
    and actors. Both directions of every edge are there; all relations are called "to".

    Args:
        name: "dblp" or "imdb".
        options: see `CachedDataset`, and `check_features` of `HeteroEdgesDataset`.
    """

    def __init__(self, name: str, *, check_features: bool = True, **options: Any) -> None:
        if name not in _DATASETS:
            raise ValueError(f"name is {name!r}; it must be one of {', '.join(_DATASETS)}")
        super().__init__(name, check_features=check_features, **options)
        self._reader, files, self.origin, self._num_classes = _DATASETS[name]
        self.files = tuple(f"raw/{file}" for file in files)
        self.folder = name

    def open_reader(self, root: Path) -> Any:
        datasets = import_optional("torch_geometric.datasets", f"dataset {self.name}", "datasets")
        return getattr(datasets, self._reader)(str(root / self.folder))

    def extract(self, reader: Any) -> HeteroEdges:
        data = reader[0]
        (target,) = (name for name in data.node_types if "y" in data[name])
        of = data[target]
        return HeteroEdges(
            edges={key: data[key].edge_index.numpy() for key in data.edge_types},
            num_nodes={name: data[name].num_nodes for name in data.node_types},
            target=target,
            labels=of.y.numpy(),
            num_classes=self._num_classes,
            features={name: data[name].x.numpy() for name in data.node_types if "x" in data[name]},
            splits={
                split: ids_of(of[f"{split}_mask"].numpy(), of.num_nodes, f"{self.name}: {split}") for split in SPLITS
            },
        )

    def _assemble(self, cached: CachedArrays) -> HeteroDataset:
        data = super()._assemble(cached)
        types = data.graph.node_types
        return replace(
            data,
            features={
                name: data.features[name] if name in data.features else torch.eye(len(types[name]), dtype=torch.float32)
                for name in types
            },
        )
