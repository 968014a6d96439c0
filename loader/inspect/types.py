"""The card of a dataset with several types of nodes and edges."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loader.datasets import HeteroDataset
from loader.datasets.hetero_report import hetero_card, show_hetero_card
from loader.inspect.batches import items_of, places_of, show_memory_and_time, spread
from loader.machine.optional import import_optional
from loader.memory.plan_report import show_memory
from loader.samplers import FusedSampler, TreeSampler
from loader.stores import HostFeatures

if TYPE_CHECKING:
    from rich.console import Console


def inspect_types(
    data: HeteroDataset,
    fanouts: Sequence[int],
    batch_size: int,
    batches: int,
    prefetch: int,
    num_threads: int | None,
    seed: int,
) -> dict[str, Any]:
    """`inspect` of a dataset with several types."""
    graph, train = data.graph, items_of(data)
    sampler: FusedSampler | TreeSampler = FusedSampler(fanouts, seed=seed, num_threads=num_threads)
    if train.times is not None:  # of a task on tables, whose items see what is known at their times
        options: dict[str, Any] = {"times": "both", "missing_times": "always"}
        sampler = TreeSampler(fanouts, seed=seed, num_threads=num_threads, **options)
    stores = {name: HostFeatures(table, num_threads=sampler.num_threads) for name, table in data.features.items()}
    sampling, gathering, sampled = [], [], []
    topology, features, distinct = [], [], []
    places = places_of(train, batch_size, batches, sampler.seed)
    for epoch, index, seeds in places[:2]:  # warm up: threads, workspaces, pages
        sampler.sample(graph, seeds, epoch=epoch, batch=index)
    for epoch, index, seeds in places:
        begin = time.perf_counter()
        batch = sampler.sample(graph, seeds, epoch=epoch, batch=index)
        sampling.append(time.perf_counter() - begin)
        sampled.append(batch)
        topology.append(float(sum(t.nbytes for t in batch.tensors())))
        begin = time.perf_counter()
        ids = {name: batch.ids(f"node/{name}") for name in graph.node_types}  # of trees, each node once
        for name, store in stores.items():
            store.gather(ids[name])
        gathering.append(time.perf_counter() - begin)
        distinct.append(sum(of.numel() for of in ids.values()))
        features.append(4.0 * sum(ids[name].numel() * data.num_features[name] for name in stores))
    sampler.close()
    for store in stores.values():
        store.close()
    rows = {
        name: [float(sum(hop[t] for hop in batch.sizes)) for batch in sampled]
        for t, name in enumerate(graph.node_types)
    }
    most_labels = batch_size * data.labels.element_size()
    return {
        **hetero_card(data),
        "fanouts": list(sampler.fanouts),
        "batch_size": batch_size,
        "batches": batches,
        "batches_per_epoch": -(-len(train) // batch_size),
        "num_threads": sampler.num_threads,
        "hops": [
            {
                "fanout": fanout,
                "edges": spread([float(batch.blocks[-hop].num_edges) for batch in sampled]),
                "nodes": {
                    name: spread([float(batch.sizes[hop][t]) for batch in sampled])
                    for t, name in enumerate(graph.node_types)
                },
            }
            for hop, fanout in enumerate(sampler.fanouts, 1)
        ],
        "input_rows": {name: spread(of) for name, of in rows.items()},
        "input_share_of_graph": statistics.mean(distinct) / graph.num_nodes,
        "memory": {
            "topology_bytes_a_batch": spread(topology),
            "feature_bytes_a_batch": spread(features),
            "in_flight_bytes": (2 * prefetch + 1) * max(topology) + (prefetch + 1) * (max(features) + most_labels),
            "prefetch": prefetch,
        },
        "milliseconds": {
            "sample": 1e3 * statistics.median(sampling),
            "gather": 1e3 * statistics.median(gathering),
        },
    }


def show_types(card: dict[str, Any], console: Console) -> None:
    """`show` of a dataset with several types."""
    Table = import_optional("rich.table", "loader.inspect", "datasets").Table
    show_hetero_card(card, console)
    console.print(
        f"\n{card['batches']} mini-batches of {card['batch_size']:,} seeds ({card['batches_per_epoch']:,} per epoch), "
        f"fanouts {card['fanouts']}, {card['num_threads']} threads"
    )
    console.print("\nNew nodes and edges by hop, from the seeds outward; mean per mini-batch")
    hops = Table(box=None, pad_edge=False)
    hops.add_column("type")
    for name in (*(f"hop {hop}" for hop in range(1, len(card["hops"]) + 1)), "with seeds"):
        hops.add_column(name, justify="right")
    for name, rows in card["input_rows"].items():
        hops.add_row(name, *(f"{hop['nodes'][name]['mean']:,.0f}" for hop in card["hops"]), f"{rows['mean']:,.0f}")
    edges = [hop["edges"]["mean"] for hop in card["hops"]]
    hops.add_row("edges", *(f"{mean:,.0f}" for mean in (*edges, sum(edges))))
    console.print(hops)
    show_memory_and_time(card, card, console)
    if plan := card.get("plan"):
        show_memory(plan, console)
