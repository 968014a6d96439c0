"""Samples some mini-batches of a graph and shows their sizes, repeats, degrees, cache hits, memory and time.

python -m loader.inspect --dataset ogbn-arxiv --data-dir data --fanouts 15,10,5 --batch-size 1024
python -m loader.inspect --dataset mygraph.npz --json card.json
python -m loader.inspect --dataset synthetic num_nodes=100000 mean_degree=30

Of a dataset with several types of nodes and edges it shows sizes by type and degrees by relation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader.datasets import DatasetError, HeteroDataset, NodeDataset, open_dataset
from loader.datasets.hetero_card import hetero_card, show_hetero_card
from loader.datasets.locations import check_output
from loader.graph import Graph
from loader.items import BatchSequence, NodeItems, Order
from loader.loaders.base import MAX_PREFETCH
from loader.machine.arguments import as_seed, as_size, kind_of
from loader.machine.command_line import OneLineParser
from loader.machine.cpus import as_threads
from loader.machine.gpu import NoGpuError
from loader.machine.optional import import_optional
from loader.memory.card import memory_card, show_memory
from loader.memory.plan import as_memory, readable
from loader.samplers import FusedSampler, resolve_fanouts
from loader.samples import MiniBatch
from loader.stores import HostFeatures, degree_hotness

if TYPE_CHECKING:
    from rich.console import Console

MAX_BATCHES = 10**6  # the figures of each are kept
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
) -> dict[str, Any]:
    """Statistics of training mini-batches, as a dict that can be written as JSON.

    The mini-batches are those of `NodeLoader(..., shuffle=True, seed=seed)` with a `FusedSampler` of the same seed,
    from epoch 0 on.

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

    Returns:
        `graph`: sizes and bytes.

        `hops`, from the seeds outward: `fanout`; `mean`, `min` and `max` of `vertices` (all sources of the block) and
        of `edges`; `edges_per_source`, the mean number of picks of a picked vertex; `picked_degree`, the mean
        in-degree of the picked vertices, one per edge; `drawn_degree`, the mean in-degree of the vertices that they
        were picked for.

        `cache`: for each share of the rows in a cache, the share of gathered rows that are found there.

        `memory`: bytes. `in_flight_bytes` is the most that the loader holds at one time, without the GPU's memory.

        `milliseconds`: medians.

        `plan`, with `memory_gib`: see `loader.memory.plan.MemoryPlan.card`.

        Of a dataset with several types, what `loader.datasets.hetero_card` returns, and of `hops` only `fanout`,
        `edges`, and the new `nodes` by type; `input_rows` are by type, too.

    Raises:
        ValueError: a fanout, `batch_size`, count or `memory_gib` is out of range, or `memory_gib` or `eval_batch_size`
            is given for a dataset with several types.
    """
    if not isinstance(data, (NodeDataset, HeteroDataset)):
        raise TypeError(f"data is {kind_of(data)}; it must be a loader.datasets.NodeDataset or HeteroDataset")
    batch_size = as_size("batch_size", batch_size, least=-(2**62))  # its limits are said with the split's size
    _check_numbers(batches, prefetch, num_threads, seed, eval_batch_size)
    memory = as_memory(memory_gib, "memory_gib")
    if isinstance(data, HeteroDataset):
        for name, value in (("memory_gib", memory_gib), ("eval_batch_size", eval_batch_size)):
            if value is not None:
                raise ValueError(f"{name} is {value}, but {data.name} has several types of nodes; leave it out")
        return _inspect_types(
            data, FusedSampler(fanouts, seed=seed, num_threads=num_threads), batch_size, batches, prefetch
        )
    graph, train = data.graph, _seeds(data)
    plan = {}
    if memory is not None:
        plan = {"plan": memory_card(memory, data, fanouts, (batch_size, eval_batch_size), prefetch, seed)}
    sampler = FusedSampler(resolve_fanouts(fanouts), seed=seed, num_threads=num_threads)
    store = HostFeatures(data.features, num_threads=num_threads)
    places = _places(train, batch_size, batches, seed)
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

    row_bytes = data.num_features * data.features.element_size()
    label_bytes = batch_size * data.labels[:1].nbytes
    most_topology, most_rows = max(topology), max(rows) * row_bytes
    return {
        "dataset": data.name,
        "fanouts": list(sampler.fanouts),
        "batch_size": batch_size,
        "batches": batches,
        "batches_per_epoch": -(-train.numel() // batch_size),
        "num_threads": sampler.num_threads,
        "graph": {
            "num_nodes": graph.num_nodes,
            "num_edges": graph.num_edges,
            "num_features": data.num_features,
            "mean_degree": float(degrees.double().mean()),
            "max_degree": int(degrees.max()),
            "topology_bytes": graph.indptr.nbytes + graph.indices.nbytes,
            "feature_bytes": graph.num_nodes * row_bytes,
        },
        "hops": [_over_batches(k, found) for k, found in zip(sampler.fanouts, hops, strict=True)],
        "input_rows": _spread([float(n) for n in rows]),
        "input_share_of_graph": statistics.mean(rows) / graph.num_nodes,
        "cache": _hit_rates(graph, visits),
        "memory": {
            "topology_bytes_a_batch": _spread([float(n) for n in topology]),
            "feature_bytes_a_batch": _spread([float(n * row_bytes) for n in rows]),
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


def _inspect_types(
    data: HeteroDataset, sampler: FusedSampler, batch_size: int, batches: int, prefetch: int
) -> dict[str, Any]:
    """`inspect` of a dataset with several types."""
    graph, train = data.graph, _seeds(data)
    stores = {name: HostFeatures(table, num_threads=sampler.num_threads) for name, table in data.features.items()}
    sampling, gathering, sampled = [], [], []
    places = _places(train, batch_size, batches, sampler.seed)
    for epoch, index, seeds in places[:2]:  # warm up: threads, workspaces, pages
        sampler.sample(graph, {data.target: seeds}, epoch=epoch, batch=index)
    for epoch, index, seeds in places:
        begin = time.perf_counter()
        batch = sampler.sample(graph, {data.target: seeds}, epoch=epoch, batch=index)
        sampling.append(time.perf_counter() - begin)
        sampled.append(batch)
        begin = time.perf_counter()
        for name, store in stores.items():
            ids = graph.node_types[name]
            store.gather(batch.nodes[(batch.nodes >= ids.start) & (batch.nodes < ids.stop)] - ids.start)
        gathering.append(time.perf_counter() - begin)
    sampler.close()
    for store in stores.values():
        store.close()
    rows = {
        name: [float(sum(hop[t] for hop in batch.sizes)) for batch in sampled]
        for t, name in enumerate(graph.node_types)
    }
    topology = [
        float(batch.nodes.nbytes + sum(block.indptr.nbytes + block.indices.nbytes for block in batch.blocks))
        for batch in sampled
    ]
    features = [4.0 * sum(rows[name][i] * data.num_features[name] for name in stores) for i in range(batches)]
    most_labels = batch_size * data.labels.element_size()
    return {
        **hetero_card(data),
        "fanouts": list(sampler.fanouts),
        "batch_size": batch_size,
        "batches": batches,
        "batches_per_epoch": -(-train.numel() // batch_size),
        "num_threads": sampler.num_threads,
        "hops": [
            {
                "fanout": fanout,
                "edges": _spread([float(batch.blocks[-hop].num_edges) for batch in sampled]),
                "nodes": {
                    name: _spread([float(batch.sizes[hop][t]) for batch in sampled])
                    for t, name in enumerate(graph.node_types)
                },
            }
            for hop, fanout in enumerate(sampler.fanouts, 1)
        ],
        "input_rows": {name: _spread(of) for name, of in rows.items()},
        "input_share_of_graph": statistics.mean(batch.nodes.numel() for batch in sampled) / graph.num_nodes,
        "memory": {
            "topology_bytes_a_batch": _spread(topology),
            "feature_bytes_a_batch": _spread(features),
            "in_flight_bytes": (2 * prefetch + 1) * max(topology) + (prefetch + 1) * (max(features) + most_labels),
            "prefetch": prefetch,
        },
        "milliseconds": {
            "sample": 1e3 * statistics.median(sampling),
            "gather": 1e3 * statistics.median(gathering),
        },
    }


def _seeds(data: NodeDataset | HeteroDataset) -> Tensor:
    """The nodes to sample around: the training split, or all nodes of a dataset without splits."""
    train = data.splits["train"]
    return train if train.numel() else torch.arange(data.labels.shape[0])


def _places(train: Tensor, batch_size: int, batches: int, seed: int) -> list[tuple[int, int, Tensor]]:
    """Epoch, index and seeds of the first full mini-batches."""
    if not 1 <= batch_size <= train.numel():
        raise ValueError(f"batch_size is {batch_size}; it must be 1 to {train.numel()}, the size of the train split")
    items = NodeItems(train)
    order, sequence = Order(len(items), shuffle=True, seed=seed), BatchSequence(len(items), batch_size, drop_last=True)
    places: list[tuple[int, int, Tensor]] = []
    for count in range(batches):
        epoch, index = divmod(count, sequence.num_batches)
        at = order.at(epoch, index * batch_size, batch_size, train.device, length=batch_size)
        (seeds,) = items.take(at, [batch_size])
        places.append((epoch, index, seeds.ids))
    return places


def _hops(batch: MiniBatch, degrees: Tensor) -> list[dict[str, float]]:
    """What one mini-batch's blocks show, from the seeds outward."""
    found = []
    for block in reversed(batch.blocks):
        picked = batch.nodes[block.indices.long()].long()
        drawn = batch.nodes[: block.num_dst].long()
        distinct = torch.unique(block.indices).numel()
        found.append(
            {
                "vertices": float(block.num_src),
                "edges": float(block.num_edges),
                "edges_per_source": block.num_edges / max(distinct, 1),
                "picked_degree": float(degrees[picked].double().mean()) if picked.numel() else 0.0,
                "drawn_degree": float(degrees[drawn].double().mean()),
            }
        )
    return found


