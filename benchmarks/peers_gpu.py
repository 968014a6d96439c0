"""torch_geometric's loaders beside ours on a GPU, and a mini-batch of links.

    PYTHONPATH=. python benchmarks/peers_gpu.py                # a graph of the size of ogbn-products
    PYTHONPATH=. python benchmarks/peers_gpu.py --small        # a tenth of it

Mini-batches per second, features included, on the GPU at the end of each: torch_geometric's `NeighborLoader` with
workers (our core samples for it on the CPU, and each mini-batch is moved), and `loader.pyg.NeighborLoader` with
`device="cuda"`. Then milliseconds of one mini-batch of 1,024 positive and 1,024 negative links, synchronised at both
ends, without features; and whether it is the CPU's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, write_json
from _gpu_batches import NUM_EDGES, NUM_NODES, products_shaped
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

import loader.pyg
from loader.graph import Graph
from loader.samplers import CudaSampler, FusedSampler, LinkSampler, Negatives

FANOUTS, BATCH = [15, 10], 1024


def rate(batches: Iterable[Any], seconds: float) -> float:
    """Mini-batches per second, after the first five."""
    done, start = -5, 0.0
    for batch in batches:
        batch.to("cuda", non_blocking=True)
        done += 1
        if done == 0:
            torch.cuda.synchronize()
            start = time.perf_counter()
        elif done > 0 and time.perf_counter() - start > seconds:
            break
    torch.cuda.synchronize()
    return done / (time.perf_counter() - start)


def links(graph: Graph, rounds: int) -> dict[str, Any]:
    """The time of a mini-batch of links, and whether the CPU gives the same."""
    on_cpu = graph.to("cpu")
    at = torch.randint(graph.num_edges, (rounds + 5, BATCH), generator=torch.Generator().manual_seed(1))
    ends = torch.searchsorted(on_cpu.indptr, at.int(), right=True) - 1
    pairs = torch.stack([on_cpu.indices[at].int(), ends.int()], 2)
    negatives = Negatives("binary", 1, strict=True)
    found: dict[str, Any] = {}
    for exclude in ("none", "reverse"):
        sampler = LinkSampler(CudaSampler(FANOUTS, edge_ids=True), negatives, exclude=exclude)
        times = []
        here = pairs.cuda()
        for i in range(rounds + 5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            sample = sampler.sample(graph, here[i], batch=i)
            torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - start))
        want = LinkSampler(FusedSampler(FANOUTS, edge_ids=True), negatives, exclude=exclude)
        same = want.sample(on_cpu, pairs[i], batch=i).digest() == sample.digest()
        found[exclude] = {"ms": sorted(times[5:])[rounds // 2], "as_the_cpu": same}
        print(f"links, exclude={exclude}: {found[exclude]['ms']:.3f} ms, as the CPU: {same}", flush=True)
        sampler.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tenth of the graph")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5, help="of each loader that is measured")
    parser.add_argument("--rounds", type=int, default=50, help="mini-batches of links")
    parser.add_argument("--out", type=Path, default=RESULTS / "peers_gpu.json")
    options = parser.parse_args()
    share = 10 if options.small else 1
    graph = products_shaped(NUM_NODES // share, NUM_EDGES // share)
    content: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "num_edges": graph.num_edges}
    content["links"] = links(graph, options.rounds)
    dst = torch.arange(graph.num_nodes, device="cuda").repeat_interleave(graph.in_degrees().long())
    edge_index = torch.stack([graph.indices.long(), dst]).cpu()
    data = Data(x=torch.randn(graph.num_nodes, 100), edge_index=edge_index, y=torch.zeros(graph.num_nodes))
    del graph, dst
    common: dict[str, Any] = {"batch_size": BATCH, "shuffle": True}
    ours = loader.pyg.NeighborLoader(data, FANOUTS, device="cuda", **common)
    content["ours_per_s"] = rate(ours, options.seconds)
    print(f"loader.pyg.NeighborLoader: {content['ours_per_s']:.0f} mini-batches per second", flush=True)
    ours.close()
    theirs = NeighborLoader(data, FANOUTS, num_workers=options.workers, persistent_workers=True, **common)
    content["workers"] = options.workers
    content["theirs_per_s"] = rate(theirs, options.seconds)
    times = content["ours_per_s"] / content["theirs_per_s"]
    print(f"torch_geometric's, {options.workers} workers: {content['theirs_per_s']:.1f}, that is 1/{times:.1f}")
    write_json(options.out, content)


if __name__ == "__main__":
    main()
