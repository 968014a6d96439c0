"""Sampling a graph with several types of nodes and edges on the CPU, beside DGL's heterogeneous sampler.

    PYTHONPATH=. python benchmarks/hetero_cpu.py
    PYTHONPATH=. python benchmarks/hetero_cpu.py --scale 0.1 --threads 1

Milliseconds per mini-batch of 1,024 papers of a graph of the size of ogbn-mag; a fanout holds for each of its eight
relations, and every hop expands all nodes so far, as DGL does. "one" samples one mini-batch at a time, "group" 16 at a
time, which share the threads. DGL (`NeighborSampler.sample_blocks`) runs as it comes, with 64-bit ids, and torch has as
many threads. The samplers take turns, and the median of the passes is taken. "ns_an_edge" is that of one mini-batch of
ours, beside one of one type, (15, 10, 5), of the size and skew of ogbn-products. "peak_mib" is how much the memory of a
process grows at most while it samples (15, 10, 5), the graph not counted; each library has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, forget_peak, ints, resident_bytes, write_json
from _gpu_batches import NUM_EDGES, NUM_NODES, products_shaped
from _hetero_graphs import mag_shaped
from _threads import GROUP, median_ms
from hetero_gpu import MiniBatches
from torch import Tensor

from loader.graph import Graph, HeteroGraph
from loader.machine.optional import import_dgl
from loader.samplers import FusedSampler

FANOUTS, SIZE = ((10, 10), (15, 10, 5)), 1024
Call = Callable[[int], Any]


def ours(
    graph: HeteroGraph | Graph, seeds: Tensor, fanouts: tuple[int, ...], threads: int, together: int
) -> MiniBatches:
    options: dict[str, Any] = {"expand": "all"} if isinstance(graph, HeteroGraph) else {}
    return MiniBatches(FusedSampler(fanouts, num_threads=threads, **options).open(graph), seeds, SIZE, together)


def dgl_graph(graph: HeteroGraph) -> Any:
    dgl, pairs = import_dgl("this benchmark"), {}
    for key in graph.edge_types:
        lists = graph.relation(key)
        targets = torch.arange(lists.num_dst).repeat_interleave(lists.in_degrees().long())
        pairs[key] = lists.indices.long(), targets
    made = dgl.heterograph(pairs, {name: len(ids) for name, ids in graph.node_types.items()})
    return made.formats("csc")


def theirs(graph: Any, papers: Tensor, fanouts: tuple[int, ...]) -> Call:
    # DGL begins with the last fanout.
    sampler = import_dgl("this benchmark").dataloading.NeighborSampler(list(fanouts[::-1]))
    parts = papers.split(SIZE)[:-1]
    return lambda i: sampler.sample_blocks(graph, {"paper": parts[i % len(parts)]})


def seeds_of(graph: HeteroGraph) -> Tensor:
    return torch.randperm(len(graph.node_types["paper"]), generator=torch.Generator().manual_seed(0))


def peak_mib(name: str, scale: float) -> float:
    """How much this process grows at most while it samples."""
    graph = mag_shaped(scale, "cpu")
    papers = seeds_of(graph)
    if name == "dgl":
        call = theirs(dgl_graph(graph), papers, FANOUTS[-1])
        del graph
    else:
        papers = (papers + graph.node_types["paper"].start).to(graph.lists.indices.dtype)
        call = ours(graph, papers, FANOUTS[-1], 1, 1)
    before = forget_peak()
    for i in range(4):
        call(i)
    return (resident_bytes(peak=True) - before) / 2**20


def rows_of(scale: float, every: tuple[int, ...], passes: int) -> list[dict[str, Any]]:
    graph = mag_shaped(scale, "cpu")
    papers, of_dgl = seeds_of(graph), dgl_graph(graph)
    seeds = (papers + graph.node_types["paper"].start).to(graph.lists.indices.dtype)
    rows = []
    for threads in every:
        torch.set_num_threads(threads)
        for fanouts in FANOUTS:
            calls: dict[str, Call] = {
                "one": ours(graph, seeds, fanouts, threads, 1),
                "dgl": theirs(of_dgl, papers, fanouts),
            }
            if threads > 1:
                calls["group"] = ours(graph, seeds, fanouts, threads, GROUP)
            found: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(passes):
                for name, call in calls.items():
                    found[name].append(median_ms(call) / (GROUP if name == "group" else 1))
            (sampled,), blocks = calls["one"](0), calls["dgl"](0)[2]
            edges = sum(block.num_edges for block in sampled.blocks)
            edges_of_dgl = sum(block.num_edges() for block in blocks)
            ms = {name: statistics.median(of) for name, of in found.items()}
            best = ms.get("group", ms["one"])
            row = {
                "fanouts": list(fanouts),
                "threads": threads,
                "edges": edges,
                "edges_of_dgl": edges_of_dgl,
                "ms": ms,
                "faster_by": ms["dgl"] / best,
            }
            rows.append(row | {"ns_an_edge": 1e6 * ms["one"] / edges, "all_ms": found})
            print(rows[-1], flush=True)
    return rows


def one_type(scale: float) -> float:
    """Nanoseconds an edge of (15, 10, 5) x 1,024 of a graph of one type, on one thread."""
    graph = products_shaped(int(NUM_NODES * scale), int(NUM_EDGES * scale), device="cpu")
    seeds = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0)).to(graph.indices.dtype)
    call = ours(graph, seeds, FANOUTS[-1], 1, 1)
    (sampled,) = call(0)
    return 1e6 * median_ms(call) / sampled.num_edges


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of nodes and edges")
    parser.add_argument("--threads", type=ints, default=(1, 16))
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--peak", choices=("ours", "dgl"), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, default=RESULTS / "hetero_cpu.json")
    arguments = parser.parse_args()
    if arguments.peak:
        print(json.dumps(peak_mib(arguments.peak, arguments.scale)))
        return
    peaks = {}
    for name in ("ours", "dgl"):
        command = [sys.executable, __file__, "--peak", name, "--scale", str(arguments.scale)]
        peaks[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
    print(peaks, flush=True)
    alone = one_type(arguments.scale)
    rows = rows_of(arguments.scale, arguments.threads, arguments.passes)
    versions = {"dgl": import_dgl("this benchmark").__version__}
    found = {"scale": arguments.scale, "versions_of_peers": versions, "peak_mib": peaks, "one_type_ns_an_edge": alone}
    write_json(arguments.json, found | {"rows": rows})


if __name__ == "__main__":
    main()
