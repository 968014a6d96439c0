"""The citation graphs of Planetoid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.edge_list_base import EdgeList
from loader.datasets.library_reader import ReaderDataset
from loader.datasets.splits import as_split_seed, ids_of, per_class_split
from loader.datasets.transforms import l1_normalize
from loader.datasets.unread_parts import tell_data
from loader.machine.arguments import as_flag, as_size

_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_ORIGIN = "https://github.com/kimiyoung/planetoid/tree/master/data"
_NUM_VAL = 30  # of every class, in the protocol of drawn splits
_NAMES = {"cora": "Cora", "citeseer": "CiteSeer"}  # ours: torch_geometric's


class PlanetoidDataset(ReaderDataset):
    """cora or citeseer (Yang et al. 2016, arXiv:1603.08861) with their public or with drawn splits, at
    `data_dir/planetoid`.

    Args:
        name: "cora" or "citeseer".
        num_train: None takes the public split. A number draws a split by the protocol of Shchur et al. 2018
            (arXiv:1811.05868): this many nodes of every class for training, `num_val` for validation, the rest for
            test.
        num_val: nodes per class of a drawn split.
        split_seed: seed of a drawn split.
        normalize_features: divide the features of each node by their sum, as in published results on these datasets.
        options: see `EdgeListDataset`.
    """

    pickled = True

    def __init__(
        self,
        name: str,
        *,
        num_train: int | None = None,
        num_val: int = _NUM_VAL,
        split_seed: int = 0,
        normalize_features: bool = True,
        **options: Any,
    ) -> None:
        if name not in _NAMES:
            raise ValueError(f"name is '{name}'; it must be one of {', '.join(_NAMES)}")
        super().__init__(name, **options)
        self.folder = f"planetoid/{_NAMES[name]}"
        self.files = tuple(f"raw/ind.{name}.{part}" for part in _PARTS)
        self.origin = _ORIGIN
        self.num_train = None if num_train is None else as_size("num_train", num_train)
        self.num_val = as_size("num_val", num_val, least=0)
        if num_train is None and num_val != _NUM_VAL:
            raise ValueError(f"num_val is {num_val}, but no split is drawn; give num_train, or leave it out")
        self.split_seed = as_split_seed(split_seed, drawn=num_train is not None, way="give num_train")
        self.normalize_features = as_flag("normalize_features", normalize_features)

    def options(self) -> dict[str, Any]:
        return {**super().options(), "normalize_features": self.normalize_features}

    def open_reader(self, root: Path) -> Any:
        from torch_geometric.datasets import Planetoid

        return Planetoid(str(root / "planetoid"), _NAMES[self.name])

    def extract(self, reader: Any) -> EdgeList:
        data = reader[0]
        tell_data(self.name, data)
        masks = {"train": data.train_mask, "val": data.val_mask, "test": data.test_mask}
        return EdgeList(
            src=data.edge_index[0].numpy(),
            dst=data.edge_index[1].numpy(),
            features=data.x.numpy(),
            labels=data.y.numpy(),
            num_classes=reader.num_classes,
            splits={
                split: ids_of(mask.numpy(), data.num_nodes, f"{self.name}: {split}") for split, mask in masks.items()
            },
        )

    def transform_features(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return l1_normalize(rows) if self.normalize_features else rows

    def draw_splits(self, labels: Tensor) -> dict[str, Tensor] | None:
        if self.num_train is None:
            return None
        return per_class_split(labels, self.num_train, self.num_val, self.split_seed)
