"""Whole sampling on the GPU: seeds on the GPU -> canonical blocks and input nodes on the GPU.

    python benchmarks/sampler_gpu.py --out results.json     # a graph of the size and skew of ogbn-products
    python benchmarks/sampler_gpu.py --csc indptr.npy indices.npy --seeds perm.npy --out results.json

Milliseconds a mini-batch, median over mini-batches of different seeds, synchronised at both ends; the schedules take
turns at every mini-batch. `host` is the time until `sample` returns to Python. The i-th mini-batch of size b is
`perm[i * b : (i + 1) * b]`. `host_work_ms` is the host's own work on a mini-batch: to launch it and, when the GPU is
done, to take it back with all of its arrays; median over mini-batches of one sampler, one after the other. The host
never sleeps between. It is measured on a core that is at full speed, see `_common.QuietCore`: mini-batches during which
it is not are in `all_host_work_ms` alone, and `quiet` is the share of the others. All is measured several times, one
pass over the cases after the other, and of the passes the median is taken.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import QuietCore, microseconds, write_json
from _gpu_batches import products_shaped

from loader.graph import Graph
from loader.samplers.base import Request, Session
from loader.samplers.gpu.sampler import SCHEDULES, CudaSampler

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
_HOST_ROUNDS, _HOST_SECONDS = 60, 0.5  # so many that count, or for so long


def measure_launches_of_several(
    graph: Graph, perm: torch.Tensor, fanouts: list[int], size: int, schedule: str, rounds: int, core: QuietCore
) -> tuple[dict, dict]:
    """Milliseconds a mini-batch when several are sampled together, and those of them in which the host works."""
    row: dict = {"fanouts": fanouts, "batch": size, "schedule": schedule}
    work = dict(row)
    sessions = {n: CudaSampler(fanouts, schedule=schedule, batches_per_launch=n).open(graph) for n in (1, 2, 4, 8, 16)}
    times: dict[int, list[float]] = {count: [] for count in sessions}
    batches = max(1, perm.numel() // size)
    for i in range(rounds // 2 + 3):
        for count, session in sessions.items():
            at = [(16 * i + b) % batches for b in range(count)]
            seeds = [perm[b * size : (b + 1) * size] for b in at]
            torch.cuda.synchronize()
            start = time.perf_counter()
            finish = session.begin([Request(s, 0, b) for s, b in zip(seeds, at, strict=True)], ahead=True)
            for f in finish:
                f()
            torch.cuda.synchronize()
            if i >= 3:
                times[count].append(1e3 * (time.perf_counter() - start) / count)
    row.update({str(count): float(np.median(t)) for count, t in times.items()})
    for count, session in sessions.items():
        work[str(count)] = host_work(session, perm, size, core, count)["host_work_ms"]
    return row, work


def host_work(session: Session, perm: torch.Tensor, size: int, core: QuietCore, together: int = 1) -> dict:
    """Milliseconds that the host itself is at work on a mini-batch, of `together` that are begun before one is done."""
    stream = torch.cuda.current_stream()

    def wait() -> None:
        while not stream.query():  # a host that slept would find its caches cold, and its clock slow
            pass

    times: list[float] = []
    quiet: list[float] = []
    batches = max(1, perm.numel() // size)
    end = time.perf_counter() + _HOST_SECONDS
    warm_from = 0
    for i in itertools.count():
        if i % 40 == 0 and 2 * len(quiet) <= len(times):
            core.move()
            warm_from = i + 8  # its caches are another's
        at = [(together * i + b) % batches for b in range(together)]
        seeds = [perm[b * size : (b + 1) * size] for b in at]
        wait()
        was_quiet = core.is_quiet()
        start = time.perf_counter()
        finish = session.begin([Request(s, 0, b) for s, b in zip(seeds, at, strict=True)], ahead=True)
        launched = time.perf_counter()
        wait()
        done = time.perf_counter()
        taken = [f() for f in finish]
        taken_at = time.perf_counter()
        if i >= warm_from:
            times.append(1e3 * (launched - start + taken_at - done) / together)
            if was_quiet and core.is_quiet():
                quiet.append(times[-1])
        del taken, finish  # what it takes to let go of a mini-batch is its user's
        if len(quiet) == _HOST_ROUNDS or (times and time.perf_counter() > end):
            break
    return {
        "host_work_ms": float(np.median(quiet)) if quiet else None,  # no core was at full speed
        "all_host_work_ms": float(np.median(times)),
        "quiet": len(quiet) / len(times),
    }


def measure(
    graph: Graph, perm: torch.Tensor, fanouts: list[int], size: int, rounds: int, blocks: int, core: QuietCore
) -> dict:
    sessions = {
        name: CudaSampler(fanouts, schedule=name, blocks_per_sm=blocks).open(graph) for name in sorted(SCHEDULES)
    }
    times: dict[str, list[float]] = {name: [] for name in sessions}
    hosts: dict[str, list[float]] = {name: [] for name in sessions}
    batches = max(1, perm.numel() // size)
    edges, nodes = [], []
    core.move()
    for i in range(rounds + 5):
        seeds = perm[(i % batches) * size : (i % batches + 1) * size]
        for name, session in sessions.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            (finish,) = session.begin([Request(seeds, 0, i)])
            batch = finish()
            host = time.perf_counter() - start
            torch.cuda.synchronize()
            if i >= 5:
                times[name].append(1e3 * (time.perf_counter() - start))
                hosts[name].append(1e3 * host)
                edges.append(batch.num_edges)
                nodes.append(batch.nodes.numel())
    row: dict = {"fanouts": fanouts, "batch": size, "edges": int(np.median(edges)), "nodes": int(np.median(nodes))}
    for name, session in sessions.items():
        row[name] = {
            "ms": float(np.median(times[name])),
            "host_ms": float(np.median(hosts[name])),
            **host_work(session, perm, size, core),
            "launches": session.launches,
        }
    return row


def one_pass(graph: Graph, perm: torch.Tensor, rounds: int, blocks: int, core: QuietCore) -> dict[str, list[dict]]:
    """Everything once."""
    several, work = [], []
    rows = [measure(graph, perm, fanouts, size, rounds, blocks, core) for fanouts, size in CASES]
    for fanouts in ([10, 10], [15, 10, 5]):
        for schedule in ("cooperative", "hopwise"):
            of_both = measure_launches_of_several(graph, perm, fanouts, 1024, schedule, rounds, core)
            several.append(of_both[0])
            work.append(of_both[1])
    return {"rows": rows, "batches_per_launch": several, "host_work": work}


def median_of(passes: list[Any]) -> Any:
    """Results of one form as one of that form: numbers are medians, the rest is that of the first."""
    passes = [one for one in passes if one is not None] or [None]
    first = passes[0]
    if isinstance(first, dict):
        return {key: median_of([one[key] for one in passes]) for key in first}
    if isinstance(first, list):
        return [median_of(list(ones)) for ones in zip(*passes, strict=True)]
    return type(first)(np.median(passes)) if isinstance(first, (int, float)) else first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csc", nargs=2, type=Path, metavar=("INDPTR", "INDICES"), help="another graph")
    parser.add_argument("--seeds", type=Path, help="its nodes in the order in which they are taken")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20, help="mini-batches of each case and pass")
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
    passes = []
    with QuietCore() as core:
        for _ in range(args.passes):
            passes.append(one_pass(graph, perm, args.rounds, args.blocks_per_sm, core))
            host = [row["cooperative"] for row in passes[-1]["rows"]]
            keys = ("host_work_ms", "all_host_work_ms")
            shown = ["/".join(microseconds(row[key]) for key in keys) for row in host]
            print(f"pass {len(passes)}: host at work, cooperative, us, quiet/all: {' '.join(shown)}", flush=True)
    result = median_of(passes)
    for row in result["rows"]:
        cells = "  ".join(
            "{} {ms:.3f} ms (host {host_ms:.3f}, at work {} us)".format(
                name, microseconds(row[name]["host_work_ms"]), **row[name]
            )
            for name in sorted(SCHEDULES)
        )
        print(
            f"{row['fanouts']!s:14} {row['batch']:6} {row['edges']:9} edges {row['nodes']:8} nodes  {cells}", flush=True
        )
    for row, work in zip(result["batches_per_launch"], result["host_work"], strict=True):
        print("batches_per_launch", row, "host at work", work)
    if args.out:
        content = {"gpu": torch.cuda.get_device_name(), "graph": repr(graph), "blocks_per_sm": args.blocks_per_sm}
        write_json(args.out, {**content, "passes": args.passes, "fixed_work_us": core.fastest_us, **result})


if __name__ == "__main__":
    main()
