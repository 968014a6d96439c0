"""Picks by weight and LABOR on the CPU beside DGL's, blocks included, in one run and at equal threads.

    python benchmarks/picks_cpu.py --csc indptr.npy indices.npy      # or --graph NAME of a dataset
    python benchmarks/picks_cpu.py --csc ... --quick                 # one setting, few mini-batches

Weights are uniform random numbers, float32. Ours picks from tables that are made once; their time and memory are
printed. "scanned" does without tables. DGL (`NeighborSampler(prob=...)`, `LaborSampler`) runs as it comes, with 64-bit
ids. All get the same seeds and take turns mini-batch by mini-batch, after a pause in which OpenMP's threads fall
asleep. Of LABOR the mean numbers of input nodes and of edges are compared, too: these are the same law, so they
agree up to chance.

On a busy machine a long call loses more of the clock's time than a short one. So there, with one thread, compare the
processor's time: `--threads 1 --cpu-time`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, add_graph_options, free_cores, ints, load_graph, write_json
from rich.console import Console
from rich.table import Table
from torch import Tensor

from loader.graph import Graph
from loader.machine.optional import import_dgl
from loader.samplers import FusedSampler
from loader.samplers.picks import weighed

# Name -> options of ours, and of DGL's sampler.
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "uniform": ({}, {}),
    "weighted": ({"weights": "edge_weights"}, {"prob": "w"}),
    "weighted, scanned": ({"weights": "edge_weights", "weight_tables": False}, {"prob": "w"}),
    "weighted, replaced": ({"weights": "edge_weights", "replace": True}, {"prob": "w", "replace": True}),
    "heaviest": ({"weights": "edge_weights", "top_k": True}, None),
    "labor": ({"labor": True}, {}),
    "labor, all hops": ({"labor": True, "layer_dependency": True}, {"layer_dependency": True}),
    "labor, 16 mini-batches": ({"labor": True, "batch_dependency": 16}, {"batch_dependency": 16}),
}
PAUSE = 0.01  # seconds before a mini-batch
Sample = Callable[[Tensor, int], tuple[int, int]]  # (seeds, batch) -> input nodes, edges


def ours(graph: Graph, fanouts: tuple[int, ...], threads: int, options: dict[str, Any]) -> Sample:
    sampler = FusedSampler(fanouts, num_threads=threads, **options)

    def sample(seeds: Tensor, batch: int) -> tuple[int, int]:
        made = sampler.sample(graph, seeds, batch=batch)
        return made.frontier_sizes[-1], made.num_edges

    return sample


def of_dgl(dgl: Any, graph: Any, fanouts: tuple[int, ...], labor: bool, options: dict[str, Any]) -> Sample:
    make = dgl.dataloading.LaborSampler if labor else dgl.dataloading.NeighborSampler
    sampler = make(list(fanouts[::-1]), **options)

    def sample(seeds: Tensor, _: int) -> tuple[int, int]:
        inputs, _, blocks = sampler.sample_blocks(graph, seeds)
        return inputs.numel(), sum(block.num_edges() for block in blocks)

    return sample


def measure(
    samplers: dict[str, Sample], seeds: list[Tensor], clock: Callable[[], float]
) -> dict[str, dict[str, float]]:
    """Median milliseconds by `clock`, and mean numbers of input nodes and edges, without the first mini-batch."""
    times: dict[str, list[float]] = {name: [] for name in samplers}
    sizes: dict[str, list[tuple[int, int]]] = {name: [] for name in samplers}
    names = list(samplers)
    for i, own in enumerate(seeds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            time.sleep(PAUSE)
            begin = clock()
            size = samplers[name](own, i)
            if i > 0:
                times[name].append(clock() - begin)
                sizes[name].append(size)
    return {
        name: {
            "ms": 1e3 * statistics.median(times[name]),
            "input_nodes": statistics.mean(v for v, _ in sizes[name]),
            "edges": statistics.mean(e for _, e in sizes[name]),
        }
        for name in names
    }


def make_tables(graph: Graph, threads: int) -> dict[str, float]:
    begin = time.perf_counter()
    tables = weighed(graph, "benchmark").tables(threads)
    middle = time.perf_counter()
    order = weighed(graph, "benchmark").order(threads)
    return {
        "tables_seconds": middle - begin,
        "tables_bytes": sum(t.nbytes for t in tables),
        "order_seconds": time.perf_counter() - middle,
        "order_bytes": order.nbytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument("--graph", default="synthetic-products", help="a dataset (default: synthetic-products)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--fanouts", type=ints, nargs="+", default=[(10, 10), (15, 10, 5)])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor, for a busy machine")
    parser.add_argument("--quick", action="store_true", help="only fanouts 10,10, 5 mini-batches")
    parser.add_argument("--json", type=Path, default=RESULTS / "picks_cpu.json")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.fanouts, arguments.repeats = [(10, 10)], 5
    if arguments.cpu_time and arguments.threads != 1:
        parser.error(f"--cpu-time adds up the threads, of which there are {arguments.threads}; add --threads 1")
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # before DGL is loaded
    torch.set_num_threads(arguments.threads)
    plain = load_graph("csc" if arguments.csc else arguments.graph, arguments)
    weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(0)) + 2**-10
    graph = Graph(plain.indptr, plain.indices, edge_weights=weights)
    tables = make_tables(graph, arguments.threads)
    dgl = import_dgl("the comparison")
    csc = (graph.indptr.long(), graph.indices.long(), torch.empty(0, dtype=torch.int64))
    dgl_graph = dgl.graph(("csc", csc), num_nodes=graph.num_nodes)
    dgl_graph.edata["w"] = weights
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    seeds = list(order.split(arguments.batch_size)[: arguments.repeats + 1])

    console = Console(width=120)
    cores = [free_cores()]
    rows = []
    shown = Table("fanouts", "picks", "ours ms", "DGL ms", "DGL / ours", "nodes, ours", "DGL", "edges, ours", "DGL")
    for fanouts in arguments.fanouts:
        for kind in arguments.kinds:
            options, dgl_options = KINDS[kind]
            samplers = {"ours": ours(graph, fanouts, arguments.threads, options)}
            if dgl_options is not None:
                samplers["dgl"] = of_dgl(dgl, dgl_graph, fanouts, "labor" in options, dgl_options)
            found = measure(samplers, seeds, clock)
            rows.append({"fanouts": fanouts, "picks": kind, **found})
            mine, other = found["ours"], found.get("dgl")
            shown.add_row(
                ",".join(map(str, fanouts)),
                kind,
                f"{mine['ms']:.2f}",
                f"{other['ms']:.2f}" if other else "-",
                f"{other['ms'] / mine['ms']:.1f}x" if other else "-",
                f"{mine['input_nodes']:,.0f}",
                f"{other['input_nodes']:,.0f}" if other else "-",
                f"{mine['edges']:,.0f}",
                f"{other['edges']:,.0f}" if other else "-",
            )
    cores.append(free_cores())
    console.print(shown)
    console.print(
        f"tables: {tables['tables_seconds']:.1f} s, {tables['tables_bytes'] / 2**20:.0f} MiB; order of the heaviest: "
        f"{tables['order_seconds']:.1f} s, {tables['order_bytes'] / 2**20:.0f} MiB; two threads "
        f"got {cores[0]:.2f} and {cores[1]:.2f} times the work of one done"
    )
    size = {
        "graph": "csc" if arguments.csc else arguments.graph,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
    }
    settings = {
        "threads": arguments.threads,
        "cpu_time": arguments.cpu_time,
        "batch_size": arguments.batch_size,
        "free_cores": cores,
    }
    write_json(arguments.json, {**size, **settings, **tables, "rows": rows})


if __name__ == "__main__":
    main()
