"""Picks that scan whole lists on a GPU: races by weight without tables, and LABOR.

    PYTHONPATH=. python benchmarks/scan_gpu.py --json FILE                   # a graph of the size of ogbn-products
    PYTHONPATH=. python benchmarks/scan_gpu.py --csc indptr.npy indices.npy  # another graph in its place

Four graphs: a regular one, the products-shaped one, one of the size and skew of Reddit, and the products-shaped one
with a node of a million in-neighbors among the seeds of each mini-batch. Seeds on the GPU to blocks on the GPU, one
mini-batch a call, synchronised at both ends, the samplers in turns in one run; medians. Weights are uniform random
numbers, float32. "uniform" is `CudaSampler` without options, which looks at no list. The committed result has three
more ways to share the lists among warps, which were removed in 0.2; commit b6f0215b has them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from _common import add_graph_options, load_graph, write_json
from _gpu_batches import products_shaped
from rich.console import Console
from rich.table import Table

from loader.graph import Graph
from loader.samplers import CudaSampler

SETTINGS = (((10, 10), 1024), ((15, 10, 5), 1024), ((10, 10, 10), 2048))
KINDS: dict[str, dict[str, Any]] = {
    "race": {"weights": "edge_weights", "weight_tables": False},
    "labor": {"labor": True},
}
TICKETS = "tickets"  # how warps share the lists: one that is done takes the next piece or list
IN_A_SET = "tickets, hash set"  # nodes in a hash set, in one launch: what bitmaps bring
WARM_UP = 3
HUB = 1_000_000


def regular() -> Graph:
    """2 million nodes of in-degree 50."""
    nodes, degree = 2_000_000, 50
    chance = torch.Generator("cuda").manual_seed(1)
    indices = torch.randint(nodes, (nodes * degree,), generator=chance, device="cuda", dtype=torch.int32)
    return Graph(torch.arange(nodes + 1, device="cuda") * degree, indices, validate=False)


def reddit_shaped() -> Graph:
    """233 thousand nodes, about 115 million edges: log-normal in-degrees of mean 492, as likely to be neighbors."""
    nodes = 232_965
    chance = torch.Generator("cuda").manual_seed(2)
    heavy = torch.empty(nodes, device="cuda").log_normal_(0, 1.2, generator=chance)
    degree = (heavy * (492 / heavy.mean())).long().clamp(1, 21_657)
    indptr = torch.zeros(nodes + 1, dtype=torch.long, device="cuda")
    torch.cumsum(degree, 0, out=indptr[1:])
    # The end of an edge drawn by chance is a node with a probability in proportion to its degree.
    places = torch.randint(int(indptr[-1]), (int(indptr[-1]),), generator=chance, device="cuda")
    indices = torch.searchsorted(indptr, places, right=True, out_int32=True) - 1
    return Graph(indptr, indices, validate=False)


def with_hub(graph: Graph, v: int) -> Graph:
    """The graph in which `v` has a million in-neighbors, spread over all nodes."""
    begin, end = graph.indptr[v : v + 2].tolist()
    more = torch.arange(HUB, device=graph.indices.device) * graph.num_nodes // HUB
    indices = torch.cat([graph.indices[:begin], more.to(graph.indices.dtype), graph.indices[end:]])
    indptr = graph.indptr.long().clone()
    indptr[v + 1 :] += HUB - (end - begin)
    return Graph(indptr, indices, validate=False)


def measure(
    graph: Graph, name: str, hub: int | None, repeats: int, settings: tuple[Any, ...], kinds: list[str]
) -> list[dict[str, Any]]:
    chance = torch.Generator("cuda").manual_seed(0)
    graph.edge_weights = torch.rand(graph.num_edges, generator=chance, device="cuda") + 2**-10
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    if hub is not None:
        order = order[order != hub]
    order = order.to("cuda", graph.indices.dtype)
    rows = []
    for fanouts, batch_size in settings:
        samplers: dict[tuple[str, str], CudaSampler] = {("uniform", "-"): CudaSampler(fanouts)}
        for kind in kinds:
            samplers[kind, TICKETS] = CudaSampler(fanouts, **KINDS[kind])
            samplers[kind, IN_A_SET] = CudaSampler(fanouts, node_set="hash", **KINDS[kind])
        times: dict[tuple[str, str], list[float]] = {key: [] for key in samplers}
        edges: dict[tuple[str, str], int] = {}
        parts, keys = order.split(batch_size), list(samplers)
        for i in range(WARM_UP + repeats):
            seeds = parts[i % (len(parts) - 1)].clone()
            if hub is not None:
                seeds[:1] = hub
            for key in keys[i % len(keys) :] + keys[: i % len(keys)]:
                torch.cuda.synchronize()
                start = time.perf_counter()
                batch = samplers[key].sample(graph, seeds, batch=i)
                torch.cuda.synchronize()
                if i >= WARM_UP:
                    times[key].append(1e3 * (time.perf_counter() - start))
                edges[key] = batch.num_edges
        for (kind, schedule), found in times.items():
            setting = {"graph": name, "fanouts": fanouts, "batch_size": batch_size}
            row = {**setting, "picks": kind, "schedule": schedule, "ms": statistics.median(found)}
            rows.append({**row, "edges": edges[kind, schedule]})
        for sampler in samplers.values():
            sampler.close()
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    table = Table("graph", "fanouts", "batch", "picks", TICKETS, IN_A_SET, "uniform")
    settings = dict.fromkeys((row["graph"], row["fanouts"], row["batch_size"]) for row in rows)
    for setting in settings:
        found = {
            (row["picks"], row["schedule"]): row["ms"]
            for row in rows
            if (row["graph"], row["fanouts"], row["batch_size"]) == setting
        }
        for kind in dict.fromkeys(picks for picks, _ in found if picks != "uniform"):
            cells = [f"{found[kind, schedule]:.3f}" for schedule in (TICKETS, IN_A_SET)]
            name, fanouts, batch = setting
            uniform = f"{found['uniform', '-']:.3f}"
            table.add_row(name, ",".join(map(str, fanouts)), str(batch), kind, *cells, uniform)
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--json", type=Path, help="by default nothing is written")
    arguments = parser.parse_args()
    products = (load_graph("csc", arguments) if arguments.csc else products_shaped()).to("cuda")
    hub = int(torch.randperm(products.num_nodes, generator=torch.Generator().manual_seed(3))[0])
    rows: list[dict[str, Any]] = []
    graphs = {
        "products": lambda: products,
        "products with a hub": lambda: with_hub(products, hub),
        "regular": regular,
        "reddit": reddit_shaped,
    }
    for name, make in graphs.items():
        own_hub = hub if "hub" in name else None
        rows += measure(make(), name, own_hub, arguments.repeats, SETTINGS, arguments.kinds)
        show([row for row in rows if row["graph"] == name])
    if arguments.json:
        write_json(arguments.json, {"gpu": torch.cuda.get_device_name(), "rows": rows})


if __name__ == "__main__":
    main()
