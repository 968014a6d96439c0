"""Sampling a `HeteroGraph` on the GPU: all relations of all hops in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, HeteroGraph
from loader.machine.gpu import current_stream
from loader.samplers.base import as_seeds
from loader.samplers.core_session import Hop
from loader.samplers.gpu.layout import Layout
from loader.samplers.gpu.session import Begun, CudaSession
from loader.samplers.gpu.sizes import GpuOptions, Plan, with_headroom
from loader.samplers.gpu.workspace import Workspace
from loader.samplers.hetero import typed_mini_batch
from loader.samplers.relations import fanouts_by_relation, node_types_of

_SCHEDULES = ("auto", "cooperative")
_FIRST_ROWS, _FIRST_EDGES = 1 << 20, 1 << 22  # of a hop, at most, before the first mini-batch told how many there are


class TypedWorkspace(Workspace):
    """The kernels' memory for a `HeteroGraph`, see `Workspace`.

    Raises:
        ValueError: an option of the sampler is for graphs of one type only.
    """

    def __init__(self, sampler: GpuOptions, graph: HeteroGraph, lists: Graph | None = None) -> None:
        self._typed = graph
        self._relations = [len(into) for into in graph.relations_into.values()]
        self._once = sampler.expand == "new"
        self._by_relation = fanouts_by_relation(graph, sampler.fanouts, sampler.relation_fanouts)
        self._most_picks = [max([0, *hop]) for hop in self._by_relation]  # of a list that is not taken whole
        self._most_rows: list[int] = []  # of each hop, so far
        super().__init__(sampler, graph.lists if lists is None else lists)

    def _require(self, sampler: GpuOptions, graph: Graph) -> None:
        if sampler.picking.scans and sampler.node_set == "bitmap":
            option = "labor=True" if sampler.picking.labor else "weight_tables=False"
            raise ValueError(
                f"{option} of a HeteroGraph goes with a hash set, but node_set is 'bitmap'; use node_set='hash'"
            )
        if sampler.schedule not in _SCHEDULES:
            raise ValueError(
                f"schedule is '{sampler.schedule}'; a HeteroGraph is sampled by one launch: use 'auto' or 'cooperative'"
            )
        if sampler.pad_to_capacity:
            raise ValueError("pad_to_capacity is for graphs with one type; leave it out")
        if sampler.reads not in ("auto", "naive"):
            raise ValueError(f"reads is '{sampler.reads}', which is for graphs with one type; leave it out")
        if graph.list_cache is not None:
            raise ValueError("the lists of a HeteroGraph are cached, which its sampler does not read; leave it out")

    def _header_bytes(self) -> int:
        return _core.cuda_typed_header_bytes

    def _choose_reads(self, sampler: GpuOptions, graph: Graph) -> str:
        return "naive"

    def _make_engine(self, sampler: GpuOptions, graph: Graph, picks: Any) -> Any:
        edge_bits, node_bits = (8 * t.itemsize for t in (self._edge_dtype, self._node_dtype))
        make: Any = getattr(_core, f"TypedCudaSampler_i{edge_bits}_i{node_bits}")
        self._relation_fanouts = self._fanouts_on_device()
        return make(
            self._indptr,
            graph.indices,
            fanouts=self._by_relation,
            relation_fanouts=self._relation_fanouts,
            types=node_types_of(self._typed),
            once=self._once,
            replace=self._replace,
            edge_ids=self._edge_ids,
            device=self.device.index or 0,
            picks=picks,
        )

    def _fanouts_on_device(self) -> Tensor:
        """`[hops, relations]` int16, flat. The workspace keeps it, as the kernels read it."""
        return torch.tensor(self._by_relation, dtype=torch.int16).view(-1).to(self.device)

    def _choose_set(self, room: int) -> str:
        return "hash" if self._scans else super()._choose_set(room)

    def _choose(self, edges: list[int], node_set: str, ahead: bool) -> str:
        return "cooperative"

    def new_plan(self, num_seeds: int, ahead: bool) -> Plan:
        frontiers, rows, edges = self._capacities_by_hop(num_seeds)
        layout = Layout(frontiers, edges, self._edge_ids, self._node_dtype, self._edge_dtype, rows)
        kind = self._choose_set(frontiers[-1])
        return Plan("cooperative", kind, frontiers, edges, layout, self._blocks[ahead], rows)

    def asked(self, plan: Plan, num_seeds: int) -> dict[str, Any]:
        return {**super().asked(plan, num_seeds), "row_capacity": plan.rows}

    def _capacities_by_hop(self, num_seeds: int) -> tuple[list[int], list[int], list[int]]:
        """Room for the nodes within each number of hops, and for the rows and edges of each hop.

        Fanouts bound a mini-batch by far more than it has. So the first guess is bounded by a number, and a mini-batch
        that does not fit is sampled again with room for what was found.
        """

        known_nodes, known_edges = self._largest
        all_rows, all_edges = self.graph.num_dst, self.graph.num_edges
        most_into = max(self._relations)
        frontiers, rows, edges = [num_seeds], list[int](), list[int]()
        for hop, k in enumerate(self._fanouts):
            new = frontiers[-1] - (frontiers[-2] if self._once and hop else 0)
            if hop < len(self._most_rows):
                room = with_headroom(self._most_rows[hop])
            else:
                room = min(most_into * new, max(_FIRST_ROWS, 2 * new))
            rows.append(max(min(room, all_rows), 0 if self._once or not rows else rows[-1]))
            bound = rows[-1] * self._most_picks[hop] if self._replace else all_edges
            bound += all_edges if k == -1 and self._replace else 0
            if k != -1 and not self._labor:  # which picks `k` on average
                bound = min(bound, rows[-1] * k)
            if hop < len(known_edges):
                bound = max(min(bound, with_headroom(known_edges[hop])), known_edges[hop])
            else:
                bound = min(bound, max(_FIRST_EDGES, 2 * rows[-1]))
            edges.append(min(bound, self.most_edges))
            nodes = min(self.num_nodes, frontiers[-1] + edges[-1])
            if hop + 1 < len(known_nodes):
                nodes = min(nodes, with_headroom(known_nodes[hop + 1]))
            frontiers.append(max(frontiers[-1], nodes))
        return frontiers, rows, edges

    def rows_of(self, new_by_type: Sequence[Sequence[int]]) -> list[int]:
        """Rows of each hop, from the numbers of nodes of each type that the hops before found."""
        rows, before = [], 0
        for found in new_by_type:
            own = sum(n * r for n, r in zip(found, self._relations, strict=True))
            before = own if self._once else before + own
            rows.append(before)
        return rows

    def learn_types(self, new_by_type: Sequence[Sequence[int]]) -> None:
        """Remembers the most rows so far, see `learn`."""
        rows = self.rows_of(new_by_type)[: len(self._fanouts)]
        self._most_rows += [0] * (len(rows) - len(self._most_rows))
        self._most_rows[: len(rows)] = map(max, self._most_rows, rows)


class TypedCudaSession(CudaSession):
    """Samples a `HeteroGraph` on the GPU, see `CudaSession`."""

    workspace: type[TypedWorkspace] = TypedWorkspace
    _space: TypedWorkspace | None

    def __init__(self, sampler: GpuOptions, graph: HeteroGraph) -> None:
        self._graph = graph
        self._once = sampler.expand == "new"
        super().__init__(sampler, graph)

    def _as_seeds(self, seeds: Tensor) -> Tensor:
        return as_seeds(self._graph, seeds)

    def build(self, begun: Begun, frontiers: list[int], edges: list[int], *more: Any) -> Any:
        (new_by_type,) = more
        nodes, hops = self._arrays_of(begun, frontiers, edges, new_by_type)
        place = begun.epoch, begun.index
        return typed_mini_batch(self._graph, nodes, new_by_type, frontiers, hops, self._once, place)

    def _arrays_of(
        self, begun: Begun, frontiers: list[int], edges: list[int], new_by_type: list[list[int]]
    ) -> tuple[Tensor, list[Hop]]:
        """The nodes of a mini-batch and the arrays of its hops, from the seeds outward."""
        space = self._opened()
        assert isinstance(space, TypedWorkspace)
        rows = space.rows_of(new_by_type)[: len(edges)]
        nodes, indices, indptr, ids = begun.plan.layout.cut(begun.memory, frontiers, edges, rows)
        if ids and space.graph.edge_ids is not None:
            begun.memory.record_stream(current_stream(self._index))
            ids = [space.edge_ids()[i] for i in ids]
        return nodes, [(indptr[h], indices[h], ids[h] if ids else None) for h in range(len(edges))]
