"""The option `memory` for a graph with types: what of the graph, and of the features of each type, lies in GPU memory.

The graph lies there as a whole, or in page-locked memory. The features of each type lie there as a whole, or in
page-locked memory with those in GPU memory that are read most. Neither cached rows that change nor threads of the host
help here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.datasets.hetero import HeteroDataset
from loader.graph import HeteroGraph
from loader.machine.gpu import counted_beyond, counted_bytes
from loader.memory.counting import COUNTED_OF_SPLIT, first_batches, most_rows
from loader.memory.graph import COUNTED
from loader.memory.hetero_plan import HeteroPlan
from loader.memory.hetero_reads import HeteroReads
from loader.memory.plan import GATHER_BYTES, GATHER_ROW_BYTES, MemoryNeeds, check_budget, outstanding_batches
from loader.samplers.gpu.memory_needs import SamplerNeeds
from loader.samplers.gpu.sizes import GpuOptions
from loader.samplers.tree_options import RANKS_APART, TreeOptions
from loader.samples.hetero import HeteroMiniBatch
from loader.stores.rows import RowFormat, RowOptions

_STORE_BYTES = 2 * 512  # of a store: the first bad id, and how often cached rows were read
_TIMED_BYTES = 6 * 8  # of a seed of a mini-batch: its id twice, its time twice, its number and its label


class SplitSeeds(NamedTuple):
    """The seeds of a split.

    Attributes:
        ids: `[n]`, numbered within the target type.
        times: `[n]` int64, or None.
        labels: `[n]` or `[n, C]`, of seeds with times; None where labels are those of nodes, or there are none.
    """

    ids: Tensor
    times: Tensor | None = None
    labels: Tensor | None = None


def seeds_of_splits(data: HeteroDataset) -> dict[str, SplitSeeds]:
    """The seeds of a dataset without times."""
    return {split: SplitSeeds(ids) for split, ids in data.splits.items()}


def plan_types(
    budget: int,
    options: RowOptions,
    data: HeteroDataset,
    seeds: Mapping[str, SplitSeeds],
    samplers: Sequence[tuple[GpuOptions, int]],
    prefetch: int,
    seed: int,
) -> HeteroPlan:
    """What of the graph and of the rows lies in GPU memory. Reads the graph, of features that are kept in 8 bits a
    sample, and nothing of the GPU.

    Args:
        budget: bytes.
        options: of the rows.
        data: the dataset.
        seeds: of "train", "val" and "test".
        samplers: of training and of evaluation, on a GPU, each with its seeds per mini-batch.
        prefetch: of the loaders.
        seed: of the order of the training seeds.

    Raises:
        ValueError: the budget does not hold what training needs whatever is kept; or an option of a sampler is for
            graphs of one type, or differs between the two.
    """
    _check_times([sampler for sampler, _ in samplers])
    rows = {name: RowFormat(table, **options) for name, table in data.features.items()}
    for name, of_type in rows.items():
        of_type.choose(data.features[name])
    loaders = 2 if seeds["val"].ids.numel() else 1
    needs, nodes = _needs(data, seeds, samplers, prefetch, loaders)
    of_stores = sum(_STORE_BYTES + counted_bytes(of_type.all_scale_bytes) for of_type in rows.values())
    needs = needs._replace(tables=needs.tables + of_stores)
    check_budget(budget, needs)  # before mini-batches are counted
    (train, size), (other, eval_size) = samplers
    sampled = partial(_sampled, data, seeds, seed)
    reads = HeteroReads.of(data.graph, sampled("train", train, size, COUNTED), list(rows))
    counted = {name: [of] for name, of in reads.rows_of.items()}
    for split in ("val", "test"):
        found = [
            [batch.ids(f"node/{name}").numel() for name in rows]
            for batch in sampled(split, other, eval_size, COUNTED_OF_SPLIT)
        ]
        for name, of in zip(rows, zip(*found, strict=True), strict=bool(found)):
            counted[name].append(torch.tensor(of))
    with_rows = outstanding_batches(prefetch, 1, 0, loaders)[1]
    of_types = (_outstanding_rows(rows[name], nodes, counted[name], with_rows, data.graph) for name in rows)
    needs = needs._replace(outstanding_rows=sum(of_types))
    return HeteroPlan.make(budget, needs, data.graph, {name: of.nbytes for name, of in rows.items()}, reads)


def _sampled(
    data: HeteroDataset,
    seeds: Mapping[str, SplitSeeds],
    seed: int,
    split: str,
    sampler: GpuOptions,
    size: int,
    count: int,
) -> Iterator[HeteroMiniBatch]:
    """The first `count` mini-batches of a split, none of an empty one."""
    ids, times, _ = seeds[split]
    if ids.numel():
        options: dict[str, Any] = {"times": times, "shuffle": split == "train", "seed": seed}
        yield from first_batches(data.graph, (data.target, ids), sampler, size, count, **options)


def _outstanding_rows(rows: RowFormat, nodes: int, counted: Sequence[Tensor], batches: int, graph: HeteroGraph) -> int:
    """Bytes that the rows of one type take in `batches` mini-batches.

    Args:
        rows: of the type.
        nodes: the most that a mini-batch has.
        counted: of each split, the numbers of rows of some mini-batches.
        batches: that are in memory at a time.
    """
    bound, id_bytes = min(nodes, rows.num_rows), graph.lists.indices.itemsize
    one, every = (min(count * bound, max(most_rows(each, count) for each in counted)) for count in (1, batches))
    # Each row, its id within all types and within its own, and what its gather takes.
    arrays = (rows.dim * rows.dtype.itemsize, id_bytes, id_bytes, GATHER_ROW_BYTES)
    beyond = sum(counted_beyond(one * nbytes) for nbytes in arrays) + GATHER_BYTES
    return every * sum(arrays) + batches * beyond


def locked_bytes(plan: HeteroPlan, data: HeteroDataset, options: RowOptions, timed: bool) -> int:
    """Bytes that each process page-locks by the plan.

    Args:
        timed: whether the samplers read lists in the order of time.
    """
    rows = {name: RowFormat(data.features[name], **options) for name, where in plan.rows.items() if where != "device"}
    locked = sum(of.num_rows * of.nbytes for of in rows.values())
    if plan.lists != "device":
        lists = data.graph.lists
        arrays: list[Tensor | None] = [lists.indptr, lists.indices]
        if not timed:  # of lists in the order of time nothing else is placed
            arrays += [lists.edge_ids, lists.edge_weights, lists.node_times, lists.edge_times]
        locked += sum(array.nbytes for array in arrays if array is not None)
    return locked


def _needs(
    data: HeteroDataset,
    seeds: Mapping[str, SplitSeeds],
    samplers: Sequence[tuple[GpuOptions, int]],
    prefetch: int,
    loaders: int,
) -> tuple[MemoryNeeds, int]:
    """What training takes whatever is kept of graph and rows, without rows; and the most nodes of a mini-batch."""
    sizes: dict[int, tuple[GpuOptions, list[int]]] = {}
    for sampler, size in samplers:
        sizes.setdefault(id(sampler), (sampler, []))[1].append(size)
    # `fit` and `validate` have a loader of the validation split each.
    splits = [seeds[name] for name in ("train", "val", "val", "test")]
    timed = samplers[0][0].timed
    labels = data.labels[:0] if timed else data.labels
    counts = [split.ids.numel() for split in splits]
    needs = MemoryNeeds.of(list(sizes.values()), data.graph, labels, counts, prefetch, 0, loaders)
    if timed:
        of_seeds = [array for split in splits for array in split[1:] if array is not None]
        tables = sum(counted_bytes(array.nbytes) for array in of_seeds)
        tables += len(sizes) * _timed_bytes(samplers[0][0], data.graph)
        together = max(sampler.batches_per_launch for sampler, _ in samplers)
        small = counted_bytes(together * max(size for _, size in samplers) * _TIMED_BYTES)
        share = needs.outstanding + outstanding_batches(prefetch, together, 0, loaders)[0] * small
        needs = needs._replace(tables=needs.tables + tables, outstanding=share)
    return needs, max(SamplerNeeds.of(sampler, data.graph, each).nodes for sampler, each in sizes.values())


def _timed_bytes(sampler: GpuOptions, graph: HeteroGraph) -> int:
    """Bytes of the times of a session."""
    assert isinstance(sampler, TreeOptions)
    timed = graph.by_time(sampler.times, sampler.missing_times)
    of_edge = counted_bytes(4 * timed.values.numel()) if sampler.bound == "edge" and sampler.window is not None else 0
    ids = timed.lists.edge_ids if sampler.edge_ids and graph.lists.edge_ids is None else None
    of_edge += 0 if ids is None else counted_bytes(ids.nbytes)
    ranks = counted_bytes(timed.ranks.nbytes) + counted_bytes(timed.ranks[::RANKS_APART].numel() * 4)
    return ranks + counted_bytes(timed.values.nbytes) + of_edge + counted_bytes(1024)


def _check_times(samplers: Sequence[GpuOptions]) -> None:
    """Raises ValueError unless the samplers read the same lists."""
    read = [
        (sampler.times, sampler.missing_times) if isinstance(sampler, TreeOptions) and sampler.timed else None
        for sampler in samplers
    ]
    if read[0] != read[1]:
        raise ValueError(
            f"memory places the lists of one order, but sampler and eval_sampler read the lists by times {read[0]} and "
            f"{read[1]}; give both the same times and missing_times, or leave memory out"
        )
