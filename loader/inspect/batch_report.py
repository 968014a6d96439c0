"""Sizes, repeats, degrees, cache hits, memory and time of mini-batches of a dataset."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader.datasets import HeteroDataset, NodeDataset
from loader.datasets.hetero_report import topology_bytes
from loader.graph import Graph
from loader.inspect.batches import check_numbers, items_of, places_of, show_memory_and_time, spread
from loader.inspect.types import inspect_types
from loader.machine.arguments import as_size, kind_of
from loader.machine.optional import import_optional
from loader.memory.plan import as_memory
from loader.memory.plan_report import memory_card, show_memory
from loader.samplers import FusedSampler, resolve_fanouts
from loader.samples import MiniBatch
from loader.stores import HostFeatures, degree_hotness
from loader.stores.rows import RowFormat, narrower_rows

if TYPE_CHECKING:
    from rich.console import Console

CACHE_SHARES = (0.05, 0.10, 0.25, 0.50)


def inspect(
    data: NodeDataset | HeteroDataset,
    fanouts: Sequence[int],
    batch_size: int = 1024,
    *,
    batches: int = 20,
    prefetch: int = 2,
    num_threads: int | None = None,
    seed: int = 0,
    memory_gib: str | float | None = None,
    eval_batch_size: int | None = None,
    storage_dtype: str | None = None,
) -> dict[str, Any]:
    """Statistics of training mini-batches, as a dict that can be written as JSON.

    The mini-batches are those of `NodeLoader(..., shuffle=True, seed=seed)` with a `FusedSampler` of the same seed,
    from epoch 0 on; of a task on tables, with a `TreeSampler` by time, around its training items.

    Args:
        data: the dataset to sample.
        fanouts: see `resolve_fanouts`.
        batch_size: seeds of a mini-batch; at most as many as the train split has.
        batches: number of mini-batches, at least 2. For a cache by visits, the first half decides which rows are
            cached, and the second half is counted.
        prefetch: of the loader; it decides the memory of the mini-batches in flight.
        num_threads: of the sampler and of the feature store; None: one per processor.
        memory_gib: a budget of GPU memory in GiB, or "auto" for that of the current GPU. Shows the plan that a
            `GraphDataModule` makes for this `memory` if its sampler is on a GPU.
        eval_batch_size: seeds of a mini-batch of validation, which the budget holds, too; by default `batch_size`.
        storage_dtype: type in which the features are kept, e.g. "int8", see `loader.stores.RowOptions`.

    Returns:
        `graph`: sizes and bytes. `feature_bytes` are those of the features as they are kept, and `narrower_bytes` those
        that they would take in narrower types.

        `hops`, from the seeds outward: `fanout`; `mean`, `min` and `max` of `nodes` (all sources of the block) and
        of `edges`; `edges_per_source`, the mean number of picks of a picked node; `picked_degree`, the mean
        in-degree of the picked nodes, one per edge; `drawn_degree`, the mean in-degree of the nodes that they
        were picked for.

        `cache`: for each share of the rows in a cache, the share of gathered rows that are found there.

        `memory`: bytes. `in_flight_bytes` is the most that the loader holds at one time, without the GPU's memory.

        `milliseconds`: medians.

        `plan`, with `memory_gib`: see `loader.memory.plan.MemoryPlan.card`.

        Of a dataset with several types, what `loader.datasets.hetero_report` returns, and of `hops` only `fanout`,
        `edges`, and the new `nodes` by type; `input_rows` are by type, too, and so are `features`, `share_of_rows` and
        `row_bytes` of the plan.

    Raises:
        ValueError: a fanout, `batch_size`, count or `memory_gib` is out of range; `eval_batch_size` is given without
            `memory_gib`, `storage_dtype` for a dataset with several types, or `memory_gib` for a task on tables.
    """
    if not isinstance(data, (NodeDataset, HeteroDataset)):
        raise TypeError(f"data is {kind_of(data)}; it must be a loader.datasets.NodeDataset or HeteroDataset")
    batch_size = as_size("batch_size", batch_size, least=-(2**62))  # its limits are said with the split's size
    check_numbers(batches, prefetch, num_threads, seed, eval_batch_size, planned=memory_gib is not None)
    memory = as_memory(memory_gib, "memory_gib")
    if isinstance(data, HeteroDataset):
        if storage_dtype is not None:
            raise ValueError(
                f"storage_dtype is {storage_dtype}, but {data.name} has several types of nodes; leave it out"
            )
        plan = {}
        if memory is not None:
            plan = {"plan": memory_card(memory, data, fanouts, (batch_size, eval_batch_size), prefetch, seed)}
        return {**inspect_types(data, fanouts, batch_size, batches, prefetch, num_threads, seed), **plan}
    graph, train = data.graph, items_of(data)
    plan = {}
    if memory is not None:
        sizes = (batch_size, eval_batch_size)
        plan = {"plan": memory_card(memory, data, fanouts, sizes, prefetch, seed, storage_dtype)}
    sampler = FusedSampler(resolve_fanouts(fanouts), seed=seed, num_threads=num_threads)
    store = HostFeatures(data.features, num_threads=num_threads, storage_dtype=storage_dtype)
    stored = RowFormat(data.features, storage_dtype=storage_dtype)
    stored.choose(data.features)
    places = places_of(train, batch_size, batches, seed)
    for epoch, index, seeds in places[:2]:  # warm up: threads, workspaces, pages
        store.gather(sampler.sample(graph, seeds, epoch=epoch, batch=index).input_nodes)

    degrees = graph.in_degrees()
    hops: list[list[dict[str, float]]] = [[] for _ in sampler.fanouts]
    visits = [torch.zeros(graph.num_nodes, dtype=torch.int64) for _ in range(2)]
    sampling, gathering, topology, rows = [], [], [], []

    def sampled() -> Iterator[MiniBatch]:
        for i, (epoch, index, seeds) in enumerate(places):
            begin = time.perf_counter()
            batch = sampler.sample(graph, seeds, epoch=epoch, batch=index)
            sampled = time.perf_counter()
            store.gather(batch.input_nodes)
            gathering.append(time.perf_counter() - sampled)
            sampling.append(sampled - begin)
            topology.append(sum(t.nbytes for t in batch.tensors()))
            rows.append(batch.input_nodes.numel())
            visits[2 * i // len(places)][batch.input_nodes.long()] += 1
            for hop, found in zip(hops, _hops(batch, degrees), strict=True):
                hop.append(found)
            yield batch

    for _ in sampled():
        pass
    sampler.close()
    store.close()

    row_bytes = stored.dim * stored.dtype.itemsize  # as they are gathered
    label_bytes = batch_size * data.labels[:1].nbytes
    most_topology, most_rows = max(topology), max(rows) * row_bytes
    return {
        "dataset": data.name,
        "fanouts": list(sampler.fanouts),
        "batch_size": batch_size,
        "batches": batches,
        "batches_per_epoch": -(-len(train) // batch_size),
        "num_threads": sampler.num_threads,
        "graph": {
            "num_nodes": graph.num_nodes,
            "num_edges": graph.num_edges,
            "num_features": data.num_features,
            "mean_degree": float(degrees.double().mean()),
            "max_degree": int(degrees.max()),
            "topology_bytes": topology_bytes(graph),
            "feature_bytes": graph.num_nodes * stored.nbytes + stored.all_scale_bytes,
            "narrower_bytes": {
                name: graph.num_nodes * rows.nbytes + rows.all_scale_bytes
                for name, rows in narrower_rows(data.features, storage_dtype=storage_dtype).items()
            },
        },
        "hops": [_over_batches(k, found) for k, found in zip(sampler.fanouts, hops, strict=True)],
        "input_rows": spread([float(n) for n in rows]),
        "input_share_of_graph": statistics.mean(rows) / graph.num_nodes,
        "cache": _hit_rates(graph, visits),
        "memory": {
            "topology_bytes_a_batch": spread([float(n) for n in topology]),
            "feature_bytes_a_batch": spread([float(n * row_bytes) for n in rows]),
            # Sampling and gathering hold `prefetch` each, training one; see NodeLoader.
            "in_flight_bytes": (2 * prefetch + 1) * most_topology + (prefetch + 1) * (most_rows + label_bytes),
            "prefetch": prefetch,
        },
        "milliseconds": {
            "sample": 1e3 * statistics.median(sampling),
            "gather": 1e3 * statistics.median(gathering),
        },
        **plan,
    }


def _hops(batch: MiniBatch, degrees: Tensor) -> list[dict[str, float]]:
    """What one mini-batch's blocks show, from the seeds outward."""
    found = []
    for block in reversed(batch.blocks):
        picked = batch.nodes[block.indices.long()].long()
        drawn = batch.nodes[: block.num_dst].long()
        distinct = torch.unique(block.indices).numel()
        found.append(
            {
                "nodes": float(block.num_src),
                "edges": float(block.num_edges),
                "edges_per_source": block.num_edges / max(distinct, 1),
                "picked_degree": float(degrees[picked].double().mean()) if picked.numel() else 0.0,
                "drawn_degree": float(degrees[drawn].double().mean()),
            }
        )
    return found


