"""Rows by id to the GPU: the feature stores beside torch's own ways and the bandwidths they are bounded by.

    PYTHONPATH=. python benchmarks/gather_gpu.py

Distinct ids, uniform over the table, in ascending order ("sorted", as most of a canonical mini-batch is) and in random
order; four sets of them in turns, together larger than the L2 cache, and three outputs held at a time. Milliseconds
between CUDA events, median over the rounds; all ways take turns at every round. Work is queued behind a pause of the
GPU, so that the host's share does not count, except for the ways that need the host, which are timed from call to end.

GB/s count the bytes of the rows once over the bus ("pinned", "staged", ...), and twice, read and written, in GPU
memory ("device"). `share` is that over the plain copy of the same kind, measured in the same run: a pinned copy to the
GPU, or a copy within GPU memory.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ints, write_json
from torch import Tensor

from loader.stores import CachedFeatures, DeviceFeatures, HostFeatures, PinnedFeatures, StagedFeatures

Gather = Callable[[Tensor], Tensor]
_SETS = 4


class Way:
    """One way to gather.

    Attributes:
        name: what the table calls it.
        gather: ids on the GPU -> rows on the GPU.
        bound: "bus" or "hbm".
        host: whether the host works or waits in it.
    """

    def __init__(self, name: str, gather: Gather, bound: str, host: bool = False) -> None:
        self.name, self.gather, self.bound, self.host = name, gather, bound, host


def timed(call: Callable[[], Tensor], held: deque[Tensor], host: bool) -> float:
    """Milliseconds of one call, whose result goes to `held`."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    if host:
        start = time.perf_counter()
        held.append(call())
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start)
    torch.cuda._sleep(400_000)  # some 200 microseconds, in which the host gets ahead
    begin.record()
    held.append(call())
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def copy_bandwidths(rounds: int, mib: int = 1024) -> dict[str, float]:
    """GB/s of a copy within GPU memory (read and written) and of one from pinned memory."""
    n = mib << 20
    a, b = (torch.empty(n, dtype=torch.uint8, device="cuda") for _ in range(2))
    pinned = torch.ones(n, dtype=torch.uint8).pin_memory()
    hbm, bus = [], []
    held: deque[Tensor] = deque(maxlen=1)
    for i in range(rounds + 3):
        times = timed(lambda: a.copy_(b), held, False), timed(lambda: a.copy_(pinned, non_blocking=True), held, False)
        if i >= 3:
            hbm.append(times[0])
            bus.append(times[1])
    return {"hbm": 2e-6 * n / statistics.median(hbm), "bus": 1e-6 * n / statistics.median(bus)}


def mapped(table: Tensor) -> Tensor | str:
    """Pinned host memory as torch sees it when told that it is the GPU's, or why it does not."""

    class Interface:
        __cuda_array_interface__ = {  # noqa: RUF012
            "shape": tuple(table.shape),
            "typestr": "<f4",
            "data": (table.data_ptr(), False),
            "version": 3,
        }

    try:
        view = torch.as_tensor(Interface(), device="cuda")
        if view.data_ptr() != table.data_ptr():
            return "torch made a copy of it"
        return view
    except (RuntimeError, ValueError) as error:
        return str(error).splitlines()[0]


def measure(ways: list[Way], sets: list[Tensor], table: Tensor, rounds: int) -> dict[str, float]:
    """Median milliseconds of each way."""
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    held: deque[Tensor] = deque(maxlen=3)
    expected = table[sets[0].cpu().long()]
    for way in ways:
        if not torch.equal(way.gather(sets[0]).cpu(), expected):
            raise RuntimeError(f"{way.name} gathers wrong rows")
    for i in range(rounds + 3):
        for way in ways:
            call = partial(way.gather, sets[i % _SETS])
            ms = timed(call, held, way.host)
            if i >= 3:
                times[way.name].append(ms)
    return {name: statistics.median(ms) for name, ms in times.items()}


