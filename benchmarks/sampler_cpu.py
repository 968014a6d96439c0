"""The CPU samplers side by side: fused, hopwise and DGL's `NeighborSampler` (its blocks included), in one run.

    python benchmarks/sampler_cpu.py --data-dir DATA                     # ogbn-arxiv and the products-shaped graph
    python benchmarks/sampler_cpu.py --data-dir DATA --quick             # a minute: one fanout list, one batch size
    python benchmarks/sampler_cpu.py --csc indptr.npy indices.npy        # a graph of your own, in place of products
    python benchmarks/sampler_cpu.py --scaling                           # cost an edge from 1 M to 124 M edges
    python benchmarks/sampler_cpu.py --by-threads 1 2 4 8 16             # one mini-batch and groups of 16, beside DGL

All samplers get the same seeds and the same number of threads, and take turns in blocks of mini-batches (A B C, B C A,
C A B), so that a busy machine slows all of them. Blocks, with a pause before each, because OpenMP's threads (DGL's) go
on spinning for some milliseconds after their work, on the cores that the next sampler needs. DGL is measured as it
comes (`fused=True`, its fast path, which returns edge ids whether wanted or not) with 64-bit ids: with 32-bit ids its
picks are wrong. Memory is the peak of a process of its own over that process' memory with the graph loaded, in the
sampler's own format.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, add_graph_options, forget_peak, free_cores, ints, load_graph, resident_bytes, write_json
from rich.console import Console
from rich.table import Table
from torch import Tensor

from loader.graph import Graph
from loader.samplers import FusedSampler, HopwiseSampler

SAMPLERS = ("fused", "hopwise", "dgl")
WARM_UP = 3  # mini-batches that do not count
BLOCK = 5  # mini-batches of one sampler in a row
PAUSE = 0.02  # seconds before a block
Sample = Callable[[Tensor, int], int]  # (seeds, batch) -> number of sampled edges


def make_sampler(name: str, graph: Graph, fanouts: tuple[int, ...], threads: int) -> Sample:
    """A function that samples one mini-batch and counts its edges."""
    if name == "dgl":
        from loader.machine.optional import import_dgl

        dgl = import_dgl("the comparison with DGL")
        csc = (graph.indptr.long(), graph.indices.long(), torch.empty(0, dtype=torch.int64))
        g = dgl.graph(("csc", csc), num_nodes=graph.num_nodes)
        sampler = dgl.dataloading.NeighborSampler(list(fanouts[::-1]))

        def sample(seeds: Tensor, batch: int) -> int:
            return sum(block.num_edges() for block in sampler.sample_blocks(g, seeds)[2])

        return sample
    ours = {"fused": FusedSampler, "hopwise": HopwiseSampler}[name](fanouts, num_threads=threads)
    return lambda seeds, batch: ours.sample(graph, seeds, batch=batch).num_edges


def seed_batches(graph: Graph, batch_size: int, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randperm(graph.num_nodes, generator=generator)[:batch_size] for _ in range(count)]


# ------------------------------------------------------------------ in a process of its own: one measurement


def measure_time(graph: Graph, job: dict[str, Any]) -> dict[str, Any]:
    """Seconds and edges of each sampler's mini-batches, the samplers taking turns."""
    samplers = {n: make_sampler(n, graph, tuple(job["fanouts"]), job["threads"]) for n in job["samplers"]}
    seconds: dict[str, list[float]] = {name: [] for name in samplers}
    edges: dict[str, list[int]] = {name: [] for name in samplers}
    batches = seed_batches(graph, job["batch_size"], WARM_UP + job["repeats"])
    turns = [range(WARM_UP)] + [range(i, min(i + BLOCK, len(batches))) for i in range(WARM_UP, len(batches), BLOCK)]
    names = list(samplers)
    for turn, block in enumerate(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            time.sleep(PAUSE)
            for i in block:
                begin = time.perf_counter()
                count = samplers[name](batches[i], i)
                elapsed = time.perf_counter() - begin
                if turn > 0:
                    seconds[name].append(elapsed)
                    edges[name].append(count)
    return {"seconds": seconds, "edges": edges}


def measure_memory(graph: Graph, job: dict[str, Any]) -> dict[str, Any]:
    """Peak bytes of one sampler above the process with the graph loaded."""
    (name,) = job["samplers"]
    # What a library allocates once in its life, and DGL's copy of the graph, are no part of a sampler's memory.
    small = Graph(torch.tensor([0, 1]), torch.tensor([0]))
    make_sampler(name, small, (1,), job["threads"])(torch.tensor([0]), 0)
    sample = make_sampler(name, graph, tuple(job["fanouts"]), job["threads"]) if name == "dgl" else None
    batches = seed_batches(graph, job["batch_size"], 5)
    before = forget_peak()
    sample = sample or make_sampler(name, graph, tuple(job["fanouts"]), job["threads"])
    for i, seeds in enumerate(batches):
        sample(seeds, i)
    return {"peak_bytes": resident_bytes(peak=True) - before}


def run_jobs(arguments: argparse.Namespace) -> None:
    """The child process: reads jobs of one graph, writes a line of JSON for each."""
    torch.set_num_threads(arguments.threads)
    work = json.loads(sys.stdin.read())
    graph = load_graph(work["graph"], arguments)
    print(json.dumps({"num_nodes": graph.num_nodes, "num_edges": graph.num_edges}), flush=True)
    for job in work["jobs"]:
        if job["what"] == "threads":
            from _threads import measure_threads

            print(json.dumps({"settings": measure_threads(graph, arguments.threads, job["dgl"])}), flush=True)
            continue
        measure = measure_memory if job["what"] == "memory" else measure_time
        print(json.dumps(measure(graph, job)), flush=True)


# ------------------------------------------------------------------ the parent


def child(arguments: argparse.Namespace, graph: str, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Runs jobs in a new process with the given number of threads; the first answer describes the graph."""
    command = [
        sys.executable,
        __file__,
        "--child",
        "--threads",
        str(arguments.threads),
        "--data-dir",
        arguments.data_dir,
    ]
    if arguments.cache_dir is not None:
        command += ["--cache-dir", arguments.cache_dir]
    if arguments.csc:
        command += ["--csc", *arguments.csc]
    done = subprocess.run(
        command,
        input=json.dumps({"graph": graph, "jobs": jobs}),
        env={**os.environ, "OMP_NUM_THREADS": str(arguments.threads)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"the measurement of {graph} ended with status {done.returncode}; its message is above")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def summarise(timing: dict[str, Any], peaks: dict[str, int]) -> dict[str, Any]:
    """Medians, and the median over mini-batches of how much faster fused is than each other sampler."""
    cost = {
        name: [s / max(e, 1) for s, e in zip(timing["seconds"][name], timing["edges"][name], strict=True)]
        for name in timing["seconds"]
    }
    return {
        name: {
            "seconds": statistics.median(timing["seconds"][name]),
            "edges": round(statistics.median(timing["edges"][name])),
            "ns_per_edge": 1e9 * statistics.median(cost[name]),
            "million_edges_per_second": 1e-6 / statistics.median(cost[name]),
            "fused_is_faster_by": statistics.median(a / b for a, b in zip(cost[name], cost["fused"], strict=True)),
            "peak_mib": peaks[name] / 2**20,
        }
        for name in cost
    }


def compare(arguments: argparse.Namespace, sources: list[str], console: Console) -> list[dict[str, Any]]:
    results = []
    for source in sources:
        jobs = [
            {"what": "time", "samplers": SAMPLERS, "fanouts": f, "batch_size": b, "threads": arguments.threads,
             "repeats": arguments.repeats}
            for f in arguments.fanouts
            for b in arguments.batch_sizes
        ]  # fmt: skip
        cores = [free_cores(arguments.threads)]
        size, *timings = child(arguments, source, jobs)
        cores.append(free_cores(arguments.threads))
        name = source if source != "csc" else Path(arguments.csc[1]).parent.name + " (arrays)"
        title = f"{name}: {size['num_nodes']:,} nodes, {size['num_edges']:,} edges, {arguments.threads} threads"
        table = Table("fanouts", "batch", "sampler", "ms", "edges", "M edges/s", "ns/edge", "fused is", "peak MiB")
        table.title = title
        for job, timing in zip(jobs, timings, strict=True):
            peaks = {
                s: child(arguments, source, [{**job, "what": "memory", "samplers": [s]}])[1]["peak_bytes"]
                for s in SAMPLERS
            }
            summary = summarise(timing, peaks)
            for sampler, row in summary.items():
                table.add_row(
                    ",".join(map(str, job["fanouts"])),
                    str(job["batch_size"]),
                    sampler,
                    f"{1e3 * row['seconds']:.2f}",
                    f"{row['edges']:,}",
                    f"{row['million_edges_per_second']:.1f}",
                    f"{row['ns_per_edge']:.1f}",
                    "" if sampler == "fused" else f"{row['fused_is_faster_by']:.2f}x",
                    f"{row['peak_mib']:.1f}",
                )
            table.add_section()
            results.append(
                {
                    "graph": name,
                    **size,
                    "free_cores": cores,
                    **{k: job[k] for k in ("fanouts", "batch_size")},
                    **summary,
                }
            )
        console.print(table)
        if min(cores) < 0.85 * arguments.threads:
            console.print(
                f"{arguments.threads} threads got {cores[0]:.2f} (before) and {cores[1]:.2f} (after) times the work of "
                "one done: [bold]something else kept the cores busy[/bold], which slows DGL most. Run it again."
            )
    return results


def by_threads(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Every number of threads in a process of its own: OpenMP's is fixed when DGL is loaded."""
    from _threads import SETTINGS, print_threads

    source = (arguments.graphs or ["csc" if arguments.csc else "synthetic-products"])[0]
    with_dgl = importlib.util.find_spec("dgl") is not None
    if not with_dgl:
        console.print("DGL is left out: it is not installed")
    measured = {}
    for threads in arguments.by_threads:
        arguments.threads = threads
        size, answer = child(arguments, source, [{"what": "threads", "dgl": with_dgl}])
        measured[threads] = answer["settings"]
    print_threads(measured, console)
    return {"graph": source, **size, "settings": SETTINGS, "by_threads": measured}


def sources_of(arguments: argparse.Namespace, console: Console) -> list[str]:
    """ogbn-arxiv where it is at hand, and the large graph."""
    sources = []
    if (Path(arguments.data_dir) / "ogbn_arxiv").is_dir():
        sources.append("ogbn-arxiv")
    else:
        console.print(f"ogbn-arxiv is left out: there is no {Path(arguments.data_dir) / 'ogbn_arxiv'} (--data-dir)")
    return [*sources, "csc" if arguments.csc else "synthetic-products"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--fanouts", type=ints, nargs="+", default=[(10, 10), (10, 10, 10), (15, 15, 15)])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1024, 4096, 10240])
    parser.add_argument("--repeats", type=int, default=30, help="mini-batches of each sampler and setting")
    parser.add_argument("--graphs", nargs="+", help="of: ogbn-arxiv csc synthetic-products, or any other dataset")
    parser.add_argument("--quick", action="store_true", help="only fanouts 10,10,10, batch 1024, 15 mini-batches")
    parser.add_argument("--scaling", action="store_true", help="measure the cost an edge over sizes of graph instead")
    parser.add_argument("--by-threads", type=int, nargs="+", help="measure with these numbers of threads instead")
    parser.add_argument("--json", type=Path, default=None, help="where to write (default: benchmarks/results/)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return run_jobs(arguments)
    if arguments.quick:
        arguments.fanouts, arguments.batch_sizes, arguments.repeats = [(10, 10, 10)], [1024], 15
    console = Console(width=120)
    if arguments.by_threads:
        results = by_threads(arguments, console)
        return write_json(arguments.json or RESULTS / "sampler_cpu_threads.json", results)
    if arguments.scaling:
        from _scaling import measure_scaling

        torch.set_num_threads(arguments.threads)
        results = {"scaling": measure_scaling(arguments.threads, arguments.quick, console)}
        return write_json(arguments.json or RESULTS / "sampler_cpu_scaling.json", results)
    rows = compare(arguments, arguments.graphs or sources_of(arguments, console), console)
    write_json(arguments.json or RESULTS / "sampler_cpu.json", {"threads": arguments.threads, "comparison": rows})


if __name__ == "__main__":
    main()
