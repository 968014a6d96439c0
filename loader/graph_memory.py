"""Where the graph lies for samplers on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from loader.graph import Graph
from loader.machine.arguments import as_number
from loader.options import check_graph_memory
from loader.samplers import NeighborSampler, Sampler, list_hotness
from loader.samples import MiniBatch

_VISITED = 100  # mini-batches that say which lists are read most
_NAMES = {
    "device": "GPU memory",
    "pinned": "page-locked host memory",
    "cached": "page-locked host memory, its hottest lists in GPU memory",
}


@dataclass(frozen=True)
class GraphMemory:
    """Where the graph lies for samplers on a GPU; those on the CPU read it where it is.

    Args:
        kind: "device", "pinned" or "cached", see `GraphDataModule`.
        cached_edges: of "cached", the share of the edges in GPU memory, in [0, 1].
        hotness: of "cached", "degree" or "visits".

    Raises:
        TypeError, ValueError: an argument is out of its range.
    """

    kind: str = "device"
    cached_edges: float = 0.25
    hotness: str = "degree"

    def __post_init__(self) -> None:
        check_graph_memory(self.kind, "cached")
        if not 0 <= as_number("cached_edges", self.cached_edges) <= 1:
            raise ValueError(f"cached_edges is {self.cached_edges}; it must be in 0 to 1, a share of the edges")
        if self.hotness not in ("degree", "visits"):
            raise ValueError(f"list_hotness is {self.hotness!r}; it must be 'degree' or 'visits'")

    def check(self, samplers: Sequence[Any]) -> None:
        """Raises ValueError if the samplers have no use for it."""
        if self.kind != "device" and all(s.device.type == "cpu" for s in samplers):
            raise ValueError(
                f"graph is '{self.kind}', for a GPU sampler to read, but the samplers run on the CPU; leave it out"
            )
        if self.kind == "cached" and not all(isinstance(s, NeighborSampler) for s in samplers):
            raise ValueError("graph is 'cached', but only samplers of neighbours read cached lists; use 'pinned'")

    def place(
        self, graph: Graph, sampler: Sampler, device: torch.device, batches: Callable[[Graph], Iterable[MiniBatch]]
    ) -> Graph:
        """The graph where samplers on `device` read it.

        Args:
            sampler: of training.
            batches: gives the mini-batches of training, of a graph that the sampler can read.
        """
        if self.kind == "device":
            return graph.to(device)
        pinned = graph.pin_memory()
        if self.kind == "pinned":
            return pinned
        if self.hotness == "degree":
            return pinned.cache_lists(device, fraction=self.cached_edges)
        assert isinstance(sampler, NeighborSampler)
        hotness = list_hotness(pinned, islice(batches(pinned), _VISITED), sampler.fanouts)
        return pinned.cache_lists(device, fraction=self.cached_edges, hotness=hotness)

    def __str__(self) -> str:
        return _NAMES[self.kind]
