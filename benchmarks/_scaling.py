"""What a sampled edge costs as the graph outgrows the caches, beside the bare memory accesses that it needs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from loader.graph import Graph
from loader.samplers import FusedSampler
from loader.samples import MiniBatch

EDGES = (1_000_000, 4_000_000, 16_000_000, 62_000_000, 123_700_000)
MEAN_DEGREE = 50.5  # of ogbn-products
FANOUTS = (10, 10, 10)
BATCH_SIZE = 1024


def heavy_tailed_graph(num_edges: int) -> Graph:
    """Log-normal in-degrees with the mean of ogbn-products, uniform sources: no locality that a cache could use."""
    rng = np.random.default_rng(0)
    num_nodes = round(num_edges / MEAN_DEGREE)
    weight = rng.lognormal(0.0, 1.0, num_nodes)
    ends = np.rint(np.cumsum(weight) * (num_edges / weight.sum())).astype(np.int64)
    indptr = np.concatenate(([0], ends))
    indices = rng.integers(0, num_nodes, indptr[-1], dtype=np.int32)
    return Graph(torch.from_numpy(indptr), torch.from_numpy(indices))


def bare_accesses(graph: Graph, batch: MiniBatch) -> Callable[[], None]:
    """Reads what no sampler of these blocks gets around, at the places that `batch` has, and nothing else.

    Of each edge: its entry in `indices`, and the entry of its source in an array by node, twice (to see whether it
    is new, to learn its local id). Of each row: `indptr`. In the order of the blocks; `index_select` leaves many of
    these reads in flight at a time.
    """
    by_node = torch.zeros(graph.num_nodes, dtype=torch.int32)
    edge_ids = [block.edge_ids for block in batch.blocks if block.edge_ids is not None]
    reads: list[tuple[Tensor, Tensor]] = [(graph.indices, ids) for ids in edge_ids]
    for block in batch.blocks:
        reads += [(by_node, batch.nodes[block.indices])] * 2
        reads.append((graph.indptr, batch.nodes[: block.num_dst]))
    outputs = [torch.empty(where.numel(), dtype=table.dtype) for table, where in reads]

    def read() -> None:
        for (table, where), out in zip(reads, outputs, strict=True):
            torch.index_select(table, 0, where, out=out)

    return read


def measure(graph: Graph, threads: int, repeats: int) -> tuple[float, float]:
    """Median ns a sampled edge: of the fused sampler, and of the bare accesses of other mini-batches."""
    plain = FusedSampler(FANOUTS, num_threads=threads)
    with_ids = FusedSampler(FANOUTS, edge_ids=True, num_threads=threads)
    generator = torch.Generator().manual_seed(0)
    ours, bare = [], []
    for i in range(repeats + 2):
        seeds = torch.randperm(graph.num_nodes, generator=generator)[: 2 * BATCH_SIZE]
        other = with_ids.sample(graph, seeds[BATCH_SIZE:], batch=i)
        read = bare_accesses(graph, other)
        begin = time.perf_counter()
        batch = plain.sample(graph, seeds[:BATCH_SIZE], batch=i)  # also takes what `other` left in the caches
        middle = time.perf_counter()
        read()
        end = time.perf_counter()
        if i >= 2:
            ours.append(1e9 * (middle - begin) / batch.num_edges)
            bare.append(1e9 * (end - middle) / other.num_edges)
    return statistics.median(ours), statistics.median(bare)


def measure_scaling(threads: int, quick: bool, console: Console) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    table = Table("edges", "fused ns/edge", "bare ns/edge", "fused grew", "bare grew", "beyond the misses")
    table.title = f"Cost a sampled edge: batch {BATCH_SIZE}, fanouts {FANOUTS}, {threads} threads"
    for num_edges in (EDGES[0], EDGES[2]) if quick else EDGES:
        graph = heavy_tailed_graph(num_edges)
        ours, bare = measure(graph, threads, repeats=9 if quick else 25)
        first = rows[0] if rows else {"fused_ns": ours, "bare_ns": bare}
        grew, bare_grew = ours / first["fused_ns"], bare / first["bare_ns"]
        rows.append(
            {
                "num_edges": graph.num_edges,
                "num_nodes": graph.num_nodes,
                "fused_ns": ours,
                "bare_ns": bare,
                "fused_grew": grew,
                "bare_grew": bare_grew,
                # The cost of the misses alone, added to what the sampler cost where there were none.
                "beyond_misses": ours / (first["fused_ns"] + bare - first["bare_ns"]),
            }
        )
        row = rows[-1]
        table.add_row(
            f"{row['num_edges']:,}",
            f"{ours:.1f}",
            f"{bare:.1f}",
            f"{grew:.2f}x",
            f"{bare_grew:.2f}x",
            f"{row['beyond_misses']:.2f}x",
        )
    console.print(table)
    return rows
