"""Sampling on a GPU from a graph in pinned host memory, beside the same graph in GPU memory, in turns in one run.

    PYTHONPATH=. python benchmarks/pinned_gpu.py --csc indptr.npy indices.npy      # or --graph NAME of a dataset

Seeds on the GPU to blocks on the GPU, one mini-batch a call or eight together, synchronised at both ends; medians,
milliseconds per mini-batch. `reads` are those of `CudaSampler`, with the names of EMOGI's figures. `lines` are what a
mini-batch must read, counted from the edge ids that it sampled; `MiB read` is what the kernels counted. `floor` is the
time that a plain copy of these lines from pinned memory takes, measured in the same run, and `share` is the floor as a
part of the time.

Cached lists hold `--fraction` of the edges: the longest, or those that save most per byte in mini-batches that are not
measured (`list_hotness`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from _bus import lines_of
from _common import RESULTS, add_graph_options, load_graph, write_json
from rich.console import Console
from rich.table import Table
from torch import Tensor

from loader.graph import Graph
from loader.samplers import CudaSampler, list_hotness
from loader.samplers.base import Request, Session
from loader.samplers.gpu.pinned_reads import LINE_BYTES

SETTINGS = (((10, 10), 1024), ((15, 10, 5), 1024), ((10, 10, 10), 2048))
TOGETHER = 8
WARM_UP = 4
CONTENDERS: dict[str, dict[str, Any]] = {
    "GPU memory": {},
    "naive": {"reads": "naive"},
    "aligned": {"reads": "aligned"},
    "sectors": {"reads": "sectors"},
    "sectors, hop by hop": {"reads": "sectors", "schedule": "hopwise"},
    "cached by degree": {},
    "cached by visits": {},
}
VISITS = 100  # mini-batches by which lists are cached; others are measured


def copy_rate(host: Tensor) -> float:
    """Bytes per second of a plain copy of pinned memory to the GPU."""
    part = host[: min(host.numel(), 2**26)]
    target = torch.empty_like(part, device="cuda")
    times = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(part, non_blocking=True)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return part.nbytes / (1e-3 * statistics.median(times))


def group_of(order: Tensor, size: int, first: int, count: int) -> list[Request]:
    parts = order.numel() // size
    return [Request(order[i % parts * size :][:size], 0, i) for i in range(first, first + count)]


def mean_lines(session: Session, order: Tensor, size: int, count: int, indices: Tensor, groups: int) -> float:
    """Distinct lines of `indices` that a mini-batch must read, of `count` that share them; the mean of some groups."""
    begin, found = indices.data_ptr() % LINE_BYTES, []
    for g in range(groups):
        ids = [b.edge_ids for f in session.begin(group_of(order, size, g * count, count)) for b in f().blocks]
        found.append(lines_of(ids, indices.itemsize, begin) / count)
    return statistics.mean(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument("--graph", default="synthetic-products", help="a dataset (default: synthetic-products)")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--fraction", type=float, default=0.25, help="of the edges, that are cached")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--json", type=Path, default=RESULTS / "pinned_gpu.json")
    arguments = parser.parse_args()
    graph = load_graph("csc" if arguments.csc else arguments.graph, arguments)
    graph = Graph(graph.indptr, graph.indices, validate=False)
    pinned, on_gpu = graph.pin_memory(), graph.to("cuda")
    rate = copy_rate(pinned.indices)
    print(f"plain copy from pinned memory: {rate / 1e9:.1f} GB/s", flush=True)
    seeds = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    order = seeds.to("cuda", graph.indices.dtype)
    by_degree = (
        pinned.cache_lists(fraction=arguments.fraction) if "cached by degree" in arguments.contenders else pinned
    )
    rows = []
    shown = Table("fanouts", "batch", "together", "graph", "ms", "MiB read", "lines", "floor ms", "share", "launches")
    for fanouts, size in SETTINGS:
        graphs = {"GPU memory": on_gpu, "cached by degree": by_degree}
        if "cached by visits" in arguments.contenders:
            past = CudaSampler(fanouts, seed=2)
            batches = (
                past.sample(on_gpu, r.seeds, epoch=1, batch=r.batch) for r in group_of(order, size, 1000, VISITS)
            )
            hotness = list_hotness(pinned, batches, fanouts)
            graphs["cached by visits"] = pinned.cache_lists(fraction=arguments.fraction, hotness=hotness)
            past.close()
        for count in (1, TOGETHER):
            counting = CudaSampler(fanouts, seed=1, edge_ids=True, batches_per_launch=count)
            lines = mean_lines(counting.open(on_gpu), order, size, count, pinned.indices, 10 // count + 1)
            counting.close()
            floor = 1e3 * lines * LINE_BYTES / rate
            sessions = {
                name: CudaSampler(fanouts, seed=1, batches_per_launch=count, **CONTENDERS[name]).open(
                    graphs.get(name, pinned)
                )
                for name in arguments.contenders
            }
            times: dict[str, list[float]] = {name: [] for name in sessions}
            names = list(sessions)
            rounds = arguments.repeats if count == 1 else max(3, arguments.repeats // 3)
            for i in range(WARM_UP + rounds):
                group = group_of(order, size, i * count, count)
                for name in names[i % len(names) :] + names[: i % len(names)]:
                    session = sessions[name]
                    if i == WARM_UP:
                        session.lines = 0
                    torch.cuda.synchronize()
                    start = time.perf_counter()
                    for finish in session.begin(group):
                        finish()
                    torch.cuda.synchronize()
                    if i >= WARM_UP:
                        times[name].append(1e3 * (time.perf_counter() - start) / count)
            for name, session in sessions.items():
                ms, read = statistics.median(times[name]), session.lines / (rounds * count)
                share = floor / ms if name != "GPU memory" else None
                rows.append(
                    {
                        "fanouts": fanouts,
                        "batch_size": size,
                        "together": count,
                        "graph": name,
                        "ms": ms,
                        "bytes_read": read * session.unit_bytes,
                        "lines": lines,
                        "floor_ms": floor,
                        "share": share,
                        "launches": session.launches,
                    }
                )
                shown.add_row(
                    ",".join(map(str, fanouts)),
                    str(size),
                    str(count),
                    name,
                    f"{ms:.3f}",
                    f"{read * session.unit_bytes / 2**20:,.1f}" if read else "-",
                    f"{lines:,.0f}",
                    f"{floor:.3f}",
                    "-" if share is None else f"{share:.2f}",
                    str(session.launches),
                )
                session.close()
            print(*[f"{r['graph']} {r['ms']:.3f}" for r in rows[-len(sessions) :]], sep="; ", flush=True)
    Console(width=130).print(shown)
    content: dict[str, Any] = {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges, "copy_rate": rate}
    write_json(arguments.json, {**content, "gpu": torch.cuda.get_device_name(), "rows": rows})


if __name__ == "__main__":
    main()
