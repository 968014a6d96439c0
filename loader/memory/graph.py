"""Where the graph lies for samplers on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph, HeteroGraph
from loader.loaders.options import check_graph_memory
from loader.machine.arguments import as_number
from loader.samplers import NeighborSampler, Sampler, list_hotness
from loader.samplers.base import AnyGraph
from loader.samplers.tree_options import TreeOptions
from loader.samples import MiniBatch

COUNTED = 100  # mini-batches that say which lists are read most
_NAMES = {
    "auto": "GPU memory",
    "device": "GPU memory",
    "pinned": "page-locked host memory",
    "cached": "page-locked host memory, its hottest lists in GPU memory",
}
_WHOLE = ("auto", "device")


@dataclass(frozen=True)
class GraphMemory:
    """Where the graph lies for samplers on a GPU; those on the CPU read it where it is.

    Args:
        kind: "auto", "device", "pinned" or "cached", see `GraphDataModule`; "auto" is "device".
        cached_edges: of "cached", the share of the edges in GPU memory, in [0, 1].
        hotness: of "cached", "degree" or "visits".
        nodes: of "cached", exactly these lists, in place of the two above.
        only_lists: move `indptr` and `indices` only, if they go to GPU memory; for a sampler by time only those in the
            order of time.

    Raises:
        TypeError, ValueError: an argument is out of its range.
    """

    kind: str = "device"
    cached_edges: float = 0.25
    hotness: str = "degree"
    nodes: Tensor | None = None
    only_lists: bool = False

    def __post_init__(self) -> None:
        check_graph_memory(self.kind, "cached", "auto")
        if not 0 <= as_number("cached_edges", self.cached_edges) <= 1:
            raise ValueError(f"cached_edges is {self.cached_edges}; it must be in 0 to 1, a share of the edges")
        if self.hotness not in ("degree", "visits"):
            raise ValueError(f"list_hotness is {self.hotness!r}; it must be 'degree' or 'visits'")
        for field, name in (("cached_edges", "cached_edges"), ("hotness", "list_hotness")):
            given = getattr(self, field)
            if self.kind != "cached" and given != getattr(GraphMemory, field):
                raise ValueError(
                    f"{name} is {given!r}, which only graph='cached' reads, and graph is {self.kind!r}; leave it out"
                )

    def check(self, samplers: Sequence[Any]) -> None:
        """Raises ValueError if the samplers have no use for it."""
        if self.kind not in _WHOLE and all(s.device.type == "cpu" for s in samplers):
            raise ValueError(
                f"graph is '{self.kind}', for a GPU sampler to read, but the samplers run on the CPU; leave "
                "datamodule.graph out"
            )
        if self.kind == "cached" and not all(isinstance(s, NeighborSampler) for s in samplers):
            raise ValueError("graph is 'cached', but only samplers of neighbors read cached lists; use 'pinned'")

    def place(
        self, graph: AnyGraph, sampler: Sampler, device: torch.device, batches: Callable[[Graph], Iterable[MiniBatch]]
    ) -> AnyGraph:
        """The graph where samplers on `device` read it.

        Args:
            graph: one with types cannot be "cached".
            sampler: of training.
            batches: gives the mini-batches of training, of a graph that the sampler can read.
        """
        if self.only_lists and sampler.timed:
            assert isinstance(graph, HeteroGraph)
            assert isinstance(sampler, TreeOptions)
            where = device if self.kind in _WHOLE else "pinned"
            return graph.place_by_time(sampler.times, sampler.missing_times, indptr=where, indices=where)
        if self.kind in _WHOLE:
            return graph.place(indptr=device, indices=device) if self.only_lists else graph.to(device)
        pinned = graph.pin_memory()
        if self.kind == "pinned":
            return pinned
        assert isinstance(pinned, Graph)
        if self.nodes is not None:
            return pinned.cache_lists(device, nodes=self.nodes)
        if self.hotness == "degree":
            return pinned.cache_lists(device, fraction=self.cached_edges)
        assert isinstance(sampler, NeighborSampler)
        hotness = list_hotness(pinned, islice(batches(pinned), COUNTED), sampler.fanouts)
        return pinned.cache_lists(device, fraction=self.cached_edges, hotness=hotness)

    def __str__(self) -> str:
        return _NAMES[self.kind]
