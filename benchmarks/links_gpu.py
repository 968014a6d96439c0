"""A mini-batch of links on a GPU: links on the GPU -> sampled neighborhood of all ends on the GPU.

    PYTHONPATH=. python benchmarks/links_gpu.py                                  # a graph of the size of ogbn-products
    PYTHONPATH=. python benchmarks/links_gpu.py --csc indptr.npy indices.npy

A mini-batch has 1,024 positive links, edges of the graph, and 1,024 negatives. Milliseconds, synchronised at both ends;
median over mini-batches. "nodes only" is the same sampler with the ends of the links as its seeds, found before the
clock starts. Each result is compared with that of the CPU, byte by byte, once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, write_json
from _gpu_batches import products_shaped

from loader.graph import Graph
from loader.samplers import LinkSampler, Negatives, Request, fused
from loader.samplers.base import Session

LINKS, FANOUTS = 1024, (15, 10)
CASES: dict[str, dict[str, Any]] = {
    "binary": {"negatives": Negatives("binary", 1)},
    "binary, strict": {"negatives": Negatives("binary", 1, strict=True)},
    "binary, strict, without the links and their reverses": {
        "negatives": Negatives("binary", 1, strict=True),
        "exclude": "reverse",
    },
    "triplet, strict": {"negatives": Negatives("triplet", 1, strict=True)},
}


def median_ms(session: Session, requests: list[Request]) -> float:
    times = []
    for i, request in enumerate(requests):
        torch.cuda.synchronize()
        start = time.perf_counter()
        sample = session.begin([request])[0]()
        torch.cuda.synchronize()
        if i >= 5:
            times.append(1e3 * (time.perf_counter() - start))
        del sample
    return statistics.median(times)


def equal(a: Any, b: Any) -> bool:
    """Whether two samples have the same bytes."""
    return all(torch.equal(x.cpu(), y.cpu()) for x, y in zip(a.tensors(), b.tensors(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csc", nargs=2, metavar=("INDPTR.npy", "INDICES.npy"), help="another graph")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--out", type=Path, default=RESULTS / "links_gpu.json")
    options = parser.parse_args()
    arrays = [torch.from_numpy(np.load(path)) for path in options.csc or ()]
    host = (Graph(*arrays, validate=False) if arrays else products_shaped()).to("cpu")
    graph = host.to("cuda")
    edges = torch.randint(host.num_edges, (options.repeats + 5, LINKS), generator=torch.Generator().manual_seed(0))
    targets = torch.searchsorted(host.indptr.long(), edges.view(-1), right=True).view(edges.shape) - 1
    pairs = torch.stack([host.indices[edges].long(), targets], 2)
    rows = []
    for name, case in CASES.items():
        on_gpu, on_cpu = (LinkSampler(fused(FANOUTS, device=d), **case) for d in ("cuda", "cpu"))
        session, reference = on_gpu.open(graph), on_cpu.open(host)
        request = Request(pairs[0].cuda(), 0, 0)
        same = equal(session.begin([request])[0](), reference.begin([Request(pairs[0], 0, 0)])[0]())
        reference.close()
        links = [Request(p.cuda(), 0, i) for i, p in enumerate(pairs)]
        ends = [session.begin([r])[0]().around.output_nodes for r in links]
        whole = median_ms(session, links)
        session.close()
        around = fused(FANOUTS, device="cuda").open(graph)
        alone = median_ms(around, [Request(e, 0, i) for i, e in enumerate(ends)])
        around.close()
        rows.append({"links": name, "ms": whole, "nodes_only_ms": alone, "equal_to_the_cpu": same})
        print(f"{name:56} {whole:7.3f} ms   nodes only {alone:7.3f} ms   equal to the CPU: {same}", flush=True)
    size = {"gpu": torch.cuda.get_device_name(), "num_nodes": graph.num_nodes, "num_edges": graph.num_edges}
    write_json(options.out, {**size, "positives": LINKS, "fanouts": FANOUTS, "rows": rows})


if __name__ == "__main__":
    main()
