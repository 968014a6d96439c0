"""Datasets whose reader yields an edge list, and the conversion of that list."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.base import Dataset
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.classes import check_classes, describe_classes, listed
from loader.datasets.edge_sorter import cut
from loader.datasets.errors import DatasetError
from loader.datasets.feature_rows import check_features, checked_rows, rows_at_once, write_rows
from loader.datasets.node_dataset import check_split_labels, check_splits
from loader.datasets.numbers import as_int64, check_real
from loader.datasets.progress import ConversionProgress
from loader.datasets.transforms import check_edge_options, edges_to_csc_with, induced_subgraph_with, largest_component
from loader.machine.arguments import as_flag

_FEW_CLASSES = 1000  # up to this many, classes without a node are taken as meant


@dataclass
class EdgeList:
    """The content of a source, as its reader returns it.

    Attributes:
        src, dst: `[num_edges]`, integer.
        features: `[num_nodes, num_features]`, any real type.
        labels: `[num_nodes]` integer, negative or NaN for a node without a label; or `[num_nodes, num_classes]` of
            zeros and ones, for several labels per node; None: the dataset has no labels.
        num_classes: None takes one more than the largest label.
        splits: ascending int64 ids; None if the dataset draws the splits itself, or has none.
        edge_weights: `[num_edges]` float32 or float64, finite and at least 0.
        edge_times: `[num_edges]` integer.
        edge_types: `[num_edges]` integer, from 0 on.
        node_times: `[num_nodes]` integer.
        node_types: name -> number of nodes: types are ranges of ids, in this order.
    """

    src: NDArray[np.integer]
    dst: NDArray[np.integer]
    features: NDArray[np.generic]
    labels: NDArray[np.generic] | None
    num_classes: int | None = None
    splits: dict[str, Tensor] | None = None
    edge_weights: NDArray[np.generic] | None = None
    edge_times: NDArray[np.generic] | None = None
    edge_types: NDArray[np.generic] | None = None
    node_times: NDArray[np.generic] | None = None
    node_types: dict[str, int] | None = None


class EdgeListDataset(Dataset):
    """A dataset whose reader yields an edge list.

    Args:
        undirected: add the reverse of every edge, with the weight and the time of the edge.
        self_loops: "keep", "remove", or "add" (one for every node).
        parallel_edges: "keep" or "remove".
        largest_component: keep only the largest connected component.
        check_features: refuse features that are NaN or infinite, at the conversion.
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
        self.undirected = as_flag("undirected", undirected)
        self.self_loops = self_loops
        self.parallel_edges = parallel_edges
        self.largest_component = as_flag("largest_component", largest_component)
        self.check_features = as_flag("check_features", check_features)

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
        """Changes features, some rows at a time."""
        return rows

    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        with progress.step("reading"):
            found = self.read(writer)
        self._check_features(found.features)
        num_nodes = found.features.shape[0]
        labels: NDArray[np.generic] = np.full(num_nodes, -1)
        num_classes = 0
        if found.labels is not None:
            labels, num_classes = checked_labels(found.labels, found.num_classes, num_nodes, self.name)
        by_edge, node_times = self._checked_values(found, num_nodes)
        node_types = found.node_types
        if found.splits is not None:
            check_splits(found.splits, num_nodes, name=self.name)
            if labels.ndim == 1:
                check_split_labels(found.splits, torch.from_numpy(labels), num_classes, name=self.name)
        with progress.step("sorting edges"):
            try:
                indptr, indices, by_edge = edges_to_csc_with(
                    found.src,
                    found.dst,
                    num_nodes,
                    by_edge,
                    undirected=self.undirected,
                    self_loops=self.self_loops,
                    parallel_edges=self.parallel_edges,
                )
            except ValueError as error:
                raise DatasetError(f"{self.name}: {error}") from error
            nodes = None
            if self.largest_component:
                nodes = largest_component(indptr, indices)
                indptr, indices, by_edge = induced_subgraph_with(indptr, indices, nodes, by_edge)
                labels = labels[nodes]
                node_times = None if node_times is None else node_times[nodes]
                if node_types is not None:
                    ends = np.searchsorted(nodes, np.cumsum(list(node_types.values())))
                    node_types = dict(zip(node_types, np.diff(ends, prepend=0).tolist(), strict=True))
        writer.write("indptr", indptr)
        writer.write("indices", indices)
        writer.write("labels", labels)
        for name, array in by_edge.items():
            writer.write(name, array)
        if node_times is not None:
            writer.write("node_times", node_times)
        for split, ids in (found.splits or {}).items():
            if nodes is not None:
                ids = torch.from_numpy(np.flatnonzero(np.isin(nodes, ids.numpy())))
            writer.write(split, ids.numpy())
        with progress.step("writing features", num_nodes) as advance:
            count = num_nodes if nodes is None else nodes.size
            shape = (count, found.features.shape[1])
            write_rows(writer, shape, lambda: self._feature_rows(found.features, nodes, count), advance)
        writer.properties.update(num_classes=num_classes, multilabel=labels.ndim == 2)
        progress.notes.append(describe_classes(labels, num_classes, found.num_classes is None))
        if node_types is not None:
            writer.properties["node_types"] = [[name, int(size)] for name, size in node_types.items()]
        self.finish(writer, found, count, indices.size)

    def finish(self, writer: CacheWriter, found: EdgeList, num_nodes: int, num_edges: int) -> None:
        """Is called at the end of a conversion with what was read, and the size of the graph that it became."""

    def _check_features(self, features: NDArray[np.generic]) -> None:
        check_features(features, f"{self.name}: features")

    def _checked_values(
        self, found: EdgeList, num_nodes: int
    ) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.int64] | None]:
        """The arrays by edge that there are, and the times of the nodes."""
        by_edge: dict[str, NDArray[np.generic]] = {}
        if found.edge_weights is not None:
            by_edge["edge_weights"] = _checked_weights(found.edge_weights, found.src, found.dst, self.name)
        if found.edge_times is not None:
            by_edge["edge_times"] = as_int64(found.edge_times, f"{self.name}: edge_times")
        if found.edge_types is not None:
            types = as_int64(found.edge_types, f"{self.name}: edge_types")
            if types.size and (types.min() < 0 or types.max() >= 2**31):
                bad = types.min() if types.min() < 0 else types.max()
                raise DatasetError(f"{self.name}: edge_types holds {bad}; a type is a number from 0 to {2**31 - 1}")
            if self.undirected:
                raise DatasetError(
                    f"{self.name}: undirected is true, but the reverse of an edge has no type of its own; set "
                    "dataset.undirected=false and list the reverse edges with their types"
                )
            by_edge["edge_types"] = types.astype(np.int32)
        for name, array in by_edge.items():
            if array.shape != found.src.shape:
                raise DatasetError(
                    f"{self.name}: {name} has shape {list(array.shape)}; it must be [{found.src.size}]: one of each "
                    "edge"
                )
        node_times = None
        if found.node_times is not None:
            node_times = as_int64(found.node_times, f"{self.name}: node_times")
            if node_times.shape != (num_nodes,):
                raise DatasetError(
                    f"{self.name}: node_times has shape {list(node_times.shape)}; it must be [{num_nodes}]: one of "
                    "each node"
                )
        if found.node_types is not None and sum(found.node_types.values()) != num_nodes:
            raise DatasetError(
                f"{self.name}: the types of nodes have {sum(found.node_types.values())} nodes together; features "
                f"have {num_nodes} rows, make them equal"
            )
        return by_edge, node_times

    def _feature_rows(
        self, features: NDArray[np.generic], nodes: NDArray[np.int64] | None, count: int
    ) -> Iterator[NDArray[np.float32]]:
        pieces = cut(count, self.rows_at_once(features.shape[1]))
        return self.checked_rows((features[a:b] if nodes is None else features[nodes[a:b]] for a, b in pieces), nodes)

    def rows_at_once(self, num_features: int) -> int:
        """Rows of features that are in memory at once."""
        return rows_at_once(num_features)

    def checked_rows(
        self, parts: Iterable[NDArray[np.generic]], nodes: NDArray[np.int64] | None = None
    ) -> Iterator[NDArray[np.float32]]:
        """The rows to store: float32, finite if `check_features`, and changed by `transform_features`.

        Args:
            parts: the rows of the source, in order, some at a time.
            nodes: the nodes of these rows; None for all.

        Raises:
            DatasetError: features are not finite; it says how many, and in which columns.
        """
        for rows in checked_rows(parts, self.name, self.check_features, nodes):
            yield self.transform_features(rows)


