"""How large the mini-batches of a `HeteroGraph` become on a GPU, and what a workspace for them takes. This needs no
GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loader.graph import Graph, HeteroGraph
from loader.samplers.gpu.layout import Layout
from loader.samplers.gpu.sizes import HASH_FROM_NODES, HASH_SPARSITY, GpuOptions, Plan, Sizes, with_headroom
from loader.samplers.gpu.worst_case_sizes import Reach
from loader.samplers.relations import fanouts_by_relation

_SCHEDULES = ("auto", "cooperative")
_FIRST_ROWS, _FIRST_EDGES = 1 << 20, 1 << 22  # of a hop, at most, before the first mini-batch told how many there are


def require_hetero(sampler: GpuOptions) -> None:
    """Raises ValueError if an option of the sampler is for graphs of one type only."""
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


class HeteroSizes(Sizes):
    """The sizes of a typed graph's mini-batches: how large they can be, and how large they were so far, see `Sizes`.

    Args:
        sampler: how to sample.
        typed: the graph, whose lists' lengths are read.
        lists: of the graph; only their sizes are read.
        more, options: see `Sizes`, or what a subclass comes before in its bases.
    """

    def __init__(self, sampler: GpuOptions, hetero: HeteroGraph, lists: Graph, *more: Any, **options: Any) -> None:
        self._hetero = hetero
        self._relations = [len(into) for into in hetero.relations_into.values()]
        self._once = sampler.expand == "new"
        self._by_relation = fanouts_by_relation(hetero, sampler.fanouts, sampler.relation_fanouts)
        self._most_picks = [max([0, *hop]) for hop in self._by_relation]  # of a list that is not taken whole
        self._most_rows: list[int] = []  # of each hop, so far
        self._reach = self._reach_of(sampler, hetero)
        super().__init__(sampler, lists, *more, **options)

    def _reach_of(self, sampler: GpuOptions, hetero: HeteroGraph) -> Reach:
        return Reach(sampler, hetero)

    def _choose_set(self, room: int) -> str:
        return "hash" if self._scans else super()._choose_set(room)

    def _choose(self, edges: list[int], node_set: str, ahead: bool) -> str:
        return "cooperative"

    def new_plan(self, num_seeds: int, ahead: bool) -> Plan:
        frontiers, rows, edges = self._capacities_by_hop(num_seeds)
        layout = Layout(frontiers, edges, self._edge_ids, self._node_dtype, self._edge_dtype, rows)
        kind = self._choose_set(frontiers[-1])
        return Plan("cooperative", kind, frontiers, edges, layout, self._blocks[ahead], rows)

    def largest_plans(self, num_seeds: int) -> list[Plan]:
        """Every plan that there may be, at its largest, as long as the seeds of a mini-batch have one type."""
        most, all_edges = self._reach.most(num_seeds), self.graph.num_edges
        frontiers = [min(n, self.num_nodes) for n in most.frontiers]
        rows = [min(n, self.graph.num_dst) for n in most.rows]
        edges = [min(n, self.most_edges) if self._replace else min(n, all_edges) for n in most.edges]
        layout = Layout(frontiers, edges, self._edge_ids, self._node_dtype, self._edge_dtype, rows)
        plan = Plan("cooperative", self._choose_set(frontiers[-1]), frontiers, edges, layout, 0, rows)
        if plan.node_set == "hash" or self.node_set != "auto" or self.num_nodes < HASH_FROM_NODES:
            return [plan]
        # Smaller mini-batches have a hash set. It comes first: the first one replaces the bitmaps.
        few = self.num_nodes // HASH_SPARSITY
        return [plan._replace(node_set="hash", frontiers=[min(n, few) for n in frontiers]), plan]

    def asked(self, plan: Plan, num_seeds: int) -> dict[str, Any]:
        return {**super().asked(plan, num_seeds), "row_capacity": plan.rows}

    def _capacities_by_hop(self, num_seeds: int) -> tuple[list[int], list[int], list[int]]:
        """Room for the nodes within each number of hops, and for the rows and edges of each hop.

        Fanouts bound a mini-batch by far more than it has. So the first guess is bounded by a number, and a mini-batch
        that does not fit is sampled again with room for what was found. Seeds of several types together may reach more
        than those of one; then what was found counts, with the same headroom.
        """
        most, (known_nodes, known_edges) = self._reach.most(num_seeds), self._largest
        all_rows, all_edges = self.graph.num_dst, self.graph.num_edges
        most_into = max(self._relations)
        frontiers, rows, edges = [num_seeds], list[int](), list[int]()
        for hop, k in enumerate(self._fanouts):
            new = frontiers[-1] - (frontiers[-2] if self._once and hop else 0)
            known_rows = self._most_rows[hop] if hop < len(self._most_rows) else 0
            if hop < len(self._most_rows):
                room = with_headroom(known_rows)
            else:
                room = min(most_into * new, max(_FIRST_ROWS, 2 * new))
            room = _capped(room, most.rows[hop], known_rows)
            rows.append(max(min(room, all_rows), 0 if self._once or not rows else rows[-1]))
            bound = rows[-1] * self._most_picks[hop] if self._replace else all_edges
            bound += all_edges if k == -1 and self._replace else 0
            if k != -1 and not self._labor:  # which picks `k` on average
                bound = min(bound, rows[-1] * k)
            if hop < len(known_edges):
                bound = min(bound, with_headroom(known_edges[hop]))
                bound = max(_capped(bound, most.edges[hop], known_edges[hop]), known_edges[hop])
            else:
                bound = min(bound, max(_FIRST_EDGES, 2 * rows[-1]), most.edges[hop])
            edges.append(min(bound, self.most_edges))
            nodes = min(self.num_nodes, frontiers[-1] + edges[-1])
            known = known_nodes[hop + 1] if hop + 1 < len(known_nodes) else 0
            if known:
                nodes = min(nodes, with_headroom(known))
            nodes = _capped(nodes, most.frontiers[hop + 1], known)
            frontiers.append(max(frontiers[-1], nodes))
        return frontiers, rows, edges

    def learn_rows(self, rows: Sequence[int]) -> None:
        """Remembers the most rows so far, see `Workspace.learn`."""
        self._most_rows += [0] * (len(rows) - len(self._most_rows))
        self._most_rows[: len(rows)] = map(max, self._most_rows, rows)


def _capped(room: int, most: int, known: int) -> int:
    """At most what seeds of one type may reach, unless a mini-batch had more."""
    return room if known > most else min(room, most)
