"""The samplers of the C++ core: `HopwiseSampler`, `FusedSampler`, `FullSampler`."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.cpus import available_cpus
from loader.samplers.base import Sampler, as_seeds, check_position
from loader.samples import Block, MiniBatch

# Mini-batches that cannot reach this many edges are sampled by one thread alone: waking the others takes longer.
SERIAL_EDGES = 2048


class CoreSampler(Sampler):
    """Base of the samplers in C++: allocates what they write. Calls from several threads take turns.

    Args:
        num_threads: threads of one call, by default as many as there are processors.
        fanouts, num_hops, replace, edge_ids, seed: see `Sampler`.
    """

    picks = "pick.h"  # of csrc/sampler/, as the GPU's

    def __init__(
        self,
        fanouts: int | Sequence[int],
        num_hops: int | None = None,
        *,
        replace: bool = False,
        edge_ids: bool = False,
        seed: int = 0,
        num_threads: int | None = None,
    ) -> None:
        super().__init__(fanouts, num_hops, replace=replace, edge_ids=edge_ids, seed=seed)
        self.num_threads = available_cpus() if num_threads is None else int(num_threads)
        self._engine = self._make_engine()
        self._lock = threading.Lock()

    @abstractmethod
    def _make_engine(self) -> Any:
        """The class of the extension that does the work."""

    def sample(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> MiniBatch:
        if graph.device.type != "cpu":
            raise ValueError(
                f"{type(self).__name__} samples on the CPU but the graph lies on {graph.device}; use graph.to('cpu')"
            )
        seeds = as_seeds(graph, seeds)
        check_position(epoch, batch)
        key = _core.batch_key(self.seed, epoch, batch)
        edge_dtype, node_dtype = graph.indptr.dtype, graph.indices.dtype
        with self._lock:
            if self._engine is None:
                raise RuntimeError(f"this {type(self).__name__} was closed; make a new one")
            frontiers, edges = self._engine.sample(
                graph.indptr, graph.indices, seeds, self.fanouts, self.replace, self.edge_ids, key
            )
            nodes = torch.empty(frontiers[-1], dtype=node_dtype)
            indptr = [torch.empty(n + 1, dtype=edge_dtype) for n in frontiers[:-1]]
            indices = [torch.empty(n, dtype=node_dtype) for n in edges]
            edge_ids = [torch.empty(n, dtype=edge_dtype) for n in edges] if self.edge_ids else []
            self._engine.write(nodes, indptr, indices, edge_ids)
        if graph.edge_ids is not None:
            edge_ids = [graph.edge_ids[ids] for ids in edge_ids]
        blocks = tuple(
            Block(
                indptr[h],
                indices[h],
                num_src=frontiers[h + 1],
                num_dst=frontiers[h],
                edge_ids=edge_ids[h] if self.edge_ids else None,
            )
            for h in reversed(range(self.num_hops))
        )
        return MiniBatch(nodes, tuple(frontiers), blocks, epoch=epoch, index=batch)

    def close(self) -> None:
        with self._lock:
            self._engine = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(fanouts={list(self.fanouts)}, num_threads={self.num_threads})"


class HopwiseSampler(CoreSampler):
    """Hop by hop, a barrier between hops: the specification, and the oracle of all other samplers."""

    def _make_engine(self) -> Any:
        return _core.HopwiseSampler(self.num_threads)


class FusedSampler(CoreSampler):
    """One call for all hops: workers share a queue of (vertex, hop) tasks, with no barrier between hops.

    Bit-identical to `HopwiseSampler` for any number of threads. The idea is PGSampler's; the workspace takes
    5 bytes a vertex (9 with int64 vertices), and a bit for each vertex and thread.
    """

    def _make_engine(self) -> Any:
        return _core.FusedSampler(self.num_threads, SERIAL_EDGES)


class FullSampler(FusedSampler):
    """All neighbours at every hop.

    Args:
        num_hops: number of hops.
        edge_ids, num_threads: see `CoreSampler`.
    """

    def __init__(self, num_hops: int, *, edge_ids: bool = False, num_threads: int | None = None) -> None:
        super().__init__(-1, num_hops, edge_ids=edge_ids, num_threads=num_threads)
