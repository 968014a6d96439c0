"""Random walks on the CPU, beside DGL's and plain torch, at equal numbers of threads.

    PYTHONPATH=. python benchmarks/walks_cpu.py                    # a skewed graph of 1 M nodes and 48 M edges
    PYTHONPATH=. python benchmarks/walks_cpu.py --threads 1 8 16

Nanoseconds a step, median of several calls; the contenders take turns. DGL walks with int32 ids. "torch" is the same
walk by tensor operations: a call of `torch.rand` and three of indexing a step. On a busy machine a long call loses more
of the clock's time than a short one: there, compare the processor's time (`--threads 1 --cpu-time`).
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, free_cores, write_json

import loader
from loader.graph import Graph
from loader.machine.optional import import_dgl

# name, options of ours
CASES: list[tuple[str, dict[str, Any]]] = [
    ("uniform", {}),
    ("stop 0.2", {"stop": 0.2}),
    ("node2vec p 2, q 0.5", {"p": 2, "q": 0.5}),
    ("weighted", {"weights": "edge_weights"}),
]


def skewed_graph(num_nodes: int, num_edges: int) -> Graph:
    """Undirected; a node is an end of an edge with a probability that falls with its number."""
    g = torch.Generator().manual_seed(0)
    ends = [(torch.rand(num_edges // 2, generator=g) ** 2 * num_nodes).long() for _ in range(2)]
    weights = torch.rand(num_edges // 2, generator=g) + 0.1
    src, dst = torch.cat(ends), torch.cat(ends[::-1])
    return Graph.from_edges(src, dst, num_nodes, edge_weights=torch.cat([weights, weights]))


def by_torch(graph: Graph, starts: torch.Tensor, length: int, stop: float) -> torch.Tensor:
    here = starts.long()
    walk = [here]
    for _ in range(length):
        at = here.clamp(min=0)
        begin = graph.indptr[at]
        degree = graph.indptr[at + 1] - begin
        place = begin + (torch.rand(len(here)) * degree).long().clamp(max=degree - 1)
        goes = (here >= 0) & (degree > 0)
        if stop:
            goes &= torch.rand(len(here)) >= stop
        here = torch.where(goes, graph.indices[place.clamp(min=0)].long(), -1)
        walk.append(here)
    return torch.stack(walk, 1)


def contenders(graph: Graph, dgl: Any, starts: torch.Tensor, length: int, threads: int) -> dict[str, dict[str, Any]]:
    """Walk -> who -> a function of the number of the call."""
    theirs: dict[str, Callable[[int], Any]] = {}
    if dgl is not None:
        whole = dgl.graph(("csr", (graph.indptr, graph.indices, torch.empty(0, dtype=torch.int32))), idtype=torch.int32)
        whole.edata["w"] = graph.edge_weights
        walk, second = dgl.sampling.random_walk, dgl.sampling.node2vec_random_walk
        theirs = {
            "uniform": lambda _: walk(whole, starts, length=length),
            "stop 0.2": lambda _: walk(whole, starts, length=length, restart_prob=0.2),
            "node2vec p 2, q 0.5": lambda _: second(whole, starts, 2, 0.5, length),
            "weighted": lambda _: walk(whole, starts, length=length, prob="w"),
        }
    found: dict[str, dict[str, Any]] = {}
    for name, options in CASES:
        ours: dict[str, Any] = {
            "ours": lambda i, o=options: loader.random_walk(graph, starts, length, seed=i, num_threads=threads, **o)
        }
        if name in theirs:
            ours["dgl"] = theirs[name]
        if options.keys() <= {"stop"}:
            ours["torch"] = lambda _, o=options: by_torch(graph, starts, length, o.get("stop", 0.0))
        found[name] = ours
    return found


def measure(
    graph: Graph, dgl: Any, walkers: int, length: int, threads: int, rounds: int, clock: Callable[[], float]
) -> list[dict[str, Any]]:
    torch.set_num_threads(threads)
    if dgl is not None:
        dgl.utils.set_num_threads(threads)
    starts = torch.randint(graph.num_nodes, (walkers,), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    rows = []
    for name, calls in contenders(graph, dgl, starts, length, threads).items():
        begun = clock()
        walks = calls["ours"](0)
        first = clock() - begun
        steps = int((walks[:, 1:] >= 0).sum())
        times: dict[str, list[float]] = {who: [] for who in calls}
        for i in range(rounds + 1):
            for who, call in calls.items():
                time.sleep(0.05)  # threads of OpenMP spin for a while after their work
                begun = clock()
                call(i)
                if i > 0:
                    times[who].append(clock() - begun)
        row: dict[str, Any] = {"walk": name, "threads": threads, "walkers": walkers, "length": length, "steps": steps}
        row["first_seconds"] = first
        row["ns_a_step"] = {who: 1e9 * float(np.median(of)) / steps for who, of in times.items()}
        rows.append(row)
        line = "   ".join(f"{who} {ns:8.1f}" for who, ns in row["ns_a_step"].items())
        print(f"{threads:>3} threads  {name:22} ns a step: {line}   first {first:.2f} s")
        gc.collect()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=48_000_000)
    parser.add_argument("--walkers", type=int, default=100_000)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor, for a busy machine")
    parser.add_argument("--out", type=Path, default=RESULTS / "walks_cpu.json")
    options = parser.parse_args()
    if options.cpu_time and options.threads != [1]:
        parser.error(f"--cpu-time adds up the threads, of which there are {options.threads}; add --threads 1")
    clock = time.process_time if options.cpu_time else time.perf_counter
    try:
        dgl = import_dgl("the comparison")
    except ImportError as error:
        dgl = None
        print(f"without DGL: {error}")
    graph = skewed_graph(options.nodes, options.edges)
    before = free_cores()
    rows = []
    for threads in options.threads:
        rows += measure(graph, dgl, options.walkers, options.length, threads, options.rounds, clock)
    content = {
        "dgl": None if dgl is None else dgl.__version__,
        "cpu_time": options.cpu_time,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "free_cores": [before, free_cores()],
    }
    write_json(options.out, {**content, "rows": rows})


if __name__ == "__main__":
    main()
