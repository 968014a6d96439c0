"""Gathers of narrow rows on the CPU: converted on their way, and gathered first and converted by torch afterwards.

    PYTHONPATH=. python benchmarks/narrow_cpu.py [--threads 1] [--rounds 15]

Each way gathers all rows of a table in random order. The ways take turns; a row has their medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from _common import RESULTS, write_json
from torch import Tensor

from loader.stores import HostFeatures

STORED = ("float32", "bfloat16", "float16", "int8", "float8")
RETURNED = ("float32", "bfloat16", "float16")


def milliseconds(ways: dict[str, Callable[[], Tensor]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 2):
        for name, gather in ways.items():
            begin = time.perf_counter()
            gather()
            if number >= 2:
                times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, default=RESULTS / "narrow_cpu.json")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(arguments.rows, arguments.columns, generator=generator)
    ids, found = torch.randperm(arguments.rows, generator=generator), []
    for stored in STORED:
        for returned in RETURNED:
            if stored == returned:
                continue
            dtype = getattr(torch, returned)
            store = HostFeatures(x, arguments.threads, storage_dtype=stored, dtype=dtype)
            # Codes are always decoded on their way, to float32 at least.
            first = HostFeatures(x, arguments.threads, storage_dtype=stored)

            def after(first: HostFeatures = first, dtype: torch.dtype = dtype) -> Tensor:
                return first.gather(ids).to(dtype)

            if store._format.coded and returned == "float32":
                continue
            ways: dict[str, Callable[[], Tensor]] = {"ms": partial(store.gather, ids), "ms_after": after}
            assert torch.equal(*(gather() for gather in ways.values()))
            row = {"stored": stored, "returned": returned, **milliseconds(ways, arguments.rounds)}
            print(row, flush=True)
            found.append(row)
    shape = {name: getattr(arguments, name) for name in ("rows", "columns", "threads", "rounds")}
    write_json(arguments.json, {"benchmark": "narrow_cpu", "shape": shape, "rows": found})


if __name__ == "__main__":
    main()
