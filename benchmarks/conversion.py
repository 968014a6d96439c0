"""Time and memory of drawing and converting synthetic-papers100M, at parts of its size.

    python benchmarks/conversion.py --parts 100 50 --threads 1 2

Each conversion runs in a process of its own. Its anonymous memory (`RssAnon` of Linux) is looked at every 20 ms. Pages
of files, which Linux keeps in memory while there is room, are no part of it. `--data-limit-gib` sets `RLIMIT_DATA`:
then a conversion that asks for more memory fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _common import write_json
from rich.console import Console
from rich.table import Table

from loader.datasets.cache_writer import CacheWriter
from loader.datasets.progress import ConversionProgress
from models.synthetic import LargeSyntheticDataset

NODES, EDGES = 111_059_956, 1_615_685_872
GIB = 2**30


def anonymous_bytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 0 if found is None else int(found[1]) * 1024


class Steps(ConversionProgress):
    """In place of a progress bar: the seconds of each step, and the peak of memory in it."""

    def __init__(self) -> None:
        super().__init__("")
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}
        self._now = ""
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.peaks[self._now] = max(self.peaks.get(self._now, 0), anonymous_bytes())
            time.sleep(0.02)

    @contextmanager
    def step(self, description: str, total: int | None = None) -> Iterator[Any]:
        self._now, start = description, time.perf_counter()
        yield lambda advance: None
        self.seconds[description], self._now = time.perf_counter() - start, ""


def measure(part: int, threads: int, folder: Path) -> dict[str, Any]:
    """One conversion, in this process."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    before = anonymous_bytes()
    dataset = LargeSyntheticDataset(
        f"papers100M-{part}", num_nodes=NODES // part, num_edges=EDGES // part, class_skew=0.7, data_dir=folder
    )
    steps = Steps()
    start = time.perf_counter()
    with CacheWriter(folder, {}) as writer:
        dataset.convert(writer, steps)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time()
    version = next(folder.glob("version-*"))
    digest = hashlib.sha256()
    for name in ("indptr", "indices", "labels", "train", "features"):
        digest.update(np.load(version / f"{name}.npy", mmap_mode="r").data)
    return {
        "part": part,
        "threads": threads,
        "nodes": dataset.plan.num_nodes,
        "edges_drawn": dataset.num_edges,
        "edges": int(np.load(version / "indices.npy", mmap_mode="r").size),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "seconds_by_step": steps.seconds,
        "anonymous_gib_before": before / GIB,
        "anonymous_gib_peak": max(steps.peaks.values()) / GIB,
        "anonymous_gib_by_step": {name or "else": peak / GIB for name, peak in steps.peaks.items()},
        "digest": digest.hexdigest()[:16],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, nargs="+", default=[100, 50], help="of the full size: one hundredth, ...")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="processors to use")
    parser.add_argument("--data-limit-gib", type=float, help="RLIMIT_DATA of each conversion")
    parser.add_argument("--folder", default=None, help="for the files of a conversion (default: the temporary folder)")
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments.parts[0], arguments.threads[0], Path(arguments.here))))
        return
    limit = arguments.data_limit_gib

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit * GIB), int(limit * GIB)))

    rows = []
    for part in arguments.parts:
        for threads in arguments.threads:
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                command = [sys.executable, __file__, "--parts", str(part), "--threads", str(threads), "--here", folder]
                done = subprocess.run(
                    command, check=True, capture_output=True, text=True, preexec_fn=limited if limit else None
                )
                rows.append(json.loads(done.stdout))
    table = Table("size", "threads", "nodes", "edges", "seconds", "of CPU", "peak GiB", "before GiB", "digest")
    for row in rows:
        numbers = [
            f"{row[key]:.2f}" for key in ("seconds", "cpu_seconds", "anonymous_gib_peak", "anonymous_gib_before")
        ]
        table.add_row(
            f"1/{row['part']}", str(row["threads"]), f"{row['nodes']:,}", f"{row['edges']:,}", *numbers, row["digest"]
        )
    Console(width=120).print(table)
    if arguments.json:
        write_json(Path(arguments.json), {"rows": rows, "data_limit_gib": limit})


if __name__ == "__main__":
    main()
