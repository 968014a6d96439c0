"""A loader of the whole graph as the one batch of a loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph


@dataclass
class WholeGraph:
    """A loader whose one batch is itself, the whole graph: `trainer.test(model, dataloaders=WholeGraph(...))`.

    Attributes:
        graph, features: as `models.inference.layerwise_inference` takes them.
        labels: `[num_nodes]` int64; if a node may have several labels, `[num_nodes, num_classes]`.
        splits: "train", "val" and "test" -> nodes whose accuracy is reported.
    """

    graph: Graph
    features: Tensor
    labels: Tensor
    splits: dict[str, Tensor]

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[WholeGraph]:
        yield self

    def to(self, device: torch.device, **_: Any) -> WholeGraph:
        """Returns this object. The graph stays in host memory; its user moves the parts that it needs."""
        return self
