"""Datasets of the Open Graph Benchmark (Hu et al. 2020, arXiv:2005.00687), through the ogb package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.classes import describe_classes
from loader.datasets.edge_list_base import EdgeList, checked_labels
from loader.datasets.edge_sorter import EdgeSorter, sorting_threads
from loader.datasets.errors import DatasetError
from loader.datasets.feature_rows import write_rows
from loader.datasets.library_reader import ReaderDataset
from loader.datasets.node_dataset import SPLITS, check_split_labels, check_splits
from loader.datasets.numbers import as_int64
from loader.datasets.papers import NUM_CLASSES, PapersFiles
from loader.datasets.progress import ConversionProgress
from loader.datasets.splits import ids_of
from loader.datasets.unread_parts import tell_unread
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

    The years of the papers of arxiv and papers100M are the times of the graph's nodes.

    ogb asks on the terminal before it downloads more than a gigabyte (products 1.4 GB, papers100M 56 GB). ogb's reader
    holds all of papers100M in memory. So its files are read in parts, without ogb, and its edges are sorted through
    files, see `loader.datasets.edge_sorter`. docs/disk.md says what this takes. ogb reads the whole
    of it to download it, and for `largest_component`. Then about 160 GB are needed (reckoned, not measured).

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

    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        if self.name != "ogbn-papers100M" or self.largest_component:
            super().convert(writer, progress)
            return
        files = PapersFiles(self.data_dir / self.folder)
        labels, num_classes = checked_labels(files.labels(), NUM_CLASSES, files.num_nodes, self.name)
        splits = files.splits()
        check_splits(splits, files.num_nodes, name=self.name)
        check_split_labels(splits, torch.from_numpy(labels), num_classes, name=self.name)
        years = self._years(files.years(), files.num_nodes)
        threads = sorting_threads()
        with progress.step("reading edges", files.num_edges) as advance:
            sorter = EdgeSorter(
                files.num_nodes,
                files.num_edges,
                writer.scratch,
                undirected=self.undirected,
                self_loops=self.self_loops,
                parallel_edges=self.parallel_edges,
                threads=threads,
            )
            try:
                sorter.take(files.edges(), advance)
            except ValueError as error:
                raise DatasetError(f"{self.name}: {error}") from error
        with progress.step("sorting edges", files.num_nodes) as advance:
            sorter.write(writer, advance)
        writer.write("labels", labels)
        if years is not None:
            writer.write("node_times", as_int64(years, f"{self.name}: node_times"))
        for split, ids in splits.items():
            writer.write(split, ids.numpy())
        with progress.step("writing features", files.num_nodes) as advance:
            shape = (files.num_nodes, files.num_features)
            write_rows(writer, shape, lambda: self.checked_rows(files.features(self.rows_at_once(shape[1]))), advance)
        writer.properties.update(num_classes=num_classes, multilabel=False)
        progress.notes.append(describe_classes(labels, num_classes, False))

    def open_reader(self, root: Path) -> Any:
        home = root / self.folder
        if home.exists():  # otherwise ogb downloads it, and brings the folder along
            (home / "processed").mkdir(exist_ok=True)
        return ogb_reader()(self.name, root=str(root))

    def extract(self, reader: Any) -> EdgeList:
        graph, labels = reader[0]
        split = reader.get_idx_split()
        num_nodes = int(graph["num_nodes"])
        given = [name for name, array in graph.items() if array is not None]
        tell_unread(self.name, "the graph of ogb", given, ("edge_index", "node_feat", "num_nodes", "node_year"))
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


def ogb_reader() -> Any:
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