def checked_labels(
    labels: NDArray[np.generic], num_classes: int | None, num_nodes: int, name: str
) -> tuple[NDArray[np.generic], int]:
    """Labels in the form to store, int64, or float32 if nodes have several, and the number of classes.

    Raises:
        DatasetError: they are no labels of `num_nodes` nodes, or of another number of classes.
    """
    if labels.ndim not in (1, 2) or labels.shape[0] != num_nodes:
        raise DatasetError(
            f"{name}: labels have shape {list(labels.shape)}; they must be [{num_nodes}], or "
            f"[{num_nodes}, num_classes] for several labels per node: features have {num_nodes} rows"
        )
    if labels.ndim == 2 and labels.shape[1] == 0:
        raise DatasetError(f"{name}: labels have shape {list(labels.shape)}; they must have at least 1 column")
    check_real(labels, f"{name}: labels")
    if labels.ndim == 2 and labels.shape[1] == 1:  # as OGB has them
        labels = labels.reshape(-1)
    if labels.ndim == 2:
        if num_classes not in (None, labels.shape[1]):
            raise DatasetError(
                f"{name}: labels have {labels.shape[1]} columns for {num_classes} classes; make them equal"
            )
        wrong = (labels != 0) & (labels != 1)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise DatasetError(f"{name}: label {column} of node {row} is {labels[row, column]}; it must be 0 or 1")
        check_classes(torch.from_numpy(labels), name)
        return labels.astype(np.float32), labels.shape[1]
    if np.issubdtype(labels.dtype, np.floating):
        labels = np.where(np.isnan(labels), -1, labels)  # papers100M: most papers have no label
        wrong = (labels != np.trunc(labels)) | (np.abs(labels) >= 2.0**53)
        if wrong.any():
            node = int(wrong.argmax())
            raise DatasetError(
                f"{name}: labels of dtype {labels.dtype} are not whole numbers: node {node} has {labels[node]}; "
                "round them, with NaN where there is none; numbers to predict go to NodeLoader, in a loop of your own"
            )
        labels = labels.astype(np.int64)
    labels = labels.astype(np.int64) if labels.dtype == np.bool_ else as_int64(labels, f"{name}: labels")
    negative = np.unique(np.minimum(labels, 0))
    negative = negative[negative < 0]
    if negative.size > 1:
        raise DatasetError(
            f"{name}: labels hold the negative numbers {listed(negative.tolist())}; a negative number is no label, and "
            "only one may stand for that: number the classes from 0 on"
        )
    labels = np.maximum(labels, -1)
    largest = int(labels.max(initial=-1))
    if num_classes is None:
        _check_gaps(labels, largest, name)
        num_classes = largest + 1
    if largest >= num_classes:
        node = int(labels.argmax())
        raise DatasetError(f"{name}: node {node} has label {largest}; valid labels are 0 to {num_classes - 1}")
    check_classes(torch.from_numpy(labels), name)
    return labels, num_classes


