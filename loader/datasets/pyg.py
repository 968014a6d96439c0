"""Datasets that torch_geometric reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.edge_list_base import EdgeList
from loader.datasets.library_reader import ReaderDataset
from loader.datasets.splits import ids_of, per_class_split
from loader.datasets.transforms import l1_normalize
from loader.datasets.unread_parts import tell_data
from loader.machine.arguments import as_flag, as_size
from loader.machine.optional import import_optional

_SAINT_FILES = ("raw/adj_full.npz", "raw/feats.npy", "raw/class_map.json", "raw/role.json")
_SAINT_ORIGIN = "the Google Drive folder linked at https://github.com/GraphSAINT/GraphSAINT"
# name: (torch_geometric's class, files, origin, number of classes)
_OFFICIAL = {
    "reddit": (
        "Reddit",
        ("raw/reddit_data.npz", "raw/reddit_graph.npz"),
        "https://data.dgl.ai/dataset/reddit.zip",
        41,
    ),
    "flickr": ("Flickr", _SAINT_FILES, _SAINT_ORIGIN, 7),
    "yelp": ("Yelp", _SAINT_FILES, _SAINT_ORIGIN, 100),
}
_SHCHUR_ORIGIN = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"
# name: (torch_geometric's class, its folder, its name, file)
_SHCHUR = {
    "coauthor-physics": ("Coauthor", "coauthor", "Physics", "ms_academic_phy.npz"),
    "coauthor-cs": ("Coauthor", "coauthor", "CS", "ms_academic_cs.npz"),
    "amazon-computers": ("Amazon", "amazon", "Computers", "amazon_electronics_computers.npz"),
    "amazon-photo": ("Amazon", "amazon", "Photo", "amazon_electronics_photo.npz"),
}


class PyGDataset(ReaderDataset):
    """reddit (Hamilton et al. 2017), flickr or yelp (Zeng et al. 2020, GraphSAINT) with their official
    splits, at `data_dir/reddit` and so on.

    yelp is multilabel.

    Args:
        name: "reddit", "flickr" or "yelp".
        options: see `EdgeListDataset`.
    """

    def __init__(self, name: str, **options: Any) -> None:
        if name not in _OFFICIAL:
            raise ValueError(f"name is '{name}'; it must be one of {', '.join(_OFFICIAL)}")
        super().__init__(name, **options)
        self._reader, self.files, self.origin, self._num_classes = _OFFICIAL[name]
        self.folder = name

    def open_reader(self, root: Path) -> Any:
        datasets = import_optional("torch_geometric.datasets", f"dataset {self.name}", "datasets")
        return getattr(datasets, self._reader)(str(root / self.folder))

    def extract(self, reader: Any) -> EdgeList:
        data = reader[0]
        tell_data(self.name, data)
        masks = {"train": data.train_mask, "val": data.val_mask, "test": data.test_mask}
        return EdgeList(
            src=data.edge_index[0].numpy(),
            dst=data.edge_index[1].numpy(),
            features=data.x.numpy(),
            labels=data.y.numpy(),
            num_classes=self._num_classes,
            splits={
                split: ids_of(mask.numpy(), data.num_nodes, f"{self.name}: {split}") for split, mask in masks.items()
            },
            edge_weights=_weights(data),
        )


class ShchurDataset(ReaderDataset):
    """A graph of Shchur et al. 2018, Pitfalls of graph neural network evaluation (arXiv:1811.05868), at
    `data_dir/coauthor` and `data_dir/amazon`, by that paper's protocol: `num_train` and `num_val` nodes of
    every class for training and validation, the rest for test, drawn by `split_seed`.

    Args:
        name: "coauthor-physics", "coauthor-cs", "amazon-computers" or "amazon-photo".
        split_seed: seed of the split.
        num_train, num_val: nodes per class.
        largest_component: keep only the largest connected component, as the paper does.
        normalize_features: divide the features of each node by the sum of their absolute values, as the paper does.
        options: see `EdgeListDataset`.
    """

    def __init__(
        self,
        name: str,
        *,
        split_seed: int = 0,
        num_train: int = 20,
        num_val: int = 30,
        largest_component: bool = True,
        normalize_features: bool = True,
        **options: Any,
    ) -> None:
        if name not in _SHCHUR:
            raise ValueError(f"name is '{name}'; it must be one of {', '.join(_SHCHUR)}")
        super().__init__(name, largest_component=largest_component, **options)
        self._reader, self._group, self._part, file = _SHCHUR[name]
        self.folder = f"{self._group}/{self._part}"
        self.files = (f"raw/{file}",)
        self.origin = f"{_SHCHUR_ORIGIN}/{file}"
        self.split_seed = as_size("split_seed", split_seed, least=0)
        self.num_train = as_size("num_train", num_train)
        self.num_val = as_size("num_val", num_val, least=0)
        self.normalize_features = as_flag("normalize_features", normalize_features)

    def options(self) -> dict[str, Any]:
        return {**super().options(), "normalize_features": self.normalize_features}

    def open_reader(self, root: Path) -> Any:
        datasets = import_optional("torch_geometric.datasets", f"dataset {self.name}", "datasets")
        return getattr(datasets, self._reader)(str(root / self._group), self._part)

    def extract(self, reader: Any) -> EdgeList:
        data = reader[0]
        tell_data(self.name, data)
        return EdgeList(
            src=data.edge_index[0].numpy(),
            dst=data.edge_index[1].numpy(),
            features=data.x.numpy(),
            labels=data.y.numpy(),
            num_classes=reader.num_classes,
            edge_weights=_weights(data),
        )

    def transform_features(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return l1_normalize(rows) if self.normalize_features else rows

    def draw_splits(self, labels: Tensor) -> dict[str, Tensor]:
        return per_class_split(labels, self.num_train, self.num_val, self.split_seed)


def _weights(data: Any) -> NDArray[np.generic] | None:
    """Of the edges, by the name that torch_geometric has for them; `edge_attr` may be anything, and is not read."""
    return None if data.edge_weight is None else data.edge_weight.numpy()
