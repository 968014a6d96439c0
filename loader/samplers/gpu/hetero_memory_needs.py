"""The GPU memory that a sampler of a `HeteroGraph` needs at most, by the types of the graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from loader import _core
from loader.graph import Graph, HeteroGraph
from loader.machine.gpu import counted_bytes
from loader.samplers.gpu.hetero_sizes import HeteroSizes, require_hetero
from loader.samplers.gpu.sizes import GpuOptions, Plan
from loader.samplers.gpu.tree_sizes import TreeSizes
from loader.samplers.relations import fanouts_by_relation, node_types_of
from loader.samplers.tree_options import TreeOptions

_MULTIPROCESSORS = 256  # more than any GPU has; a tree's tables lie in memory of the blocks that may run at once
_ID_BYTES = 8  # of an edge, at most
_DISTINCT_BYTES = 96  # for each node of trees, while the distinct ones are found, see `loader.samples.distinct`


def hetero_needs(
    sampler: GpuOptions, graph: HeteroGraph, lists: Graph, num_seeds: Iterable[int]
) -> tuple[int, int, int]:
    """Bytes of the workspace and of a mini-batch, and its nodes, see `SamplerNeeds`.

    Args:
        graph: on the CPU; the lengths of its lists are read.
        lists: a graph of the sizes of its lists, whose arrays are meta tensors.

    Raises:
        ValueError: an option is for graphs of one type only, or fanouts allow more than a mini-batch may have.
    """
    require_hetero(sampler)
    trees = isinstance(sampler, TreeOptions)
    kind = TreeSizes if trees else HeteroSizes
    sizes = kind(sampler, graph, lists, "naive", cached=False, multiprocessors=_MULTIPROCESSORS)
    seeds = sorted({n if trees else min(n, graph.num_nodes) for n in num_seeds})
    plans = [(n, plan) for n in seeds for plan in sizes.largest_plans(n)]
    try:
        held = max(_held_bytes(sampler, graph, sizes, slots, plans) for slots in {1, sampler.batches_per_launch})
    except OverflowError as error:  # of a hash set, for which fanouts allow too much
        more = "" if "smaller fanouts" in str(error) else "; or use smaller fanouts"
        raise ValueError(f"memory counts all that fanouts allow, and {error}{more}") from error
    nodes = max(plan.frontiers[-1] for _, plan in plans)
    node_bytes = lists.indices.itemsize
    batch = max(counted_bytes(plan.layout.length * plan.layout.dtype.itemsize) for _, plan in plans)
    if sampler.edge_ids and (lists.edge_ids is not None or sampler.timed):  # those of the graph, which are looked up
        batch += max(sum(counted_bytes(_ID_BYTES * n) for n in plan.edges) for _, plan in plans)
    if trees:  # the distinct nodes with their places and the bounds of types
        batch += counted_bytes(4 * nodes) + counted_bytes(node_bytes * nodes)
        held += 2 * counted_bytes(_DISTINCT_BYTES * nodes)  # of two loaders
        held += counted_bytes(8 * (1 + len(graph.node_types)))
    fanouts = counted_bytes(2 * len(sampler.fanouts) * len(graph.edge_types))
    return held + fanouts, batch, nodes


def _held_bytes(
    sampler: GpuOptions, graph: HeteroGraph, sizes: HeteroSizes, slots: int, plans: Sequence[tuple[int, Plan]]
) -> int:
    """The most bytes of a workspace for so many mini-batches together.

    Args:
        plans: each for a number of seeds, in the order in which a session may make them.
    """
    engine, sizes.slots, most = _engine(sampler, graph, sizes.graph), slots, 0
    for num_seeds, plan in plans:  # the arrays grow from one to the next
        for asked in _asked(sizes, plan, num_seeds):
            arrays = engine.plan(**asked)
            sized = (length * getattr(torch, dtype).itemsize for _, dtype, length, _ in arrays)
            most = max(most, sum(map(counted_bytes, sized)))
    return most


def _asked(sizes: HeteroSizes, plan: Plan, num_seeds: int) -> Iterator[dict[str, Any]]:
    """What the extension is asked for a plan: of trees with each size of their tables."""
    if not isinstance(sizes, TreeSizes):
        yield sizes.asked(plan, num_seeds)
        return
    for table in sizes.tables():
        sizes._table = table
        yield sizes.asked(plan, num_seeds)


def _engine(sampler: GpuOptions, graph: HeteroGraph, lists: Graph) -> Any:
    """The extension's sampler of a graph of meta tensors. It only tells sizes."""
    edge_bits, node_bits = (8 * array.dtype.itemsize for array in (lists.indptr, lists.indices))
    trees = isinstance(sampler, TreeOptions)
    make: Any = getattr(_core, f"{'Tree' if trees else 'Hetero'}CudaSampler_i{edge_bits}_i{node_bits}")
    options: dict[str, Any] = {"once": sampler.expand == "new"}
    if isinstance(sampler, TreeOptions):
        options = {"paths": sampler.trees == "paths", "last": sampler.last, "times": None}
        if sampler.timed:
            of_edge, none = sampler.bound == "edge", torch.empty(0, device="meta")
            options["times"] = _core.Times(
                none, none, none, none, strict=sampler.rule == "<", window=None, of_edge=of_edge, first_of=None
            )
    return make(
        lists.indptr,
        lists.indices,
        fanouts=fanouts_by_relation(graph, sampler.fanouts, sampler.relation_fanouts),
        relation_fanouts=None,
        types=node_types_of(graph),
        replace=sampler.replace,
        edge_ids=sampler.edge_ids,
        device=-1,
        **options,
    )