def _check_gaps(labels: NDArray[np.generic], largest: int, name: str) -> None:
    """Refuses labels that would make many classes without a node: they are numbers of something else."""
    if largest < _FEW_CLASSES:
        return
    known = np.unique(labels)
    known = known[np.searchsorted(known, 0) :]
    if known.size < (largest + 1) / 2:
        raise DatasetError(
            f"{name}: labels are {known[0]} to {largest}, which would make {largest + 1} classes, but only "
            f"{known.size} of them occur; renumber by numpy.unique(labels, return_inverse=True), or set num_classes"
        )


def _checked_weights(
    weights: NDArray[np.generic], src: NDArray[np.integer], dst: NDArray[np.integer], name: str
) -> NDArray[np.generic]:
    if weights.dtype not in (np.float32, np.float64):
        raise DatasetError(
            f"{name}: edge_weights has dtype {weights.dtype}; it must be float32 or float64: convert it by "
            "astype(numpy.float32)"
        )
    values = weights.astype(np.float64, copy=False)
    wrong = ~(values >= 0) | np.isinf(values)
    if wrong.any() and weights.shape == src.shape == dst.shape:
        edge = int(wrong.argmax())
        raise DatasetError(
            f"{name}: the weight of edge {edge}, {src[edge]} -> {dst[edge]}, is {weights[edge]}; it must be finite "
            "and at least 0: leave such edges out, or give them a weight of 0"
        )
    return weights
