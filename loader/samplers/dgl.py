"""DGL's own `NeighborSampler` behind our protocol, for comparison."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from loader.graph import Graph
from loader.machine.optional import import_dgl
from loader.samplers.base import Sampler, as_seeds, check_position
from loader.samples import Block, MiniBatch


class DGLSampler(Sampler):
    """`dgl.dataloading.NeighborSampler` on the CPU.

    Mini-batches hold the same vertices and edges as DGL's blocks. Their order is DGL's: new vertices of a
    hop come in order of arrival, not in ascending id. The threads are DGL's own (`OMP_NUM_THREADS`, or
    `torch.set_num_threads` before the first call).

    DGL keeps one random state a thread; it is seeded anew before each mini-batch from (seed, epoch, batch),
    so that runs repeat as long as the number of threads stays the same.

    Args:
        fanouts, num_hops, replace, edge_ids, seed: see `Sampler`; fanouts are in hop order here, too.

    Raises:
        ImportError: DGL is not installed.
    """

    def __init__(
        self,
        fanouts: int | Sequence[int],
        num_hops: int | None = None,
        *,
        replace: bool = False,
        edge_ids: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(fanouts, num_hops, replace=replace, edge_ids=edge_ids, seed=seed)
        self._dgl = import_dgl("sampler=dgl")
        # DGL counts layers from the input, we count hops from the seeds.
        self._sampler = self._dgl.dataloading.NeighborSampler(list(self.fanouts[::-1]), replace=self.replace)
        self._lock = threading.Lock()
        self._graph: tuple[Graph, Any] | None = None
        self._closed = False

    def sample(self, graph: Graph, seeds: Tensor, *, epoch: int = 0, batch: int = 0) -> MiniBatch:
        seeds = as_seeds(graph, seeds)
        check_position(epoch, batch)
        if torch.unique(seeds).numel() != seeds.numel():
            values, counts = torch.unique(seeds, return_counts=True)
            raise ValueError(
                f"seeds holds vertex {int(values[counts > 1][0])} more than once; seeds must be distinct (torch.unique)"
            )
        with self._lock:
            if self._closed:
                raise RuntimeError("this DGLSampler was closed; make a new one")
            g = self._convert(graph)
            self._dgl.seed(_mix(self.seed, epoch, batch))
            _, _, dgl_blocks = self._sampler.sample_blocks(g, seeds.long())
        edge_dtype, node_dtype = graph.indptr.dtype, graph.indices.dtype
        blocks = []
        for b in dgl_blocks:
            indptr, indices, order = b.adj_tensors("csc")
            edge_ids = None
            if self.edge_ids:
                edge_ids = b.edata[self._dgl.EID]
                edge_ids = edge_ids[order] if order.numel() else edge_ids
                edge_ids = edge_ids.to(edge_dtype) if graph.edge_ids is None else graph.edge_ids[edge_ids]
            blocks.append(
                Block(
                    indptr.to(edge_dtype),
                    indices.to(node_dtype),
                    b.num_src_nodes(),
                    b.num_dst_nodes(),
                    edge_ids,
                )
            )
        sizes = (*(b.num_dst for b in reversed(blocks)), blocks[0].num_src)
        nodes = dgl_blocks[0].srcdata[self._dgl.NID].to(node_dtype)
        return MiniBatch(nodes, sizes, tuple(blocks), epoch=epoch, index=batch)

    def close(self) -> None:
        with self._lock:
            self._graph = None
            self._closed = True

    def _convert(self, graph: Graph) -> Any:
        if graph.device.type != "cpu":
            raise ValueError(f"DGLSampler samples on the CPU but the graph lies on {graph.device}")
        if self._graph is None or self._graph[0] is not graph:
            # Always 64 bits: with 32-bit ids DGL 1.1.3's picks narrow from call to call, until each vertex
            # keeps the same few neighbours.
            csc = (graph.indptr.long(), graph.indices.long(), torch.empty(0, dtype=torch.int64))
            g = self._dgl.graph(("csc", csc), num_nodes=graph.num_nodes)
            self._graph = (graph, g)
        return self._graph[1]

    def __repr__(self) -> str:
        return f"DGLSampler(fanouts={list(self.fanouts)})"


def _mix(seed: int, epoch: int, batch: int) -> int:
    """One 31-bit number out of three, for a generator that takes no more."""
    from loader import _core

    return _core.batch_key(seed, epoch, batch) & 0x7FFFFFFF
