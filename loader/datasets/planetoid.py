"""The citation graphs of Planetoid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.datasets.edge_list import EdgeList
from loader.datasets.reader import ReaderDataset
from loader.datasets.splits import ids_of
from loader.datasets.transforms import l1_normalize
from loader.datasets.unread import tell_data
from loader.machine.arguments import as_flag

_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_ORIGIN = "https://github.com/kimiyoung/planetoid/tree/master/data"
_NAMES = {"cora": "Cora", "citeseer": "CiteSeer"}  # ours: torch_geometric's


class PlanetoidDataset(ReaderDataset):
    """cora or citeseer (Yang et al. 2016, arXiv:1603.08861) with their public splits, at `data_dir/planetoid`.

    Args:
        name: "cora" or "citeseer".
        normalize_features: divide the features of each vertex by their sum, as in published results on these datasets.
        options: see `EdgeListDataset`.
    """

    pickled = True

    def __init__(self, name: str, *, normalize_features: bool = True, **options: Any) -> None:
        if name not in _NAMES:
            raise ValueError(f"name is '{name}'; it must be one of {', '.join(_NAMES)}")
        super().__init__(name, **options)
        self.folder = f"planetoid/{_NAMES[name]}"
        self.files = tuple(f"raw/ind.{name}.{part}" for part in _PARTS)
        self.origin = _ORIGIN
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