def id_sets(num_nodes: int, count: int, seed: int, weights: Tensor | None = None) -> list[Tensor]:
    """Distinct ids, uniform or with probabilities proportional to `weights` (by exponential keys), in random order."""
    generator = torch.Generator("cuda").manual_seed(seed)
    sets = []
    for _ in range(_SETS):
        keys = torch.empty(num_nodes, device="cuda").exponential_(generator=generator)
        if weights is not None:
            keys /= weights
        chosen = keys.topk(count, largest=False).indices
        sets.append(chosen[torch.randperm(count, generator=generator, device="cuda")].int())
    return sets


def all_ways(table: Tensor, threads: int | None) -> tuple[list[Way], list[Any]]:
    """The ways for rows of `table`, and the stores to close."""
    on_gpu = table.cuda()
    device, pinned, copied = DeviceFeatures(on_gpu), PinnedFeatures(table), PinnedFeatures(table, copy=True)
    staged, host = StagedFeatures(table, num_threads=threads), HostFeatures(table, threads)
    stores = [device, pinned, copied, staged, host]
    ways = [
        Way("device", device.gather, "hbm"),
        Way("torch index_select, GPU", lambda ids: on_gpu.index_select(0, ids), "hbm"),
        Way("pinned", pinned.gather, "bus"),
        Way("pinned, copy=True", copied.gather, "bus"),
        Way("staged", staged.gather, "bus", host=True),
        Way("host, then .cuda()", lambda ids: host.gather(ids.cpu()).cuda(), "bus", host=True),
        Way("torch index_select, CPU, .cuda()", lambda ids: table.index_select(0, ids.cpu()).cuda(), "bus", host=True),
    ]
    return [*ways, *by_torch(table)], stores


def by_torch(table: Tensor) -> list[Way]:
    """torch's own gather from host memory that was locked, if torch takes that for the GPU's."""
    name, view = "torch index_select, pinned memory", mapped(table)
    if isinstance(view, Tensor):
        return [Way(name, lambda ids: view.index_select(0, ids), "bus")]
    print(f"{name}: not possible: {view}")
    return []


def compared(
    ways: list[Way], table: Tensor, args: argparse.Namespace, copies: dict[str, float], seed: int
) -> list[dict[str, Any]]:
    """The ways over uniform ids, sorted and not."""
    row_bytes = table.shape[1] * table.element_size()
    rows = []
    shuffled = id_sets(table.shape[0], args.ids, seed)
    for order in ("sorted", "unsorted"):
        sets = [ids.sort().values for ids in shuffled] if order == "sorted" else shuffled
        ms = measure(ways, sets, table, args.rounds)
        for way in ways:
            moved = args.ids * row_bytes * (2 if way.bound == "hbm" else 1)
            rate = 1e-6 * moved / ms[way.name]
            share = rate / copies[way.bound]
            rows.append(
                {"row_bytes": row_bytes, "ids": order, "way": way.name, "ms": ms[way.name], "gb_s": rate}
                | {"bound": way.bound, "share": share, "host_included": way.host}
            )
            print(
                f"{row_bytes:5} B  {order:8}  {way.name:34} {ms[way.name]:9.3f} ms {rate:8.1f} GB/s  "
                f"{100 * share:5.1f} % of the {way.bound} copy",
                flush=True,
            )
    return rows


def uniform(table: Tensor, args: argparse.Namespace, copies: dict[str, float]) -> list[dict[str, Any]]:
    """All ways over rows of `table`."""
    ways, stores = all_ways(table, args.threads)
    rows = compared(ways, table, args, copies, seed=table.shape[1] * table.element_size())
    for store in stores:
        store.close()
    return rows


