"""The sampled neighborhoods of seeds, of which each has a tree of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loader.samples.hetero import HeteroMiniBatch


@dataclass(eq=False)
class TreeMiniBatch(HeteroMiniBatch):
    """The sampled trees of a batch of seeds in a `HeteroGraph`: tree `i` is that of seed `i`.

    No edge leads from one tree to another. A node may lie in several trees, and is in `nodes` once for each of them;
    with `trees="paths"` also several times in one. The new nodes of a hop are in the order of type and, within it, of
    tree.

    Attributes:
        tree: `[num_nodes]` int32, the tree of each node.
        seed_times: `[batch_size]` int64, the times of the seeds, or None if they have none.
    """

    tree: Tensor = None  # type: ignore[assignment]  # it follows attributes that have defaults
    seed_times: Tensor | None = None

    def tree_of(self, node_type: str) -> Tensor:
        """`[n]` int32, the trees of the nodes of a type, in the order of `n_id`."""
        return self.segments.of_type(self.tree, self.segments.type_of(node_type))

    def tensors(self) -> list[Tensor]:
        found = [*super().tensors(), self.tree]
        return found if self.seed_times is None else [*found, self.seed_times]

    def map(self, f: Callable[[Tensor], Tensor]) -> TreeMiniBatch:
        times = None if self.seed_times is None else f(self.seed_times)
        mapped: Any = super().map(f)
        return mapped.replace(tree=f(self.tree), seed_times=times)


def tree_order(tree: Tensor) -> Tensor:
    """The places of nodes in the order of their trees; nodes of a tree keep their order."""
    return torch.argsort(tree, stable=True)
