"""Whole sampling on the GPU: seeds on the GPU -> canonical blocks and input nodes on the GPU.

    python benchmarks/sampler_gpu.py --out results.json     # a graph of the size and skew of ogbn-products
    python benchmarks/sampler_gpu.py --csc indptr.npy indices.npy --seeds perm.npy --out results.json

Milliseconds a mini-batch, median over mini-batches of different seeds, synchronised at both ends; the schedules take
turns at every mini-batch. `host` is the time until `sample` returns to Python. The i-th mini-batch of size b is
`perm[i * b : (i + 1) * b]`. `host_work_ms` is the host's own work on a mini-batch: to launch it and, when the GPU is
done, to take it back; median over mini-batches of one sampler, one after the other. The host never sleeps between.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from _common import write_json
from _gpu_batches import products_shaped

from loader.graph import Graph
from loader.samplers.cuda import SCHEDULES, CudaSampler

CASES = [
    ([10, 10], 1024),
    ([10, 10], 10240),
    ([15, 10, 5], 1024),
    ([10, 10, 10], 1024),
    ([10, 10, 10], 2048),
    ([10, 10, 10], 10240),
    ([15, 15, 15], 4096),
    ([20, 20, 20], 2048),
    ([20, 20, 20], 10240),
]
_HOST_ROUNDS = 200


def measure_launches_of_several(
    graph: Graph, perm: torch.Tensor, fanouts: list[int], size: int, schedule: str, rounds: int
) -> tuple[dict, dict]:
    """Milliseconds a mini-batch when several are sampled together, and those of them in which the host works."""
    row: dict = {"fanouts": fanouts, "batch": size, "schedule": schedule}
    work = dict(row)
    samplers = {n: CudaSampler(fanouts, schedule=schedule, batches_per_launch=n) for n in (1, 2, 4, 8, 16)}
    times: dict[int, list[float]] = {count: [] for count in samplers}
    batches = max(1, perm.numel() // size)
    for i in range(rounds // 2 + 3):
        for count, sampler in samplers.items():
            at = [(16 * i + b) % batches for b in range(count)]
            seeds = [perm[b * size : (b + 1) * size] for b in at]
            torch.cuda.synchronize()
            start = time.perf_counter()
            finish = [sampler.start(graph, s, batch=b) for s, b in zip(seeds, at, strict=True)]
            for f in finish:
                f()
            torch.cuda.synchronize()
            if i >= 3:
                times[count].append(1e3 * (time.perf_counter() - start) / count)
    row.update({str(count): float(np.median(t)) for count, t in times.items()})
    work.update({str(count): host_work(sampler, graph, perm, size, count) for count, sampler in samplers.items()})
    return row, work


def host_work(sampler: CudaSampler, graph: Graph, perm: torch.Tensor, size: int, together: int = 1) -> float:
    """Milliseconds that the host itself is at work on a mini-batch, of `together` that are begun before one is done."""
    stream = torch.cuda.current_stream()

    def wait() -> None:
        while not stream.query():  # a host that slept would find its caches cold, and its clock slow
            pass

    times = []
    batches = max(1, perm.numel() // size)
    for i in range(_HOST_ROUNDS):
        at = [(together * i + b) % batches for b in range(together)]
        seeds = [perm[b * size : (b + 1) * size] for b in at]
        wait()
        start = time.perf_counter()
        finish = [sampler.start(graph, s, batch=b) for s, b in zip(seeds, at, strict=True)]
        launched = time.perf_counter()
        wait()
        done = time.perf_counter()
        taken = [f() for f in finish]
        times.append(1e3 * (launched - start + time.perf_counter() - done) / together)
        del taken, finish  # what it takes to let go of a mini-batch is its user's
    return float(np.median(times[_HOST_ROUNDS // 10 :]))


def measure(graph: Graph, perm: torch.Tensor, fanouts: list[int], size: int, rounds: int, blocks: int) -> dict:
    samplers = {name: CudaSampler(fanouts, schedule=name, blocks_per_sm=blocks) for name in sorted(SCHEDULES)}
    times: dict[str, list[float]] = {name: [] for name in samplers}
    hosts: dict[str, list[float]] = {name: [] for name in samplers}
    batches = max(1, perm.numel() // size)
    edges, nodes = [], []
    for i in range(rounds + 5):
        seeds = perm[(i % batches) * size : (i % batches + 1) * size]
        for name, sampler in samplers.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            batch = sampler.sample(graph, seeds, batch=i)
            host = time.perf_counter() - start
            torch.cuda.synchronize()
            if i >= 5:
                times[name].append(1e3 * (time.perf_counter() - start))
                hosts[name].append(1e3 * host)
                edges.append(batch.num_edges)
                nodes.append(batch.nodes.numel())
    row: dict = {"fanouts": fanouts, "batch": size, "edges": int(np.median(edges)), "nodes": int(np.median(nodes))}
    for name, sampler in samplers.items():
        row[name] = {
            "ms": float(np.median(times[name])),
            "host_ms": float(np.median(hosts[name])),
            "host_work_ms": host_work(sampler, graph, perm, size),
            "launches": sampler.launches,
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csc", nargs=2, type=Path, metavar=("INDPTR", "INDICES"), help="another graph")
    parser.add_argument("--seeds", type=Path, help="its vertices in the order in which they are taken")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--blocks-per-sm", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.csc is None:
        graph = products_shaped()
    else:
        graph = Graph(*(torch.from_numpy(np.load(p)).cuda() for p in args.csc), validate=False)
    if args.seeds is None:
        generator = torch.Generator("cuda").manual_seed(0)
        perm = torch.randperm(graph.num_nodes, generator=generator, device="cuda").to(graph.indices.dtype)
    else:
        perm = torch.from_numpy(np.load(args.seeds)).to("cuda", graph.indices.dtype)
    print(graph, torch.cuda.get_device_name())
    rows = []
    for fanouts, size in CASES:
        row = measure(graph, perm, fanouts, size, args.rounds, args.blocks_per_sm)
        rows.append(row)
        cells = "  ".join(
            "{} {ms:.3f} ms (host {host_ms:.3f}, at work {host_work_ms:.3f})".format(name, **row[name])
            for name in sorted(SCHEDULES)
        )
        print(f"{fanouts!s:14} {size:6} {row['edges']:9} edges {row['nodes']:8} nodes  {cells}", flush=True)
    several, work = [], []
    for fanouts in ([10, 10], [15, 10, 5]):
        for schedule in ("cooperative", "hopwise"):
            of_both = measure_launches_of_several(graph, perm, fanouts, 1024, schedule, args.rounds)
            several.append(of_both[0])
            work.append(of_both[1])
            print("batches_per_launch", several[-1], "host at work", work[-1], flush=True)
    if args.out:
        content = {"gpu": torch.cuda.get_device_name(), "graph": repr(graph), "blocks_per_sm": args.blocks_per_sm}
        write_json(args.out, {**content, "rows": rows, "batches_per_launch": several, "host_work": work})


if __name__ == "__main__":
    main()
