"""Distances to some nodes as features."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from loader.datasets.errors import DatasetError
from loader.datasets.node_dataset import NodeDataset
from loader.machine.arguments import as_seed, as_size, kind_of
from loader.traverse import bfs


@dataclass(frozen=True)
class DistanceFeatures:
    """A transform of a dataset: adds columns to the features, of how near each node is to some anchors.

    Anchors are nodes of the training split, drawn at random. A column is `1 / (distance + 1)`, where the distance
    counts edges from the anchor along their direction, and 0 if there is no path (position-aware GNNs: You et al., ICML
    2019). Features then lie in memory, also those of a file.

    Args:
        num_anchors: columns to add.
        seed: of the draw, `0 <= seed < 2**64`.

    Raises:
        TypeError, ValueError: a number is not as said above.
        DatasetError: the training split has fewer nodes.
    """

    num_anchors: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        as_size("num_anchors", self.num_anchors)
        as_seed(self.seed)

    def __call__(self, data: NodeDataset) -> NodeDataset:
        """The dataset with features `[num_nodes, num_features + num_anchors]`."""
        if not isinstance(data, NodeDataset):
            raise TypeError(f"data is {kind_of(data)}; it must be a loader.datasets.NodeDataset")
        train = data.splits["train"]
        if train.numel() < self.num_anchors:
            raise DatasetError(
                f"{data.name}: the training split has {train.numel()} nodes; num_anchors is {self.num_anchors} and "
                "must be at most that"
            )
        # Torch's generator on the CPU keeps 32 bits of its seed.
        generator = torch.Generator().manual_seed((self.seed ^ self.seed >> 32) % 2**32)
        anchors = train[torch.randperm(train.numel(), generator=generator)[: self.num_anchors]]
        features = torch.empty(data.num_nodes, data.num_features + self.num_anchors, dtype=torch.float32)
        features[:, : data.num_features] = data.features
        for column, anchor in enumerate(anchors.tolist(), data.num_features):
            found = bfs(data.graph, anchor)
            assert isinstance(found, torch.Tensor)
            features[:, column] = torch.where(found >= 0, 1 / (found + 1).float(), 0.0)
        return replace(data, features=features, distances=True)
