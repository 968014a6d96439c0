"""Walkers: items that stand for one random walk each."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from loader.items.items import Items, NodeItems, Seeds
from loader.machine.arguments import as_size


class Walkers(Items):
    """Items that are walkers, several per start node.

    Item `i` starts at `starts[i % n]`: the list of starts is repeated `walks_per_node` times.

    Args:
        starts: `[n]`, integer, not empty. If a node is listed twice, it has twice as many walkers.
        walks_per_node: number of walkers per entry of `starts`, at least 1.

    Raises:
        TypeError, ValueError: they are not as said above.
    """

    kind = "walker"

    def __init__(self, starts: Tensor, walks_per_node: int = 1) -> None:
        self._nodes = NodeItems(starts)
        self.walks_per_node = as_size("walks_per_node", walks_per_node, most=2**31 - 1)
        self.device = starts.device

    @property
    def starts(self) -> Tensor:
        return self._nodes.ids

    def __len__(self) -> int:
        return self.starts.numel() * self.walks_per_node

    def take(self, positions: Tensor | slice, sizes: Sequence[int]) -> list[Seeds]:
        """Cuts items into mini-batches, see `Items.take`. The id of a walker is its start node."""
        if isinstance(positions, slice):
            positions = torch.arange(*positions.indices(len(self)), device=self.device)
        return self._nodes.take(positions % self.starts.numel(), sizes)

    def to(self, device: torch.device, dtype: torch.dtype) -> Walkers:
        return Walkers(self._nodes.to(device, dtype).ids, self.walks_per_node)

    def fingerprint(self) -> str:
        text = f"{self.walks_per_node} of {self._nodes.fingerprint()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]
