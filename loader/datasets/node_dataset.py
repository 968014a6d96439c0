"""A dataset for node classification, in memory or memory-mapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loader.datasets.digests import are_alike, digest_of, sums_of
from loader.datasets.errors import DatasetError
from loader.datasets.table_record import TableRecord
from loader.graph import Graph, require_graph
from loader.machine.arguments import as_flag, as_index, check_dense, kind_of, shown

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class NodeDataset:
    """A graph whose nodes have features and labels, and the nodes of each split.

    Attributes:
        name: of the dataset.
        graph: CSC, on the CPU.
        features: `[num_nodes, num_features]` float32; may be memory-mapped, so read only the rows that you need.
        labels: `[num_nodes]` int64, -1 for a node without a label; if `multilabel`, `[num_nodes, num_classes]`
            float32 of zeros and ones.
        splits: "train", "val" and "test" -> `[size]` int64 node ids, ascending; all are empty if the dataset has
            none.
        num_classes: number of classes (of labels, if `multilabel`); 0: the dataset has no labels.
        multilabel: whether a node may have several labels.
        tables: the user's ids, and what became of the columns, if the dataset was made of tables.
        distances: whether features hold distances along the edges (`DistanceFeatures`), which tell of each edge.

    Raises:
        DatasetError: the parts contradict each other: sizes, split ids out of range, duplicated or in two
            splits, a node of a split whose label is not a class.
    """

    name: str
    graph: Graph
    features: Tensor
    labels: Tensor
    splits: dict[str, Tensor]
    num_classes: int
    multilabel: bool = False
    tables: TableRecord | None = None
    distances: bool = False

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    def __post_init__(self) -> None:
        require_graph(self.graph, hetero=False)
        for name, array in (("features", self.features), ("labels", self.labels)):
            require_dense(array, f"{self.name}: {name}")
        object.__setattr__(self, "num_classes", checked_num_classes(self.num_classes, self.name, least=0))
        object.__setattr__(self, "multilabel", as_flag("multilabel", self.multilabel))
        n = self.num_nodes
        if self.features.dim() != 2 or self.features.shape[0] != n or self.features.dtype != torch.float32:
            raise DatasetError(
                f"{self.name}: features are {self.features.dtype} of shape {list(self.features.shape)}; "
                f"they must be float32 [{n}, num_features], one row for each node of the graph: features.float()"
            )
        dtype, shape = (torch.float32, [n, self.num_classes]) if self.multilabel else (torch.int64, [n])
        if list(self.labels.shape) != shape or self.labels.dtype != dtype:
            raise DatasetError(
                f"{self.name}: labels are {self.labels.dtype} of shape {list(self.labels.shape)}; "
                f"they must be {dtype} {shape}{_way_to_labels(self.labels, n, self.multilabel)}"
            )
        check_splits(self.splits, n, name=self.name)
        if self.multilabel:
            wrong = (self.labels != 0) & (self.labels != 1)
            if bool(wrong.any()):
                raise DatasetError(f"{self.name}: labels hold {float(self.labels[wrong][0])}; each must be 0 or 1")
        else:
            check_split_labels(self.splits, self.labels, self.num_classes, name=self.name)

    def identity(self) -> dict[str, Any]:
        """What tells this dataset from others: its sizes, and digests of evenly spaced edges and labels, and of times,
        and sums of features, see `sums_of`.

        A checkpoint keeps it, so that a model is not used with other data than it was trained for.
        """
        sizes = ("name", "num_nodes", "num_features", "num_classes", "multilabel")
        return {
            **{size: getattr(self, size) for size in sizes},
            "num_edges": self.graph.num_edges,
            "digest": digest_of(self.graph.indptr, self.graph.indices, self.labels),
            "times": digest_of(self.graph.node_times, self.graph.edge_times),
            "features": sums_of(self.features),
            **({} if self.tables is None else self.tables.identity()),
        }

    def require(self, identity: Mapping[str, Any], what: str) -> None:
        """Raises ValueError unless this is the dataset of that `identity`.

        Args:
            what: names what is of that dataset; it begins the message.
        """
        require_identity(self.identity(), identity, what)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split}={ids.numel()}" for split, ids in self.splits.items())
        return (
            f"NodeDataset('{self.name}', num_nodes={self.num_nodes}, num_edges={self.graph.num_edges}, "
            f"num_features={self.num_features}, num_classes={self.num_classes}, "
            f"multilabel={self.multilabel}, {sizes})"
        )


def require_identity(own: Mapping[str, Any], identity: Mapping[str, Any], what: str) -> None:
    """Raises ValueError unless `own` is the `identity` of a dataset, see `NodeDataset.require`."""
    for key, value in own.items():
        if key not in identity or are_alike(identity[key], value):
            continue
        if key == "features":
            raise ValueError(
                f"{what} is of other features than dataset {own['name']} has now; give the files that it was trained "
                "on, and the options that change features (dataset.normalize_features, dataset.transform)"
            )
        raise ValueError(
            f"{what} is of dataset {identity.get('name')} whose {key} is {identity[key]}, but this is dataset "
            f"{own['name']} whose {key} is {value}; give the dataset that it was trained on"
        )


def _way_to_labels(labels: Tensor, num_nodes: int, multilabel: bool) -> str:
    """How labels of the wrong form become right, as far as that is known."""
    if multilabel:
        return ", a row of zeros and ones for each node"
    if list(labels.shape) == [num_nodes, 1]:
        return ": labels.view(-1).long()"
    if list(labels.shape) == [num_nodes]:
        return ": labels.long()"
    return "; for several labels per node say multilabel=True"


def require_dense(array: Any, what: str) -> None:
    """Raises DatasetError unless `array` is a dense torch tensor."""
    if not isinstance(array, Tensor):
        raise DatasetError(f"{what} is {kind_of(array)}; it must be a torch tensor: torch.as_tensor")
    try:
        check_dense(what, array)
    except ValueError as error:
        raise DatasetError(str(error)) from None


def checked_num_classes(num_classes: Any, name: str, least: int = 2) -> int:
    """`num_classes` as an int.

    Raises:
        DatasetError: it is no integer, or less than `least`.
    """
    number = as_index(num_classes)
    if number is None or not least <= number < 2**31:
        raise DatasetError(
            f"{name}: num_classes is {shown(num_classes)}; it must be an integer of at least {least} and below 2**31, "
            "one more than the largest label"
        )
    return number


def check_splits(splits: dict[str, Tensor], num_nodes: int, *, name: str) -> None:
    """Checks that the three splits are ascending ids in `[0, num_nodes)`, disjoint, and all empty if train is.

    Raises:
        DatasetError: they are not; the message names the first offending node.
    """
    if not isinstance(splits, Mapping):
        raise DatasetError(
            f"{name}: splits is {shown(splits)}; it must be a dict of {', '.join(SPLITS)}, each ids [size]"
        )
    if tuple(splits) != SPLITS:
        raise DatasetError(f"{name}: the splits are {list(splits)}; they must be {list(SPLITS)}")
    for split, ids in splits.items():
        require_dense(ids, f"{name}: split {split}")
        if ids.dim() != 1 or ids.dtype != torch.int64:
            raise DatasetError(
                f"{name}: split {split} is {ids.dtype} of shape {list(ids.shape)}; it must be int64 ids "
                "[size] (of a mask: mask.nonzero().view(-1))"
            )
        if ids.numel() == 0:
            continue
        low, high = (int(x) for x in torch.aminmax(ids))
        if low < 0 or high >= num_nodes:
            bad = low if low < 0 else high
            raise DatasetError(f"{name}: split {split} holds node {bad}; valid ids are 0 to {num_nodes - 1}")
        steps = ids[1:] - ids[:-1]
        if steps.numel() and int(steps.min()) <= 0:
            at = int(torch.nonzero(steps <= 0)[0])
            what = "twice" if int(steps[at]) == 0 else f"after node {int(ids[at])}"
            raise DatasetError(
                f"{name}: split {split} holds node {int(ids[at + 1])} {what}; ids must be unique and ascending"
            )
    if splits["train"].numel() == 0 and any(ids.numel() for ids in splits.values()):
        raise DatasetError(
            f"{name}: the training split is empty; it needs at least one node: list some, or raise its share"
        )
    taken = torch.zeros(num_nodes, dtype=torch.bool)
    for split, ids in splits.items():
        if bool(taken[ids].any()):
            bad = int(ids[taken[ids]][0])
            first = next(other for other, members in splits.items() if bool((members == bad).any()))
            raise DatasetError(
                f"{name}: node {bad} is in the splits {first} and {split}; a node may be in one of them only"
            )
        taken[ids] = True


def check_split_labels(splits: dict[str, Tensor], labels: Tensor, num_classes: int, *, name: str) -> None:
    """Checks that every node of a split has a label in `[0, num_classes)`.

    Raises:
        DatasetError: one has not; the message names the first.
    """
    for split, ids in splits.items():
        picked = labels[ids]
        wrong = (picked < 0) | (picked >= num_classes)
        if bool(wrong.any()):
            at = int(torch.nonzero(wrong)[0])
            way = (
                f"; a node without a label (a negative number, or NaN) cannot be in a split: leave it out of {split}"
                if picked[at] == -1
                else ""
            )
            raise DatasetError(
                f"{name}: node {int(ids[at])} of split {split} has label {int(picked[at])}; valid labels are 0 "
                f"to {num_classes - 1}{way}"
            )
