"""One mini-batch and groups of 16 on 1 to 16 threads, beside DGL."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from loader.graph import Graph
from loader.machine.optional import import_dgl
from loader.samplers import FusedSampler, Request

SETTINGS = (((10, 10), 1024), ((15, 10, 5), 1024), ((10, 10, 10), 10240))
GROUP = 16
PAUSE = 0.02  # seconds between samplers: OpenMP's threads spin on for some milliseconds
SECONDS = 0.5  # of one sampler in one setting, but for the least number of calls
LEAST_CALLS = 3


def median_ms(call: Callable[[int], Any]) -> float:
    """Median of call(1), call(2), ...; call(0) does not count. Calls of seconds are made twice in all."""
    start = time.perf_counter()
    call(0)
    least = 1 if time.perf_counter() - start > 1 else LEAST_CALLS
    time.sleep(PAUSE)
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < least or (time.perf_counter() - begin < SECONDS and len(times) < 60):
        start = time.perf_counter()
        call(1 + len(times))
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def grouped(
    graph: Graph, permutation: Tensor, fanouts: tuple[int, ...], batch_size: int, threads: int, count: int
) -> Callable[[int], Any]:
    """A function that samples group i of `count` mini-batches."""
    session = FusedSampler(fanouts, num_threads=threads).open(graph)
    seeds = permutation.to(graph.indices.dtype).split(batch_size)[:-1]

    def call(i: int) -> list[Any]:
        group = [Request(seeds[k % len(seeds)], 0, k) for k in range(count * i, count * (i + 1))]
        return [finish() for finish in session.begin(group)]

    return call


def _sample_blocks(sampler: Any, graph: Any, seeds: Sequence[Tensor], i: int) -> None:
    sampler.sample_blocks(graph, seeds[i % len(seeds)])


def measure_threads(graph: Graph, threads: int, with_dgl: bool) -> list[dict[str, float]]:
    """Milliseconds per mini-batch, in a process of its own that has this number of threads."""
    permutation = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    results = []
    if with_dgl:
        dgl = import_dgl("the comparison with DGL")
        csc = (graph.indptr.long(), graph.indices.long(), torch.empty(0, dtype=torch.int64))
        peer = dgl.graph(("csc", csc), num_nodes=graph.num_nodes)
    for fanouts, batch_size in SETTINGS:
        found = {
            "one": median_ms(grouped(graph, permutation, fanouts, batch_size, threads, 1)),
            "group": median_ms(grouped(graph, permutation, fanouts, batch_size, threads, GROUP)) / GROUP,
        }
        if with_dgl:
            sampler = dgl.dataloading.NeighborSampler(list(fanouts[::-1]))
            seeds = permutation.split(batch_size)[:-1]
            found["dgl"] = median_ms(functools.partial(_sample_blocks, sampler, peer, seeds))
        results.append(found)
    return results


def print_threads(measured: dict[int, list[dict[str, float]]], console: Console) -> None:
    """A row for each setting and number of threads; speed-ups over one thread, and over DGL with as many."""
    table = Table("fanouts", "batch", "threads", "one, ms", "x1", "group, ms", "x1", "DGL, ms", "one is", "group is")
    table.title = f"A mini-batch by itself, and one of a group of {GROUP}"
    for at, (fanouts, batch_size) in enumerate(SETTINGS):
        first = next(iter(measured.values()))[at]
        for threads, settings in measured.items():
            one, group, dgl = settings[at]["one"], settings[at]["group"], settings[at].get("dgl")
            table.add_row(
                ",".join(map(str, fanouts)),
                str(batch_size),
                str(threads),
                f"{one:.2f}",
                f"{first['one'] / one:.1f}",
                f"{group:.2f}",
                f"{first['one'] / group:.1f}",
                "-" if dgl is None else f"{dgl:.2f}",
                "-" if dgl is None else f"{dgl / one:.1f}x",
                "-" if dgl is None else f"{dgl / group:.1f}x",
            )
        table.add_section()
    console.print(table)
