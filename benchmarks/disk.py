"""What does it cost to load mini-batches of a graph and features that are on disk, and does asking for pages ahead pay?

    PYTHONPATH=. python benchmarks/disk.py --folder FOLDER          # FOLDER on the disk to measure; takes 3 GB

A random graph (no locality) and its features are written to FOLDER once. A mini-batch is sampled and its rows are
gathered, first with nothing of the files in the page cache, then again with all that it needs there. Before each cold
one the files' pages are dropped. The candidates take turns, mini-batch by mini-batch:

- system: the system's own way, which reads ahead in the file behind each page that is missing.
- random: the system is told that reads are random, so it reads single pages. Each thread waits for its page.
- ahead: as random, and pages are asked for before they are read, some hundred at a time. This is what the loader does.
"""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, free_cores, ints, write_json
from rich.console import Console
from rich.table import Table
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.cpus import available_cpus
from loader.machine.mapped import map_array
from loader.machine.pages import _advise, _bounds
from loader.samplers.cpu import PART_EDGES

_PART = 1 << 20  # nodes that are written at once
_THREADS_A_CPU = {"system": 1, "random": 4, "ahead": 4}  # that gather


def write_arrays(folder: Path, num_nodes: int, degree: int, num_features: int) -> None:
    """A graph of equal degrees, and its features; nothing is done if they are there."""
    wanted = {
        "indptr": ((num_nodes + 1,), np.int32),
        "indices": ((num_nodes * degree,), np.int32),
        "features": ((num_nodes, num_features), np.float32),
    }
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for name, (shape, dtype) in wanted.items():
        path = folder / f"{name}-{'-'.join(map(str, shape))}.npy"
        if path.exists():
            continue
        unfinished = path.with_suffix(".part")
        with open(unfinished, "wb") as file:
            header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for first in range(0, num_nodes, _PART):
                count = min(_PART, num_nodes - first)
                if name == "features":
                    file.write(rng.random((count, num_features), dtype=np.float32).data)
                elif name == "indices":
                    file.write(rng.integers(0, num_nodes, count * degree, dtype=np.int32).data)
                else:
                    last = first + count == num_nodes
                    file.write((np.arange(first, first + count + last, dtype=np.int32) * degree).data)
            file.flush()
            os.fsync(file.fileno())  # a page that is not written yet cannot be dropped
        unfinished.rename(path)


