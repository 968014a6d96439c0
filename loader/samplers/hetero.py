"""Sampling a `HeteroGraph` on the CPU: all relations of a hop in one pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from loader import _core
from loader.graph import HeteroGraph
from loader.machine.mapped import is_mapped
from loader.samplers.base import NeighborSampler, Request, Session, as_seeds, check_position
from loader.samplers.picks import batch_keys
from loader.samplers.relations import fanouts_by_relation, require_type_order
from loader.samples.hetero import HeteroBlock, HeteroMiniBatch

if TYPE_CHECKING:
    from loader.samplers.cpu import CoreSampler

Engine = _core.TypedFusedSampler | _core.TypedHopwiseSampler
_MOST_TOGETHER = 16  # mini-batches of one group: all of them lie in memory before the first is used


def node_types_of(graph: HeteroGraph) -> list[tuple[int, int]]:
    """Of each node type how many nodes there are, and how many relations lead to them."""
    return [(len(ids), len(graph.relations_into[name])) for name, ids in graph.node_types.items()]


def make_engine(kind: type[Any], sampler: CoreSampler, graph: HeteroGraph, lists: Any, picks: Any) -> Engine:
    """The object of the extension that samples these lists of the graph. `picks`: see `core_picks`."""
    from loader.samplers.cpu import PART_EDGES

    return kind(
        lists.indptr,
        lists.indices,
        fanouts=fanouts_by_relation(graph, sampler.fanouts, sampler.relation_fanouts),
        types=node_types_of(graph),
        once=sampler.expand == "new",
        replace=sampler.replace,
        edge_ids=sampler.edge_ids,
        num_threads=sampler.num_threads,
        part_edges=PART_EDGES,
        picks=picks,
        in_file=is_mapped(lists.indices),
    )


class HeteroSession(Session):
    """Samples a `HeteroGraph` in the CPU's memory, see `CoreSession`."""

    def __init__(self, graph: HeteroGraph, lists: Any, engine: Engine, sampler: CoreSampler) -> None:
        self._graph, self._lists = graph, lists
        self._engine: Engine | None = engine
        self._seed, self._picking, self._expand = sampler.seed, sampler.picking, sampler.expand
        most = min(sampler.num_threads, _MOST_TOGETHER)
        self.together = most if 2 * most > sampler.num_threads else 1
        dtype = np.int64 if lists.indices.dtype == torch.int64 else np.int32  # else all nodes would be converted
        self._starts = np.array([ids.start for ids in graph.node_types.values()], dtype)

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], HeteroMiniBatch]]:
        engine = self._engine
        if engine is None:
            raise RuntimeError("this session was closed; open another one")
        for request in group:
            check_position(request.epoch, request.batch)
        seeds = [as_seeds(self._graph, request.seeds) for request in group]
        for one in seeds:
            require_type_order(self._graph, one)
        keys = [batch_keys(self._picking, self._seed, request.epoch, request.batch) for request in group]
        sampled = engine.sample(seeds, *map(list, zip(*keys, strict=True)))
        return [functools.partial(self._finish, one, of) for one, of in zip(sampled, group, strict=True)]

    def _finish(self, sampled: _core.Sampled, request: Request) -> HeteroMiniBatch:
        frontiers, edges, rows, offsets, buffer = sampled.take()
        edge_dtype, node_dtype = self._lists.indptr.dtype, self._lists.indices.dtype
        hops, at = len(edges), iter(offsets)

        def array(length: int, dtype: torch.dtype) -> Tensor:
            offset = next(at)
            return torch.frombuffer(buffer, dtype=dtype, count=length, offset=offset) if length else _empty(dtype)

        nodes = array(frontiers[-1], node_dtype)
        blocks = []
        for h in range(hops):
            indptr = array(rows[h] + 1, edge_dtype)
            indices = array(edges[h], node_dtype)
            edge_ids = array(edges[h], edge_dtype) if len(offsets) > 1 + 2 * hops else None
            if edge_ids is not None and self._lists.edge_ids is not None:
                edge_ids = self._lists.edge_ids[edge_ids]
            first = frontiers[h - 1] if h and self._expand == "new" else 0
            blocks.append(HeteroBlock(indptr, indices, first, frontiers[h] - first, frontiers[h + 1], edge_ids))
        return HeteroMiniBatch(
            nodes,
            sizes_by_type(nodes.numpy(), frontiers, self._starts),
            tuple(blocks[::-1]),
            self._graph.node_types,
            self._graph.edge_types,
            epoch=request.epoch,
            index=request.batch,
        )

    def close(self) -> None:
        self._engine = None


def sizes_by_type(nodes: np.ndarray, frontiers: Sequence[int], starts: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Numbers of new nodes, `[hops + 1][node types]`: the nodes of a hop come type after type.

    Args:
        nodes: all nodes of a mini-batch.
        frontiers: nodes within each number of hops.
        starts: the first id of each type.
    """
    sizes, first = [], 0
    for end in frontiers:
        new = nodes[first:end]
        if first == 0:  # seeds are in any order within their type
            types = np.searchsorted(starts, new, side="right")
            bounds = np.searchsorted(types, np.arange(1, len(starts) + 1))
        else:
            bounds = np.searchsorted(new, starts)
        sizes.append(tuple(int(n) for n in np.diff(bounds, append=end - first)))
        first = end
    return tuple(sizes)


def _empty(dtype: torch.dtype) -> Tensor:
    return torch.empty(0, dtype=dtype)


def require_one_type(sampler: NeighborSampler) -> None:
    """Raises ValueError if options of the sampler are for graphs with types."""
    if sampler.relation_fanouts is not None:
        raise ValueError("fanouts is given per edge type, but the graph has one type; give a list, e.g. [15, 10, 5]")
    if sampler.expand != "all":
        raise ValueError(
            f"expand is {sampler.expand!r}, but the graph has one type; leave it out (loader.pyg expands so), or "
            "make a HeteroGraph of it"
        )
