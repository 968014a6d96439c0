"""Writes docs/results.md from the JSON files that the benchmarks wrote.

    python benchmarks/report.py            # benchmarks/results/*.json -> docs/results.md, and a picture of one
    python benchmarks/report.py --check    # says whether it is up to date, status 1 if not

A file that this does not know gets tables all the same. What was aimed at and missed, or never measured, stands in the
first table like what was met.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _report_budget import memory_held, papers_budget, papers_epoch, within_bound
from _report_budget import tables as budget_gpu
from _report_cells import Result, markdown
from _report_pictures import sampler_gpu as draw_sampler_gpu
from _report_pictures import scan_gpu as draw_scan_gpu
from _report_tables import KNOWN, PEERS_MS, auto_ms, generic, whole_ms
from _report_traverse import draw as draw_traverse_gpu
from _report_traverse import judge as traverse
from _report_traverse import tables as traverse_gpu

PAGES = {
    **KNOWN,
    "traverse_gpu": ("Traversals on a GPU", traverse_gpu),
    "budget_gpu": ("Training within a budget of GPU memory", budget_gpu),
}
ROOT = Path(__file__).resolve().parents[1]
DOC = ROOT / "docs" / "results.md"

HEAD = """\
# Results

The figures of `benchmarks/results/*.json`, each with the command that repeats it, the hardware, the versions and the
date. `python benchmarks/report.py` writes this page; do not edit it. `benchmarks/README.md` says how to read the
benchmarks.
"""


@dataclass(frozen=True)
class Target:
    """What was aimed at.

    Attributes:
        what: in words.
        file: name of the results, without .json.
        judge: of the file's content: what was found, and whether that is enough.
    """

    what: str
    file: str
    judge: Callable[[Result], tuple[str, bool]]


def _at_least(values: list[float], limit: float, unit: str = "x") -> tuple[str, bool]:
    return f"{min(values):.2f}{unit} to {max(values):.2f}{unit} ({len(values)} settings)", min(values) >= limit


def _sampler_cpu(result: Result) -> tuple[str, bool]:
    return _at_least([row["dgl"]["fused_is_faster_by"] for row in result["comparison"] if "dgl" in row], 2.0)


def _threads(result: Result) -> tuple[str, bool]:
    return _at_least([found["dgl"] / found["one"] for rows in result["by_threads"].values() for found in rows], 2.0)


def _groups(result: Result) -> tuple[str, bool]:
    alone, most = result["by_threads"]["1"], result["by_threads"]["16"]
    gains = [one["one"] / many["group"] for one, many in zip(alone, most, strict=True)]
    return ", ".join(f"{gain:.1f}x" for gain in gains), min(gains) >= 10


def _memory_cpu(result: Result) -> tuple[str, bool]:
    shares = [row["fused"]["peak_mib"] / row["dgl"]["peak_mib"] for row in result["comparison"] if "dgl" in row]
    return f"{min(shares):.2f} to {max(shares):.2f} of DGL's", max(shares) <= 1


def _scan_limits(result: Result) -> tuple[str, bool]:
    limits = {((10, 10), 1024): 0.20, ((15, 10, 5), 1024): 0.45, ((10, 10, 10), 2048): 0.70}
    found = [
        (row["ms"], limits[tuple(row["fanouts"]), row["batch_size"]])
        for row in result["rows"]
        if (row["graph"], row["picks"], row["schedule"]) == ("products", "race", "tickets")
    ]
    text = ", ".join(f"{ms:.2f} of {limit:.2f} ms" for ms, limit in found)
    return text, all(ms <= limit for ms, limit in found)


def _scan_hub(result: Result) -> tuple[str, bool]:
    times = {
        (row["graph"], (tuple(row["fanouts"]), row["batch_size"])): row["ms"]
        for row in result["rows"]
        if (row["picks"], row["schedule"]) == ("race", "tickets")
    }
    plain = [(setting, ms) for (graph, setting), ms in times.items() if graph == "products"]
    ratios = [times["products with a hub", setting] / ms for setting, ms in plain]
    return ", ".join(f"{ratio:.2f}x" for ratio in ratios), max(ratios) <= 1.3


def _sampler_gpu(result: Result) -> tuple[str, bool]:
    factors = []
    for row in result["rows"]:
        peer = PEERS_MS.get((tuple(row["fanouts"]), row["batch"]))
        if peer is not None:
            factors.append(peer / auto_ms(row))
    return _at_least(factors, 6.0)


# Milliseconds of whole sampling that were set as limits for the shapes of sampler_gpu.json.
_LIMITS_MS = {
    ((10, 10), 1024): 0.10,
    ((15, 10, 5), 1024): 0.18,
    ((10, 10, 10), 2048): 0.24,
    ((15, 15, 15), 4096): 0.50,
    ((20, 20, 20), 10240): 1.05,
}


def _sampler_limits(result: Result) -> tuple[str, bool]:
    found = []
    for row in result["rows"]:
        limit = _LIMITS_MS.get((tuple(row["fanouts"]), row["batch"]))
        if limit is not None:
            found.append((whole_ms(row, "cooperative"), limit))
    text = ", ".join(f"{ms:.3f} of {limit:.2f}" for ms, limit in found) + " ms"
    return text, len(found) == len(_LIMITS_MS) and all(ms <= limit for ms, limit in found)


def _host_work(result: Result) -> tuple[str, bool]:
    of = [row["cooperative"] for row in result["rows"]]
    text, met = _within_40_us([row["host_work_ms"] for row in of])
    return text + (", without the arrays of the blocks" if "cut_ms" in of[0] else ""), met


def _host_work_of_several(result: Result) -> tuple[str, bool]:
    return _within_40_us([row["8"] for row in result["host_work"] if row["schedule"] == "cooperative"])


def _within_40_us(found: list[float | None]) -> tuple[str, bool]:
    known = [ms for ms in found if ms is not None]
    if len(known) < len(found):
        return f"known of {len(known)} of {len(found)}, elsewhere no core was at full speed", False
    return f"{1e3 * min(known):.0f} to {1e3 * max(known):.0f} us", max(known) <= 0.04


def _several_a_launch(result: Result) -> tuple[str, bool]:
    ms = result["batches_per_launch"][0]["8"]
    cut = result["rows"][0]["cooperative"].get("cut_ms") or 0  # of one by itself: takes more than eight in a row
    return f"{ms:.3f} ms, with the blocks' arrays at most {ms + cut:.3f}", ms + cut <= 0.04


# Milliseconds that were set as limits of walks on an H200: what, walkers, length.
WALK_LIMITS = {
    ("uniform", 2_449_029, 80): 7.5,
    ("uniform", 196_615, 80): 0.62,
    ("uniform", 10_240, 80): 0.12,
    ("stop 0.2", 2_449_029, 80): 1.5,
    ("node2vec p 2, q 0.5", 2_449_029, 80): 20.0,
}


def _walks(result: Result) -> tuple[str, bool]:
    ms = {(row["walk"], row["walkers"], row["length"]): row["ms"] for row in result["rows"]}
    found = [f"{key[0]} {key[1]:,} {ms[key]:.3g} of {limit} ms" for key, limit in WALK_LIMITS.items()]
    return ", ".join(found), all(ms[key] <= limit for key, limit in WALK_LIMITS.items())


def _next(result: Result) -> tuple[str, bool]:
    ms = {(row["walk"], row["walkers"], row["length"]): row["ms"] for row in result["rows"]}
    shares = {}
    for (walk, walkers, length), own in ms.items():
        name = walk.removeprefix("next: ")
        if name != walk:
            shares[name] = ms[name, walkers, length] / own
    return ", ".join(f"{name} {x:.0%}" for name, x in shares.items()), min(shares.values()) >= 0.8


def _links(result: Result) -> tuple[str, bool]:
    times = [row["ms"] for row in result["rows"] if row["links"] == "binary, strict"]
    same = all(row["equal_to_the_cpu"] for row in result["rows"])
    return f"{max(times):.3f} ms", same and max(times) <= 0.3


def _pyg(result: Result) -> tuple[str, bool]:
    ratios = [row["ratio"] for row in result["rows"]]
    return ", ".join(f"{x:.0f}x" for x in ratios), min(ratios) >= 10


# Milliseconds per mini-batch that were set as limits of a graph in pinned memory on an H200, by fanouts and seeds:
# alone, eight together, and alone with the longest lists in GPU memory, a quarter of the edges.
PINNED_LIMITS = {((10, 10), 1024): (0.20, 0.10, 0.16), ((15, 10, 5), 1024): (0.95, 0.70, 0.62)}
PINNED_LIMITS[(10, 10, 10), 2048] = (1.75, 1.00, 1.05)


def _pinned(result: Result) -> tuple[str, bool]:
    ms = {(tuple(r["fanouts"]), r["batch_size"], r["graph"], r["together"]): r["ms"] for r in result["rows"]}
    found = []
    for (fanouts, seeds), limits in PINNED_LIMITS.items():
        ways = (("sectors", 1), ("sectors", 8), ("cached by degree", 1))
        found += [(ms[fanouts, seeds, graph, count], limit) for (graph, count), limit in zip(ways, limits, strict=True)]
    return ", ".join(f"{x:.3f} of {limit:.2f}" for x, limit in found) + " ms", all(x <= limit for x, limit in found)


def _weighted_picks(result: Result) -> tuple[str, bool]:
    times = [row["of_uniform"] for row in result["rows"] if row["picks"] == "weighted"]
    return ", ".join(f"{x:.2f}x" for x in times), max(times) <= 1.5


def _persistent(kind: str, limit: float, baseline: str = "hopwise") -> Callable[[Result], tuple[str, bool]]:
    def judge(result: Result) -> tuple[str, bool]:
        factors = [row[baseline][kind] / row["persistent"][kind] for row in result["rows"]]
        return f"at best {max(factors):.2f}x", max(factors) >= limit

    return judge


def _large_batches(result: Result) -> tuple[str, bool]:
    worst = max(row["ratio"] for row in result["edge_cost_10240_over_2048"])
    return f"at most {worst:.2f} of it", worst <= 1


def _hubs(result: Result) -> tuple[str, bool]:
    hubs, regular = result["hubs"]["hubs"], result["hubs"]["regular"]
    worst = max(
        (hubs[name]["whole_ms"] / hubs["edges"]) / (regular[name]["whole_ms"] / regular["edges"])
        for name in ("cooperative", "hopwise", "fused-static", "persistent")
    )
    return f"at most {worst:.2f}x a pick", worst <= 1.3


def _gather(
    way: str, limit: float, ids: Sequence[str] = ("sorted", "unsorted")
) -> Callable[[Result], tuple[str, bool]]:
    def judge(result: Result) -> tuple[str, bool]:
        shares = [row["share"] for row in result["uniform"] if row["way"] == way and row["ids"] in ids]
        return f"{min(shares):.0%} to {max(shares):.0%} ({len(shares)} settings)", min(shares) >= limit

    return judge


def _step_time(result: Result) -> tuple[str, bool]:
    (row,) = (r for r in result["rows"] if (r["fanouts"], r["precision"]) == ([15, 10, 5], "tf32"))
    plain, graphed = (row["contenders"][name]["step_ms"] for name in ("ours", "ours, CUDA graph"))
    return f"{graphed:.2f} ms by CUDA graphs, {plain:.2f} ms without", max(plain, graphed) <= 1.6


def _fused_gpu(result: Result) -> tuple[str, bool]:
    factors = []
    for row in result["rows"]:
        times = {name: v["whole_ms"] for name, v in row.items() if isinstance(v, dict) and "device_ms" in v}
        factors.append(times["hopwise"] / min(ms for name, ms in times.items() if name != "hopwise"))
    return _at_least(factors, 1.0)


def _aggregate(result: Result) -> tuple[str, bool]:
    factors = []
    for row in result["rows"]:
        times = row["milliseconds"]
        factors.append(min(ms for name, ms in times.items() if name != "ours" and ms) / times["ours"])
    return _at_least(factors, 1.0)


def _train_step(result: Result) -> tuple[str, bool]:
    factors = []
    for row in result["rows"]:
        times = {name: numbers["step_ms"] for name, numbers in row["contenders"].items()}
        ours = min(ms for name, ms in times.items() if name.startswith("ours"))
        factors.append(min(ms for name, ms in times.items() if not name.startswith("ours")) / ours)
    return _at_least(factors, 2.0)


def _pipeline_rows(result: Result, stores: Sequence[str]) -> list[Result]:
    """By CUDA graphs and eight mini-batches a launch, as `train.py`, in a loop written by hand.

    Sampled on the share of the multiprocessors that is the default or, where none was measured so, on another.
    """
    rows = [row for row in result["rows"] if row["store"] in stores and row["graphed"]]
    rows = [row for row in rows if row.get("batches_per_launch", 1) == 8 and row.get("schedule", "auto") == "auto"]
    return [row for row in rows if row.get("blocks_per_sm") is None] or rows


def _pipeline(key: str, limit: float, stores: Sequence[str], unit: str = "x") -> Callable[[Result], tuple[str, bool]]:
    def judge(result: Result) -> tuple[str, bool]:
        rows = [row for row in _pipeline_rows(result, stores) if key in row]
        scale, digits = (100, ".1f") if unit == " %" else (1, ".3f")
        found = ", ".join(
            f"{row['store']} ({', '.join(map(str, row['fanouts']))}) {scale * row[key]:{digits}}{unit}" for row in rows
        )
        return found or "not measured", bool(rows) and all(row[key] <= limit for row in rows)

    return judge


def _epoch(limit: float, stores: Sequence[str]) -> Callable[[Result], tuple[str, bool]]:
    def judge(result: Result) -> tuple[str, bool]:
        rows = [row for row in _pipeline_rows(result, stores) if row["fanouts"] == [15, 10, 5]]
        found = ", ".join(f"{row['store']} {row['epoch_s']:.3f} s" for row in rows)
        return found, bool(rows) and all(row["epoch_s"] <= limit for row in rows)

    return judge


def _soak(result: Result) -> tuple[str, bool]:
    (epochs,) = (row["soak"] for row in result["rows"] if "soak" in row)
    keys = ("resident_mib", "pinned_mib", "reserved_mib", "threads")
    third, last = epochs[2], epochs[-1]
    grown = {key: last[key] - third[key] for key in keys}
    text = ", ".join(f"{key.replace('_mib', ' MiB')} {third[key]:,.0f} to {last[key]:,.0f}" for key in keys)
    # The resident memory of a Python process moves by some pages.
    return f"{len(epochs)} epochs: {text}", grown.pop("resident_mib") < 16 and not any(grown.values())


def _convergence(result: Result) -> tuple[str, bool]:
    found = [d for row in result["settings"] for d in row["differences"].values()]
    shown = sum(d["equivalent"] for d in found)
    furthest = max(abs(d["value"]) for d in found)
    return f"{shown} of {len(found)} comparisons, largest difference {furthest:.2f} points", shown == len(found)


def _convergence_labor(result: Result) -> tuple[str, bool]:
    text, shown = _convergence(result)
    rows = result["settings"]
    shares = [
        next(s["vertices"] for name, s in row["sides"].items() if name.startswith("labor"))
        / next(s["vertices"] for name, s in row["sides"].items() if name.startswith("fused"))
        for row in rows
    ]
    seeds = min(len(side["seeds"]) for row in rows for side in row["sides"].values())
    graphs = ", ".join(f"{row['dataset']} {x:.0%}" for row, x in zip(rows, shares, strict=True))
    whole = seeds >= 10 and {row["dataset"] for row in rows} >= {"coauthor-physics", "ogbn-arxiv"}
    return f"{text}, {seeds} seeds; of the vertices: {graphs}", shown and max(shares) < 1 and whole


def _walks_cpu(who: str, limit: float) -> Callable[[Result], tuple[str, bool]]:
    def judge(result: Result) -> tuple[str, bool]:
        times = [row["ns_a_step"] for row in result["rows"]]
        return _at_least([of[who] / of["ours"] for of in times if who in of], limit)

    return judge


def _picks_cpu(result: Result) -> tuple[str, bool]:
    rows = [row for row in result["rows"] if row["picks"].startswith("weighted")]
    return _at_least([row["dgl"]["ms"] / row["ours"]["ms"] for row in rows], 2.0)


def _labor_sizes(result: Result) -> tuple[str, bool]:
    furthest = max(abs(row[what]["percent"]) for row in result["rows"] for what in ("vertices", "edges"))
    return f"at most {furthest:.2f} % ({2 * len(result['rows'])} numbers)", furthest <= 1


def _embeddings(result: Result) -> tuple[str, bool]:
    differences = [
        (f"{row['dataset']} {row['method']}", row["macro_mean"] - row["published_macro"]) for row in result["rows"]
    ]
    text = ", ".join(f"{name} {value:+.2f}" for name, value in differences)
    return text, len(differences) == 6 and all(value >= 0 for _, value in differences)


def _shchur(result: Result) -> tuple[str, bool]:
    rows = result["settings"]
    near = [abs(row["mean"] - row["published_mean"]) <= row["published_std"] for row in rows]
    return f"{sum(near)} of {len(rows)} datasets", all(near) and len(rows) == 4


def _scaling(gpus: int, name: str, limit: float, *, least: bool) -> Callable[[Result], tuple[str, bool]]:
    """Of our exchange on this many GPUs, with the features on each."""

    def judge(result: Result) -> tuple[str, bool]:
        rows = [row for row in result["rows"] if row["gpus"] == gpus and row["gradients"] == "one exchange"]
        values = [row[name] for row in rows if row["features"] == "device" and row[name] is not None]
        if not values:
            return f"no run with {gpus} GPUs", False
        return f"{values[0]:.2f}x", values[0] >= limit if least else values[0] <= limit

    return judge


_ON_GPU = ("lazy", "device")
STORES = (*_ON_GPU, "cached", "pinned", "staged")

TARGETS = (
    Target("Training with our sampler ends within 0.5 points of DGL's, at 95 %", "convergence", _convergence),
    Target(
        "Sampled on the GPU, training ends within 0.5 points of the CPU's, at 95 %", "convergence_gpu", _convergence
    ),
    Target(
        "Training with LABOR ends within 0.5 points of uniform neighbours, with fewer vertices per mini-batch: "
        "coauthor-physics and ogbn-arxiv, 10 seeds",
        "convergence_labor",
        _convergence_labor,
    ),
    Target("Picks by weight on the CPU are at least 2x as fast as DGL's", "picks_cpu", _picks_cpu),
    Target("Walks on the CPU are at least 2x as fast as DGL's", "walks_cpu", _walks_cpu("dgl", 2.0)),
    Target("Walks on the CPU are at least 5x as fast as plain torch", "walks_cpu", _walks_cpu("torch", 5.0)),
    Target("LABOR's mini-batches are as large as those of DGL's LaborSampler, to 1 %", "labor_sizes", _labor_sizes),
    Target("DeepWalk and node2vec reach their published macro-F1, points", "embeddings", _embeddings),
    Target("Shchur's protocol: the mean is within one published standard deviation", "shchur", _shchur),
    Target("Sampling on the CPU is at least 2x as fast as DGL's in every setting", "sampler_cpu", _sampler_cpu),
    Target(
        "One mini-batch is at least 2x as fast as DGL's with 1, 2, 4, 8 and 16 threads", "sampler_cpu_threads", _threads
    ),
    Target(
        "A group of 16 mini-batches on 16 threads has 10x the throughput of one thread",
        "sampler_cpu_threads",
        _groups,
    ),
    Target("Sampling on the CPU takes no more memory than DGL's", "sampler_cpu", _memory_cpu),
    Target("Sampling on a GPU is at least 6x as fast as the best peer in every shape", "sampler_gpu", _sampler_gpu),
    Target("Whole sampling on a GPU (cooperative) keeps within its limits", "sampler_gpu", _sampler_limits),
    Target(
        "The host's own work on a mini-batch, to launch it (cooperative) and to take it back, is at most 40 us",
        "sampler_gpu",
        _host_work,
    ),
    Target(
        "The same with eight mini-batches per launch, as they are begun beside training",
        "sampler_gpu",
        _host_work_of_several,
    ),
    Target(
        "With 8 mini-batches per launch, (10, 10) x 1,024 takes at most 0.04 ms each", "sampler_gpu", _several_a_launch
    ),
    Target(
        "The persistent queue is 2.22x as fast as hop by hop, whole sampling (PGSampler's figure over DGL)",
        "sampler_gpu_paper",
        _persistent("whole_ms", 2.22),
    ),
    Target(
        "The same beside one call per hop, after which the host waits for sizes, as DGL samples",
        "sampler_gpu_paper",
        _persistent("whole_ms", 2.22, "a call a hop"),
    ),
    Target(
        "The queue is 1.57x as fast as hop by hop, counting only the time on the GPU (PGSampler's figure for kernels)",
        "sampler_gpu_paper",
        _persistent("device_ms", 1.57),
    ),
    Target("An edge costs no more at 10,240 seeds than at 2,048", "sampler_gpu_paper", _large_batches),
    Target("With hubs of degree 10^6 a pick costs at most 1.3x of one without hubs", "sampler_gpu_paper", _hubs),
    Target(
        "On a GPU the best fused schedule is as fast as ours hop by hop in every setting",
        "sampler_gpu_paper",
        _fused_gpu,
    ),
    Target(
        "Picks by weight without replacement, from tables, take at most 1.5x the time of uniform ones on a GPU",
        "picks_gpu",
        _weighted_picks,
    ),
    Target("Picks by weight without tables keep within their limits on a GPU", "scan_gpu", _scan_limits),
    Target("A hub of 10^6 among the seeds makes them take at most 1.3x as long", "scan_gpu", _scan_hub),
    Target(
        "Sampling from a graph in pinned memory keeps within its limits: alone, eight together, and alone with 25 % of "
        "the edges in GPU memory",
        "pinned_gpu",
        _pinned,
    ),
    Target("Walks of 80 steps on a GPU keep within their limits", "walks_gpu", _walks),
    Target("A user's own next reaches 80 % of the speed of the built-in walk on a GPU", "walks_gpu", _next),
    Target(
        "A mini-batch of 1,024 links and 1,024 strict negatives, (15, 10), takes at most 0.30 ms on a GPU, with the "
        "CPU's bytes",
        "links_gpu",
        _links,
    ),
    Target(
        "`loader.pyg.NeighborLoader` on a GPU gives at least 10x as many mini-batches per second as torch_geometric's "
        "with 16 workers",
        "pyg_gpu",
        _pyg,
    ),
    Target(
        "Traversals on a GPU keep within their limits, on a graph of ogbn-products' shape", "traverse_gpu", traverse
    ),
    Target(
        "Gathering from GPU memory runs at least at 65 % of the speed of a copy there",
        "gather_gpu",
        _gather("device", 0.65),
    ),
    Target(
        "Gathering from pinned memory runs at least at 80 % of the speed of a plain copy, with aligned rows "
        "(copy=True) and ascending ids, as in the hops of a mini-batch",
        "gather_gpu",
        _gather("pinned, copy=True", 0.80, ["sorted"]),
    ),
    Target("The same with ids in random order", "gather_gpu", _gather("pinned, copy=True", 0.80, ["unsorted"])),
    Target(
        "The same with rows in the memory of the tensor itself (copy=False), ids in either order",
        "gather_gpu",
        _gather("pinned", 0.80),
    ),
    Target("Aggregation on the CPU is as fast as the best other in every case", "aggregate", _aggregate),
    Target("Aggregation on a GPU is as fast as the best other in every case", "aggregate_gpu", _aggregate),
    Target("A training step on a GPU, (15, 10, 5) x 1,024, takes at most 1.6 ms", "train_step_gpu", _step_time),
    Target("A training step on a GPU is at least 2x as fast as the best of stock parts", "train_step_gpu", _train_step),
    Target("An epoch with features in GPU memory takes at most 0.45 s", "pipeline_gpu", _epoch(0.45, _ON_GPU)),
    Target(
        "An epoch with a cache of a quarter of the features takes at most 0.6 s",
        "pipeline_gpu",
        _epoch(0.6, ("cached",)),
    ),
    Target(
        "A pipelined epoch takes at most 1.05x its slowest stage, features read in GPU memory by the first layer "
        "(lazy) or cached",
        "pipeline_gpu",
        _pipeline("over_bound", 1.05, ("lazy", "cached")),
    ),
    Target(
        "The same, features gathered in GPU memory first, so that gathering and training share the GPU",
        "pipeline_gpu",
        _pipeline("over_bound", 1.05, ("device",)),
    ),
    Target(
        "The same, at most 1.10x, features in host memory",
        "pipeline_gpu",
        _pipeline("over_bound", 1.10, ("pinned", "staged")),
    ),
    Target(
        "With features read in GPU memory by the first layer an epoch takes at most 5 % longer than training alone",
        "pipeline_gpu",
        _pipeline("exposed", 0.05, ("lazy",), " %"),
    ),
    Target(
        "The same, features gathered there first",
        "pipeline_gpu",
        _pipeline("exposed", 0.05, ("device",), " %"),
    ),
    Target(
        "Lightning's loop takes at most 1.05x a hand-written one",
        "pipeline_gpu",
        _pipeline("lightning_over_hand_written", 1.05, STORES),
    ),
    Target("Memory and number of threads do not grow after the third epoch", "pipeline_gpu", _soak),
    Target(
        "Products shape, a budget of the needs and 25 % of graph and features: an epoch takes at most 1.05x of a plain "
        "copy of the lines that must be read or of training by itself, whichever is longer, and at most 0.53 s",
        "budget_gpu",
        within_bound("25 %", 1.05, 0.53),
    ),
    Target("The same with 10 %: at most 1.6x", "budget_gpu", within_bound("10 %", 1.6, float("inf"))),
    Target("papers100M shape, everything in GPU memory: an epoch takes at most 1.6 s", "budget_gpu", papers_epoch),
    Target("The same in 16 GiB of GPU memory: at most 4x as long", "budget_gpu", papers_budget),
    Target("Graph, features and loader take no more GPU memory than their budget", "budget_gpu", memory_held),
    Target(
        "Two GPUs are at least 1.9x as fast as one (on two H200, by hand: 1.85x)",
        "scaling_gpu",
        _scaling(2, "faster_by", 1.9, least=True),
    ),
    Target("Four GPUs are at least 3.6x as fast as one", "scaling_gpu", _scaling(4, "faster_by", 3.6, least=True)),
    Target(
        "The first step on two GPUs comes at most 1.3x as late as on one",
        "scaling_gpu",
        _scaling(2, "slower_start", 1.3, least=False),
    ),
)


def render(folder: Path, targets: tuple[Target, ...] = TARGETS) -> str:
    """The page.

    Args:
        folder: of the JSON files.
        targets: what the first table judges.

    Raises:
        ValueError: a file is no JSON object, or a known one has not the form that its table needs.
    """
    results = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    lines = [*HEAD.splitlines(), "", "## What was aimed at", ""]
    lines += markdown(("aim", "found", "met"), [_row(target, results.get(target.file)) for target in targets])
    order = [name for name in PAGES if name in results] + [name for name in results if name not in PAGES]
    for name in order:
        title, table = PAGES.get(name, (name.replace("_", " ").capitalize(), generic))
        lines += [f"## {title}", "", *_origin(name, results[name]), ""]
        try:
            lines += table(results[name])
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(
                f"{folder / name}.json has not the form of {name}: {type(error).__name__}: {error}; run its benchmark "
                "again, or change its table in benchmarks/_report_tables.py"
            ) from error
    return "\n".join(lines).rstrip() + "\n"


def _read(path: Path) -> Result:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); run its benchmark again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}; it must be a JSON object")
    return content


def _row(target: Target, result: Result | None) -> tuple[str, str, str]:
    if result is None:
        return target.what, f"`{target.file}.json` is not there", "not measured"
    found, met = target.judge(result)
    return target.what, found, "yes" if met else "**missed**"


def _origin(name: str, result: Result) -> list[str]:
    """Command, hardware, versions, date: what the file says of them."""
    hardware = result.get("hardware")
    parts = (
        [str(value) for value in _hardware(hardware)] if isinstance(hardware, dict) else [str(hardware or "unknown")]
    )
    if (gpu := result.get("gpu")) and gpu not in parts:
        parts.append(str(gpu))
    versions = result.get("versions") or {"torch": result.get("torch", "unknown")}
    said = ", ".join(f"{package} {version}" for package, version in versions.items() if version != "absent")
    command = result.get("command")
    return [
        f"`benchmarks/results/{name}.json`, {str(result.get('date', 'undated'))[:10]}. {', '.join(parts)}; {said}."
        + (f" Command: `{command}`" if command else "")
        + (f" {note}" if (note := result.get("since")) else "")
    ]


def _hardware(hardware: dict[str, Any]) -> list[str]:
    units = {"cores": "{} cores", "memory_gib": "{} GiB"}
    return [units.get(key, "{}").format(value) for key, value in hardware.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--out", type=Path, default=DOC)
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    try:
        page = render(arguments.results)
    except ValueError as error:
        sys.exit(f"error: {error}")
    if arguments.check:
        if not arguments.out.is_file() or arguments.out.read_text(encoding="utf-8") != page:
            sys.exit(f"{arguments.out} is not what the results say; run python benchmarks/report.py")
        return
    arguments.out.write_text(page, encoding="utf-8")
    images = arguments.out.parent / "images"
    for name, draw, picture in (
        ("sampler_gpu", draw_sampler_gpu, "sampler_gpu_peers.svg"),
        ("scan_gpu", draw_scan_gpu, "scan_gpu.svg"),
        ("traverse_gpu", draw_traverse_gpu, "traverse_gpu.svg"),
    ):
        measured = arguments.results / f"{name}.json"
        if measured.is_file():
            draw(_read(measured), images / picture)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
