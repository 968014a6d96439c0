"""Training on one GPU within budgets of its memory: epochs, bytes over the bus, memory.

    PYTHONPATH=. python benchmarks/budget_gpu.py                        # both shapes, some minutes
    PYTHONPATH=. python benchmarks/budget_gpu.py --shapes papers --part 4
    PYTHONPATH=. python benchmarks/budget_gpu.py --device cpu --part 1000    # the steps of it that need no GPU

The graphs have the shapes of ogbn-products and ogbn-papers100M, with skewed degrees, and are drawn on the GPU. Of
papers100M the edges are drawn in one direction. Each row is a `GraphDataModule` with another `memory`: none (all of
graph and features in GPU memory), what training needs in any case with a share of graph and features, or a number of
GiB. It is trained by CUDA graphs, GraphSAGE of 3 layers of 256, (15, 10, 5) x 1,024, in a loop written by hand. Rows of
16 and 8 bits (`--storage-dtype`) train under autocast to BF16 on a GPU.

The bytes over the bus are counted in an epoch without training: the parts of lists that the sampler's kernels counted,
and the rows that were not in the cache, each in whole lines of 128 bytes. `bus_s` is the time that a plain copy from
pinned memory takes for as many bytes, measured in the same row. `bound_s` is that or training alone, on mini-batches
that lie ready, whichever is longer. `loading_alone_s` is the time of an epoch whose mini-batches are not used.

A request over the bus costs about as much for a part of a line as for a whole line. So rows of the products shape whose
lists are all in host memory also have `row_lines` and `list_lines`: the distinct lines of 128 bytes that must be read.
Those of rows are counted per mini-batch. Those of lists are counted by the edge ids of the picks, each once for the
mini-batches of a launch. `lines_s` is the time that a plain copy takes for them, and `over_lines` the epoch over that
or training alone, whichever is longer. `sampling_alone_s` and `gathering_alone_s` are times of a GPU that does nothing
else: all mini-batches are sampled from the pinned graph, or as many rows as cross the bus are gathered.
`peak_bytes` is the most that torch's allocator counted for the data module, without a model, over `held_epochs`.

Graph and features lie in host memory that is locked before the first row, so no row's `setup_s` counts that.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from _bus import EpochOverBus
from _common import RESULTS, write_json
from narrow_epochs_gpu import Bf16Training, storage_of
from pinned_gpu import copy_rate
from pipeline_gpu import HIDDEN, Training, products_like, ready_batches, session_of

from loader import GraphDataModule
from loader.datasets import NodeDataset
from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.machine.pinning import PinnedTensor, host_memory
from loader.memory import budget as budget_of_memory
from loader.memory.budget import MemoryBudget
from loader.memory.hetero_plan import HeteroPlan
from loader.memory.plan import MemoryPlan
from loader.memory.split import LINE_BYTES
from loader.samplers import fused
from loader.samplers.gpu.sizes import TOGETHER, GpuOptions
from loader.stores import (
    CachedFeatures,
    DeviceFeatures,
    HostFeatures,
    PinnedFeatures,
    RowOptions,
    auto_features,
    cached,
)
from loader.stores.rows import RowFormat

FANOUTS, BATCH_SIZE, PREFETCH = (15, 10, 5), 1024, 2
WARM_UP = 48  # mini-batches, in which the step is captured
ALONE = 24  # mini-batches that lie ready, for training alone
PART_BYTES = 1 << 30  # of features that are drawn at once
BY_GPU = ", GPU alone"
STILL = ", cache unchanged"


@dataclass(frozen=True)
class Shape:
    """A graph, and the budgets that are measured.

    Attributes:
        budgets: None: no budget; "25 %": the needs with this share of graph and features; "16 GiB": in all. With
            `BY_GPU` behind it, no thread of the host helps to gather; with `STILL`, the cached rows do not change.
        held_epochs: without training, in which the memory of a row with a budget is watched.
        by_line: whether lines over the bus are counted, and sampling and gathering are timed by themselves.
    """

    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    num_seeds: int
    budgets: tuple[str | None, ...]
    held_epochs: int
    by_line: bool = False

    def part(self, of: int) -> Shape:
        """The same with `1 / of` of nodes, edges and seeds, and of budgets in GiB; at least two mini-batches."""
        nodes, edges, seeds = (count // of for count in (self.num_nodes, self.num_edges, self.num_seeds))
        seeds = min(max(seeds, 2 * BATCH_SIZE), nodes)
        budgets = tuple(b and (b if "%" in b else _divided(b, of)) for b in self.budgets)
        return Shape(nodes, edges, self.num_features, self.num_classes, seeds, budgets, self.held_epochs, self.by_line)


def _divided(budget: str, by: int) -> str:
    size, rest = budget.split(" ", 1)
    return f"{float(size) / by:g} {rest}"


SHAPES = {
    "products": Shape(
        2_449_029, 123_718_280, 100, 47, 196_615, (None, "25 %", "25 %" + STILL, "10 %", "0 %"), 20, True
    ),
    "papers": Shape(111_059_956, 1_615_685_872, 128, 172, 1_207_179, (None, "16 GiB", "16 GiB" + BY_GPU), 2),
}


class Log:
    """Lines with the seconds since the start."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()

    def __call__(self, text: str) -> None:
        print(f"[{time.perf_counter() - self.begin:6.1f} s] {text}", flush=True)


