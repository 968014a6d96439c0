"""What every dataset is: a description that can be loaded, through a cached conversion."""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.cache import CacheWriter, cache_folder, open_cache
from loader.datasets.errors import DatasetError
from loader.datasets.locations import resolve_cache_dir
from loader.datasets.node_dataset import SPLITS, NodeDataset, check_split_labels, check_splits
from loader.datasets.progress import ConversionProgress
from loader.datasets.transforms import check_edge_options, edges_to_csc, induced_subgraph, largest_component
from loader.graph import Graph

log = logging.getLogger(__name__)

_MAPPED = frozenset({"features", "labels"})
_CHUNK_BYTES = 1 << 26  # of features written at once


class Dataset(ABC):
    """The description of a dataset. `load()` converts it once and opens the conversion from then on.

    Args:
        name: what the user calls it; part of the cache folder's name.
        data_dir: the folder of all datasets' files. It is never written to, but by a download and, where
            `cache_dir` is None, by the cache.
        cache_dir: the folder of all conversions; None takes `data_dir/cache`, or `~/.cache/gnn-loader` where
            `data_dir` cannot be written to.
        rebuild: convert again, even though there is a conversion.
    """

    def __init__(
        self,
        name: str,
        *,
        data_dir: str | Path = "data",
        cache_dir: str | Path | None = None,
        rebuild: bool = False,
    ) -> None:
        self.name = name
        self.data_dir = Path(os.path.abspath(Path(data_dir).expanduser()))
        self.cache_dir = resolve_cache_dir(cache_dir, self.data_dir)
        self.rebuild = rebuild

    def load(self) -> NodeDataset:
        """Opens the dataset, converting it first where that was not done before.

        The topology is read, features and labels are memory-mapped.

        Raises:
            DatasetError: it is absent, incomplete, or contradicts itself.
            CacheError: its conversion cannot be written, or is damaged.
        """
        key = {"dataset": self.name, "source": self.source(), "options": self.options()}
        folder = cache_folder(self.cache_dir, self.name, key)
        if self.rebuild or not folder.exists():
            self._convert(folder, key)
            self.rebuild = False  # once is enough, however often this object is loaded
        else:
            log.info("%s: opened from %s", self.name, folder)
        cached = open_cache(folder, key, mapped=_MAPPED)
        arrays = cached.arrays
        num_classes = int(cached.properties["num_classes"])
        splits = self.draw_splits(arrays["labels"])
        if splits is None:
            splits = {split: arrays[split] for split in SPLITS}
        return NodeDataset(
            name=self.name,
            graph=Graph(arrays["indptr"], arrays["indices"]),
            features=arrays["features"],
            labels=arrays["labels"],
            splits=splits,
            num_classes=num_classes,
            multilabel=bool(cached.properties["multilabel"]),
        )

    @abstractmethod
    def source(self) -> Any:
        """What tells one state of the source from another, as JSON; fetches the source where it can be.

        Raises:
            DatasetError: there is no source.
        """

    def options(self) -> dict[str, Any]:
        """Every option that changes what is converted, as JSON."""
        return {}

    @abstractmethod
    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        """Writes `indptr indices features labels`, the splits unless `draw_splits` draws them, and the
        properties `num_classes` and `multilabel`."""

    def draw_splits(self, labels: Tensor) -> dict[str, Tensor] | None:
        """Splits that are drawn whenever the dataset is opened; None where the conversion holds them.

        Drawing them here spares a conversion for every seed of the split.
        """
        return None

    def _convert(self, folder: Path, key: dict[str, Any]) -> None:
        log.info("%s: converting into %s", self.name, folder)
        start = time.perf_counter()
        with (
            CacheWriter(folder, key, replace=self.rebuild) as writer,
            ConversionProgress(self.name) as progress,
        ):
            self.convert(writer, progress)
        log.info("%s: converted in %.1f s", self.name, time.perf_counter() - start)


@dataclass
class EdgeList:
    """What a reader found.

    Attributes:
        src, dst: `[num_edges]`, integer.
        features: `[num_nodes, num_features]`, any real type.
        labels: `[num_nodes]` integer, negative or NaN where there is none; or `[num_nodes, num_classes]` of
            zeros and ones, for several labels a vertex.
        num_classes: None takes one more than the largest label.
        splits: ascending int64 ids; None where the dataset draws them itself.
    """

    src: NDArray[np.integer]
    dst: NDArray[np.integer]
    features: NDArray[np.generic]
    labels: NDArray[np.generic]
    num_classes: int | None = None
    splits: dict[str, Tensor] | None = None


