"""Picks by weight and LABOR on a GPU beside uniform picks, whole mini-batches, in turns in one run.

    PYTHONPATH=. python benchmarks/picks_gpu.py --csc indptr.npy indices.npy      # or --graph NAME of a dataset

Seeds on the GPU to blocks on the GPU, one mini-batch a call, synchronised at both ends; medians. Weights are uniform
random numbers, float32; their tables are made once before, the time is printed. `--hub` replaces the list of the first
seed of each mini-batch by one of a million entries.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, add_graph_options, load_graph, write_json
from rich.console import Console
from rich.table import Table

from loader.graph import Graph
from loader.samplers import CudaSampler
from loader.samplers.picks import weighed

SETTINGS = (((10, 10), 1024), ((15, 10, 5), 1024), ((10, 10, 10), 2048))
KINDS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "weighted": {"weights": "edge_weights"},
    "weighted, replaced": {"weights": "edge_weights", "replace": True},
    "heaviest": {"weights": "edge_weights", "top_k": True},
    "labor": {"labor": True},
    "labor, all hops": {"labor": True, "layer_dependency": True},
}
WARM_UP = 5


def with_hub(graph: Graph, v: int, degree: int) -> Graph:
    """The graph in which `v` has `degree` in-neighbors, spread over all nodes."""
    begin, end = graph.indptr[v : v + 2].tolist()
    more = torch.arange(degree) * graph.num_nodes // degree
    indices = torch.cat([graph.indices[:begin], more.to(graph.indices.dtype), graph.indices[end:]])
    indptr = graph.indptr.long().clone()
    indptr[v + 1 :] += degree - (end - begin)
    return Graph(indptr, indices, validate=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument("--graph", default="synthetic-products", help="a dataset (default: synthetic-products)")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--hub", action="store_true", help="a hub of a million in-neighbors among the seeds")
    parser.add_argument("--json", type=Path, default=RESULTS / "picks_gpu.json")
    arguments = parser.parse_args()
    plain = load_graph("csc" if arguments.csc else arguments.graph, arguments)
    order = torch.randperm(plain.num_nodes, generator=torch.Generator().manual_seed(0))
    if arguments.hub:
        plain = with_hub(plain, int(order[0]), 1_000_000)
    weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(0)) + 2**-10
    graph = Graph(plain.indptr, plain.indices, edge_weights=weights, validate=False).to("cuda")
    begin = time.perf_counter()
    tables = weighed(graph, "benchmark").tables(torch.get_num_threads())
    seconds = time.perf_counter() - begin
    rows = []
    shown = Table("fanouts", "batch", "picks", "ms", "of uniform", "input nodes", "edges")
    for fanouts, batch_size in SETTINGS:
        samplers = {kind: CudaSampler(fanouts, **KINDS[kind]) for kind in arguments.kinds}
        times: dict[str, list[float]] = {kind: [] for kind in samplers}
        sizes: dict[str, list[tuple[int, int]]] = {kind: [] for kind in samplers}
        parts = order[1:].split(batch_size)
        hub = order[:1]
        names = list(samplers)
        for i in range(WARM_UP + arguments.repeats):
            seeds = parts[i % (len(parts) - 1)].clone()
            if arguments.hub:
                seeds[:1] = hub
            seeds = seeds.to("cuda", graph.indices.dtype)
            for name in names[i % len(names) :] + names[: i % len(names)]:
                torch.cuda.synchronize()
                start = time.perf_counter()
                batch = samplers[name].sample(graph, seeds, batch=i)
                torch.cuda.synchronize()
                if i >= WARM_UP:
                    times[name].append(1e3 * (time.perf_counter() - start))
                    sizes[name].append((batch.frontier_sizes[-1], batch.num_edges))
        medians = {kind: statistics.median(times[kind]) for kind in times}
        for kind, ms in medians.items():
            nodes, edges = (statistics.mean(column) for column in zip(*sizes[kind], strict=True))
            ratio = ms / medians["uniform"] if "uniform" in medians else None
            rows.append(
                {
                    "fanouts": fanouts,
                    "batch_size": batch_size,
                    "picks": kind,
                    "ms": ms,
                    "of_uniform": ratio,
                    "input_nodes": nodes,
                    "edges": edges,
                }
            )
            shown.add_row(
                ",".join(map(str, fanouts)),
                str(batch_size),
                kind,
                f"{ms:.3f}",
                "-" if ratio is None else f"{ratio:.2f}x",
                f"{nodes:,.0f}",
                f"{edges:,.0f}",
            )
        for sampler in samplers.values():
            sampler.close()
    Console(width=120).print(shown)
    nbytes = sum(t.nbytes for t in tables)
    print(f"tables: {seconds:.1f} s, {nbytes / 2**20:.0f} MiB")
    size: dict[str, Any] = {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "hub": arguments.hub}
    size["gpu"] = torch.cuda.get_device_name()
    write_json(arguments.json, {**size, "tables_seconds": seconds, "tables_bytes": nbytes, "rows": rows})


if __name__ == "__main__":
    main()
