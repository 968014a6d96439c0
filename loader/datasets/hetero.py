"""A dataset with several types of nodes and edges, whose nodes of one type have labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from loader.datasets.digests import digest_of, sums_of
from loader.datasets.errors import DatasetError
from loader.datasets.node_dataset import (
    check_split_labels,
    check_splits,
    checked_num_classes,
    require_dense,
    require_identity,
)
from loader.graph import HeteroGraph
from loader.machine.arguments import instead_of, kind_of, shown


@dataclass(frozen=True)
class HeteroDataset:
    """A `HeteroGraph` with features by type, and the labels and splits of one type of nodes.

    Attributes:
        name: of the dataset.
        graph: on the CPU.
        features: node type -> `[nodes of the type, num_features]` float32; may be memory-mapped, so read only the rows
            that you need. A type may have none.
        target: the type whose nodes have labels.
        labels: `[nodes of target]` int64, -1 for a node without a label.
        splits: "train", "val" and "test" -> `[size]` int64 ids within `target`, ascending; all are empty if the dataset
            has none.
        num_classes: number of classes; 0: the dataset has no labels.
        feature_times: node type -> `[nodes of the type]` int64, when features are known that are filled in after the
            time of their node. `loader.inspect --leaks` compares them with the seeds.

    Raises:
        TypeError: `graph` is no `HeteroGraph`.
        DatasetError: the parts contradict each other: unknown types, sizes, split ids out of range, duplicated or in
            two splits, a node of a split whose label is not a class.
    """

    name: str
    graph: HeteroGraph
    features: dict[str, Tensor]
    target: str
    labels: Tensor
    splits: dict[str, Tensor]
    num_classes: int
    feature_times: Mapping[str, Tensor] = field(default_factory=dict)
    # What a `NodeDataset` may have, and this has not: several labels of a node, and ids of the user's.
    multilabel: ClassVar[bool] = False
    tables: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not isinstance(self.graph, HeteroGraph):
            raise TypeError(
                f"graph is {kind_of(self.graph)}; it must be a loader.HeteroGraph: HeteroGraph.of(graph) makes one"
            )
        types = self.graph.node_types
        if self.target not in types:
            raise DatasetError(
                f"{self.name}: target is {shown(self.target)}, which is no node type of the graph; it must be one of "
                f"{', '.join(types)}"
            )
        if not isinstance(self.features, Mapping):
            raise DatasetError(
                f"{self.name}: features is {shown(self.features)}; it must be a dict: node type -> "
                "[nodes of the type, num_features]"
            )
        for name, table in self.features.items():
            if name not in types:
                raise DatasetError(
                    f"{self.name}: there are features of {shown(name)}, which is no node type of the graph; "
                    f"{instead_of(str(name), list(types), 'has')}"
                )
            require_dense(table, f"{self.name}: features of {name}")
            size = len(types[name])
            if table.dim() != 2 or table.shape[0] != size or table.dtype != torch.float32:
                raise DatasetError(
                    f"{self.name}: features of {name} are {table.dtype} of shape {list(table.shape)}; they must be "
                    f"float32 [{size}, num_features], one row for each node of the type: features.float()"
                )
        for name, at in self.feature_times.items():
            if name not in self.features or at.dtype != torch.int64 or at.shape != self.features[name].shape[:1]:
                raise DatasetError(
                    f"{self.name}: times of features of {shown(name)} are {at.dtype} of shape {list(at.shape)}; they "
                    "must be int64, one for each row of features of a type that has some"
                )
        object.__setattr__(self, "num_classes", checked_num_classes(self.num_classes, self.name, least=0))
        require_dense(self.labels, f"{self.name}: labels")
        size = len(types[self.target])
        if list(self.labels.shape) != [size] or self.labels.dtype != torch.int64:
            raise DatasetError(
                f"{self.name}: labels are {self.labels.dtype} of shape {list(self.labels.shape)}; they must be "
                f"torch.int64 [{size}], one for each node of type {self.target}: labels.view(-1).long()"
            )
        check_splits(self.splits, size, name=self.name)
        check_split_labels(self.splits, self.labels, self.num_classes, name=self.name)

    @property
    def num_features(self) -> dict[str, int]:
        """Node type -> number of features, of the types that have some."""
        return {name: table.shape[1] for name, table in self.features.items()}

    def identity(self) -> dict[str, Any]:
        """What tells this dataset from others, see `NodeDataset.identity`: also its types and relations in order."""
        lists = self.graph.lists
        return {
            "name": self.name,
            "node_types": {name: len(ids) for name, ids in self.graph.node_types.items()},
            "edge_types": ["__".join(key) for key in self.graph.edge_types],
            "target": self.target,
            "num_features": self.num_features,
            "num_classes": self.num_classes,
            "num_edges": self.graph.num_edges,
            "timed": [*self.graph.timed_types, *map("__".join, self.graph.timed_relations)],
            "digest": digest_of(lists.indptr, lists.indices, self.labels),
            "times": digest_of(lists.node_times, lists.edge_times),
            "features": [one for name in sorted(self.features) for one in sums_of(self.features[name])],
        }

    def require(self, identity: Mapping[str, Any], what: str) -> None:
        """Raises ValueError unless this is the dataset of that `identity`, see `NodeDataset.require`."""
        require_identity(self.identity(), identity, what)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split}={ids.numel()}" for split, ids in self.splits.items())
        return (
            f"HeteroDataset('{self.name}', {self.graph!r}, num_features={self.num_features}, target='{self.target}', "
            f"num_classes={self.num_classes}, {sizes})"
        )
