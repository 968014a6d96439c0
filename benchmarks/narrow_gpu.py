"""Rows of 16 and 8 bits on a GPU: gathers from every place, and the sum of the first layer, by the type that is kept.

    PYTHONPATH=. python benchmarks/narrow_gpu.py

A gather with conversion is compared with one of the same bytes without: of a table of uint8 with rows of that length.
Rows are returned as float32. `speed` is that of the bytes of the kept rows (over the bus: "pinned", "cached", "staged",
"memmap") or of all bytes that are read and written ("device"), over the same of the gather without conversion. The sum
is that of a block of the shape of ogbn-products ((15, 10, 5) x 1,024), each destination beside the mean of its
neighbors, from rows in GPU memory; `faster` is over rows of float32.

Milliseconds between CUDA events, median over the rounds, in which all ways take turns; for "staged" and "memmap", which
need the host, from call to end. "cached": a quarter of the rows, by chance. All is checked to be the rows of the CPU.
About a minute on one H100; `--places device,pinned` takes less.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, write_json
from gather_gpu import id_sets, timed
from torch import Tensor

from loader.ops import gpu as ops_gpu
from loader.stores import (
    CachedFeatures,
    DeviceFeatures,
    HostFeatures,
    MemmapFeatures,
    PinnedFeatures,
    StagedFeatures,
)

DTYPES = ("float32", "float16", "bfloat16", "int8", "float8")
PLACES = ("device", "pinned", "cached", "staged", "memmap")
WITH_HOST = ("staged", "memmap")
Way = tuple[str, str, Callable[[Tensor], Tensor]]  # place, name, gather


def opened(place: str, table: Tensor, folder: Path, name: str, **options: Any) -> Any:
    """A store of these rows."""
    if place == "device":
        return DeviceFeatures(table, **options)
    if place == "pinned":
        return PinnedFeatures(table, **options)
    if place == "cached":
        scores = torch.rand(table.shape[0], generator=torch.Generator().manual_seed(0))
        return CachedFeatures(table, fraction=0.25, hotness=scores, **options)
    if place == "staged":
        return StagedFeatures(table, **options)
    path = folder / f"{name}.npy"
    if not path.exists():
        np.save(path, table.numpy())
    return MemmapFeatures(path, "cuda", **options)


def gathers(table: Tensor, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Each type at each place, beside the same bytes without conversion."""
    sets = [ids.sort().values for ids in id_sets(table.shape[0], args.ids, seed=1)]
    columns = table.shape[1]
    known = sets[0].cpu()
    rows = []
    for place in args.places:
        ways: dict[str, Callable[[Tensor], Tensor]] = {}
        stores, row_bytes = [], {}
        for storage in DTYPES:
            store = opened(place, table, folder, "rows", storage_dtype=storage, dtype="float32")
            wanted = HostFeatures(table, storage_dtype=storage, dtype="float32")
            if not torch.equal(store.gather(sets[0]).cpu(), wanted.gather(known)):
                raise RuntimeError(f"{place} gathers wrong rows of {storage}")
            wanted.close()
            inner = store._open() if place == "memmap" else store
            row_bytes[storage] = inner._format.nbytes
            name = f"bytes-{row_bytes[storage]}"
            if name not in ways:
                same = opened(place, torch.zeros(len(table), row_bytes[storage], dtype=torch.uint8), folder, name)
                ways[name] = same.gather
                stores.append(same)
            ways[storage] = store.gather
            stores.append(store)
        ms = medians(ways, sets, args.rounds, place in WITH_HOST)
        for storage in DTYPES:
            plain = f"bytes-{row_bytes[storage]}"
            moved, copied = row_bytes[storage], row_bytes[storage]
            if place == "device":
                moved, copied = row_bytes[storage] + 4 * columns, 2 * row_bytes[storage]
            row = {"place": place, "kept": storage, "row_bytes": row_bytes[storage], "ms": ms[storage]}
            row |= {"ms_without": ms[plain], "gb_s": 1e-6 * args.ids * moved / ms[storage]}
            row |= {"speed": moved / ms[storage] / (copied / ms[plain]), "faster": ms["float32"] / ms[storage]}
            rows.append(row)
            print(
                f"{place:8} {storage:9} {row_bytes[storage]:4} B a row {ms[storage]:8.3f} ms {row['gb_s']:8.1f} GB/s  "
                f"without conversion {ms[plain]:8.3f} ms: speed {row['speed']:.2f}; {row['faster']:.2f}x of float32",
                flush=True,
            )
        for store in stores:
            store.close()
    return rows


