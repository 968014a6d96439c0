"""The session of the samplers of the C++ core."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.samplers.base import NeighborSampler, Request, Session, as_seeds, check_position
from loader.samplers.picks import batch_keys
from loader.samples import Block, MiniBatch

Engine = _core.FusedSampler | _core.HopwiseSampler | _core.HeteroFusedSampler | _core.HeteroHopwiseSampler
Hop = tuple[Tensor, Tensor, Tensor | None]  # indptr, indices, edge ids

# Mini-batches of one group: all of them lie in memory before the first is used.
_MOST_TOGETHER = 16


class CoreSession(Session):
    """Samples a graph in the CPU's memory.

    A group is one call of the core. If it has more mini-batches than half the number of threads, each thread takes
    whole mini-batches, with a workspace of its own, and then helps the others. The mini-batches of a smaller group are
    sampled one after the other by all threads together. Any number of Python threads may call at the same time. The
    first one uses the session's threads. Meanwhile another one samples a single mini-batch without them, or waits for
    its turn if it has a group.

    A session also works in a forked child, where it starts its threads again.

    Args:
        lists: what `engine` samples.
        engine: of the extension.
        sampler: the configuration.
        num_threads: of the engine.
    """

    def __init__(self, lists: Graph, engine: Engine, sampler: NeighborSampler, num_threads: int) -> None:
        self._lists = self._samples_of = lists
        self._engine: Engine | None = engine
        self._seed, self._picking = sampler.seed, sampler.picking
        most = min(num_threads, _MOST_TOGETHER)
        # A group that is not spread over the threads gains nothing, and takes memory.
        self.together = most if 2 * most > num_threads else 1

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Any]]:
        engine = self._engine
        if engine is None:
            raise RuntimeError("this session was closed; open another one")
        for request in group:
            check_position(request.epoch, request.batch)
        seeds = [self._as_seeds(request.seeds) for request in group]
        keys = [batch_keys(self._picking, self._seed, request.epoch, request.batch) for request in group]
        sampled = engine.sample(seeds, *map(list, zip(*keys, strict=True)))
        return [functools.partial(self._finish, one, of) for one, of in zip(sampled, group, strict=True)]

    def _finish(self, sampled: _core.Sampled, request: Request) -> Any:
        frontiers, edges, rows, offsets, buffer = sampled.take()
        edge_dtype, node_dtype = self._lists.indptr.dtype, self._lists.indices.dtype
        with_ids, at = len(offsets) > 1 + 2 * len(edges), iter(offsets)

        def array(length: int, dtype: torch.dtype) -> Tensor:
            offset = next(at)
            if length == 0:
                return torch.empty(0, dtype=dtype)
            return torch.frombuffer(buffer, dtype=dtype, count=length, offset=offset)

        nodes = array(frontiers[-1], node_dtype)
        hops = []
        for num_rows, num_edges in zip(rows, edges, strict=True):
            indptr = array(num_rows + 1, edge_dtype)
            indices = array(num_edges, node_dtype)
            edge_ids = array(num_edges, edge_dtype) if with_ids else None
            if edge_ids is not None and self._lists.edge_ids is not None:
                edge_ids = self._lists.edge_ids[edge_ids]
            hops.append((indptr, indices, edge_ids))
        return self._build(nodes, frontiers, hops, request)

    def _as_seeds(self, seeds: Tensor) -> Tensor:
        return as_seeds(self._lists, seeds)

    def _build(self, nodes: Tensor, frontiers: list[int], hops: list[Hop], request: Request) -> Any:
        """The mini-batch of these arrays; hops from the seeds outward."""
        blocks = [
            Block(indptr, indices, num_src=frontiers[h + 1], num_dst=frontiers[h], edge_ids=edge_ids)
            for h, (indptr, indices, edge_ids) in enumerate(hops)
        ]
        return MiniBatch(nodes, tuple(frontiers), tuple(blocks[::-1]), epoch=request.epoch, index=request.batch)

    def close(self) -> None:
        self._engine = None
