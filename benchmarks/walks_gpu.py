"""Random walks on a GPU: start nodes on the GPU -> walks on the GPU.

    PYTHONPATH=. python benchmarks/walks_gpu.py                                  # a graph of the size of ogbn-products
    PYTHONPATH=. python benchmarks/walks_gpu.py --csc indptr.npy indices.npy

Milliseconds a call of `loader.random_walk`, synchronised at both ends; median over calls with other seeds. "torch" is
the same walk by plain torch on the same GPU: a call of `torch.rand` and three of indexing a step. "G steps/s" counts
steps that went somewhere. What is made once for a graph (the filter of edges of node2vec, the tables of weights, which
the CPU makes) is timed by itself, with the memory that it takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, write_json
from _gpu_batches import products_shaped
from _walk_functions import by_weight, deepwalk, node2vec

import loader
from loader.graph import Graph
from loader.samplers import WalkSampler

# name, walkers (None: one at each node), length, options
CASES: list[tuple[str, int | None, int, dict[str, Any]]] = [
    ("uniform", None, 80, {}),
    ("uniform", None, 10, {}),
    ("uniform", 196_615, 80, {}),
    ("uniform", 10_240, 80, {}),
    ("uniform, edge ids", None, 80, {"edge_ids": True}),
    ("stop 0.2", None, 80, {"stop": 0.2}),
    ("restart 0.2", None, 80, {"restart": 0.2}),
    ("node2vec p 2, q 0.5", None, 80, {"p": 2, "q": 0.5}),
    ("node2vec p 2, q 0.5", 196_615, 80, {"p": 2, "q": 0.5}),
    ("node2vec p 0.25, q 4", None, 80, {"p": 0.25, "q": 4}),
    ("weighted", None, 80, {"weights": "edge_weights"}),
    ("weighted", 196_615, 80, {"weights": "edge_weights"}),
    ("weighted", 10_240, 80, {"weights": "edge_weights"}),
    ("weighted node2vec p 2, q 0.5", None, 80, {"weights": "edge_weights", "p": 2, "q": 0.5}),
    ("next: uniform", None, 80, {"next": deepwalk}),
    ("next: node2vec p 2, q 0.5", None, 80, {"next": node2vec}),
    ("next: weighted", None, 80, {"next": by_weight, "weights": "edge_weights"}),
]


def by_torch(
    indptr: torch.Tensor, indices: torch.Tensor, starts: torch.Tensor, length: int, stop: float
) -> torch.Tensor:
    """Uniform walks in plain torch; a walker that stops stays at -1."""
    here = starts.long()
    walk = [here]
    for _ in range(length):
        at = here.clamp(min=0)
        begin = indptr[at]
        degree = indptr[at + 1] - begin
        place = begin + (torch.rand(len(here), device=here.device) * degree).long().clamp(max=degree - 1)
        goes = (here >= 0) & (degree > 0)
        if stop:
            goes &= torch.rand(len(here), device=here.device) >= stop
        here = torch.where(goes, indices[place.clamp(min=0)].long(), -1)
        walk.append(here)
    return torch.stack(walk, 1)


def median_ms(call: Callable[[int], Any], rounds: int) -> float:
    times = []
    for i in range(rounds + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        walks = call(i)
        torch.cuda.synchronize()
        if i >= 2:
            times.append(1e3 * (time.perf_counter() - start))
        del walks
    return float(np.median(times))


def measure(
    on_gpu: Graph, perm: torch.Tensor, rounds: int, with_torch: bool, only: list[str] | None
) -> list[dict[str, Any]]:
    rows = []
    pinned: Graph | None = None
    for name, walkers, length, options in CASES:
        if only and not any(text in name for text in only):
            continue
        graph = on_gpu
        if "pinned" in name:
            graph = pinned = pinned or Graph(on_gpu.indptr.cpu(), on_gpu.indices.cpu(), validate=False).pin_memory()
        starts = torch.arange(graph.num_nodes, device="cuda") if walkers is None else perm[:walkers]
        starts = starts.int()
        begin = time.perf_counter()
        made = loader.random_walk(graph, starts, length, **options)
        nodes = made if isinstance(made, torch.Tensor) else made[0]
        steps = int((nodes[:, 1:] >= 0).sum())
        first = time.perf_counter() - begin
        del made, nodes
        row: dict[str, Any] = {"walk": name, "walkers": len(starts), "length": length, "steps": steps}
        if "next" in options:
            row["first_call_s"] = first  # with the compilation
        row["ms"] = median_ms(lambda i: loader.random_walk(graph, starts, length, seed=i, **options), rounds)  # noqa: B023
        row["g_steps_per_s"] = steps / row["ms"] / 1e6
        if with_torch and options.keys() <= {"stop"}:
            stop = options.get("stop", 0.0)
            row["torch_ms"] = median_ms(
                lambda _: by_torch(graph.indptr, graph.indices, starts, length, stop),  # noqa: B023
                max(2, rounds // 4),
            )
        rows.append(row)
        beside = f"   torch {row['torch_ms']:9.3f}" if "torch_ms" in row else ""
        print(f"{name:28} {len(starts):>9,} x {length:<3} {row['ms']:9.3f} ms {row['g_steps_per_s']:7.2f} G/s{beside}")
    return rows


def preparation(graph: Graph, what: str, **options: Any) -> dict[str, float]:
    """Seconds, and bytes on the GPU, of what is made once for a graph."""
    torch.cuda.synchronize()
    before, start = torch.cuda.memory_allocated(), time.perf_counter()
    session = WalkSampler(1, device="cuda", **options).open(graph)
    torch.cuda.synchronize()
    made = {"seconds": time.perf_counter() - start, "bytes": torch.cuda.memory_allocated() - before}
    session.close()
    print(f"{what}, once for the graph: {1e3 * made['seconds']:.1f} ms, {made['bytes'] / 2**20:.0f} MiB")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csc", nargs=2, metavar=("INDPTR.npy", "INDICES.npy"), help="another graph")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-torch", action="store_true", help="leave plain torch out")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="walks with one of these in their name")
    parser.add_argument("--out", type=Path, default=RESULTS / "walks_gpu.json")
    options = parser.parse_args()
    arrays = [torch.from_numpy(np.load(path)) for path in options.csc or ()]
    graph = (Graph(*arrays) if arrays else products_shaped()).to("cuda")
    chance = torch.Generator("cuda").manual_seed(0)
    # A few are many times heavier than the others.
    graph.edge_weights = torch.rand(graph.num_edges, generator=chance, device="cuda").clamp(min=1e-6) ** -0.5
    perm = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0)).cuda()
    once = {}
    if not options.only:
        WalkSampler(1, q=2, device="cuda").open(graph).close()  # kernels are compiled
        once["node2vec"] = preparation(graph, "node2vec", q=2)
        once["weighted"] = preparation(graph, "weighted", weights="edge_weights")
    rows = measure(graph, perm, options.rounds, not options.no_torch, options.only)
    content = {"gpu": torch.cuda.get_device_name(), "num_nodes": graph.num_nodes, "num_edges": graph.num_edges}
    write_json(options.out, {**content, "once": once, "rows": rows})


if __name__ == "__main__":
    main()
