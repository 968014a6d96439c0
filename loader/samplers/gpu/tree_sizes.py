"""How large trees become on a GPU, and what a workspace for them takes. This needs no GPU."""

from __future__ import annotations

from typing import Any

from loader.graph import HeteroGraph
from loader.samplers.gpu import tree_thread_blocks
from loader.samplers.gpu.hetero_sizes import HeteroSizes
from loader.samplers.gpu.layout import Layout
from loader.samplers.gpu.sizes import GpuOptions, Plan, with_headroom
from loader.samplers.gpu.worst_case_sizes import Most, Reach
from loader.samplers.tree_options import TreeOptions

_FIRST_ROWS, _FIRST_PICKS = 1 << 14, 1 << 16  # of all trees of a mini-batch, before the first told how many there are
_MOST_TABLES = 2**29  # bytes of the tables that do not fit shared memory
_BYTES_OF_PLACE = 12
_BLOCKS_PER_MULTIPROCESSOR = 16


_MOST_NODES = 2**31 - 1  # of a mini-batch; 32 bits number its entries


class TreeSizes(HeteroSizes):
    """The sizes of the trees of mini-batches, see `HeteroSizes`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._table = 0
        self._guess = 1.0  # by which the first guess grew
        super().__init__(*arguments, **options)

    def _reach_of(self, sampler: GpuOptions, hetero: HeteroGraph) -> Reach:
        """What one tree may reach: that of another seed may reach it, too."""
        assert isinstance(sampler, TreeOptions)
        self._has_tables = sampler.trees == "unique"
        return Reach(sampler, hetero, distinct=self._has_tables)

    def _most(self, num_seeds: int) -> Most:
        return Most(*([n * num_seeds for n in part] for part in self._reach.most(1)))

    @property
    def is_learnt(self) -> bool:
        """Whether a mini-batch told its sizes."""
        return len(self._largest[1]) > 0

    def new_plan(self, num_seeds: int, ahead: bool) -> Plan:
        frontiers, rows, edges = self._capacities_by_hop(num_seeds)
        layout = Layout(frontiers, edges, self._edge_ids, self._node_dtype, self._edge_dtype, rows, trees=True)
        return Plan("cooperative", "", frontiers, edges, layout, 0, rows)

    def largest_plans(self, num_seeds: int) -> list[Plan]:
        """The plan of all that fanouts allow.

        Raises:
            ValueError: that is more than a mini-batch may have.
        """
        frontiers, rows, edges = self._most(num_seeds)
        if max(frontiers[-1], sum(rows), sum(edges)) > _MOST_NODES:
            raise ValueError(
                f"memory counts all that fanouts allow, and {num_seeds} trees may have {sum(rows)} lists and "
                f"{sum(edges)} edges; more than {_MOST_NODES} are not possible: use smaller fanouts or fewer seeds"
            )
        layout = Layout(frontiers, edges, self._edge_ids, self._node_dtype, self._edge_dtype, rows, trees=True)
        return [Plan("cooperative", "", frontiers, edges, layout, 0, rows)]

    def tables(self) -> list[int]:
        """Places of the tables of a tree that there may be; 0: its table is in shared memory."""
        found, tree = [0], self._reach.most(1)
        if self._has_tables:
            for known, edges in zip(tree.frontiers, tree.edges, strict=False):
                # At most half of the places are taken, and at most a quarter by nodes that are new.
                found.append(max(_power_of_two(2 * (known + edges)), 4 * _power_of_two(edges)))
        return [0, *(1 << bit for bit in range(6, max(found).bit_length()))]

    def asked(self, plan: Plan, num_seeds: int) -> dict[str, Any]:
        edges = sum(plan.edges) / max(num_seeds, 1)
        block = tree_thread_blocks.block_for(edges, num_seeds * self.slots, self._multiprocessors)
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
            "trees_at": plan.layout.trees_at,
            "rows": sum(plan.rows),
            "picks": sum(plan.edges),
            "table": self._table,
            "blocks": blocks,
            "threads": block.threads,
            "shared_places": block.places,
            "shared_sorted": block.ordered,
        }

    def _capacities_by_hop(self, num_seeds: int) -> tuple[list[int], list[int], list[int]]:
        """Room for the nodes within each number of hops, and for the rows and edges of each hop.

        What fanouts allow is some hundred times what is found. So the sizes of the first trees are learnt from a few,
        and a mini-batch that does not fit is sampled again with more room.
        """
        most, (known_nodes, known_edges) = self._most(num_seeds), self._largest
        most_into = max(self._relations)
        frontiers, rows, edges = [num_seeds], list[int](), list[int]()
        for hop, k in enumerate(self._fanouts):
            new = frontiers[-1] - (frontiers[-2] if hop else 0)
            if hop < len(self._most_rows):  # mini-batches may find their nodes at other hops
                room = with_headroom(self._most_rows[hop])
            else:
                room = min(most_into * new, max(int(self._guess * _FIRST_ROWS), 2 * new))
            rows.append(min(room, most.rows[hop]))
            bounded = k != -1 and not self._labor  # which picks `k` on average
            bound = min(rows[-1] * k, self.most_edges) if bounded else self.most_edges
            bound = min(bound, most.edges[hop])
            if hop < len(known_edges):
                edges.append(min(bound, with_headroom(known_edges[hop])))
            else:
                edges.append(min(bound, int(self._guess * _FIRST_PICKS)))
            nodes = frontiers[-1] + edges[-1]
            if hop + 1 < len(known_nodes):
                nodes = min(nodes, with_headroom(known_nodes[hop + 1]))
            frontiers.append(max(frontiers[-1], min(nodes, most.frontiers[hop + 1])))
        return frontiers, rows, edges


def _power_of_two(least: int) -> int:
    """The least power of two from 64 on that is no less."""
    return max(64, 1 << max(0, least - 1).bit_length())