def skewed(table: Tensor, args: argparse.Namespace) -> list[dict[str, Any]]:
    """`cached` beside `pinned` where nodes are met in proportion to a degree with a heavy tail."""
    num_nodes, row_bytes = table.shape[0], table.shape[1] * table.element_size()
    generator = torch.Generator("cuda").manual_seed(1)
    uniform = torch.rand(num_nodes, generator=generator, device="cuda").clamp_min(1e-6)
    degrees = (5 * uniform.pow(-1 / 1.2)).clamp_max(50_000).floor()  # a Pareto tail of exponent 1.2
    sets = [ids.sort().values for ids in id_sets(num_nodes, args.ids, seed=2, weights=degrees)]
    pinned = PinnedFeatures(table, copy=True)
    rows = []
    for fraction in args.fractions:
        cached = CachedFeatures(table, fraction=fraction, hotness=degrees.cpu(), copy=True)
        ways = [Way("cached", cached.gather, "bus"), Way("pinned", pinned.gather, "bus")]
        ms = measure(ways, sets, table, args.rounds)
        rate = 1e-6 * args.ids * row_bytes / ms["cached"]
        row = {"row_bytes": row_bytes, "fraction": fraction, "hit_rate": cached.hit_rate, "gb_s": rate}
        row |= {"bus_gb_s": rate * (1 - cached.hit_rate)}
        row |= {"cached_ms": ms["cached"], "pinned_ms": ms["pinned"], "speedup": ms["pinned"] / ms["cached"]}
        rows.append(row)
        print(
            f"{row_bytes:5} B  {100 * fraction:3.0f} % cached by degree: {100 * row['hit_rate']:5.1f} % hits  "
            f"{ms['cached']:8.3f} ms ({rate:.1f} GB/s, {row['bus_gb_s']:.1f} of it over the bus), pinned "
            f"{ms['pinned']:8.3f} ms: {row['speedup']:.2f} times as fast",
            flush=True,
        )
        cached.close()
    pinned.close()
    return rows


def as_they_come(store: PinnedFeatures) -> Gather:
    """Its gather, reading in the order of the ids."""

    def gather(ids: Tensor) -> Tensor:
        gatherer = store._open()
        order_from, gatherer.order_from = gatherer.order_from, ids.numel() + 1
        rows = store.gather(ids)
        gatherer.order_from = order_from
        return rows

    return gather


def large(args: argparse.Namespace, copies: dict[str, float]) -> list[dict[str, Any]]:
    """Rows of 400 bytes over the bus, from a table of more pages than a GPU keeps the translations of."""
    table = torch.empty(int(args.large_gib * 2**30 / 400), 100)
    for part in table.split(2**20):
        part.copy_(torch.rand(part.shape, device="cuda"))
    pinned = PinnedFeatures(table)
    in_order = Way("pinned, in the order of the ids", as_they_come(pinned), "bus")
    ways = [Way("pinned", pinned.gather, "bus"), in_order, *by_torch(table)]
    print(f"a table of {args.large_gib} GiB:")
    rows = compared(ways, table, args, copies, seed=3)
    pinned.close()
    return [{"gib": args.large_gib} | {key: row[key] for key in ("ids", "way", "ms", "gb_s", "share")} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-nodes", type=int, default=2_450_000)
    parser.add_argument("--ids", type=int, default=500_000, help="ids of a gather")
    parser.add_argument("--row-bytes", type=ints, default=(128, 400, 1024), help="multiples of 4")
    parser.add_argument("--fractions", type=lambda text: [float(x) for x in text.split(",")], default=[0.1, 0.25, 0.5])
    parser.add_argument("--large-gib", type=float, default=8.0, help="of one more table, in host memory; 0: without")
    parser.add_argument("--threads", type=int, default=None, help="of the host's gathers; default: the processors")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS / "gather_gpu.json")
    args = parser.parse_args()
    copies = copy_bandwidths(args.rounds)
    print(
        f"{torch.cuda.get_device_name()}: copy within GPU memory {copies['hbm']:.0f} GB/s (read + write), from pinned "
        f"memory {copies['bus']:.1f} GB/s"
    )
    rows, cached = [], []
    for row_bytes in args.row_bytes:
        table = torch.rand(args.num_nodes, row_bytes // 4, device="cuda").cpu()
        rows += uniform(table, args, copies)
        cached += skewed(table, args)
        del table
        torch.cuda.empty_cache()
    of_large = large(args, copies) if args.large_gib else []
    write_json(
        args.out,
        {
            "gpu": torch.cuda.get_device_name(),
            "num_nodes": args.num_nodes,
            "num_ids": args.ids,
            "rounds": args.rounds,
            "copy_gb_s": copies,
            "uniform": rows,
            "large": of_large,
            "cached_on_skewed_ids": cached,
        },
    )


if __name__ == "__main__":
    main()
