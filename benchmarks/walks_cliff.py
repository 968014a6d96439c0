"""node2vec on graphs with repeated edges and hubs: no p and q takes much longer than another, on a CPU or a GPU.

    PYTHONPATH=. python benchmarks/walks_cliff.py --device cuda
    PYTHONPATH=. python benchmarks/walks_cliff.py --device cpu --walkers 2000 --length 10 --scale 0.1

Milliseconds of walks from every node (or from `--walkers` of them), medians, for p and q on a grid from 1/64 to 64.
Two graphs: "drawn", whose edges are drawn with repetition (4.85 M nodes, 69 M edges, a hub of 743,592), and
"copies", which has edges repeated up to 10,000 times and a hub of 10^6, half of them copies. Each is walked on with its
repeated edges and without them. On a busy machine, compare the processor's time (`--threads 1 --cpu-time`).

Two bounds: each p and q within 1.5 * max(q, 4) of the time of p 4, q 0.25 on the same graph, and within twice the time
of the same p and q on the graph without its repeated edges.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, write_json

import loader
from loader.graph import Graph

Clock = Callable[[], float]

GRID = [1 / 64, 1 / 8, 1.0, 8.0, 64.0]
BASE = 4.0, 0.25
MORE, AS_SIMPLE = 1.5, 2.0  # the bounds


def drawn(scale: float) -> Graph:
    """Both ends of an edge are drawn, the lower a node's number the likelier; node 0 is a hub."""
    nodes, edges, hub = (int(scale * n) for n in (4_850_000, 69_000_000, 743_592))
    g = torch.Generator().manual_seed(0)
    half = edges // 2
    ends = [(torch.rand(half, generator=g) ** 2 * (nodes - 1)).int() + 1 for _ in range(2)]
    ends[0][:hub] = 0
    return _undirected(ends[0], ends[1], nodes)


def copies(scale: float) -> Graph:
    """Node 0 is a hub; of the others, one in a hundred has an edge that is repeated, up to 10,000 times."""
    nodes, edges, hub = int(scale * 2_000_000), int(scale * 16_000_000), int(scale * 1_000_000)
    g = torch.Generator().manual_seed(1)
    src, dst = torch.randint(1, nodes, (2, edges), generator=g, dtype=torch.int32)
    fans = torch.randperm(nodes - 1, generator=g, dtype=torch.int32)[: hub - hub // 2] + 1
    few = nodes // 100
    times = (10_000 * torch.rand(few, generator=g) ** 8).long() + 1
    times[:3] = 10_000
    ends = torch.randint(1, nodes, (2, few), generator=g, dtype=torch.int32)
    ends[1, times.cumsum(0) <= hub // 2] = 0  # half of the hub's entries are copies
    ends = ends.repeat_interleave(times, 1)
    return _undirected(torch.cat([src, fans, ends[0]]), torch.cat([dst, torch.zeros_like(fans), ends[1]]), nodes)


GRAPHS = {"drawn": drawn, "copies": copies}


def _undirected(a: torch.Tensor, b: torch.Tensor, nodes: int) -> Graph:
    return Graph.from_edges(torch.cat([a, b]), torch.cat([b, a]), nodes)


def without_repeats(graph: Graph) -> Graph:
    """Lists are in ascending order, so copies lie side by side."""
    new = torch.ones(graph.num_edges, dtype=torch.bool)
    new[1:] = graph.indices[1:] != graph.indices[:-1]
    begins = graph.indptr[:-1].long()
    new[begins[begins < graph.num_edges]] = True
    before = torch.cat([torch.zeros(1, dtype=torch.int64), new.long().cumsum(0)])
    return Graph(before[graph.indptr.long()].to(graph.indptr.dtype), graph.indices[new])


def median_ms(
    graph: Graph, starts: torch.Tensor, length: int, p: float, q: float, rounds: int, clock: Clock, **options: Any
) -> float:
    times = []
    for i in range(rounds + 1):
        begun = clock()
        loader.random_walk(graph, starts, length, p=p, q=q, seed=i, **options)
        if i > 0:
            times.append(1e3 * (clock() - begun))
    return float(np.median(times))


def measure(
    graph: Graph, walkers: int | None, length: int, rounds: int, clock: Clock, **options: Any
) -> dict[tuple[float, float], float]:
    starts = torch.arange(graph.num_nodes, dtype=graph.indices.dtype)
    if walkers is not None:
        starts = starts[torch.randperm(len(starts), generator=torch.Generator().manual_seed(2))[:walkers]]
    starts = starts.to(graph.device)
    return {
        (p, q): median_ms(graph, starts, length, p, q, rounds, clock, **options)
        for p, q in (BASE, *itertools.product(GRID, GRID))
        if (p, q) != (1, 1)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--scale", type=float, default=1.0, help="of the graphs' sizes")
    parser.add_argument("--walkers", type=int, help="by default one at each node")
    parser.add_argument("--length", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of the CPU")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor, for a busy machine")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.cpu_time and args.threads != 1:
        parser.error(f"--cpu-time adds up the threads, of which there are {args.threads}; add --threads 1")
    clock = time.process_time if args.cpu_time else time.perf_counter
    on_gpu = args.device != "cpu"
    options = {} if on_gpu or args.threads is None else {"num_threads": args.threads}
    rows, worst = [], {"of p 4, q 0.25": 0.0, "of the graph without repeated edges": 0.0}
    for name in args.graphs:
        graph = GRAPHS[name](args.scale)
        simple = without_repeats(graph)
        degrees = graph.indptr.long().diff()
        sizes = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges ({simple.num_edges:,} different)"
        print(f"{name}: {sizes}, hub of {int(degrees.max()):,}", flush=True)
        of_simple = measure(simple.to(args.device), args.walkers, args.length, args.rounds, clock, **options)
        of_all = measure(graph.to(args.device), args.walkers, args.length, args.rounds, clock, **options)
        for (p, q), ms in of_all.items():
            of_base = ms / of_all[BASE] / max(q, 4) / MORE
            of_same = ms / of_simple[p, q] / AS_SIMPLE
            worst["of p 4, q 0.25"] = max(worst["of p 4, q 0.25"], of_base)
            worst["of the graph without repeated edges"] = max(worst["of the graph without repeated edges"], of_same)
            rows.append({"graph": name, "p": p, "q": q, "ms": ms, "simple_ms": of_simple[p, q]})
            times = f"{ms:10.2f} ms, without repeated edges {of_simple[p, q]:10.2f} ms"
            print(
                f"{name:7} p {p:<9g} q {q:<9g} {times}   shares of the bounds {of_base:5.2f} {of_same:5.2f}", flush=True
            )
    for what, share in worst.items():
        print(
            f"the slowest p and q reach {100 * share:.0f} % of the bound {what}: {'holds' if share <= 1 else 'BROKEN'}"
        )
    content = {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "scale": args.scale,
        "walkers": args.walkers,
        "length": args.length,
        "cpu_time": args.cpu_time,
        "share_of_bounds": worst,
        "holds": max(worst.values()) <= 1,
    }
    write_json(args.out or RESULTS / f"walks_cliff{'_gpu' if on_gpu else ''}.json", {**content, "rows": rows})


if __name__ == "__main__":
    main()
