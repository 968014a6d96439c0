"""Subgraphs as torch_geometric samples them, on the CPU or on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import Self

from loader import _core
from loader.graph import Graph, HeteroGraph, induced_edges, induced_edges_by_type, require_graph
from loader.machine.arguments import as_index, shown
from loader.samplers.base import (
    MAX_FANOUT,
    MAX_HOPS,
    AnyGraph,
    NeighborSampler,
    PickOptions,
    Request,
    Session,
    as_seeds,
    check_position,
    resolve_fanouts,
)
from loader.samplers.core_picks import core_picks
from loader.samplers.cpu import CoreSampler, FusedSampler
from loader.samplers.gpu.subgraph import subgraph_on_gpu
from loader.samplers.placement import fused
from loader.samples import (
    HeteroMiniBatch,
    HeteroSubgraph,
    MiniBatch,
    Subgraph,
    bidirectional,
    hetero_subgraph_of,
    subgraph_of,
)
from loader.samples.repeated import repeated, with_distinct_seeds

if TYPE_CHECKING:
    from typing_extensions import Unpack

SUBGRAPH_TYPES = ("directional", "bidirectional", "induced")
_MOST_HOPS = 32  # of csrc/bindings/pyg.cpp


def _resolve_any(fanouts: int | Sequence[int], num_hops: int | None = None) -> tuple[int, ...]:
    """`resolve_fanouts`, which also takes what only the core's own subgraphs can do."""
    if not isinstance(fanouts, Sequence) or isinstance(fanouts, (str, bytes)) or num_hops is not None:
        return resolve_fanouts(fanouts, num_hops)
    known = [k for k in map(as_index, fanouts) if k is not None and k >= -1]
    if len(known) < len(fanouts) or len(known) > _MOST_HOPS:
        return resolve_fanouts(fanouts)  # which says what is wrong
    return tuple(known)


def _is_common(fanouts: Sequence[int]) -> bool:
    """Whether every sampler takes them."""
    return 1 <= len(fanouts) <= MAX_HOPS and all(k == -1 or 1 <= k <= MAX_FANOUT for k in fanouts)


