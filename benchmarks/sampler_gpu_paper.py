"""The schedules of the GPU sampler on graphs shaped like the six of PGSampler's evaluation (CLUSTER 2024).

    python benchmarks/sampler_gpu_paper.py --json FILE     # all settings
    python benchmarks/sampler_gpu_paper.py --quick         # two graphs, two settings
    python benchmarks/sampler_gpu_paper.py --csc arxiv INDPTR.npy INDICES.npy    # a real graph in the place of a shape

Batch 2048, 4096, 8192 and 10240, fanout 10, 15 and 20, two and three hops. For each schedule:

- whole: seeds on the GPU -> canonical blocks on the GPU, the host synchronised at both ends
- device: what of that the GPU takes, without the host's part: kernels and the gaps between them
- launch: the host's time until the first kernel is on its way (Python, plan, allocation, launch)

The hop-by-hop schedule, a launch for each phase of each hop, is the baseline: it shares all code of the picks with the
others, and is itself faster than DGL's, among other things because the host does not wait between hops. "a call a hop"
does: each hop is sampled by a call of its own, whose sizes the host awaits before the next. The committed result has
two more schedules, which were removed in 0.2: "fused-static", the paper's ablation (fusion without balancing), and
"persistent", its sampler. Commit b6f0215b has both. Besides: what a sampled edge costs at 10240 seeds
beside 2048, what hubs cost (degree 10^6, a tenth of all nodes sampled), the rate of random reads beside that of a
plain gather in the same run, and what a mini-batch of one size costs as the graph grows (sampler_gpu_sets.py compares
the kinds of node set there).
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import write_json
from _gpu_batches import sampling_on_the_gpu

from loader.graph import Graph
from loader.samplers.base import Request
from loader.samplers.gpu.sampler import SCHEDULES, CudaSampler

# nodes, edges (both directions), largest degree, skew of a lognormal; sources in conf/dataset/synthetic-*.yaml
SHAPES: dict[str, tuple[int, int, int, float]] = {
    "reddit": (232_965, 114_615_892, 21_657, 1.1),
    "flickr": (89_250, 899_756, 5_425, 1.1),
    "yelp": (716_847, 13_954_820, 4_886, 1.1),
    "arxiv": (169_343, 2_315_598, 13_161, 1.1),
    "products": (2_449_029, 123_718_280, 17_481, 1.1),
    "physics": (34_493, 495_924, 382, 0.8),
}
BATCHES = (2048, 4096, 8192, 10240)
FANOUTS = (10, 15, 20)
BASELINE = "hopwise"
STEPPED = "a call a hop"


def skewed_graph(n: int, e: int, largest: int, sigma: float, seed: int = 0) -> Graph:
    """Lognormal in-degrees, sources drawn in proportion to their degree (Chung and Lu), on the GPU."""
    g = torch.Generator("cuda").manual_seed(seed)
    weight = torch.empty(n, device="cuda", dtype=torch.float64).log_normal_(0, sigma, generator=g)
    weight.clamp_(max=float(weight.mean()) * largest * n / e)
    cumulated = torch.cumsum(weight / weight.sum(), 0)
    ends = (cumulated * e).round().long()
    ends[-1] = e
    indptr = torch.cat([ends.new_zeros(1), ends])
    indices = torch.empty(e, dtype=torch.int32, device="cuda")
    for part in torch.arange(e, device="cuda").split(1 << 25):
        r = torch.rand(part.numel(), device="cuda", dtype=torch.float64, generator=g)
        indices[part] = torch.searchsorted(cumulated, r).clamp_(max=n - 1).int()
    return Graph(indptr, indices, validate=False)


def hub_graph(n: int, degree: int, hubs: int) -> tuple[Graph, torch.Tensor]:
    """`hubs` nodes of in-degree 10^6 (0: none), the others of `degree`; every tenth pick and seed is a hub.

    Returns the graph and the nodes in an order to take seeds from.
    """
    g = torch.Generator("cuda").manual_seed(1)
    degrees = torch.full((n,), degree, dtype=torch.int64, device="cuda")
    degrees[:hubs] = 1_000_000
    indptr = torch.cat([degrees.new_zeros(1), torch.cumsum(degrees, 0)])
    indices = torch.randint(n, (int(indptr[-1]),), dtype=torch.int32, device="cuda", generator=g)
    seeds = torch.randperm(n - hubs, device="cuda", generator=g).int() + hubs
    if hubs:
        to_hub = torch.rand(indices.numel(), device="cuda", generator=g) < 0.1
        indices[to_hub] %= hubs
        seeds = torch.cat([torch.arange(hubs, dtype=torch.int32, device="cuda"), seeds[: 9 * hubs]])
        seeds = seeds[torch.randperm(seeds.numel(), device="cuda", generator=g)]
    return Graph(indptr, indices, validate=False), seeds


def measure(graph: Graph, order: torch.Tensor, fanouts: list[int], size: int, rounds: int) -> dict[str, Any]:
    """Medians of each schedule, which take turns at every mini-batch."""
    size = min(size, order.numel())
    sessions = {name: CudaSampler(fanouts, schedule=name).open(graph) for name in SCHEDULES}
    figures: dict[str, dict[str, list[float]]] = {name: {"whole": [], "device": [], "launch": []} for name in sessions}
    stepped = [CudaSampler([fanout], schedule=BASELINE) for fanout in fanouts]
    stepped_times = []
    batches = order.numel() // size
    edges = []
    warm_up = 4
    for i in range(rounds + warm_up):
        seeds = order[(i % batches) * size : (i % batches + 1) * size]
        torch.cuda.synchronize()
        start = time.perf_counter()
        frontier = seeds
        for sampler in stepped:
            frontier = sampler.sample(graph, frontier, batch=i).nodes
        torch.cuda.synchronize()
        if i >= warm_up:
            stepped_times.append(1e3 * (time.perf_counter() - start))
        for name, session in sessions.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            (finish,) = session.begin([Request(seeds, 0, i)], ahead=True)
            launched = time.perf_counter()
            batch = finish()
            torch.cuda.synchronize()
            whole = time.perf_counter() - start
            on_the_gpu = sampling_on_the_gpu(session, seeds, i)
            if i >= warm_up:
                figures[name]["whole"].append(1e3 * whole)
                figures[name]["launch"].append(1e3 * (launched - start))
                figures[name]["device"].append(on_the_gpu)
                edges.append(batch.num_edges)
    return {
        "fanouts": fanouts,
        "batch": size,
        "edges": int(statistics.median(edges)),
        STEPPED: {"whole_ms": statistics.median(stepped_times)},
        **{
            name: {
                **{f"{what}_ms": statistics.median(values) for what, values in kinds.items()},
                "launches": sessions[name].launches,
            }
            for name, kinds in figures.items()
        },
    }


def regular_graph(n: int, degree: int) -> Graph:
    """`degree` random in-neighbors each."""
    g = torch.Generator("cuda").manual_seed(2)
    indices = torch.empty(n * degree, dtype=torch.int32, device="cuda")
    for part in indices.split(1 << 28):
        part.random_(0, n, generator=g)
    return Graph(torch.arange(n + 1, device="cuda") * degree, indices, validate=False)


def random_reads(graph: Graph, count: int = 8_000_000) -> float:
    """G reads a second of single entries of `indices` at random places, by torch."""
    at = torch.randint(graph.num_edges, (count,), device="cuda")
    out = torch.empty(count, dtype=graph.indices.dtype, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(10):
        begin.record()
        torch.index_select(graph.indices, 0, at, out=out)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return count / statistics.median(times) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--csc",
        nargs=3,
        action="append",
        default=[],
        metavar=("NAME", "INDPTR.npy", "INDICES.npy"),
        help="arrays of a graph, measured in the place of the shape of that name",
    )
    parser.add_argument("--json", type=Path, help="by default nothing is written")
    arguments = parser.parse_args()
    shapes = {name: SHAPES[name] for name in (("arxiv", "physics") if arguments.quick else SHAPES)}
    settings = [(f, h, b) for h in (2, 3) for f in FANOUTS for b in BATCHES]
    if arguments.quick:
        settings = settings[:2]

    real = {name: paths for name, *paths in arguments.csc}
    for name in real:
        if name not in shapes:
            parser.error(f"--csc {name}: it must be one of {', '.join(shapes)}")

    rows, rates = [], {}
    for name, shape in shapes.items():
        if name in real:
            graph = Graph(*(torch.from_numpy(np.load(path)) for path in real[name])).to("cuda")
        else:
            graph = skewed_graph(*shape)
        g = torch.Generator("cuda").manual_seed(7)
        order = torch.randperm(graph.num_nodes, device="cuda", generator=g).int()
        rates[name] = random_reads(graph)
        for fanout, hops, size in settings:
            row = {"graph": name, **measure(graph, order, [fanout] * hops, size, arguments.rounds)}
            rows.append(row)
        best: dict[str, str] = {}
        for schedule in SCHEDULES:
            for what in ("whole", "device"):
                ratios = [r[BASELINE][f"{what}_ms"] / r[schedule][f"{what}_ms"] for r in rows if r["graph"] == name]
                best[f"{schedule} {what}"] = f"{min(ratios):.2f}-{max(ratios):.2f}x"
        ratios = [r[STEPPED]["whole_ms"] / r["cooperative"]["whole_ms"] for r in rows if r["graph"] == name]
        best["cooperative over a call a hop"] = f"{min(ratios):.2f}-{max(ratios):.2f}x"
        print(f"{name:9} {graph}  times as fast as {BASELINE}: {best}", flush=True)

    small_large = []
    for name in shapes:
        for fanout in FANOUTS:
            for hops in (2, 3):
                of = {r["batch"]: r for r in rows if r["graph"] == name and r["fanouts"] == [fanout] * hops}
                if 2048 in of and 10240 in of:
                    a, b = (of[s]["cooperative"]["whole_ms"] / of[s]["edges"] for s in (2048, 10240))
                    small_large.append({"graph": name, "fanout": fanout, "hops": hops, "ratio": b / a})
    if small_large:
        worst = max(small_large, key=lambda r: r["ratio"])
        print(f"an edge at 10240 seeds beside 2048: at most {worst['ratio']:.2f} times as dear ({worst})")

    hubs: dict[str, Any] = {}
    for kind, count in (("regular", 0), ("hubs", 110)):
        graph, order = hub_graph(1_200_000, 100, count)
        hubs[kind] = measure(graph, order, [10, 10], 1024, 2 * arguments.rounds)
    for schedule in SCHEDULES:
        hubs[f"ratio {schedule}"] = hubs["hubs"][schedule]["whole_ms"] / hubs["regular"][schedule]["whole_ms"]
    print("hubs beside regular:", {k: round(v, 3) for k, v in hubs.items() if k.startswith("ratio")})
    print("edges:", hubs["hubs"]["edges"], hubs["regular"]["edges"])

    # What a mini-batch costs as graphs grow, with the node set that each schedule takes by itself.
    growth = []
    for n in (2_500_000, 25_000_000, 111_000_000, *(() if arguments.quick else (400_000_000,))):
        graph = regular_graph(n, 12)
        g = torch.Generator("cuda").manual_seed(7)
        order = torch.randint(n, (1 << 21,), device="cuda", generator=g, dtype=torch.int32).unique()
        order = order[torch.randperm(order.numel(), device="cuda", generator=g)]
        for fanouts, size in (([10, 10], 1024), ([10, 10, 10], 2048)):
            row = {"nodes": n, **measure(graph, order, fanouts, size, arguments.rounds)}
            growth.append(row)
            times = {name: round(row[name]["device_ms"], 3) for name in SCHEDULES}
            print(f"{n:11,} nodes {fanouts} x {size}: {row['edges']} edges, ms on the GPU {times}", flush=True)
        del graph, order
        torch.cuda.empty_cache()

    if arguments.json:
        write_json(
            arguments.json,
            {
                "gpu": torch.cuda.get_device_name(),
                "real_graphs": list(real),
                "rows": rows,
                "random_reads_per_ns": rates,
                "edge_cost_10240_over_2048": small_large,
                "hubs": hubs,
                "growth": growth,
            },
        )


if __name__ == "__main__":
    main()
