"""Sampling a graph with several types of nodes and edges on a GPU, beside one with one type of about its size.

    PYTHONPATH=. python benchmarks/typed_gpu.py

Milliseconds per mini-batch, median over mini-batches of different seeds, synchronised at both ends. Seeds are papers of
a graph of the size of ogbn-mag; a fanout holds for each of its eight relations, and a node is expanded once. The graph
with one type has the size and skew of ogbn-products. The cases take turns: each is measured `--passes` times, and the
median is taken. Of each case it is looked whether the CPU's mini-batch has the same bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, write_json
from _gpu_batches import products_shaped
from _typed_graphs import mag_shaped
from torch import Tensor

from loader.samplers import CudaSampler, FusedSampler, Request, Session

ONE_TYPE = [([10, 10], 1024), ([15, 10, 5], 1024), ([10, 10, 10], 2048)]
TYPED = [([10, 10], 1024, 1), ([10, 10], 1024, 8), ([15, 10, 5], 1024, 1), ([15, 10, 5], 1024, 8), ([10, 10], 4096, 1)]


def mini_batches(session: Session, order: Tensor, size: int, together: int) -> Callable[[int], list[Any]]:
    """A function that samples the i-th group of mini-batches."""
    count = order.numel() // size

    def sample(i: int) -> list[Any]:
        numbers = range(i * together, (i + 1) * together)
        return [
            finish() for finish in session.begin([Request(order[n % count * size :][:size], 0, n) for n in numbers])
        ]

    return sample


def median_ms(sample: Callable[[int], Any], rounds: int = 40, warm: int = 10) -> float:
    times = []
    for i in range(rounds + warm):
        torch.cuda.synchronize()
        start = time.perf_counter()
        sampled = sample(i)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
        del sampled
    return statistics.median(times[warm:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--json", type=Path, default=RESULTS / "typed_gpu.json")
    arguments = parser.parse_args()
    plain, typed = products_shaped(), mag_shaped()
    print(torch.cuda.get_device_name(), plain, typed, flush=True)
    on_cpu = typed.to("cpu")
    order = torch.randperm(plain.num_nodes, device="cuda").to(plain.indices.dtype)
    papers = torch.randperm(len(typed.node_types["paper"]), device="cuda") + typed.node_types["paper"].start
    papers = papers.to(typed.lists.indices.dtype)
    cases: list[tuple[dict[str, Any], Callable[[int], list[Any]], int]] = []
    for fanouts, size in ONE_TYPE:
        row: dict[str, Any] = {"graph": "one type", "fanouts": fanouts, "batch": size, "together": 1}
        cases.append((row, mini_batches(CudaSampler(fanouts).open(plain), order, size, 1), 1))
    for fanouts, size, together in TYPED:
        row = {"graph": "several types", "fanouts": fanouts, "batch": size, "together": together}
        sampler = CudaSampler(fanouts, expand="new", batches_per_launch=together)
        sample = mini_batches(sampler.open(typed), papers, size, together)
        (found, *_), wanted = sample(0), FusedSampler(fanouts, expand="new").sample(on_cpu, papers[:size].cpu())
        row |= {"nodes": found.nodes.numel(), "edges": sum(block.num_edges for block in found.blocks)}
        row["equal_to_the_cpu"] = found.digest() == wanted.digest()
        cases.append((row, sample, together))
    for row, _, _ in cases:
        row["all_ms"] = []
    for _ in range(arguments.passes):
        for row, sample, together in cases:
            row["all_ms"].append(median_ms(sample) / together)
    for row, _, _ in cases:
        row["ms"] = statistics.median(row["all_ms"])
        print(row, flush=True)
    write_json(
        arguments.json,
        {
            "gpu": torch.cuda.get_device_name(),
            "num_nodes": plain.num_nodes,
            "num_edges": plain.num_edges,
            "typed_nodes": typed.num_nodes,
            "typed_edges": typed.num_edges,
            "passes": arguments.passes,
            "rows": [row for row, _, _ in cases],
        },
    )


if __name__ == "__main__":
    main()