def _over_batches(fanout: int, found: list[dict[str, float]]) -> dict[str, Any]:
    result: dict[str, Any] = {"fanout": fanout}
    for what in ("nodes", "edges"):
        result[what] = spread([row[what] for row in found])
    for what in ("edges_per_source", "picked_degree", "drawn_degree"):
        result[what] = statistics.mean(row[what] for row in found)
    return result


def _hit_rates(graph: Graph, visits: list[Tensor]) -> list[dict[str, float]]:
    """For each of `CACHE_SHARES` the share of gathered rows that a cache of this many rows would have held.

    By degree it holds the nodes that most neighbor lists name; by visits those that the first half of the
    mini-batches gathered most often. Both are judged on the second half.
    """
    past, ahead = visits
    named = degree_hotness(graph)
    # Nodes that the first half did not meet follow by degree.
    orders = {
        "by_degree": named.argsort(descending=True, stable=True),
        "by_visits": (past.double() + named.double() / (2.0 * max(int(named.max()), 1))).argsort(descending=True),
    }
    total = max(int(ahead.sum()), 1)
    result = []
    for share in CACHE_SHARES:
        rows = int(share * graph.num_nodes)
        hits = {name: float(ahead[order[:rows]].sum()) / total for name, order in orders.items()}
        result.append({"share": share, "rows": rows, **hits})
    return result