class SubgraphSampler(NeighborSampler):
    """Picks the neighbors of each node once, at the hop after the one that met it, and gives `Subgraph` objects.

    The picks are those of `FusedSampler`. It picks for a node at several hops, and the subgraph keeps only the picks
    of the first one, as torch_geometric does. On the CPU only these are sampled. On a GPU, and with `labor` or
    `weight_tables=False`, the whole mini-batch is sampled, and the other picks are left out.

    On the CPU seeds may repeat. Each copy of a seed is a node of the subgraph, with picks of its own. Where the seed is
    picked as a neighbor, the edge begins at its first copy. On a GPU, and with `labor` or `weight_tables=False`, seeds
    must be distinct; else ValueError.

    With fanouts by edge type it samples a `HeteroGraph`, and gives `HeteroSubgraph` objects.

    Args:
        fanouts: as those of `NeighborSampler`. On the CPU also none, up to 32, fanouts of 0, and without replacement
            fanouts above 1024 if no node has more neighbors than that.
        num_hops: see `NeighborSampler`.
        device: "cpu", a GPU, or "auto" for a GPU if build and machine have one.
        num_threads: if it samples on the CPU, see `CoreSampler`.
        subgraph_type: "directional": the picked edges; "bidirectional": these and their reverses, each pair of ends
            once, ascending by destination and source, with the lowest edge id of both directions; "induced": all edges
            among the nodes, those of each destination in the order of its list. Fanouts by edge type do not go with
            "bidirectional".
        options: see `NeighborSampler`.

    Raises:
        TypeError, ValueError, RuntimeError: as `loader.samplers.fused`.
    """

    picks = "pick.h once"  # of csrc/sampler/
    resolve = staticmethod(_resolve_any)

    def __init__(
        self,
        fanouts: int | Sequence[int] | Mapping[Any, Any],
        num_hops: int | None = None,
        *,
        device: str | torch.device = "cpu",
        num_threads: int | None = None,
        subgraph_type: str = "directional",
        **options: Unpack[PickOptions],
    ) -> None:
        if subgraph_type not in SUBGRAPH_TYPES:
            raise ValueError(f"subgraph_type is {shown(subgraph_type)}; it must be one of {', '.join(SUBGRAPH_TYPES)}")
        super().__init__(fanouts, num_hops, **options)
        self.subgraph_type = subgraph_type
        # What the core's own subgraphs alone can do: this sampler then stands for the device and the threads.
        self._core_only = None if _is_common(self.fanouts) else f"the fanouts {list(self.fanouts)}"
        if subgraph_type == "induced" and self.picking.weights is not None:
            raise ValueError(
                "subgraph_type is 'induced', which takes all edges among the nodes, and weights pick edges; leave "
                "one of them out"
            )
        common: Any = self.fanouts if _is_common(self.fanouts) else (1,)
        if self.relation_fanouts is not None:
            if subgraph_type == "bidirectional":
                raise ValueError(
                    "subgraph_type is 'bidirectional', but fanouts are by edge type; of several types there are "
                    "'directional' and 'induced' ones"
                )
            common, options["expand"] = self.relation_fanouts, "new"
        self._sampler = fused(common, device=device, num_threads=num_threads, **options)
        if isinstance(self._sampler, FusedSampler) and self.relation_fanouts is not None:
            self._sampler.copies = True
        if self._core_only and self.device.type == "cuda":
            raise ValueError(f"{self._core_only} need device='cpu'; a GPU takes 1 to 8 fanouts, 1 to 1024 or -1 each")

    def spec(self) -> dict[str, Any]:
        shape = {} if self.subgraph_type == "directional" else {"subgraph_type": self.subgraph_type}
        return {**super().spec(), **shape}

    def check_graph(self, graph: Graph) -> None:
        """Raises ValueError if a fanout above 1024 is not all neighbors of each node of this graph."""
        most = max(self.fanouts, default=0)
        if most <= MAX_FANOUT:
            return
        degree = int(graph.in_degrees().max()) if graph.num_dst else 0
        wrong = [k for k in self.fanouts if k > MAX_FANOUT and (self.replace or k < degree)]
        if wrong:
            raise ValueError(
                f"fanout {wrong[0]} is not possible, as a node has {degree} neighbors: give up to {MAX_FANOUT}, or "
                "-1 for all neighbors"
            )

    @property
    def device(self) -> torch.device:
        return self._sampler.device

    @property
    def asynchronous(self) -> bool:
        return self._sampler.asynchronous

    def on(self, device: torch.device) -> Self:
        moved = self._sampler.on(device)
        return self if moved is self._sampler else self._with(_sampler=moved)

    def open(self, graph: AnyGraph) -> Session:
        self.require_open()
        require_graph(graph)
        if isinstance(graph, HeteroGraph):
            if self.relation_fanouts is None:
                raise ValueError("SubgraphSampler takes a graph with types if its fanouts are given by edge type")
            induced = self.subgraph_type == "induced"
            find = partial(_all_hetero_edges, graph, self) if induced else hetero_subgraph_of
            return _FoundSession(self._sampler.open(graph), find)
        self.check_graph(graph)
        session = self._sampler.open(graph)
        picks = self.picking
        by_degree = not picks.labor and (picks.weights is None or picks.weight_tables)  # which says how many are picked
        if isinstance(self._sampler, CoreSampler) and graph.indptr.dtype == graph.indices.dtype and by_degree:
            session.close()
            made: Session = _CoreSession(self, graph, self._sampler.num_threads)
            return _FoundSession(made, bidirectional) if self.subgraph_type == "bidirectional" else made
        if self._core_only:
            session.close()
            raise ValueError(f"{self._core_only} need picks without labor, and a graph of fewer than 2**31 edges")
        found = subgraph_on_gpu if self.device.type == "cuda" else _subgraph_of
        if self.subgraph_type == "bidirectional":
            return _FoundSession(session, partial(_both, found))
        if self.subgraph_type == "induced":
            return _FoundSession(session, partial(_all_edges, found, graph, self))
        return _FoundSession(session, found)

    def __repr__(self) -> str:
        return f"SubgraphSampler(fanouts={list(self.fanouts)}, device='{self.device}')"