class EdgeListDataset(Dataset):
    """A dataset whose reader yields an edge list.

    Args:
        undirected: add the reverse of every edge.
        self_loops: "keep", "remove", or "add" (one for every vertex).
        parallel_edges: "keep" or "remove".
        largest_component: keep the largest connected component only.
        check_features: refuse features that are NaN or infinite, when converting.
        options: see `Dataset`.
    """

    def __init__(
        self,
        name: str,
        *,
        undirected: bool = True,
        self_loops: str = "remove",
        parallel_edges: str = "remove",
        largest_component: bool = False,
        check_features: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        check_edge_options(self_loops, parallel_edges)
        self.undirected = undirected
        self.self_loops = self_loops
        self.parallel_edges = parallel_edges
        self.largest_component = largest_component
        self.check_features = check_features

    def options(self) -> dict[str, Any]:
        return {
            **super().options(),
            "check_features": self.check_features,
            "undirected": self.undirected,
            "self_loops": self.self_loops,
            "parallel_edges": self.parallel_edges,
            "largest_component": self.largest_component,
        }

    @abstractmethod
    def read(self, writer: CacheWriter) -> EdgeList:
        """Reads the source; `writer.scratch` is a folder for temporary files."""

    def transform_features(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """What happens to features, some rows at a time."""
        return rows

    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        with progress.step("reading"):
            found = self.read(writer)
        num_nodes = found.features.shape[0]
        labels, num_classes = self._checked_labels(found.labels, found.num_classes, num_nodes)
        if found.splits is not None:
            check_splits(found.splits, num_nodes, name=self.name)
            if labels.ndim == 1:
                check_split_labels(found.splits, torch.from_numpy(labels), num_classes, name=self.name)
        with progress.step("sorting edges"):
            try:
                indptr, indices = edges_to_csc(
                    found.src,
                    found.dst,
                    num_nodes,
                    undirected=self.undirected,
                    self_loops=self.self_loops,
                    parallel_edges=self.parallel_edges,
                )
            except ValueError as error:
                raise DatasetError(f"{self.name}: {error}") from error
            nodes = None
            if self.largest_component:
                nodes = largest_component(indptr, indices)
                indptr, indices = induced_subgraph(indptr, indices, nodes)
                labels = labels[nodes]
        writer.write("indptr", indptr)
        writer.write("indices", indices)
        writer.write("labels", labels)
        for split, ids in (found.splits or {}).items():
            if nodes is not None:
                ids = torch.from_numpy(np.flatnonzero(np.isin(nodes, ids.numpy())))
            writer.write(split, ids.numpy())
        with progress.step("writing features", num_nodes) as advance:
            write_features(writer, self._feature_rows(found.features, nodes), advance)
        writer.properties.update(num_classes=num_classes, multilabel=labels.ndim == 2)

    def _feature_rows(
        self, features: NDArray[np.generic], nodes: NDArray[np.int64] | None
    ) -> tuple[tuple[int, int], Iterator[NDArray[np.float32]]]:
        if features.ndim != 2:
            raise DatasetError(
                f"{self.name}: features have shape {list(features.shape)}; they must be [num_nodes, num_features]"
            )
        count = features.shape[0] if nodes is None else nodes.size
        step = max(1, _CHUNK_BYTES // (4 * max(features.shape[1], 1)))

        def rows() -> Iterator[NDArray[np.float32]]:
            for at in range(0, count, step):
                picked = slice(at, at + step) if nodes is None else nodes[at : at + step]
                part = np.asarray(features[picked], dtype=np.float32)
                if self.check_features:
                    self._check_finite(part, picked, at)
                yield self.transform_features(part)

        return (count, features.shape[1]), rows()

    def _check_finite(self, part: NDArray[np.float32], picked: slice | NDArray[np.int64], at: int) -> None:
        if np.isfinite(part).all():
            return
        row, column = np.argwhere(~np.isfinite(part))[0]
        vertex = at + row if isinstance(picked, slice) else picked[row]
        raise DatasetError(
            f"{self.name}: feature {column} of vertex {vertex} is {part[row, column]}; features must be finite. "
            f"Clean them, or set dataset.check_features=false"
        )

    def _checked_labels(
        self, labels: NDArray[np.generic], num_classes: int | None, num_nodes: int
    ) -> tuple[NDArray[np.generic], int]:
        if labels.ndim not in (1, 2) or labels.shape[0] != num_nodes:
            raise DatasetError(
                f"{self.name}: labels have shape {list(labels.shape)}; they must be [{num_nodes}], or "
                f"[{num_nodes}, num_classes] for several labels a vertex: features have {num_nodes} rows"
            )
        if labels.ndim == 2:
            if num_classes not in (None, labels.shape[1]):
                raise DatasetError(
                    f"{self.name}: labels have {labels.shape[1]} columns for {num_classes} classes; make them equal"
                )
            wrong = (labels != 0) & (labels != 1)
            if wrong.any():
                row, column = np.argwhere(wrong)[0]
                raise DatasetError(
                    f"{self.name}: label {column} of vertex {row} is {labels[row, column]}; it must be 0 or 1"
                )
            return labels.astype(np.float32), labels.shape[1]
        if np.issubdtype(labels.dtype, np.floating):
            labels = np.where(np.isnan(labels), -1, labels)  # papers100M: most papers have no label
            if (labels != np.trunc(labels)).any():
                raise DatasetError(f"{self.name}: labels of dtype {labels.dtype} are not whole numbers")
        labels = np.maximum(labels.astype(np.int64), -1)
        largest = int(labels.max(initial=-1))
        num_classes = largest + 1 if num_classes is None else num_classes
        if largest >= num_classes:
            vertex = int(labels.argmax())
            raise DatasetError(
                f"{self.name}: vertex {vertex} has label {largest}; valid labels are 0 to {num_classes - 1}"
            )
        if num_classes < 2:
            raise DatasetError(f"{self.name}: the labels make {num_classes} classes; at least 2 are needed")
        return labels, num_classes


def write_features(
    writer: CacheWriter,
    features: tuple[tuple[int, int], Iterator[NDArray[np.float32]]],
    advance: Callable[[int], None],
) -> None:
    """Writes features of a shape part by part, so that they are never in memory as a whole."""
    shape, parts = features
    with writer.stream("features", shape, np.float32) as out:
        for part in parts:
            out.append(part)
            advance(part.shape[0])