class Locked:
    """Copies of tensors in host memory that is locked for the GPU until `close`; on the CPU the tensors themselves."""

    def __init__(self) -> None:
        self._locks: list[PinnedTensor] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        count = 1
        for length in shape:
            count *= length
        if device.type == "cpu":
            return torch.empty(shape, dtype=dtype)
        # Written before it is locked: by all threads, which takes a system less time than to lock what is not there.
        memory = host_memory(count * dtype.itemsize).view(dtype).view(shape).zero_()
        self._locks.append(PinnedTensor(memory))
        return self._locks[-1].tensor

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.empty(tuple(tensor.shape), tensor.dtype, tensor.device).copy_(tensor)

    def close(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()


def draw(name: str, shape: Shape, device: torch.device, locked: Locked, log: Log) -> NodeDataset:
    """The dataset, drawn on `device`, in host memory."""
    drawn = products_like(shape.num_nodes, shape.num_edges, str(device))
    synchronize(device)
    log(f"{name}: {drawn!r} is drawn, in-degrees up to {int(drawn.in_degrees().max()):,}")
    graph = Graph(locked.copy(drawn.indptr), locked.copy(drawn.indices), validate=False)
    del drawn
    log(f"{name}: the graph is in host memory")
    generator = torch.Generator(device).manual_seed(1)
    x = locked.empty((shape.num_nodes, shape.num_features), torch.float32, device)
    log(f"{name}: {x.nbytes / 1e9:.1f} GB of host memory are ready for the features")
    rows = PART_BYTES // (4 * shape.num_features)
    for first in range(0, shape.num_nodes, rows):
        part = x[first : first + rows]
        part.copy_(torch.randn(part.shape, generator=generator, device=device))
    y = torch.randint(shape.num_classes, (shape.num_nodes,), generator=generator, device=device).cpu()
    seeds = torch.randperm(shape.num_nodes, generator=generator, device=device)[: shape.num_seeds].sort().values.cpu()
    none = seeds[:0]
    log(f"{name}: features, labels and seeds are in host memory")
    splits = {"train": seeds, "val": none, "test": none}
    return NodeDataset(name, graph, x, y, splits, num_classes=shape.num_classes)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def held_bytes(device: torch.device, *, peak: bool = False) -> int:
    """What torch's allocator counts, now or at most since its peak was reset; 0 on the CPU."""
    synchronize(device)
    if device.type == "cpu":
        return 0
    return torch.cuda.max_memory_allocated(device) if peak else torch.cuda.memory_allocated(device)


def forget(device: torch.device) -> int:
    """Frees unused memory, begins a new peak, and returns the bytes that are still held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return held_bytes(device)


def row_options(arguments: argparse.Namespace, budget: str | None) -> RowOptions:
    """Of the stores. With a budget rows are gathered, without one the first layer reads them."""
    return storage_of(arguments.storage_dtype, "lazy" if budget is None else "pinned")


def plan_of(data: NodeDataset, budget: int, options: RowOptions) -> MemoryPlan:
    """The plan of a data module with this budget. It needs no GPU."""
    sampler = GpuOptions(FANOUTS)
    sampler.batches_per_launch = TOGETHER
    samplers: list[Any] = [(sampler, BATCH_SIZE), (sampler, BATCH_SIZE)]
    return MemoryBudget(budget, options).plan(data, samplers, PREFETCH, 0)


def budget_bytes(budget: str | None, needs: int, data: NodeDataset, row_bytes: int) -> int | None:
    """The budget in bytes."""
    if budget is None:
        return None
    size = float(budget.split()[0])
    if "%" not in budget:
        return int(size * 2**30)
    whole = data.graph.indptr.nbytes + data.graph.indices.nbytes + data.num_nodes * row_bytes
    return needs + int(size / 100 * whole)


def make(data: NodeDataset, budget: int | None, device: torch.device, options: RowOptions) -> GraphDataModule:
    """As `train.py` makes it. On the CPU, where there is no budget, a module of ordinary memory."""
    where: dict[str, Any] = {"features": HostFeatures}
    if device.type == "cuda":
        where = {"graph": "device", "features": partial(DeviceFeatures, lazy=None, **options)}
        if budget is not None:
            where = {"memory": budget / 2**30, "features": partial(auto_features, **options)}
    sampler = fused(FANOUTS, device=device)
    return GraphDataModule(data, sampler, batch_size=BATCH_SIZE, drop_last=True, prefetch=PREFETCH, **where)


def count_bus(loader: NodeLoader, epoch: int, row_bytes: int) -> dict[str, int]:
    """Bytes over the bus in an epoch without training."""
    store, session = loader.features, session_of(loader)
    if isinstance(store, CachedFeatures):
        store.reset_hit_rate()
    before, rows = getattr(session, "lines", 0), 0
    loader.set_epoch(epoch)
    for batch in loader:
        rows += batch.input_nodes.numel()
    synchronize(loader.device)
    over = rows if isinstance(store, PinnedFeatures) else 0
    if isinstance(store, CachedFeatures):
        over = rows - round(store.hit_rate * rows)
    lines = -(-row_bytes // LINE_BYTES) * LINE_BYTES
    lists = (getattr(session, "lines", 0) - before) * getattr(session, "unit_bytes", 0)  # not of a sampler on the CPU
    return {
        "rows_read": rows,
        "rows_over_the_bus": over,
        "bus_row_bytes": over * lines,
        "bus_list_bytes": lists,
        "bus_bytes": over * lines + lists,
    }


def run_epoch(loader: NodeLoader, step: Callable[[Any], None], epoch: int, count: int) -> float:
    """Seconds of the first `count` mini-batches of an epoch."""
    loader.set_epoch(epoch)
    synchronize(loader.device)
    begin = time.perf_counter()
    for batch in islice(loader, count):
        step(batch)
    synchronize(loader.device)
    seconds = time.perf_counter() - begin
    loader.close()
    return seconds


def train_alone(loader: NodeLoader, training: Training, rounds: int) -> float:
    """Seconds per mini-batch that lies ready."""
    synchronize(loader.device)  # the stages run on the current stream now
    items = ready_batches(loader, ALONE)
    seconds = []
    for _ in range(rounds + 1):
        synchronize(loader.device)
        begin = time.perf_counter()
        for item in items:
            training.step(item)
        synchronize(loader.device)
        seconds.append((time.perf_counter() - begin) / len(items))
    return statistics.median(seconds[1:])


def by_line(data: NodeDataset, loader: NodeLoader, share: float, row_bytes: int) -> dict[str, float]:
    """Lines over the bus in an epoch, and its parts by themselves. All lists are in host memory, and this share of the
    rows crosses the bus."""
    loader.set_epoch(0)
    epoch = EpochOverBus(loader, share, FANOUTS, TOGETHER)
    loader.close()
    return {
        "row_lines": epoch.row_lines(row_bytes),
        "list_lines": epoch.list_lines(data.graph.to(loader.device)),
        "sampling_alone_s": epoch.sampling_seconds(data.graph.pin_memory()),
        "gathering_alone_s": epoch.gathering_seconds(data.features),
    }


def measure(
    shape: Shape, data: NodeDataset, budget: str | None, needs: int, arguments: argparse.Namespace, log: Log
) -> dict[str, Any]:
    """A row."""
    device, options = torch.device(arguments.device), row_options(arguments, budget)
    row_bytes = RowFormat(data.features, **options).nbytes
    wanted = budget_bytes(budget, needs, data, row_bytes)
    rate = copy_rate(data.features.view(-1)) if device.type == "cuda" else 1e10
    before, begin = forget(device), time.perf_counter()  # what the line above took does not count
    datamodule = make(data, wanted, device, options)
    datamodule.setup()
    loader = datamodule.train_dataloader()
    assert isinstance(loader, NodeLoader)
    synchronize(device)
    setup_s = time.perf_counter() - begin
    plan = datamodule.memory_plan or (None if wanted is None else plan_of(data, wanted, options))
    assert not isinstance(plan, HeteroPlan)  # the shapes have one type
    log(f"budget {budget}: ready after {setup_s:.1f} s; {plan or datamodule.placement()['sample']}")
    held_epochs = 1 if wanted is None else shape.held_epochs
    for epoch in range(1, held_epochs):
        loader.set_epoch(epoch)
        for _ in loader:
            pass
    bus = count_bus(loader, 0, row_bytes)
    peak = held_bytes(device, peak=True) - before
    log(f"  {held_epochs} epochs without training, at most {peak / 2**30:.3f} GiB; {bus['bus_bytes'] / 1e9:.2f} GB")
    kind = Training if arguments.storage_dtype == "float32" or device.type != "cuda" else Bf16Training
    training = kind(
        data.num_features, len(FANOUTS), graphed=device.type == "cuda", num_classes=data.num_classes, device=device
    )
    batches, epochs = len(loader), arguments.epochs
    run_epoch(loader, training.step, 0, min(batches, WARM_UP))
    each = run_epoch(loader, training.step, 1, min(batches, WARM_UP)) / min(batches, WARM_UP)
    count = min(batches, max(WARM_UP, int(arguments.seconds / epochs / each)))
    runs = [run_epoch(loader, training.step, 2 + epoch, count) * batches / count for epoch in range(epochs)]
    unused = [run_epoch(loader, lambda batch: None, epoch, count) for epoch in range(min(epochs, 3))]
    loading = statistics.median(unused) * batches / count
    alone = train_alone(loader, training, 3) * batches
    lines: dict[str, float] = {}
    if shape.by_line and device.type == "cuda" and plan is not None and plan.share_of_edges == 0:
        lines = by_line(data, loader, bus["rows_over_the_bus"] / bus["rows_read"], row_bytes)
    epoch_s, bus_s = statistics.median(runs), bus["bus_bytes"] / rate
    if lines:
        lines["lines_s"] = (lines["row_lines"] + lines["list_lines"]) * LINE_BYTES / rate
        lines["over_lines"] = epoch_s / max(lines["lines_s"], alone)
    row = {
        "budget": budget,
        "budget_bytes": wanted,
        "plan": None if plan is None else plan.card(),
        "placement": datamodule.placement(),
        "setup_s": setup_s,
        "batches": batches,
        "measured_batches": count,
        "epoch_s": epoch_s,
        "epochs_s": runs,
        "training_alone_s": alone,
        "loading_alone_s": loading,
        **bus,
        "planned_bus_bytes": None if plan is None else plan.split.bus * batches,
        "copy_rate": rate,
        "bus_s": bus_s,
        **lines,
        "bound_s": max(bus_s, alone),
        "over_bound": epoch_s / max(bus_s, alone),
        "held_epochs": held_epochs,
        "peak_bytes": peak,
        "within_budget": None if wanted is None else peak <= wanted,
        "peak_bytes_with_training": held_bytes(device, peak=True) - before,
        "replayed": training.replays.replayed,
    }
    log(
        f"  epoch {epoch_s:.3f} s ({count} of {batches} mini-batches, {epochs} times), bus {bus_s:.3f} s at "
        f"{rate / 1e9:.1f} GB/s, training alone {alone:.3f} s: {row['over_bound']:.2f}x of the longer one; loading "
        f"alone {loading:.3f} s; {lines}"
    )
    datamodule.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--budgets", nargs="+", help="of your own: none, '25 %%', '16 GiB'" + BY_GPU + STILL)
    parser.add_argument("--epochs", type=int, default=5, help="that are timed, for each row")
    parser.add_argument("--seconds", type=float, default=15, help="of these in all; if they take longer, parts of them")
    parser.add_argument("--part", type=int, default=1, help="take this part of the graphs: 4 is a quarter")
    dtypes = ("float32", "float16", "bfloat16", "int8", "float8")
    parser.add_argument("--storage-dtype", choices=dtypes, default="float32", help="of the rows")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu plans, but holds no budget")
    parser.add_argument("--out", type=Path, default=RESULTS / "budget_gpu.json")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    device, log = torch.device(arguments.device), Log()
    results: dict[str, Any] = {}
    for name in arguments.shapes:
        shape, locked = SHAPES[name].part(arguments.part), Locked()
        data = draw(name, shape, device, locked, log)
        budgets = shape.budgets
        if arguments.budgets:
            budgets = tuple(None if word == "none" else word for word in arguments.budgets)
        needs = 0
        shares = [budget for budget in budgets if budget and "%" in budget]
        if shares:
            needs = plan_of(data, 2**50, row_options(arguments, shares[0])).needs.total
            log(f"{name}: {needs / 2**20:,.0f} MiB are needed in any case")
        found = {"num_nodes": data.num_nodes, "num_edges": data.graph.num_edges, "num_features": data.num_features}
        results[name] = {**found, "num_classes": data.num_classes, "needs_bytes": needs, "rows": []}
        for budget in budgets:
            try:
                large = math.inf if budget and budget.endswith(BY_GPU) else cached.LARGE_TABLE_BYTES
                ahead = 0 if budget and budget.endswith(STILL) else budget_of_memory._LOOKAHEAD
                with (
                    mock.patch.object(cached, "LARGE_TABLE_BYTES", large),
                    mock.patch.object(budget_of_memory, "_LOOKAHEAD", ahead),
                ):
                    row = measure(shape, data, budget, needs, arguments, log)
            except (ValueError, RuntimeError) as error:  # a row that cannot be had leaves the others
                row = {"budget": budget, "refused": str(error).splitlines()[0]}
                log(f"budget {budget} of {name} failed: {error}")
            results[name]["rows"].append(row)
            gpu = torch.cuda.get_device_name() if device.type == "cuda" else None
            settings = {"fanouts": FANOUTS, "batch_size": BATCH_SIZE, "hidden": HIDDEN, "part": arguments.part}
            write_json(
                arguments.out, {"gpu": gpu, **settings, "storage_dtype": arguments.storage_dtype, "shapes": results}
            )
        del data
        locked.close()
        forget(device)


if __name__ == "__main__":
    main()
