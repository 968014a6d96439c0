"""What the benchmarks share: graphs, peak memory, JSON."""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import os
import shlex
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from loader.datasets import NodeDataset
from loader.graph import Graph
from loader.machine.hardware import provenance

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def ints(text: str) -> tuple[int, ...]:
    """`"10,10"` as numbers."""
    return tuple(int(word) for word in text.split(","))


def add_graph_options(parser: argparse.ArgumentParser) -> None:
    """Where the graphs of a benchmark come from."""
    parser.add_argument("--data-dir", default="data", help="folder of the datasets' raw files (default: data)")
    parser.add_argument("--cache-dir", default=None, help="folder of converted datasets (default: data-dir/cache)")
    parser.add_argument(
        "--csc",
        nargs=2,
        metavar=("INDPTR.npy", "INDICES.npy"),
        help="arrays of a graph to take in place of the products-shaped one",
    )


def microseconds(ms: float | None) -> str:
    """In whole ones; "-" for what could not be measured."""
    return "-" if ms is None else f"{1e3 * ms:.0f}"


class QuietCore:
    """A context in which the calling thread has a core of the host that runs at full speed, for times the host makes.

    On a machine that shares its processor with others, anything can take 1.9 times as long on some cores (seen on
    hosts of H200s, for milliseconds or minutes; probably while another uses the core's other hardware thread). That
    is told from a fixed piece of Python, timed beside what is measured.
    """

    _SLOWER = 1.15  # than the fastest so far, and a core is not quiet

    def __init__(self) -> None:
        self._cores = sorted(os.sched_getaffinity(0))
        self.fastest_us = float("inf")

    def __enter__(self) -> QuietCore:
        self.move()
        return self

    def __exit__(self, *_: object) -> None:
        os.sched_setaffinity(0, self._cores)

    def move(self) -> None:
        """To the core that is fastest now."""
        found = {}
        for core in self._cores:
            os.sched_setaffinity(0, {core})
            found[core] = statistics.median(self._fixed_work() for _ in range(50))
        quiet = min(found, key=found.__getitem__)
        os.sched_setaffinity(0, {quiet})
        self.fastest_us = min(self.fastest_us, found[quiet])

    def is_quiet(self) -> bool:
        """Whether it is at full speed now."""
        return self._fixed_work() < self._SLOWER * self.fastest_us

    @staticmethod
    def _fixed_work() -> float:
        """Microseconds that it takes."""
        start = time.perf_counter()
        total = 0
        for i in range(500):
            total += i & 3
        return 1e6 * (time.perf_counter() - start)


def load_dataset(name: str, data_dir: str, cache_dir: str | None) -> NodeDataset:
    """The dataset that `conf/dataset/<name>.yaml` describes."""
    from loader.datasets import open_dataset

    return open_dataset(name, data_dir=data_dir, cache_dir=cache_dir, conf=ROOT / "conf")


def load_graph(source: str, arguments: argparse.Namespace) -> Graph:
    """`source` is the name of a dataset, or "csc" for the arrays given by `--csc`."""
    if source != "csc":
        return load_dataset(source, arguments.data_dir, arguments.cache_dir).graph
    indptr, indices = (torch.from_numpy(np.load(path)) for path in arguments.csc)
    return Graph(indptr, indices)


def resident_bytes(peak: bool = False) -> int:
    """Memory of this process that lies in RAM, now or at most since `forget_peak`. Linux only."""
    field = "VmHWM:" if peak else "VmRSS:"
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def forget_peak() -> int:
    """Sets the peak back to what is resident now, and returns that."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc: what the process freed and kept would otherwise serve the measured code for nothing
        trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident_bytes()


def free_cores(threads: int = 2) -> float:
    """How much `threads` threads get done in the time of one: their number on idle cores, 1 without a core to spare."""
    data = bytes(1 << 25)

    def seconds(count: int) -> float:
        begin = time.perf_counter()
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda _: hashlib.sha256(data).digest(), range(count)))
        return time.perf_counter() - begin

    seconds(threads)
    return statistics.median(threads * seconds(1) / seconds(threads) for _ in range(5))


def _command() -> str:
    """The command line, with no more than the names of folders and files that lie outside the checkout."""
    words = [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:]]
    return shlex.join(["python", os.path.relpath(sys.argv[0], ROOT), *words])


def command_and_provenance() -> dict[str, Any]:
    """How this process was called, and `loader.machine.hardware.provenance()`."""
    return {"command": _command(), **provenance()}


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**command_and_provenance(), **content}, indent=1) + "\n")
    print(f"wrote {path}")