class File:
    """An array of a file, mapped."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            self.array: Tensor = map_array(file, shape, dtype)
        self._handle = os.open(path, os.O_RDONLY)

    def advise(self, advice: int) -> None:
        begin, end = _bounds(self.array)
        _advise(begin // mmap.PAGESIZE * mmap.PAGESIZE, end, advice)

    def drop(self) -> None:
        """Takes its pages out of this process and out of the page cache."""
        self.advise(mmap.MADV_DONTNEED)
        os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)


class Candidate:
    def __init__(self, name: str, graph: Graph, features: Tensor, fanouts: tuple[int, ...]) -> None:
        ahead = name == "ahead"
        self.advice = mmap.MADV_NORMAL if name == "system" else mmap.MADV_RANDOM
        self._features = features
        self._sampler = _core.FusedSampler(
            graph.indptr, graph.indices, fanouts, False, False, available_cpus(), PART_EDGES, None, ahead
        )
        self._gatherer = _core.Gatherer(_THREADS_A_CPU[name] * available_cpus(), ahead)

    def sample(self, seeds: Tensor, batch: int) -> Tensor:
        sampled = self._sampler.sample([seeds], [_core.batch_key(0, 0, batch)])[0]
        frontiers, *_, buffer = sampled.take()
        return torch.frombuffer(buffer, dtype=torch.int32, count=frontiers[-1])

    def gather(self, ids: Tensor) -> Tensor:
        out = torch.empty(ids.numel(), self._features.shape[1])
        self._gatherer.gather(self._features, ids, out)
        return out


def timed(call: Callable[[], Tensor]) -> tuple[Tensor, float, float]:
    """Its result, milliseconds, and MB that it read from the disk."""
    read, begin = bytes_read(), time.perf_counter()
    found = call()
    return found, 1e3 * (time.perf_counter() - begin), (bytes_read() - read) / 1e6


def bytes_read() -> int:
    """By this process, from disks, so far."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("read_bytes:"):
            return int(line.split()[1])
    raise OSError("/proc/self/io has no read_bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the arrays lie, or are written to")
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--degree", type=int, default=25)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--fanouts", type=ints, default=(10, 5), metavar="10,5")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=15, help="of each candidate")
    parser.add_argument("--json", type=Path, default=RESULTS / "disk.json")
    arguments = parser.parse_args()

    num_nodes = arguments.nodes
    write_arrays(arguments.folder, num_nodes, arguments.degree, arguments.features)
    shapes = {
        "indptr": (num_nodes + 1,),
        "indices": (num_nodes * arguments.degree,),
        "features": (num_nodes, arguments.features),
    }
    files = {name: File(arguments.folder / f"{name}-{'-'.join(map(str, s))}.npy") for name, s in shapes.items()}
    graph = Graph(files["indptr"].array, files["indices"].array)
    features = files["features"].array
    candidates = {name: Candidate(name, graph, features, arguments.fanouts) for name in _THREADS_A_CPU}
    seeds = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(0)).to(torch.int32)

    cores = [free_cores()]
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in candidates}
    for batch in range(-1, arguments.batches):  # the first one warms up
        own = seeds[(batch + 1) * arguments.batch_size : (batch + 2) * arguments.batch_size]
        rows: dict[str, Tensor] = {}
        for name, candidate in candidates.items():
            for file in files.values():
                file.drop()
                file.advise(candidate.advice)
            run: dict[str, float] = {}
            for state in ("cold", "warm"):
                # Whether to ask is decided by the last reads, so the warm state begins with some that are not timed.
                if state == "warm":
                    for _ in range(20):
                        candidate.gather(candidate.sample(own, batch + 1))
                ids, sample_ms, sample_mb = timed(partial(candidate.sample, own, batch + 1))
                rows[name], gather_ms, gather_mb = timed(partial(candidate.gather, ids))
                run |= {f"sample_{state}_ms": sample_ms, f"gather_{state}_ms": gather_ms}
                run |= {f"{state}_mb": sample_mb + gather_mb, "rows": float(ids.numel())}
            if batch >= 0:
                runs[name].append(run)
        if not all(torch.equal(rows["system"], found) for found in rows.values()):
            raise SystemExit("the candidates gathered different bytes")

    cores.append(free_cores())
    medians: dict[str, dict[str, Any]] = {
        name: {key: statistics.median(run[key] for run in all_runs) for key in all_runs[0]}
        for name, all_runs in runs.items()
    }
    table = Table("", "cold: sample ms", "gather ms", "MB read", "warm: sample ms", "gather ms")
    table.title = f"{graph.num_edges:,} edges, {medians['ahead']['rows']:,.0f} rows of {4 * features.shape[1]} bytes"
    for name, row in medians.items():
        table.add_row(
            name,
            *(f"{row[key]:.1f}" for key in ("sample_cold_ms", "gather_cold_ms", "cold_mb")),
            *(f"{row[key]:.1f}" for key in ("sample_warm_ms", "gather_warm_ms")),
        )
    Console(width=120).print(table)
    gained = {
        f"ahead_beside_{other}": statistics.median(
            (b["sample_cold_ms"] + b["gather_cold_ms"]) / (a["sample_cold_ms"] + a["gather_cold_ms"])
            for a, b in zip(runs["ahead"], runs[other], strict=True)
        )
        for other in ("system", "random")
    }
    print(gained)
    write_json(
        arguments.json,
        {
            "num_nodes": num_nodes,
            "num_edges": graph.num_edges,
            "num_features": features.shape[1],
            "batch_size": arguments.batch_size,
            "fanouts": list(arguments.fanouts),
            "batches": arguments.batches,
            "medians": medians,
            **gained,
            "free_cores": cores,
        },
    )


if __name__ == "__main__":
    main()
