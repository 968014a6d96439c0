"""Sampling trees on the GPU: all hops of all trees in one launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, HeteroGraph
from loader.samplers.base import Request
from loader.samplers.gpu.hetero import TypedCudaSession, TypedWorkspace
from loader.samplers.gpu.layout import Layout
from loader.samplers.gpu.session import Begun
from loader.samplers.gpu.sizes import GpuOptions, Plan, with_headroom
from loader.samplers.gpu.workspace import Workspace
from loader.samplers.hetero import typed_blocks
from loader.samplers.relations import node_types_of
from loader.samplers.tree_options import Sight, TreeOptions
from loader.samples.trees import TreeMiniBatch

_PILOT = 64  # trees, from which the first sizes are learnt
_FIRST_ROWS, _FIRST_PICKS = 1 << 14, 1 << 16  # of all trees of a mini-batch, before the first told how many there are
_MOST_TABLES = 2**29  # bytes of the tables that do not fit shared memory
_BYTES_OF_PLACE = 12
_BLOCKS_PER_MULTIPROCESSOR = 8
# Places of a table and room for new nodes in the shared memory of a block; if a tree has few edges, and if it has many.
_FEW_EDGES = 400
_SHARED_FEW, _SHARED_MANY = (1024, 1024), (1024, 4096)
_THREADS_FEW, _THREADS_MANY = 128, 256


class TreeWorkspace(TypedWorkspace):
    """The kernels' memory for trees of a `HeteroGraph`, see `Workspace`."""

    def __init__(self, sampler: GpuOptions, graph: HeteroGraph) -> None:
        assert isinstance(sampler, TreeOptions)
        self._sampler, self.sight = sampler, Sight.of(sampler, graph)
        self._table = 0
        self._guess = 1.0  # by which the first guess grew
        super().__init__(sampler, graph, self.sight.lists)

    @property
    def is_learnt(self) -> bool:
        """Whether a mini-batch told its sizes."""
        return len(self._largest[1]) > 0

    def _make_engine(self, sampler: GpuOptions, graph: Graph, picks: Any) -> Any:
        trees = self._sampler
        edge_bits, node_bits = (8 * t.itemsize for t in (self._edge_dtype, self._node_dtype))
        make: Any = getattr(_core, f"TreeCudaSampler_i{edge_bits}_i{node_bits}")
        # Kept, as the kernels read them.
        self._relation_fanouts = self._fanouts_on_device()
        self._core_times = self.sight.core_times(trees, self.device)
        return make(
            self._indptr,
            graph.indices,
            fanouts=self._by_relation,
            relation_fanouts=self._relation_fanouts,
            types=node_types_of(self._typed),
            times=self._core_times,
            paths=trees.trees == "paths",
            last=trees.last,
            replace=trees.replace,
            edge_ids=trees.edge_ids,
            device=self.device.index or 0,
            picks=picks,
        )

    def new_plan(self, num_seeds: int, ahead: bool) -> Plan:
        frontiers, rows, edges = self._capacities_by_hop(num_seeds)
        layout = Layout(frontiers, edges, self._edge_ids, self._node_dtype, self._edge_dtype, rows)
        return Plan("cooperative", "", frontiers, edges, layout, 0, rows)

    def asked(self, plan: Plan, num_seeds: int) -> dict[str, Any]:
        few = sum(plan.edges) <= _FEW_EDGES * max(num_seeds, 1)
        places, ordered = _SHARED_FEW if few else _SHARED_MANY
        blocks = _BLOCKS_PER_MULTIPROCESSOR * self._multiprocessors
        if self._table:
            blocks = max(self.slots, min(blocks, _MOST_TABLES // (_BYTES_OF_PLACE * self._table)))
        return {
            "num_seeds": num_seeds,
            "slots": self.slots,
            "frontier_capacity": plan.frontiers,
            "edge_capacity": plan.edges,
            "row_capacity": plan.rows,
            "indices_at": plan.layout.indices_at,
            "indptr_at": plan.layout.indptr_at,
            "edge_ids_at": plan.layout.edge_ids_at,
            "edges_at": plan.layout.edges_at,
            "rows": sum(plan.rows),
            "picks": sum(plan.edges),
            "table": self._table,
            "blocks": blocks,
            "threads": _THREADS_FEW if few else _THREADS_MANY,
            "shared_places": places,
            "shared_sorted": ordered,
        }

    def _capacities_by_hop(self, num_seeds: int) -> tuple[list[int], list[int], list[int]]:
        """Room for the nodes within each number of hops, and for the rows and edges of each hop.

        What fanouts allow is some hundred times what is found. So the sizes of the first trees are learnt from a few,
        and a mini-batch that does not fit is sampled again with more room.
        """
        known_nodes, known_edges = self._largest
        most_into = max(self._relations)
        frontiers, rows, edges = [num_seeds], list[int](), list[int]()
        for hop, k in enumerate(self._fanouts):
            new = frontiers[-1] - (frontiers[-2] if hop else 0)
            if hop < len(self._most_rows):  # mini-batches may find their nodes at other hops
                rows.append(with_headroom(self._most_rows[hop]))
            else:
                rows.append(min(most_into * new, max(int(self._guess * _FIRST_ROWS), 2 * new)))
            bounded = k != -1 and not self._labor  # which picks `k` on average
            bound = min(rows[-1] * k, self.most_edges) if bounded else self.most_edges
            if hop < len(known_edges):
                edges.append(min(bound, with_headroom(known_edges[hop])))
            else:
                edges.append(min(bound, int(self._guess * _FIRST_PICKS)))
            nodes = frontiers[-1] + edges[-1]
            if hop + 1 < len(known_nodes):
                nodes = min(nodes, with_headroom(known_nodes[hop + 1]))
            frontiers.append(max(frontiers[-1], nodes))
        return frontiers, rows, edges

    def outgrew(self, table: int, picks: int, rows: int) -> None:
        """Makes room where a mini-batch needed a larger table, or at least these picks and rows in all its hops."""
        self._plans.clear()
        self._planned = None
        self._table = max(self._table, table)
        plan_rows, plan_picks = self._room
        lacks_picks, lacks_rows = picks > plan_picks, rows > plan_rows
        if not lacks_picks and not lacks_rows:
            if table:
                return
            lacks_picks = lacks_rows = True
        if not self.is_learnt:
            self.grow(max(2.0, 1.5 * picks / max(plan_picks, 1), 1.5 * rows / max(plan_rows, 1)))
            return

        def more(sizes: list[int], needed: int) -> list[int]:
            # Which hop lacks room is not known, and one that had none so far becomes no larger by a factor.
            return [max(2 * n, needed // len(self._fanouts)) for n in sizes]

        if lacks_picks:
            nodes, edges = self._largest
            self._largest = more(nodes, picks), more(edges, picks)
        if lacks_rows:
            self._most_rows = more(self._most_rows, rows)

    def grow(self, by: float) -> None:
        """Makes the learnt sizes larger, or the guesses as long as there are none."""
        if not self.is_learnt:
            self._guess *= by
        self._largest = tuple([int(by * n) for n in sizes] for sizes in self._largest)  # type: ignore[assignment]
        self._most_rows = [int(by * n) for n in self._most_rows]
        self._plans.clear()
        self._planned = None

    @property
    def _room(self) -> tuple[int, int]:
        """Rows and picks that the arrays have room for."""
        held = self._arrays
        return held["row_first"].numel() // self.slots, held["picks"].numel() // self.slots


class TreeCudaSession(TypedCudaSession):
    """Samples trees of a `HeteroGraph` on the GPU, see `CudaSession`."""

    workspace = TreeWorkspace
    _space: TreeWorkspace | None

    def __init__(self, sampler: TreeOptions, graph: HeteroGraph) -> None:
        self._sampler = sampler
        super().__init__(sampler, graph)

    def _take(self, request: Request, ahead: bool) -> Begun:
        space, seeds = self._opened(), request.seeds
        assert isinstance(space, TreeWorkspace)
        sight = space.sight
        if sight.timed is None:
            if seeds.dim() != 1:
                sight.split(self._sampler, seeds)  # says what is wrong
            plain = super()._take(request, ahead)
            return TreeBegun(self, plain.seeds, plain.num_seeds, plain.epoch, plain.index, ahead)
        # Pairs on the GPU are read as they are, and the kernel checks their ids.
        pairs = seeds.dim() == 2 and seeds.shape[1] == 2 and seeds.dtype == torch.int64
        if not (pairs and seeds.device == self._device and seeds.is_contiguous()):
            ids, at = sight.split(self._sampler, seeds)
            assert at is not None
            seeds = torch.stack([ids.long(), at], 1).to(self._device, non_blocking=True)
        begun = TreeBegun(self, seeds, seeds.shape[0], request.epoch, request.batch, ahead)
        begun.times, begun.numbers = seeds[:, 1], request.numbers
        if not sight.sees_times:
            begun.seeds = seeds[:, 0].to(self._dtype).contiguous()
        return begun

    def _extra_output(self, begun: Begun) -> Tensor:
        assert isinstance(begun, TreeBegun)
        begun.tree = torch.empty(begun.plan.frontiers[-1], dtype=torch.int32, device=self._device)
        return begun.tree

    def _launch(self, space: Workspace, together: list[Begun]) -> None:
        assert isinstance(space, TreeWorkspace)
        first = together[0]
        if not space.is_learnt and first.num_seeds > 0:
            self._learn_from_few(space, first)
        super()._launch(space, together)

    def _learn_from_few(self, space: TreeWorkspace, begun: Begun) -> None:
        """Learns the sizes of mini-batches from a part of this one, and waits for it."""
        every = -(-begun.num_seeds // _PILOT)
        seeds = begun.seeds[::every].contiguous()
        few = TreeBegun(self, seeds, seeds.shape[0], begun.epoch, begun.index, begun.ahead)
        while not space.is_learnt:
            super()._launch(space, [few])
            report = few.result.wait()
            if report[0] != 0:
                self._outgrew(space, report)
                continue
            space.learn_types(report[8])
            space.learn(report[3], report[4], 0, did_fit=True)
        space.grow(begun.num_seeds / few.num_seeds)

    def _outgrew(self, space: Workspace, report: Sequence[Any]) -> None:
        assert isinstance(space, TreeWorkspace)
        status, detail, done, _, _, picks, _, rows = report[:8]
        if done:  # it was sampled, and its sizes are known
            return super()._outgrew(space, report)
        self._raise_for(status, detail) if status != 1 else space.outgrew(detail, picks, rows)

    def build(self, begun: Begun, frontiers: list[int], edges: list[int], *more: Any) -> TreeMiniBatch:
        (new_by_type,) = more
        assert isinstance(begun, TreeBegun)
        nodes, hops = self._arrays_of(begun, frontiers, edges, new_by_type)
        return TreeMiniBatch(
            nodes,
            tuple(map(tuple, new_by_type)),
            typed_blocks(frontiers, hops, True),
            *(self._graph.node_types, self._graph.edge_types),
            *(begun.epoch, begun.index),
            tree=begun.tree[: frontiers[-1]],
            seed_times=begun.times,
            items=begun.numbers,
        )


class TreeBegun(Begun):
    """Trees that were launched."""

    __slots__ = ("numbers", "times", "tree")

    times: Tensor | None
    numbers: Tensor | None  # of the seeds in a loader's list
    tree: Tensor

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.times = self.numbers = None

    def outputs(self) -> list[Tensor]:
        return [self.memory, self.tree]
