"""DGL's own `NeighborSampler` behind our protocol, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from loader.graph import Graph, require_graph, require_square
from loader.machine.arguments import check_known
from loader.machine.forks import ForkSafeLock
from loader.machine.optional import import_dgl
from loader.samplers.base import (
    OTHERS_OPTIONS,
    NeighborSampler,
    PickOptions,
    Request,
    Session,
    as_seeds,
    check_position,
    tell_ignored_times,
)
from loader.samplers.picks import weighed
from loader.samples import Block, MiniBatch

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DGLSampler(NeighborSampler):
    """`dgl.dataloading.NeighborSampler` on the CPU.

    Mini-batches hold the same nodes and edges as DGL's blocks, in DGL's order: the new nodes of a hop come in
    order of arrival, not by ascending id. DGL uses its own threads (`OMP_NUM_THREADS`, or `torch.set_num_threads`
    before the first call).

    DGL keeps one random state per thread. It is seeded from (seed, epoch, batch) before each mini-batch, so a run can
    be repeated with the same number of threads.

    Args:
        fanouts, num_hops, options: see `NeighborSampler`. Fanouts begin at the seeds, unlike in DGL. DGL makes the
            picks by weight.

    Raises:
        ImportError: DGL is not installed.
        TypeError: there is no such option.
        ValueError: `top_k` or `labor` is given, which this sampler does not have.
    """

    def __init__(
        self, fanouts: int | Sequence[int] = (), num_hops: int | None = None, **options: Unpack[PickOptions]
    ) -> None:
        known = ["fanouts", "num_hops", *PickOptions.__annotations__]
        # Python would name the base class, and no way out.
        ways = {**OTHERS_OPTIONS, "num_threads": "torch.set_num_threads says it to DGL"}
        check_known("DGLSampler", options, known, ways)
        super().__init__(fanouts, num_hops, **options)
        if self.picking.top_k or self.picking.labor:
            name = "top_k" if self.picking.top_k else "labor"
            raise ValueError(f"{name}=True is not for DGLSampler; use FusedSampler (sampler=fused)")
        import_dgl("sampler=dgl")  # says at once what to install

    def open(self, graph: Graph) -> Session:
        self.require_open()
        require_graph(graph, hetero=False)
        tell_ignored_times(self, graph)
        self.require_one_type()
        return _DGLSession(self, graph)

    def __repr__(self) -> str:
        return f"DGLSampler(fanouts={list(self.fanouts)})"


class _DGLSession(Session):
    """Holds the graph as DGL knows it. Calls from several threads take turns."""

    def __init__(self, sampler: DGLSampler, graph: Graph) -> None:
        if graph.device.type != "cpu":
            raise ValueError(f"DGLSampler samples on the CPU but the graph lies on {graph.device}")
        require_square(graph, "DGLSampler")
        self._dgl = import_dgl("sampler=dgl")
        self._config, self._graph = sampler, graph
        # DGL counts layers from the input, we count hops from the seeds.
        weighs = sampler.picking.weights is not None
        if weighs:
            weighed(graph, "DGLSampler")  # looks at the weights
        self._sampler = self._dgl.dataloading.neighbor_sampler.NeighborSampler(
            list(sampler.fanouts[::-1]), replace=sampler.replace, prob="weight" if weighs else None
        )
        self._lock = ForkSafeLock()
        # Always 64 bits: with 32-bit ids DGL 1.1.3's picks narrow from call to call, until each node
        # keeps the same few neighbors.
        csc = (graph.indptr.long(), graph.indices.long(), torch.empty(0, dtype=torch.int64))
        self._dgl_graph = self._dgl.graph(("csc", csc), num_nodes=graph.num_nodes)
        if weighs:
            self._dgl_graph.edata["weight"] = graph.edge_weights

    def begin(self, group: Sequence[Request], *, ahead: bool = False) -> Sequence[Callable[[], MiniBatch]]:
        def sampled(request: Request) -> Callable[[], MiniBatch]:
            batch = self._sample(request)
            return lambda: batch

        return [sampled(request) for request in group]

    def _sample(self, request: Request) -> MiniBatch:
        graph, config = self._graph, self._config
        seeds, epoch, batch = as_seeds(graph, request.seeds), request.epoch, request.batch
        check_position(epoch, batch)
        if torch.unique(seeds).numel() != seeds.numel():
            values, counts = torch.unique(seeds, return_counts=True)
            raise ValueError(
                f"seeds holds node {int(values[counts > 1][0])} more than once; seeds must be distinct (torch.unique)"
            )
        with self._lock:
            self._dgl.seed(_mix(config.seed, epoch, batch))
            _, _, dgl_blocks = self._sampler.sample_blocks(self._dgl_graph, seeds.long())
        edge_dtype, node_dtype = graph.indptr.dtype, graph.indices.dtype
        blocks = []
        for b in dgl_blocks:
            indptr, indices, order = b.adj_tensors("csc")
            edge_ids = None
            if config.edge_ids:
                edge_ids = b.edata[self._dgl.EID]
                edge_ids = edge_ids[order] if order.numel() else edge_ids
                edge_ids = edge_ids.to(edge_dtype) if graph.edge_ids is None else graph.edge_ids[edge_ids]
            blocks.append(
                Block(indptr.to(edge_dtype), indices.to(node_dtype), b.num_src_nodes(), b.num_dst_nodes(), edge_ids)
            )
        sizes = (*(b.num_dst for b in reversed(blocks)), blocks[0].num_src)
        nodes = dgl_blocks[0].srcdata[self._dgl.NID].to(node_dtype)
        return MiniBatch(nodes, sizes, tuple(blocks), epoch=epoch, index=batch)


def _mix(seed: int, epoch: int, batch: int) -> int:
    """One 31-bit number out of three, for a generator that takes no more."""
    from loader import _core

    return _core.batch_key(seed, epoch, batch) & 0x7FFFFFFF