def medians(
    ways: dict[str, Callable[[Tensor], Tensor]], sets: list[Tensor], rounds: int, host: bool
) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    held: deque[Tensor] = deque(maxlen=3)
    for i in range(rounds + 2):
        for name, gather in ways.items():
            ms = timed(partial(gather, sets[i % len(sets)]), held, host)
            if i >= 2:
                times[name].append(ms)
    return {name: statistics.median(ms) for name, ms in times.items()}


def summed(store: DeviceFeatures, edges: ops_gpu.Edges, output: torch.dtype, ids: Tensor) -> Tensor:
    """`[num_dst, 2 F + padding]` of rows that are read where they lie."""
    lazy = store.lazy_rows(ids)
    scales = None if lazy.scales is None else ops_gpu.Scales(lazy.scales, lazy.by_row)
    padding = 16 // output.itemsize
    return ops_gpu.concat_of(lazy.table, edges, output, padding, ops_gpu.IDENTITY, lazy.device, lazy.nodes, scales)


def sums(table: Tensor, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The first layer's sum from rows of each type that lie in GPU memory."""
    num_src, num_dst, num_edges = args.block
    random = torch.Generator("cuda").manual_seed(0)
    degrees = torch.randint(2 * num_edges // num_dst + 1, (num_dst,), generator=random, device="cuda")
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64, device="cuda"), degrees.cumsum(0))).int()
    indices = torch.randint(num_src, (int(indptr[-1]),), generator=random, device="cuda").int()
    edges = ops_gpu.Edges(indptr, indices, num_dst, None)
    sets = id_sets(table.shape[0], num_src, seed=2)
    rows = []
    for output in (torch.float32, torch.bfloat16):
        ways: dict[str, Callable[[Tensor], Tensor]] = {}
        stores, results = [], {}
        for storage in DTYPES:
            if storage in ("float16", "bfloat16") and output != getattr(
                torch, storage
            ):  # these have sums of their type
                continue
            store = DeviceFeatures(table, storage_dtype=storage, lazy=True)
            stores.append(store)

            ways[storage] = partial(summed, store, edges, output)
            results[storage] = ways[storage](sets[0])
        for storage in ("int8", "float8"):  # the bits of a sum of gathered rows
            decoded = DeviceFeatures(table, storage_dtype=storage).gather(sets[0])
            wanted = ops_gpu.concat_of(decoded, edges, output, 16 // output.itemsize, ops_gpu.IDENTITY, decoded.device)
            if not torch.equal(results[storage], wanted):
                raise RuntimeError(f"sums of rows kept as {storage} differ from sums of gathered rows")
        ms = medians(ways, sets, args.rounds, host=False)
        for storage, each in ms.items():
            name = str(output).removeprefix("torch.")
            rows.append({"sum": name, "kept": storage, "ms": each, "faster": ms["float32"] / each})
            print(f"sum as {name:9} of {storage:9} {each:8.4f} ms, {ms['float32'] / each:.2f}x of float32", flush=True)
        for store in stores:
            store.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-nodes", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--ids", type=int, default=400_000, help="ids of a gather")
    parser.add_argument("--block", type=int, nargs=3, default=(504_000, 94_000, 660_000), metavar="N",
                        help="sources, destinations and edges")  # fmt: skip
    parser.add_argument("--places", type=lambda text: text.split(","), default=list(PLACES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS / "narrow_gpu.json")
    args = parser.parse_args()
    if unknown := set(args.places) - set(PLACES):
        parser.error(f"--places has {min(unknown)}; all are {','.join(PLACES)}")
    table = torch.randn(args.num_nodes, args.columns, generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        found = {"gathers": gathers(table, args, Path(folder)), "sums": sums(table, args)}
    settings = {"num_nodes": args.num_nodes, "columns": args.columns, "ids": args.ids, "block": list(args.block)}
    gpu = torch.cuda.get_device_name()
    write_json(args.out, {"gpu": gpu, **settings, "rounds": args.rounds, **found})


if __name__ == "__main__":
    main()
