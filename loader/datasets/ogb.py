"""Datasets of the Open Graph Benchmark (Hu et al. 2020, arXiv:2005.00687), through the ogb package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.datasets.edge_list import EdgeList
from loader.datasets.errors import DatasetError
from loader.datasets.node_dataset import SPLITS
from loader.datasets.reader import ReaderDataset
from loader.datasets.splits import ids_of
from loader.machine.optional import import_optional

_CSV_FILES = tuple(
    f"raw/{name}.csv.gz" for name in ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list")
)
_BINARY_FILES = ("raw/data.npz", "raw/node-label.npz")
_OGB_SPLITS = dict(zip(("train", "valid", "test"), SPLITS, strict=True))
_URL = "http://snap.stanford.edu/ogb/data/nodeproppred"
# name: (files of the graph, folder of the official split, archive)
_DATASETS = {
    "ogbn-arxiv": ((*_CSV_FILES, "raw/node_year.csv.gz"), "time", "arxiv.zip"),
    "ogbn-products": (_CSV_FILES, "sales_ranking", "products.zip"),
    "ogbn-papers100M": (_BINARY_FILES, "time", "papers100M-bin.zip"),
}


class OGBDataset(ReaderDataset):
    """ogbn-arxiv, ogbn-products or ogbn-papers100M with the official split, at `data_dir/ogbn_arxiv` and so
    on.

    The years of the papers of arxiv and papers100M are the times of the graph's vertices.

    ogb asks on the terminal before it downloads more than a gigabyte (products 1.4 GB, papers100M 56 GB). The
    conversion of papers100M needs memory for the whole dataset: 57 GB for the features, 26 GB for the edges, and about
    52 GB for sorting the edges. It needs as much space in the cache folder for the files that ogb writes in between.

    ogb gets only the csv and npz files, not pickled files beside them. So it never calls `torch.load`, which refuses
    its files since torch 2.6 (ogb#497), and never reads a `processed/` that is older than `raw/`.

    Args:
        name: "ogbn-arxiv", "ogbn-products" or "ogbn-papers100M".
        options: see `EdgeListDataset`.
    """

    def __init__(self, name: str, **options: Any) -> None:
        if name not in _DATASETS:
            raise ValueError(f"name is '{name}'; it must be one of {', '.join(_DATASETS)}")
        super().__init__(name, **options)
        graph_files, split, archive = _DATASETS[name]
        self.folder = name.replace("-", "_")
        # Without the release file ogb asks whether to delete the folder and download it again.
        self.files = (
            "RELEASE_v1.txt",
            *graph_files,
            *(f"split/{split}/{part}.csv.gz" for part in _OGB_SPLITS),
        )
        self.origin = f"{_URL}/{archive}"

    def open_reader(self, root: Path) -> Any:
        home = root / self.folder
        if home.exists():  # otherwise ogb downloads it, and brings the folder along
            (home / "processed").mkdir(exist_ok=True)
        return _ogb_reader()(self.name, root=str(root))

    def extract(self, reader: Any) -> EdgeList:
        graph, labels = reader[0]
        split = reader.get_idx_split()
        num_nodes = int(graph["num_nodes"])
        return EdgeList(
            src=graph["edge_index"][0],
            dst=graph["edge_index"][1],
            features=graph["node_feat"],
            labels=labels.reshape(num_nodes),
            num_classes=reader.num_classes,
            node_times=self._years(graph.get("node_year"), num_nodes),
            splits={
                ours: ids_of(np.asarray(split[theirs]), num_nodes, f"{self.name}: split {theirs}")
                for theirs, ours in _OGB_SPLITS.items()
            },
        )

    def _years(self, years: Any, num_nodes: int) -> NDArray[np.generic] | None:
        if years is None:
            return None
        years = np.asarray(years).reshape(num_nodes)
        if years.dtype.kind == "f":
            if not np.array_equal(years, np.trunc(years)):  # NaN is not equal to itself
                raise DatasetError(f"{self.name}: a year of a paper is no whole number; copy the files again")
            years = years.astype(np.int64)
        return years


def _ogb_reader() -> Any:
    """ogb's reader class.

    On import ogb asks the package index for newer releases, in a thread that holds up the exit of a run
    without network; it goes without where the package that asks cannot be imported.
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")  # ogb imports DGL, which else says so, and writes a file
    if "ogb" not in sys.modules and "outdated" not in sys.modules:
        sys.modules["outdated"] = None  # type: ignore[assignment]
        try:
            import_optional("ogb", "a dataset of OGB", "datasets")
        finally:
            del sys.modules["outdated"]
    return import_optional("ogb.nodeproppred", "a dataset of OGB", "datasets").NodePropPredDataset