def show(card: dict[str, Any], console: Console) -> None:
    """Prints what `inspect` returned, in at most 80 columns."""
    Table = import_optional("rich.table", "loader.inspect", "datasets").Table
    graph = card["graph"]
    console.print(
        f"[bold]{card['dataset']}[/]: {graph['num_nodes']:,} nodes, {graph['num_edges']:,} edges, degree "
        f"{graph['mean_degree']:.1f} on average, at most {graph['max_degree']:,}, {graph['num_features']:,} features"
    )
    console.print(
        f"{card['batches']} mini-batches of {card['batch_size']:,} seeds ({card['batches_per_epoch']:,} per epoch), "
        f"fanouts {card['fanouts']}, {card['num_threads']} threads"
    )
    console.print("\nBlocks, from the seeds outward; mean per mini-batch ± largest difference from it")
    hops = Table(box=None, pad_edge=False)
    for name in ("hop", "fanout", "nodes", "edges", "edges per\nsource", "degree of\npicked", "degree of\ndrawn"):
        hops.add_column(name, justify="right")
    for number, hop in enumerate(card["hops"], 1):
        hops.add_row(
            str(number),
            "all" if hop["fanout"] == -1 else str(hop["fanout"]),
            *(_mean_and_spread(hop[what]) for what in ("nodes", "edges")),
            f"{hop['edges_per_source']:.2f}",
            f"{hop['picked_degree']:.1f}",
            f"{hop['drawn_degree']:.1f}",
        )
    console.print(hops)
    console.print("\nFeature rows found in a cache of the most used rows")
    cache = Table(box=None, pad_edge=False)
    for name in ("of the rows", "rows", "by degree", "by visits"):
        cache.add_column(name, justify="right")
    for row in card["cache"]:
        cache.add_row(f"{row['share']:.0%}", f"{row['rows']:,}", f"{row['by_degree']:.1%}", f"{row['by_visits']:.1%}")
    console.print(cache)
    show_memory_and_time(graph, card, console)
    if plan := card.get("plan"):
        show_memory(plan, console)


def _mean_and_spread(values: dict[str, float]) -> str:
    mean = values["mean"]
    differs = max(values["max"] - mean, mean - values["min"])
    return f"{mean:,.0f} ±{differs / mean:.0%}" if mean else "0"
