"""Sampling a `HeteroGraph` on the CPU: all relations of a hop in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from loader.graph import Graph, HeteroGraph
from loader.samplers.base import NeighborSampler, Request, as_seeds
from loader.samplers.core_session import CoreSession, Engine, Hop
from loader.samplers.relations import require_type_order
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.hetero_block import HeteroBlock


class HeteroSession(CoreSession):
    """Samples a `HeteroGraph` in the CPU's memory, see `CoreSession`."""

    def __init__(
        self, graph: HeteroGraph, lists: Graph, engine: Engine, sampler: NeighborSampler, num_threads: int
    ) -> None:
        super().__init__(lists, engine, sampler, num_threads)
        self._graph, self._once = graph, sampler.expand == "new"
        self._starts = torch.tensor([ids.start for ids in graph.node_types.values()], dtype=lists.indices.dtype)

    def _as_seeds(self, seeds: Tensor) -> Tensor:
        ids = as_seeds(self._graph, seeds)
        require_type_order(self._starts, ids)
        return ids

    def _build(self, nodes: Tensor, frontiers: list[int], hops: list[Hop], request: Request) -> HeteroMiniBatch:
        sizes = sizes_by_type(nodes.numpy(), frontiers, self._starts.numpy())
        types = self._graph.node_types, self._graph.edge_types
        blocks = hetero_blocks(frontiers, hops, self._once)
        return HeteroMiniBatch(nodes, tuple(map(tuple, sizes)), blocks, *types, request.epoch, request.batch)


def hetero_blocks(frontiers: Sequence[int], hops: Sequence[Hop], once: bool) -> tuple[HeteroBlock, ...]:
    """The blocks of a mini-batch, in the order a model applies them.

    Args:
        frontiers: nodes within each number of hops.
        hops: their arrays, from the seeds outward.
        once: each hop expands only what the hop before found.
    """
    blocks = []
    for h, (indptr, indices, edge_ids) in enumerate(hops):
        first = frontiers[h - 1] if h and once else 0
        blocks.append(HeteroBlock(indptr, indices, first, frontiers[h] - first, frontiers[h + 1], edge_ids))
    return tuple(blocks[::-1])


def sizes_by_type(nodes: np.ndarray, frontiers: Sequence[int], starts: np.ndarray) -> list[list[int]]:
    """Numbers of new nodes, `[hops + 1][node types]`: the nodes of a hop come type after type.

    Args:
        nodes: all nodes of a mini-batch.
        frontiers: nodes within each number of hops.
        starts: the first id of each type, of the dtype of `nodes`: else all of them would be converted.
    """
    sizes, first = [], 0
    for end in frontiers:
        new = nodes[first:end]
        if first == 0:  # seeds are in any order within their type
            types = np.searchsorted(starts, new, side="right")
            bounds = np.searchsorted(types, np.arange(1, len(starts) + 1))
        else:
            bounds = np.searchsorted(new, starts)
        sizes.append(np.diff(bounds, append=end - first).tolist())
        first = end
    return sizes
