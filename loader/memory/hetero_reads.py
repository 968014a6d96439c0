"""How often mini-batches read the rows of each type, and how much they read of the lists of a `HeteroGraph`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from loader.graph import HeteroGraph
from loader.memory.visits import best_classes, out_degrees
from loader.samplers.gpu.pinned_reads import SECTOR_BYTES
from loader.samples.hetero import HeteroMiniBatch


class HeteroReads(NamedTuple):
    """What mini-batches of a typed graph read, as far as some of them tell.

    Attributes:
        counted: how many mini-batches.
        lists: bytes that a mini-batch is expected to read of neighbor lists over the bus, 32 for each pick: that is the
            least that a GPU asks for.
        rows: node type -> `[nodes of the type]` float64, how often a mini-batch is expected to read each row.
        rows_of: node type -> `[counted]` int64, the number of rows of each mini-batch.
    """

    counted: int
    lists: float
    rows: dict[str, Tensor]
    rows_of: dict[str, Tensor]

    @classmethod
    def of(cls, graph: HeteroGraph, batches: Iterable[HeteroMiniBatch], types: Sequence[str]) -> HeteroReads:
        """Counts what `batches` read of the rows of these types, and expects the like of others: within a type a node
        of which little was seen is like those of about the same degree, see `loader.memory.visits`.

        Raises:
            ValueError: there are none.
        """
        counts = {name: torch.zeros(len(graph.node_types[name]), dtype=torch.int64) for name in types}
        rows_of: dict[str, list[int]] = {name: [] for name in types}
        picks = []
        for batch in batches:
            picks.append(batch.num_edges)
            for name, of_type in counts.items():
                ids = batch.ids(f"node/{name}").long()  # a row each: those of a mini-batch are distinct
                of_type[ids] += 1
                rows_of[name].append(ids.numel())
        if not picks:
            raise ValueError(
                "there is no mini-batch that shows which rows are read: there are 0 seeds to train on; give at least "
                "1, or leave memory out"
            )
        degrees = _degrees(graph)
        expected = {
            name: best_classes(degrees[name], of_type).expected(of_type) / len(picks)
            for name, of_type in counts.items()
        }
        lists = SECTOR_BYTES * sum(picks) / len(picks)
        return cls(len(picks), lists, expected, {name: torch.tensor(of) for name, of in rows_of.items()})


def _degrees(graph: HeteroGraph) -> dict[str, tuple[Tensor, Tensor]]:
    """Node type -> of each node the entries of its lists of all relations, and the lists that it is in."""
    lists, found = graph.lists, {}
    listed, lengths = out_degrees(lists), lists.in_degrees().cpu().long()
    for name, ids in graph.node_types.items():
        slots, first = len(graph.relations_into[name]), graph.first_row[name]
        own = lengths[first : first + len(ids) * slots].view(len(ids), slots).sum(1)
        found[name] = own, listed[ids.start : ids.stop]
    return found
