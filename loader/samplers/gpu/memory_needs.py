"""The GPU memory that a sampler needs at most, by the sizes of the graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from loader import _core
from loader.graph import Graph, HeteroGraph
from loader.machine.gpu import counted_bytes
from loader.samplers.base import AnyGraph
from loader.samplers.gpu.hetero_memory_needs import hetero_needs
from loader.samplers.gpu.lists import check_reads_caches, choose_reads
from loader.samplers.gpu.pinned_reads import READS, is_uniform
from loader.samplers.gpu.sizes import (
    HASH_FROM_NODES,
    HASH_SPARSITY,
    GpuOptions,
    Plan,
    Sizes,
)

_MULTIPROCESSORS = 256  # more than any GPU has; no size goes by it


class SamplerNeeds(NamedTuple):
    """What a GPU sampler takes of the GPU's memory, at most.

    Attributes:
        workspace: bytes of the session's arrays.
        batch: bytes of the arrays of a mini-batch.
        nodes: of a mini-batch.
    """

    workspace: int
    batch: int
    nodes: int

    @classmethod
    def of(cls, sampler: GpuOptions, graph: AnyGraph, num_seeds: Iterable[int]) -> SamplerNeeds:
        """The needs of a session for mini-batches of these numbers of seeds, wherever the lists lie.

        They follow from the sizes of the graph and the fanouts, and hold for every mini-batch; of a graph with types
        for those around seeds of one type. The extension tells the sizes of the arrays, as it does a session. Neither a
        GPU nor the graph's arrays are read, but for the lengths of lists by type.

        Raises:
            ValueError: the sampler's options do not bound the size of a mini-batch, or do not read cached lists; or
                they pick by weights, whose tables are not counted.
        """
        check_counted(sampler)
        if isinstance(graph, HeteroGraph):
            return cls(*hetero_needs(sampler, graph, graph_of_sizes(graph.lists), num_seeds))
        seeds = sorted({min(n, graph.num_nodes) for n in num_seeds})
        sizes = graph_of_sizes(graph)
        on_gpu, pinned = sampler.reads if sampler.reads != "auto" else "naive", choose_reads(sampler, sizes)
        whole = _space(sampler, sizes, seeds, on_gpu, cached=False)
        parts = _space(sampler, sizes, seeds, pinned, cached=True)
        return cls(*map(max, whole, parts))


def check_counted(sampler: GpuOptions) -> None:
    """Raises ValueError unless the memory that the sampler takes can be counted, see `SamplerNeeds.of`."""
    if sampler.picking.labor or -1 in sampler.fanouts:
        option = "labor=True" if sampler.picking.labor else "fanout -1"
        raise ValueError(f"memory needs an upper bound of the sizes, but {option} has none; leave one of them out")
    if not is_uniform(sampler):
        raise ValueError(
            "memory counts no tables of weights; leave one of memory and weights out (datamodule.graph says where the "
            "graph lies)"
        )
    check_reads_caches(sampler)


def graph_of_sizes(graph: Graph) -> Graph:
    """A graph of the same sizes and types, whose arrays are meta tensors."""
    sizes = object.__new__(Graph)
    sizes.__dict__.update(graph.__dict__)
    sizes.indptr, sizes.indices = (torch.empty_like(array, device="meta") for array in (graph.indptr, graph.indices))
    return sizes


def _space(sampler: GpuOptions, graph: Graph, seeds: list[int], reads: str, *, cached: bool) -> tuple[int, int, int]:
    """Bytes of the workspace and of a mini-batch, and its nodes, if lists are read in this way."""
    if cached and reads == "naive":
        reads = "sectors"  # cached lists are picked from by place, too; only lines take more
    sizes = Sizes(sampler, graph, reads, cached=cached, multiprocessors=_MULTIPROCESSORS)
    plans = [(n, plan) for n in seeds for plan in _plans(sampler, sizes, n)]
    held = 0
    for slots in {1, sampler.batches_per_launch}:
        engine, sizes.slots = _engine(sampler, graph, reads), slots
        for num_seeds, plan in plans:  # the arrays grow from one to the next
            arrays = engine.plan(**sizes.asked(plan, num_seeds))
            held = max(
                held, sum(counted_bytes(length * getattr(torch, dtype).itemsize) for _, dtype, length, _ in arrays)
            )
    batch = max(counted_bytes(plan.layout.length * plan.layout.dtype.itemsize) for _, plan in plans)
    return held, batch, max(plan.frontiers[-1] for _, plan in plans)


def _plans(sampler: GpuOptions, sizes: Sizes, num_seeds: int) -> list[Plan]:
    """Every plan that a session may make, at its largest."""
    plan = sizes.new_plan(num_seeds, ahead=False)
    kinds = [plan]
    few = sizes.graph.num_nodes // HASH_SPARSITY
    auto = sampler.node_set == "auto" and sampler.schedule in ("auto", "hopwise")
    if plan.node_set == "bitmap" and auto and sizes.graph.num_nodes >= HASH_FROM_NODES:
        # Smaller mini-batches have a hash set. It comes first: the first one replaces the bitmaps.
        room = [min(n, few) for n in plan.frontiers]
        kinds.insert(0, plan._replace(node_set="hash", frontiers=room, layout=plan.layout))
    if sampler.schedule != "auto":
        return kinds
    by_line = sizes.reads != "naive"
    return [
        kind._replace(schedule=schedule)
        for kind in kinds
        for schedule in ("cooperative", "hopwise")
        if schedule == "hopwise" or not (by_line and kind.node_set == "hash")
    ]


def _engine(sampler: GpuOptions, graph: Graph, reads: str) -> Any:
    """The extension's sampler of a graph of meta tensors. It only tells sizes."""
    edge_bits, node_bits = (8 * array.dtype.itemsize for array in (graph.indptr, graph.indices))
    make: Any = getattr(_core, f"CudaSampler_i{edge_bits}_i{node_bits}")
    return make(
        graph.indptr,
        graph.indices,
        fanouts=sampler.fanouts,
        replace=sampler.replace,
        edge_ids=sampler.edge_ids,
        pad=sampler.pad_to_capacity,
        device=-1,
        reads=READS[reads],
    )
