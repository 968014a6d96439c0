"""What a budget of GPU memory keeps of a `HeteroGraph` and of the features of its node types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from loader.graph import HeteroGraph
from loader.machine.gpu import counted_bytes
from loader.memory.hetero_reads import HeteroReads
from loader.memory.hetero_split import HeteroSplit, split_types
from loader.memory.plan import MemoryNeeds, check_budget, place_of, readable


class HeteroPlan(NamedTuple):
    """What a budget keeps in GPU memory, of a graph with types.

    Attributes:
        budget: bytes of GPU memory in all.
        needs: what is taken whatever is kept.
        split: which rows lie in GPU memory, and whether the graph does.
        shares: node type -> share of its rows that is kept, of types with features.
        nbytes: the most that torch's allocator counts for all of it.
    """

    budget: int
    needs: MemoryNeeds
    split: HeteroSplit
    shares: dict[str, float]
    nbytes: int

    @classmethod
    def make(
        cls,
        budget: int,
        needs: MemoryNeeds,
        graph: HeteroGraph,
        rows: Mapping[str, int],
        reads: HeteroReads,
    ) -> HeteroPlan:
        """The plan with the fewest bytes over the bus.

        Args:
            budget: bytes.
            needs: with those of rows.
            graph: only its sizes are read.
            rows: node type -> bytes of a feature row, as it is kept.
            reads: what mini-batches read.

        Raises:
            ValueError: the budget is less than the needs.
        """
        check_budget(budget, needs)
        list_bytes = graph.lists.indices.nbytes
        split = split_types(budget - needs.total, list_bytes, reads.lists, rows, reads.rows)
        held, shares = needs.total + counted_bytes(split.list_bytes), {}
        for name, row_bytes in rows.items():
            count, ids = len(graph.node_types[name]), split.rows[name]
            here = count if ids is None else ids.numel()
            shares[name] = here / max(count, 1)
            held += counted_bytes(here * row_bytes) + (0 if ids is None or not here else counted_bytes(4 * count))
        return cls(budget, needs, split, shares, held)

    @property
    def lists(self) -> str:
        """Where the graph lies: a value of the option `datamodule.graph`."""
        return "device" if self.split.lists else "pinned"

    @property
    def rows(self) -> dict[str, str]:
        """Node type -> where its rows lie, as `features`."""
        return {name: place_of(ids) for name, ids in self.split.rows.items()}

    def card(self) -> dict[str, Any]:
        """The plan in plain values."""
        return {
            "budget_bytes": self.budget,
            "needed_bytes": self.needs.total,
            "needs": self.needs._asdict(),
            "graph": self.lists,
            "list_bytes": self.split.list_bytes,
            "features": self.rows,
            "share_of_rows": self.shares,
            "row_bytes": self.split.row_bytes,
            "expected_bytes": self.nbytes,
            "bus_bytes_a_batch": self.split.bus,
            "bus_bytes_a_batch_without": self.split.bus_without,
        }

    def __str__(self) -> str:
        parts = "".join(f", {share:.1%} of the rows of {name}" for name, share in self.shares.items())
        graph = "the graph" if self.split.lists else "the places of the lists"
        return (
            f"memory {readable(self.budget)}: {graph}{parts} lie in GPU memory, {readable(self.needs.total)} go to the "
            f"workspace and mini-batches in flight; {readable(self.split.bus)} per mini-batch are expected to cross "
            f"the bus, with nothing of graph and rows {readable(self.split.bus_without)}"
        )
