"""How fast are induced subgraphs on a GPU, and ShaDow on them beside DGL's own on the CPU?

    PYTHONPATH=. python benchmarks/induced_gpu.py
    PYTHONPATH=. python benchmarks/induced_gpu.py --device cpu --num-nodes 20000 --num-edges 400000 --induced 2000

The graph has the shape of ogbn-products. A call makes one mini-batch and is waited for. Candidates take turns, and a
time is the median of 5 rounds. `Y1` is (10, 10) x 1,024 by `fused`, one mini-batch a call. `induced` finds the
edges among nodes drawn uniformly, `induced_reached` those among the nodes of such a mini-batch. `shadow` samples as
DGL's ShaDow does: a mini-batch of `fused`, then the subgraph of all its nodes. `ego` samples as torch_geometric's does:
each seed has a subgraph of its own. `dgl` is DGL's own ShaDowKHopSampler with workers: the time between mini-batches.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ints, write_json
from pipeline_gpu import products_like

from loader.graph import Graph, induced_edges
from loader.machine.optional import import_dgl
from loader.samplers import fused
from loader.samplers.ego import EgoSampler

ROUNDS = 5


def milliseconds(run: Callable[[int], Any], calls: int, first: int, device: str) -> float:
    """Of a call, in the mean of some, each of which is waited for."""
    begin = time.perf_counter()
    for i in range(first, first + calls):
        run(i)
        if device == "cuda":
            torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls * 1e3


def dgl_ms(graph: Graph, fanouts: tuple[int, ...], batch_size: int, workers: int, batches: int) -> dict[str, Any]:
    """Milliseconds between two mini-batches of DGL's own sampler, or why there are none."""
    try:
        dgl = import_dgl("this benchmark")
    except ImportError as error:
        return {"why_not": str(error)}
    g = dgl.graph(("csc", (graph.indptr.cpu(), graph.indices.cpu(), [])), num_nodes=graph.num_nodes)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0)).to(g.idtype)
    sampler = dgl.dataloading.ShaDowKHopSampler(list(fanouts))
    options = {"batch_size": batch_size, "num_workers": workers, "drop_last": True}
    made = dgl.dataloading.DataLoader(g, order, sampler, **options)
    begun = max(workers, 1)
    wanted = begun + ROUNDS * batches
    if len(made) < wanted:
        made = dgl.dataloading.DataLoader(g, order.repeat(-(-wanted * batch_size // len(order))), sampler, **options)
    times, sizes = [], []
    for batch in itertools.islice(made, wanted):
        times.append(time.perf_counter())
        sizes.append(batch[2].num_edges())
    times = times[begun - 1 :]  # workers begin together
    rounds = [(times[(i + 1) * batches] - times[i * batches]) / batches * 1e3 for i in range(ROUNDS)]
    return {
        "ms": statistics.median(rounds),
        "rounds_ms": rounds,
        "edges": statistics.mean(sizes),
        "version": dgl.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--num-nodes", type=int, default=2_449_029)
    parser.add_argument("--num-edges", type=int, default=123_718_280)
    parser.add_argument("--fanouts", type=ints, default=(10, 10))
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--induced", type=int, default=100_000, help="nodes of the subgraph that is induced")
    parser.add_argument("--calls", type=int, default=40, help="of a round")
    parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1), help="of DGL's loader")
    parser.add_argument("--dgl-batches", type=int, default=32, help="of a round; 0 leaves DGL out")
    parser.add_argument(
        "--json", type=Path, default=None, help="default: induced_gpu.json or induced_cpu.json in benchmarks/results"
    )
    arguments = parser.parse_args()
    device, size = arguments.device, arguments.batch_size
    graph = products_like(arguments.num_nodes, arguments.num_edges, device)
    generator = torch.Generator().manual_seed(1)
    orders = [torch.randperm(graph.num_nodes, generator=generator)[:size] for _ in range(16)]
    seeds = [order.to(graph.indices) for order in orders]
    sampler = fused(arguments.fanouts, device=device)
    drawn = torch.randperm(graph.num_nodes, generator=generator)[: arguments.induced].to(graph.indices)
    reached = [sampler.sample(graph, s, batch=i).nodes for i, s in enumerate(seeds)]
    # With one fanout for all hops, as torch_geometric has it.
    ego = EgoSampler(len(arguments.fanouts), arguments.fanouts[0], device=device)

    def shadow(i: int) -> Any:
        return induced_edges(graph, sampler.sample(graph, seeds[i % 16], batch=i).nodes)

    runs: dict[str, Callable[[int], Any]] = {
        "Y1": lambda i: sampler.sample(graph, seeds[i % 16], batch=i),
        "induced": lambda i: induced_edges(graph, drawn),
        "induced_reached": lambda i: induced_edges(graph, reached[i % 16]),
        "shadow": shadow,
        "ego": lambda i: ego.sample(graph, seeds[i % 16], batch=i),
    }
    rounds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(-1, ROUNDS):  # the first one compiles, and warms up
        for name, run in runs.items():
            found = milliseconds(run, arguments.calls, max(number, 0) * arguments.calls, device)
            if number >= 0:
                rounds[name].append(found)
    ms = {name: statistics.median(times) for name, times in rounds.items()}
    sizes = {
        "induced": {"nodes": drawn.numel(), "edges": induced_edges(graph, drawn).places.numel()},
        "shadow": {"nodes": reached[0].numel(), "edges": induced_edges(graph, reached[0]).places.numel()},
        "ego": {
            "nodes": ego.sample(graph, seeds[0]).nodes.numel(),
            "edges": ego.sample(graph, seeds[0]).edge_ids.numel(),
        },
    }
    dgl: dict[str, Any] = {"why_not": "left out"}
    if arguments.dgl_batches:
        dgl = dgl_ms(graph, arguments.fanouts, size, arguments.workers, arguments.dgl_batches)
    ratios = {"induced / Y1": ms["induced"] / ms["Y1"], "induced_reached / Y1": ms["induced_reached"] / ms["Y1"]}
    if "ms" in dgl:
        ratios |= {"dgl / shadow": dgl["ms"] / ms["shadow"], "dgl / ego": dgl["ms"] / ms["ego"]}
    for name, value in ms.items():
        low, high = min(rounds[name]), max(rounds[name])
        print(f"{name:16} {value:9.4f} ms   {low:9.4f} to {high:9.4f}   {sizes.get(name, '')}")
    print(f"{'dgl':16} {dgl}")
    for name, value in ratios.items():
        print(f"{name:22} {value:8.2f}")
    unit = ms["Y1"]
    rows = [{"what": name, "ms": value, "of_unit": value / unit, **sizes.get(name, {})} for name, value in ms.items()]
    if "ms" in dgl:
        rows.append({"what": "dgl", "ms": dgl["ms"], "of_unit": dgl["ms"] / unit, "edges": dgl["edges"]})
    content = {
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "graph": {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges},
        "fanouts": arguments.fanouts,
        "batch_size": size,
        "ms": ms,
        "rounds_ms": rounds,
        "sizes": sizes,
        "dgl": {**dgl, "workers": arguments.workers},
        "ratios": ratios,
        "rows": rows,
    }
    write_json(arguments.json or RESULTS / f"induced_{'gpu' if device == 'cuda' else 'cpu'}.json", content)


if __name__ == "__main__":
    main()
