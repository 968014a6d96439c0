"""The two kinds of node set of the GPU sampler, as the graph grows beside a mini-batch of one size.

    PYTHONPATH=. python benchmarks/sampler_gpu_sets.py             # some 60 s, 30 GB of GPU memory
    PYTHONPATH=. python benchmarks/sampler_gpu_sets.py --quick     # the two smallest graphs

Graphs of 12 random in-neighbors a node. For bitmaps and hash sets, each with the schedules that `auto` takes, in
turns at every mini-batch, medians of:

- device_ms: what the GPU takes, without the host's part
- whole_ms: seeds on the GPU -> canonical blocks on the GPU, the host synchronised at both ends

and the memory that the sampler keeps, in MiB. All give the same mini-batches, which is checked at every case.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, write_json
from _gpu_batches import sampling_on_the_gpu
from sampler_gpu_paper import regular_graph

from loader.graph import Graph
from loader.samplers.base import Request, Session
from loader.samplers.gpu.sampler import NODE_SETS, CudaSampler
from loader.samplers.gpu.sizes import choose_node_set

NODES = (2_500_000, 10_000_000, 30_000_000, 100_000_000, 400_000_000)
CASES = (([10, 10], 1024), ([15, 10, 5], 1024), ([10, 10, 10], 2048))
DEGREE = 12
WARM_UP = 4


def measure(graph: Graph, order: torch.Tensor, fanouts: list[int], size: int, rounds: int) -> dict[str, Any]:
    """One row: the figures of each kind and schedule."""
    samplers = {
        f"{kind} {schedule}": CudaSampler(fanouts, schedule=schedule, node_set=kind)
        for kind in NODE_SETS
        for schedule in ("cooperative", "hopwise")
    }
    row: dict[str, Any] = {"graph_nodes": graph.num_nodes, "fanouts": fanouts, "batch": size}
    sessions: dict[str, Session] = {}
    memory, digests = {}, set()
    for name, sampler in samplers.items():
        before = torch.cuda.memory_allocated()
        sessions[name] = sampler.open(graph)
        (finish,) = sessions[name].begin([Request(order[:size], 0, 0)])
        batch = finish()
        digests.add(batch.digest())
        row |= {"edges": batch.num_edges, "nodes": batch.nodes.numel()}
        del batch, finish
        memory[name] = (torch.cuda.memory_allocated() - before) / 2**20
    if len(digests) != 1:
        raise RuntimeError(f"the mini-batches differ between {', '.join(samplers)}")
    times: dict[str, dict[str, list[float]]] = {name: {"whole_ms": [], "device_ms": []} for name in samplers}
    batches = order.numel() // size
    for i in range(rounds + WARM_UP):
        seeds = order[(i % batches) * size : (i % batches + 1) * size]
        for name, session in sessions.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            (finish,) = session.begin([Request(seeds, 0, i)])
            finish()
            torch.cuda.synchronize()
            whole = time.perf_counter() - start
            on_the_gpu = sampling_on_the_gpu(session, seeds, i)
            if i >= WARM_UP:
                times[name]["whole_ms"].append(1e3 * whole)
                times[name]["device_ms"].append(on_the_gpu)
    for name, of in times.items():
        row[name] = {what: statistics.median(values) for what, values in of.items()} | {"mib": memory[name]}
    best = {kind: min(row[name]["device_ms"] for name in samplers if name.startswith(kind)) for kind in NODE_SETS}
    row["auto"] = choose_node_set(graph.num_nodes, row["nodes"])
    row["hash is faster by"] = best["bitmap"] / best["hash"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=RESULTS / "sampler_gpu_sets.json")
    arguments = parser.parse_args()
    rows = []
    for n in NODES[:2] if arguments.quick else NODES:
        graph = regular_graph(n, DEGREE)
        g = torch.Generator("cuda").manual_seed(7)
        order = torch.randint(n, (1 << 18,), device="cuda", generator=g, dtype=torch.int32).unique()
        order = order[torch.randperm(order.numel(), device="cuda", generator=g)]
        for fanouts, size in CASES:
            row = measure(graph, order, fanouts, size, arguments.rounds)
            rows.append(row)
            cells = {k: f"{v['device_ms']:.3f} ms {v['mib']:.0f} MiB" for k, v in row.items() if isinstance(v, dict)}
            print(
                f"{n:11,} nodes {fanouts} x {size}: {row['nodes']} nodes, {cells}, hash is faster by "
                f"{row['hash is faster by']:.2f}, auto takes {row['auto']}",
                flush=True,
            )
        del graph, order
        torch.cuda.empty_cache()
    write_json(arguments.json, {"gpu": torch.cuda.get_device_name(), "degree": DEGREE, "rows": rows})


if __name__ == "__main__":
    main()