def _over_batches(fanout: int, found: list[dict[str, float]]) -> dict[str, Any]:
    result: dict[str, Any] = {"fanout": fanout}
    for what in ("vertices", "edges"):
        result[what] = _spread([row[what] for row in found])
    for what in ("edges_per_source", "picked_degree", "drawn_degree"):
        result[what] = statistics.mean(row[what] for row in found)
    return result


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": statistics.mean(values), "min": min(values), "max": max(values)}


def _hit_rates(graph: Graph, visits: list[Tensor]) -> list[dict[str, float]]:
    """For each of `CACHE_SHARES` the share of gathered rows that a cache of this many rows would have held.

    By degree it holds the vertices that most neighbour lists name; by visits those that the first half of the
    mini-batches gathered most often. Both are judged on the second half.
    """
    past, ahead = visits
    named = degree_hotness(graph)
    # Vertices that the first half did not meet follow by degree.
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
        f"[bold]{card['dataset']}[/]: {graph['num_nodes']:,} vertices, {graph['num_edges']:,} edges, degree "
        f"{graph['mean_degree']:.1f} on average, at most {graph['max_degree']:,}, {graph['num_features']:,} features"
    )
    console.print(
        f"{card['batches']} mini-batches of {card['batch_size']:,} seeds ({card['batches_per_epoch']:,} per epoch), "
        f"fanouts {card['fanouts']}, {card['num_threads']} threads"
    )
    console.print("\nBlocks, from the seeds outward; mean per mini-batch ± largest difference from it")
    hops = Table(box=None, pad_edge=False)
    for name in ("hop", "fanout", "vertices", "edges", "edges per\nsource", "degree of\npicked", "degree of\ndrawn"):
        hops.add_column(name, justify="right")
    for number, hop in enumerate(card["hops"], 1):
        hops.add_row(
            str(number),
            "all" if hop["fanout"] == -1 else str(hop["fanout"]),
            *(_mean_and_spread(hop[what]) for what in ("vertices", "edges")),
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
    _show_memory_and_time(graph, card, console)
    if plan := card.get("plan"):
        show_memory(plan, console)


def _show_types(card: dict[str, Any], console: Console) -> None:
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
    _show_memory_and_time(card, card, console)


def _show_memory_and_time(graph: dict[str, Any], card: dict[str, Any], console: Console) -> None:
    """The last table of `show`; `graph` has the bytes of the graph and of its features."""
    Table = import_optional("rich.table", "loader.inspect", "datasets").Table
    memory, times = card["memory"], card["milliseconds"]
    console.print("\nMemory and time")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    for what, value in (
        ("graph", readable(graph["topology_bytes"])),
        ("features of the graph", readable(graph["feature_bytes"])),
        ("topology of a mini-batch", readable(memory["topology_bytes_a_batch"]["mean"])),
        ("features of a mini-batch", readable(memory["feature_bytes_a_batch"]["mean"])),
        (f"in flight at most, prefetch={memory['prefetch']}", readable(memory["in_flight_bytes"])),
        ("share of the graph's vertices in a mini-batch", f"{card['input_share_of_graph']:.1%}"),
        ("sampling a mini-batch", f"{times['sample']:.2f} ms"),
        ("gathering its features", f"{times['gather']:.2f} ms"),
    ):
        table.add_row(what, value)
    console.print(table)


def _mean_and_spread(values: dict[str, float]) -> str:
    mean = values["mean"]
    differs = max(values["max"] - mean, mean - values["min"])
    return f"{mean:,.0f} ±{differs / mean:.0%}" if mean else "0"


def _check_numbers(
    batches: int, prefetch: int, num_threads: int | None, seed: int, eval_batch_size: int | None
) -> None:
    """Raises TypeError or ValueError for a number of `inspect` that is out of its range, whatever the data are."""
    if as_size("batches", batches, most=MAX_BATCHES) < 2:
        raise ValueError(f"batches is {batches}; it must be at least 2: one half fills the cache, the other judges it")
    as_size("prefetch", prefetch, least=0, most=MAX_PREFETCH)
    as_seed(seed)
    if num_threads is not None:
        as_threads(num_threads)
    if eval_batch_size is not None:
        as_size("eval_batch_size", eval_batch_size)


def _fanouts(text: str) -> list[int]:
    words: list[Any] = [word.strip() for word in text.strip("[]").split(",")]  # brackets: as of train.py
    try:
        return list(resolve_fanouts([int(word) if word.lstrip("-").isdecimal() else word for word in words]))
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _memory(text: str) -> str | float:
    memory: str | float = text
    with suppress(ValueError):
        memory = float(text)
    try:
        as_memory(memory)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return memory


def _put(
    card: dict[str, Any], shower: Callable[[dict[str, Any], Console], None], file: str | None, note: str = ""
) -> None:
    """Prints figures below a note, and writes them to a file; only their JSON is printed if `file` is "-"."""
    text = json.dumps(card, indent=1)
    if file == "-":
        print(text)
        return
    console = import_optional("rich.console", "loader.inspect", "datasets").Console(highlight=False)
    if note:
        console.print(note)
    shower(card, console)
    if file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(text + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = OneLineParser(
        prog="python -m loader.inspect", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", required=True, help="name of a dataset (a file in conf/dataset), or a .npz file")
    parser.add_argument(
        "options", nargs="*", metavar="KEY=VALUE", help="options of the dataset, as for train.py without 'dataset.'"
    )
    parser.add_argument("--data-dir", default="data", help="folder of the raw files (default: data)")
    parser.add_argument("--cache-dir", default=None, help="folder of the converted graphs (default: data-dir/cache)")
    parser.add_argument(
        "--conf", type=Path, default=None, help="folder with dataset/NAME.yaml (default: the loader's own)"
    )
    fanouts = "neighbours per vertex of each hop, from the seeds outward (default: 10,10)"
    parser.add_argument("--fanouts", type=_fanouts, default=[10, 10], help=fanouts)
    parser.add_argument("--batch-size", type=int, default=1024, help="seeds of a mini-batch (default: 1024)")
    parser.add_argument("--batches", type=int, default=20, help="number of mini-batches to sample (default: 20)")
    parser.add_argument(
        "--prefetch", type=int, default=2, help="mini-batches that the loader holds ready per stage (default: 2)"
    )
    memory = "budget of GPU memory, or auto; what memory=GIB of train.py chooses is shown"
    parser.add_argument("--memory", type=_memory, default=None, metavar="GIB", help=memory)
    parser.add_argument(
        "--eval-batch-size", type=int, default=None, help="seeds of a mini-batch of validation (default: --batch-size)"
    )
    parser.add_argument("--num-threads", type=int, default=None, help="default: one per processor")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    parser.add_argument(
        "--json", default=None, metavar="FILE", help="write the figures to this file; with - print only them"
    )
    args = parser.parsed(arguments)
    try:
        if args.json not in (None, "-"):
            check_output("--json", Path(args.json), args.dataset)
        _check_numbers(args.batches, args.prefetch, args.num_threads, args.seed, args.eval_batch_size)
        data = open_dataset(
            args.dataset, args.options, data_dir=args.data_dir, cache_dir=args.cache_dir, seed=args.seed, conf=args.conf
        )
        batch_size = min(args.batch_size, _seeds(data).numel())
        card = inspect(
            data,
            args.fanouts,
            batch_size,
            batches=args.batches,
            prefetch=args.prefetch,
            num_threads=args.num_threads,
            seed=args.seed,
            memory_gib=args.memory,
            eval_batch_size=args.eval_batch_size,
        )
        note = ""
        if batch_size < args.batch_size:
            note = f"[dim]--batch-size {args.batch_size}: the train split has {batch_size} vertices only[/]"
        _put(card, _show_types if isinstance(data, HeteroDataset) else show, args.json, note)
    except (ValueError, TypeError, ImportError, OSError, NoGpuError, DatasetError) as error:
        sys.exit(f"error: {' '.join(str(error).split())}")


if __name__ == "__main__":
    main()
