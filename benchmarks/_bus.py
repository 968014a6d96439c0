"""What crosses the bus in an epoch, by the line, and how long its two parts take by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from _gpu_batches import milliseconds
from torch import Tensor

from loader.graph import Graph
from loader.samplers import CudaSampler
from loader.samplers.base import Request
from loader.samplers.gpu.pinned_reads import LINE_BYTES
from loader.stores import PinnedFeatures


def lines_of(edge_ids: Iterable[Tensor | None], entry_bytes: int, begin: int = 0) -> int:
    """Distinct lines of 128 bytes in which picks lie.

    Args:
        edge_ids: integer, places in `indices`; None is passed over.
        entry_bytes: of an element of `indices`.
        begin: of the memory of `indices`, in bytes behind the begin of a line.
    """
    parts = [torch.unique((ids.long() * entry_bytes + begin) // LINE_BYTES) for ids in edge_ids if ids is not None]
    return torch.unique(torch.cat(parts)).numel()


def lines_of_rows(ids: Tensor, row_bytes: int) -> int:
    """Distinct lines of 128 bytes in which rows of a table lie, whose memory begins on a line.

    Args:
        ids: integer, distinct.
        row_bytes: at least a line.
    """
    begins = ids.long().sort().values * row_bytes
    first, last = begins // LINE_BYTES, (begins + row_bytes - 1) // LINE_BYTES
    shared = int((first[1:] == last[:-1]).sum())
    return int((last - first + 1).sum()) - shared


class EpochOverBus:
    """The mini-batches of an epoch on a GPU whose lists and rows are in host memory.

    Args:
        batches: of the epoch.
        share: of their rows that cross the bus; which rows do, is drawn.
        fanouts: they were sampled with.
        together: mini-batches that are sampled in a launch.
    """

    def __init__(self, batches: Iterable[Any], share: float, fanouts: Sequence[int], together: int) -> None:
        self._fanouts, self._together = fanouts, together
        self._rows: list[Tensor] = []
        requests: list[Request] = []
        for batch in batches:
            nodes = batch.input_nodes
            self._rows.append(nodes[torch.rand(nodes.numel(), device=nodes.device) < share])
            requests.append(Request(batch.output_nodes, 0, len(requests)))
        self._groups = [requests[first : first + together] for first in range(0, len(requests), together)]

    def row_lines(self, row_bytes: int) -> int:
        """Lines of rows that must be read, each once per mini-batch."""
        return sum(lines_of_rows(rows, row_bytes) for rows in self._rows)

    def list_lines(self, graph: Graph) -> int:
        """Lines of lists that must be read, each once per group. They are counted by the edge ids of the picks.

        Args:
            graph: in GPU memory.
        """
        sampler = CudaSampler(self._fanouts, seed=0, edge_ids=True, batches_per_launch=self._together)
        session, lines = sampler.open(graph), 0
        for group in self._groups:
            ids = [block.edge_ids for finish in session.begin(group) for block in finish().blocks]
            lines += lines_of(ids, graph.indices.itemsize)
        sampler.close()
        return lines

    def sampling_seconds(self, graph: Graph, rounds: int = 5) -> float:
        """Of all mini-batches, by a GPU that does nothing else; the median.

        Args:
            graph: in pinned host memory.
        """
        sampler = CudaSampler(self._fanouts, seed=0, batches_per_launch=self._together)
        session = sampler.open(graph)

        def sample(call: int) -> None:
            for group in self._groups:
                for finish in session.begin(group):
                    finish()

        taken = milliseconds({"sampling": sample}, 1, rounds)
        sampler.close()
        return 1e-3 * taken["sampling"]

    def gathering_seconds(self, features: Tensor, rounds: int = 5) -> float:
        """Of the rows that cross the bus, by a GPU that does nothing else; the median.

        Args:
            features: in host memory.
        """
        store = PinnedFeatures(features)

        def gather(call: int) -> None:
            for rows in self._rows:
                store.gather(rows)

        taken = milliseconds({"gathering": gather}, 1, rounds)
        store.close()
        return 1e-3 * taken["gathering"]