class _CoreSession(Session):
    """Samples subgraphs in the CPU's memory."""

    def __init__(self, sampler: SubgraphSampler, graph: Graph, num_threads: int) -> None:
        graph, picks = core_picks(sampler, graph, num_threads)
        assert picks is None or isinstance(picks, (_core.WeightTables, _core.WeightOrder))
        self._graph, self._samples_of, self._sampler = graph, graph, sampler
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
            seeds, sampler.fanouts, key, sampler.replace, sampler.edge_ids, sampler.subgraph_type == "induced"
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
    """Finds subgraphs in mini-batches or in other subgraphs."""

    def __init__(self, session: Session, find: Callable[[Any], Any]) -> None:
        self._session, self._find = session, find
        self.together = session.together

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], Any]]:
        return [partial(_found, self._find, finish) for finish in self._session.begin(group, ahead=ahead)]

    def check(self) -> None:
        self._session.check()

    def close(self) -> None:
        self._session.close()


def _itself(sample: Subgraph) -> Subgraph:
    return sample


def _found(find: Callable[[Any], Any], finish: Callable[[], Any]) -> Any:
    return find(finish())


def _subgraph_of(batch: MiniBatch) -> Subgraph:
    return subgraph_of(batch)[0]


def _all_edges(
    find: Callable[[MiniBatch], Subgraph], graph: Graph, sampler: SubgraphSampler, batch: MiniBatch
) -> Subgraph:
    """The nodes of a subgraph, with all edges among them."""
    made = find(batch)
    found = induced_edges(graph, made.nodes)
    ids = found.places if graph.edge_ids is None else graph.edge_ids[found.places.to(graph.edge_ids.device)].long()
    return made.replace(
        edge_index=torch.stack([found.sources, found.targets]),
        edge_ids=ids.to(made.nodes.device) if sampler.edge_ids else None,
        num_edges=(found.places.numel(),),
    )


def induced_by_type(
    graph: HeteroGraph, nodes: Mapping[str, torch.Tensor], edge_ids: bool, num_threads: int | None = None
) -> dict[str, Any]:
    """All edges among given nodes, as attributes of a `HeteroSubgraph`.

    Args:
        nodes: node type -> `[n]` distinct ids within the type.
        edge_ids: whether there are ids of the edges.
        num_threads: see `induced_edges_by_type`.
    """
    found, given = induced_edges_by_type(graph, nodes, num_threads=num_threads), graph.lists.edge_ids
    ids = {key: edges.places for key, edges in found.items()}
    if given is not None:
        ids = {key: given[of.to(given.device)].long().to(of.device) for key, of in ids.items()}
    return {
        "edges": {key: torch.stack([edges.sources, edges.targets]) for key, edges in found.items()},
        "edge_ids": ids if edge_ids else None,
        "num_edges": {key: (edges.places.numel(),) for key, edges in found.items()},
        "by_hop": False,
    }


def _all_hetero_edges(graph: HeteroGraph, sampler: SubgraphSampler, batch: HeteroMiniBatch) -> HeteroSubgraph:
    """The nodes of a subgraph with types, with all edges among them."""
    made, places = with_distinct_seeds(hetero_subgraph_of(batch))
    made = made.replace(**induced_by_type(graph, made.nodes, sampler.edge_ids))
    return repeated(made, places) if places else made


def _both(find: Callable[[MiniBatch], Subgraph], batch: MiniBatch) -> Subgraph:
    return bidirectional(find(batch))
