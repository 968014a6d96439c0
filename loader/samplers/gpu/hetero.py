"""Sampling a `HeteroGraph` on the GPU: all relations of all hops in one launch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, HeteroGraph
from loader.machine.gpu import current_stream
from loader.samplers.base import as_seeds
from loader.samplers.gpu.hetero_sizes import HeteroSizes, require_hetero
from loader.samplers.gpu.session import Begun, CudaSession
from loader.samplers.gpu.sizes import GpuOptions
from loader.samplers.gpu.workspace import Workspace
from loader.samplers.relations import node_types_of
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.hetero_block import HeteroBlock


class HeteroWorkspace(HeteroSizes, Workspace):
    """The kernels' memory for a `HeteroGraph`, see `Workspace`.

    Raises:
        ValueError: an option of the sampler is for graphs of one type only.
    """

    def __init__(self, sampler: GpuOptions, graph: HeteroGraph, lists: Graph | None = None) -> None:
        super().__init__(sampler, graph, graph.lists if lists is None else lists)

    def _require(self, sampler: GpuOptions, graph: Graph) -> None:
        require_hetero(sampler)
        if graph.list_cache is not None:
            raise ValueError("the lists of a HeteroGraph are cached, which its sampler does not read; leave it out")

    def _header_bytes(self) -> int:
        return _core.cuda_hetero_header_bytes

    def _choose_reads(self, sampler: GpuOptions, graph: Graph) -> str:
        return "naive"

    def _make_engine(self, sampler: GpuOptions, graph: Graph, picks: Any) -> Any:
        edge_bits, node_bits = (8 * t.itemsize for t in (self._edge_dtype, self._node_dtype))
        make: Any = getattr(_core, f"HeteroCudaSampler_i{edge_bits}_i{node_bits}")
        fanouts = self._fanouts_on_device()
        return make(
            self._indptr,
            graph.indices,
            fanouts=self._by_relation,
            relation_fanouts=fanouts,
            types=node_types_of(self._hetero),
            once=self._once,
            replace=self._replace,
            edge_ids=self._edge_ids,
            device=self.device.index or 0,
            picks=picks,
        )

    def _fanouts_on_device(self) -> Tensor:
        """`[hops, relations]` int16, flat. The workspace keeps it, as the kernels read it."""
        fanouts = torch.tensor(self._by_relation, dtype=torch.int16).view(-1).to(self.device)
        self._read.append(fanouts)
        return fanouts


class HeteroBegun(Begun):
    """A typed mini-batch that was launched."""

    __slots__ = ("batch",)

    batch: Any  # a HeteroMiniBatch without its arrays and sizes, until it is finished


class HeteroCudaSession(CudaSession):
    """Samples a `HeteroGraph` on the GPU, see `CudaSession`."""

    workspace: type[HeteroWorkspace] = HeteroWorkspace
    begun: type[HeteroBegun] = HeteroBegun
    _space: HeteroWorkspace | None

    def __init__(self, sampler: GpuOptions, graph: HeteroGraph) -> None:
        self._graph = graph
        self._once = sampler.expand == "new"
        super().__init__(sampler, graph)

    def _as_seeds(self, seeds: Tensor) -> Tensor:
        return as_seeds(self._graph, seeds)

    def _launch(self, space: Workspace, together: list[Begun]) -> None:
        super()._launch(space, together)
        for begun in together:  # while the GPU samples
            assert isinstance(begun, HeteroBegun)
            begun.batch = self._empty_batch(begun)

    def _empty_batch(self, begun: Any) -> HeteroMiniBatch:
        """The mini-batch, to which `build` gives its arrays and sizes."""
        return HeteroMiniBatch(
            begun.memory, (), self._empty_blocks(begun), self._graph.node_types, self._graph.edge_types,
            begun.epoch, begun.index,
        )  # fmt: skip

    def _empty_blocks(self, begun: Begun) -> tuple[HeteroBlock, ...]:
        memory = begun.memory
        return tuple([HeteroBlock(memory, memory, 0, 0, 0) for _ in begun.plan.edges])

    def build(self, begun: Begun, frontiers: list[int], edges: list[int], *more: Any) -> Any:
        assert isinstance(begun, HeteroBegun)
        new_by_type, rows = more
        space, batch = self._opened(), begun.batch
        nodes, indices, indptr, ids, tree = begun.plan.layout.fit(begun.room, frontiers, edges, rows)
        if ids and space.graph.edge_ids is not None:
            begun.memory.record_stream(current_stream(self._index))
            ids = [space.edge_ids()[i] for i in ids]
        first = 0
        for h, block in enumerate(reversed(batch.blocks)):
            block.indptr, block.indices, block.edge_ids = indptr[h], indices[h], ids[h] if ids else None
            known = frontiers[h]
            block.first_dst, block.num_dst, block.num_src = first, known - first, frontiers[h + 1]
            if self._once:
                first = known
        batch.nodes, batch.sizes = nodes, new_by_type
        batch.segments.sizes = new_by_type
        if tree is not None:
            batch.tree = tree
        return batch
