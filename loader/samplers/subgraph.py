"""Subgraphs as torch_geometric samples them, on the CPU or on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from loader import _core
from loader.graph import Graph
from loader.samplers.base import NeighborSampler, PickOptions, Request, Session, as_seeds, check_position
from loader.samplers.cpu import CoreSampler
from loader.samplers.gpu.subgraph import subgraph_on_gpu
from loader.samplers.picks import core_picks
from loader.samplers.placement import fused
from loader.samples import MiniBatch, Subgraph, subgraph_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SubgraphSampler(NeighborSampler):
    """Picks the neighbours of each vertex once, at the hop after the one that met it, and gives `Subgraph` objects.

    The picks are those of `FusedSampler`. It picks for a vertex at several hops, and the subgraph keeps only the picks
    of the first one, as torch_geometric does. On the CPU only these are sampled. On a GPU, and with `labor` or
    `weight_tables=False`, the whole mini-batch is sampled, and the other picks are left out.

    Args:
        device: "cpu", a GPU, or "auto" for a GPU if build and machine have one.
        num_threads: if it samples on the CPU, see `CoreSampler`.
        fanouts, num_hops, options: see `NeighborSampler`.

    Raises:
        TypeError, ValueError, RuntimeError: as `loader.samplers.fused`.
    """

    picks = "pick.h once"  # of csrc/sampler/

    def __init__(
        self,
        fanouts: int | Sequence[int],
        num_hops: int | None = None,
        *,
        device: str | torch.device = "cpu",
        num_threads: int | None = None,
        **options: Unpack[PickOptions],
    ) -> None:
        super().__init__(fanouts, num_hops, **options)
        self._sampler = fused(self.fanouts, device=device, num_threads=num_threads, **options)

    @property
    def device(self) -> torch.device:
        return self._sampler.device

    @property
    def asynchronous(self) -> bool:
        return self._sampler.asynchronous

    def on(self, device: torch.device) -> SubgraphSampler:
        moved = self._sampler.on(device)
        if moved is self._sampler:
            return self
        copy: SubgraphSampler = object.__new__(type(self))
        copy.__setstate__({**self.__getstate__(), "_sampler": moved})
        return copy

    def open(self, graph: Graph) -> Session:
        self.require_open()
        session = self._sampler.open(graph)
        picks = self.picking
        by_degree = not picks.labor and (picks.weights is None or picks.weight_tables)  # which says how many are picked
        if isinstance(self._sampler, CoreSampler) and graph.indptr.dtype == graph.indices.dtype and by_degree:
            session.close()
            return _CoreSession(self, graph, self._sampler.num_threads)
        return _FoundSession(session, subgraph_on_gpu if self.device.type == "cuda" else _subgraph_of)

    def __repr__(self) -> str:
        return f"SubgraphSampler(fanouts={list(self.fanouts)}, device='{self.device}')"


class _CoreSession(Session):
    """Samples subgraphs in the CPU's memory."""

    def __init__(self, sampler: SubgraphSampler, graph: Graph, num_threads: int) -> None:
        graph, picks = core_picks(sampler, graph, num_threads)
        assert picks is None or isinstance(picks, (_core.WeightTables, _core.WeightOrder))
        self._graph, self._sampler = graph, sampler
        self._engine: _core.SubgraphSampler | None = _core.SubgraphSampler(
            graph.indptr, graph.indices, num_threads, picks
        )

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Subgraph]]:
        return [partial(_itself, self._sample(request)) for request in group]

    def close(self) -> None:
        self._engine = None

    def _sample(self, request: Request) -> Subgraph:
        engine, graph, sampler = self._engine, self._graph, self._sampler
        if engine is None:
            raise RuntimeError("this session was closed; open another one")
        check_position(request.epoch, request.batch)
        seeds = as_seeds(graph, request.seeds)
        key = _core.batch_key(sampler.seed, request.epoch, request.batch)
        counts, edges, offsets, buffer = engine.sample(
            seeds, sampler.fanouts, key, sampler.replace, sampler.edge_ids, False
        )
        num_nodes, num_edges, dtype = sum(counts), sum(edges), graph.indices.dtype

        def array(i: int, *shape: int) -> torch.Tensor:
            length = torch.Size(shape).numel()
            if length == 0:
                return torch.empty(shape, dtype=torch.int64)
            return torch.frombuffer(buffer, dtype=dtype, count=length, offset=offsets[i]).view(shape).long()

        edge_ids = array(3, num_edges) if sampler.edge_ids else None
        if edge_ids is not None and graph.edge_ids is not None:
            edge_ids = graph.edge_ids[edge_ids].long()
        return Subgraph(
            nodes=array(0, num_nodes),
            edge_index=array(1, 2, num_edges),
            edge_ids=edge_ids,
            num_nodes=tuple(counts),
            num_edges=tuple(edges),
            epoch=request.epoch,
            index=request.batch,
        )


class _FoundSession(Session):
    """Finds subgraphs in mini-batches."""

    def __init__(self, session: Session, find: Callable[[MiniBatch], Subgraph]) -> None:
        self._session, self._find = session, find
        self.together = session.together

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Subgraph]]:
        return [partial(_found, self._find, finish) for finish in self._session.begin(group, ahead=ahead)]

    def check(self) -> None:
        self._session.check()

    def close(self) -> None:
        self._session.close()


def _itself(sample: Subgraph) -> Subgraph:
    return sample


def _found(find: Callable[[MiniBatch], Subgraph], finish: Callable[[], Any]) -> Subgraph:
    return find(finish())


def _subgraph_of(batch: MiniBatch) -> Subgraph:
    return subgraph_of(batch)[0]
