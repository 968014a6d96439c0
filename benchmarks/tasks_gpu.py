"""A training step of a task on tables: sampling by time, rows, encoders, R-SAGE, optimizer.

    PYTHONPATH=. python benchmarks/tasks_gpu.py --data-dir data

Milliseconds a step over an epoch of rel-f1's driver-dnf, mini-batches of 512 items, R-SAGE of width 128 with four
residual blocks per table (RelBench's baseline). Rows of a mini-batch are encoded once for each distinct row, or for
each copy; steps are CUDA graphs, or as torch launches them. "training" repeats mini-batches that lie in GPU memory,
"loading" reads mini-batches and does not train, "step" is both, and "filled" is both from the first mini-batch on: an
epoch has 23 steps, so the wait for the first one counts. Medians over epochs, of torch_geometric and of torch's norms
the fastest one; "replayed" counts steps of all.
The rows of torch_geometric: its NeighborLoader (on the core's CPU sampler, by `import loader.pyg`, 8 threads),
HeteroConv of SAGEConv, and pytorch-frame's encoders, one table after the other, on the same GPU.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ints, write_json
from torch import Tensor, nn
from torch.nn import functional as F

from loader.datamodules.tasks import TaskDataModule
from loader.datasets import RelationalDataset
from loader.ops import grouped
from loader.samplers import TreeSampler
from loader.stores import DeviceFeatures, HostFeatures
from models.row_encoder import RowEncoder
from models.training.task_predictor import TaskPredictor
from models.training.whole_step import ReplayedAdam

SIZE, HIDDEN, DAY = 512, 128, 86_400


def sync(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


class Ours:
    """Trains by a `TaskPredictor`; `graph` says whether its steps are CUDA graphs."""

    def __init__(self, module: TaskDataModule, device: str, unique_rows: bool, graph: bool, seed: int = 0) -> None:
        torch.manual_seed(seed)
        options: dict[str, Any] = {"hidden_channels": HIDDEN, "unique_rows": unique_rows, "cuda_graph": graph or None}
        sampler: Any = module.sampler
        self.model = TaskPredictor(**module.sizes, **options, num_layers=len(sampler.fanouts)).to(device)
        self.optimizer = torch.optim.Adam(self.model.net.parameters(), lr=0.005, fused=device == "cuda")
        self.graph = graph
        self.adam, self.is_steady = ReplayedAdam(self.optimizer), False
        self.loss = torch.zeros((), device=device)

    def __call__(self, batch: Any) -> None:
        graphed = self.model.graphed
        if self.is_steady and graphed.repeats(batch):  # as a Trainer's steps are, see `WholeStep`
            self.loss += graphed.repeat(batch)[0]
            self.adam.replay()
            return
        done = graphed.with_gradients(batch) if self.graph else None
        self.is_steady = False
        if done is not None:
            self.adam.step()
            self.is_steady = self.adam.replays
            self.loss += done[0]
            return
        self.optimizer.zero_grad()
        loss, _ = (self.model.graphed if self.graph else self.model._loss_and_outputs)(batch)
        loss.backward()
        self.optimizer.step()
        self.loss += loss.detach()


class TheirNet(nn.Module):
    """RelBench's baseline by torch_geometric's layers, every copy of a row encoded; one output."""

    def __init__(self, sizes: dict[str, Any], hops: int) -> None:
        super().__init__()
        from torch_geometric.nn import HeteroConv, PositionalEncoding, SAGEConv

        self.target = sizes["target"]
        self.timed = {name for name, of in sizes["columns"].items() if of and of[-1]["kind"] == "known"}
        self.encoders = nn.ModuleDict(
            {name: RowEncoder(of, HIDDEN, 4, 0.2, "layer") for name, of in sizes["columns"].items()}
        )
        self.since = nn.ModuleDict({name: nn.Linear(HIDDEN, HIDDEN) for name in self.timed})
        self.encode_time = PositionalEncoding(HIDDEN)
        self.convs = nn.ModuleList(
            HeteroConv({key: SAGEConv((HIDDEN, HIDDEN), HIDDEN, aggr="sum") for key in sizes["edge_types"]}, "sum")
            for _ in range(hops)
        )
        self.norms = nn.ModuleList(
            nn.ModuleDict({name: nn.LayerNorm(HIDDEN) for name in sizes["columns"]}) for _ in range(hops)
        )
        self.head = nn.Linear(HIDDEN, 1)

    def forward(self, data: Any) -> Tensor:
        from torch_geometric.utils import trim_to_layer

        x = {}
        for name, encoder in self.encoders.items():
            rows = data[name]
            x[name] = encoder(rows.x if "x" in rows else None, rows.num_nodes)
            if name in self.timed:
                days = (data[self.target].seed_time[rows.batch] - rows.time).to(torch.float32) / DAY
                x[name] = x[name] + self.since[name](self.encode_time(days))
        edges = data.edge_index_dict
        layers: Any = zip(self.convs, self.norms, strict=True)
        for i, (conv, norms) in enumerate(layers):
            if i:
                x, edges, _ = trim_to_layer(i, data.num_sampled_nodes_dict, data.num_sampled_edges_dict, x, edges)
            x = {name: norms[name](rows).relu() for name, rows in conv(x, edges).items()}
        out: Tensor = self.head(x[self.target][: data[self.target].batch_size])
        return out[:, 0]


class Theirs:
    """Trains by torch_geometric's classes."""

    def __init__(self, sizes: dict[str, Any], hops: int, device: str) -> None:
        torch.manual_seed(0)
        self.device = device
        self.net = TheirNet(sizes, hops).to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.005)
        self.loss = torch.zeros((), device=device)

    def __call__(self, batch: Any) -> None:
        batch = batch.to(self.device)
        self.optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(self.net(batch), batch[self.net.target].y)
        loss.backward()
        self.optimizer.step()
        self.loss += loss.detach()


def as_pyg(module: TaskDataModule) -> Any:
    """Tables and keys as torch_geometric's `HeteroData`."""
    from torch_geometric.data import HeteroData

    data: Any = module.data
    found, graph = HeteroData(), data.graph
    for name, ids in graph.node_types.items():
        found[name].num_nodes = len(ids)
        if name in data.features:
            found[name].x = data.features[name].float()
        times = graph.lists.node_times
        if times is not None and name in graph.timed_types:
            found[name].time = times[ids.start : ids.stop]
    for key in graph.edge_types:
        one = graph.relation(key)
        sinks = torch.repeat_interleave(torch.arange(len(one.indptr) - 1), one.indptr.diff())
        found[key].edge_index = torch.stack([one.indices.long(), sinks])
    return found


def their_loader(module: TaskDataModule, tables: Any, fanouts: list[int], split: str = "train") -> Iterable[Any]:
    """torch_geometric's NeighborLoader over the items of a split, with their times and labels."""
    from torch_geometric.loader import NeighborLoader

    import loader.pyg  # noqa: F401  # the operators that torch_geometric asks pyg-lib for

    items: Any = module.items(split)
    target = module.sizes["target"]

    def labelled(batch: Any) -> Any:
        batch[target].y = items.labels[batch[target].input_id]
        return batch

    return NeighborLoader(
        tables, fanouts, (target, items.ids), items.times, time_attr="time", disjoint=True, batch_size=SIZE,
        shuffle=split == "train", transform=labelled, temporal_strategy="uniform",
    )  # fmt: skip


def sizes_of(batch: Any) -> tuple[int, int]:
    return batch.nodes.numel(), sum(batch.distinct.counts)


def seconds_of(
    batches: Iterable[Any], step: Callable[[Any], None], device: str, *, filled: bool = False
) -> tuple[float, int]:
    """Seconds and steps. `filled` leaves out the wait for the first mini-batch."""
    sync(device)
    start, steps, source = time.perf_counter(), 0, iter(batches)
    first = [next(source)] if filled else []
    if filled:
        start = time.perf_counter()
    for batch in chain(first, source):
        step(batch)
        steps += 1
    sync(device)
    return time.perf_counter() - start, steps


def epochs(loader: Any) -> Iterator[Iterable[Any]]:
    number = 0
    while True:
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(number)
        number += 1
        yield loader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--cache-dir", type=Path)
    parser.add_argument("--task", default="driver-dnf")
    parser.add_argument("--fanouts", type=ints, nargs="+", default=[(128, 64)])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=5, help="of a case, after two")
    parser.add_argument("--precision", default="high", help="of float32 matrix products, see torch")
    parser.add_argument("--no-pyg", action="store_true", help="leave out the rows of torch_geometric")
    parser.add_argument("--json", type=Path, default=RESULTS / "tasks_gpu.json")
    options = parser.parse_args()
    torch.set_float32_matmul_precision(options.precision)
    device, rows = options.device, []
    on_gpu = device == "cuda"
    dataset = RelationalDataset(
        "rel-f1", options.task, schema="rel-f1", data_dir=options.data_dir, cache_dir=options.cache_dir
    )
    for fanouts in map(list, options.fanouts):
        sampler = TreeSampler(fanouts, times="both", device=device)
        store = partial(DeviceFeatures, device=device, lazy=None) if on_gpu else HostFeatures  # as features=device
        module = TaskDataModule(dataset, sampler, features=store, batch_size=SIZE)
        module.setup()
        ours = iter(epochs(module.train_dataloader()))
        held = [batch for batch in next(ours) if batch.batch_size == SIZE]
        nodes, distinct = (sum(of) / len(held) for of in zip(*map(sizes_of, held), strict=True))
        alone = [seconds_of(next(ours), lambda batch: None, device) for _ in range(3)]
        loading = 1e3 * statistics.median(took / steps for took, steps in alone)
        for graph in (True, False) if on_gpu else (False,):
            for unique in (True, False):
                if on_gpu:
                    gc.collect()  # graphs and their memory hang in circles of objects
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                train = Ours(module, device, unique, graph)
                for _ in range(2 if on_gpu else 0):  # steps are captured
                    seconds_of(next(ours), train, device)
                found: dict[str, list[float]] = {"step_ms": [], "filled_ms": [], "training_ms": []}
                for _ in range(options.epochs):
                    for name, batches in zip(found, (next(ours), next(ours), held), strict=True):
                        took, steps = seconds_of(batches, train, device, filled=name == "filled_ms")
                        found[name].append(1e3 * took / steps)
                graphed = train.model.graphed
                row: dict[str, Any] = {"fanouts": fanouts, "by": "ours", "unique_rows": unique, "cuda_graph": graph}
                row |= {name: statistics.median(values) for name, values in found.items()}
                row |= {"loading_ms": loading, "nodes": nodes, "distinct": distinct}
                row |= {"replayed": graphed.replayed, "captures": graphed.captures}
                row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None
                rows.append(row)
                print(row, flush=True)
                del train, graphed
        if on_gpu:  # what the norm by one launch saves
            one_launch, grouped.can_norm = grouped.can_norm, lambda x: False
            train = Ours(module, device, True, True)
            for _ in range(2):
                seconds_of(next(ours), train, device)
            took, steps = min(seconds_of(held, train, device) for _ in range(options.epochs))
            grouped.can_norm = one_launch
            row = {"fanouts": fanouts, "by": "ours, torch's norms", "unique_rows": True, "cuda_graph": True}
            rows.append({**row, "step_ms": None, "training_ms": 1e3 * took / steps, "loading_ms": loading})
            print(rows[-1], flush=True)
            del train
        if not options.no_pyg:
            theirs = Theirs(module.sizes, len(fanouts), device)
            torch.set_num_threads(8 if on_gpu else 1)
            loader = their_loader(module, as_pyg(module), fanouts)
            # An epoch of three hops takes half a minute.
            once = [seconds_of(loader, theirs, device) for _ in range(3 if len(fanouts) < 3 else 2)]
            theirs_alone = seconds_of(loader, lambda batch: None, device)
            rows.append(
                {
                    "fanouts": fanouts, "by": "torch_geometric", "unique_rows": False, "cuda_graph": False,
                    "step_ms": 1e3 * min(took / steps for took, steps in once[1:]),
                    "loading_ms": 1e3 * theirs_alone[0] / theirs_alone[1],
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
        write_json(
            options.json,
            {
                "gpu": torch.cuda.get_device_name() if on_gpu else None, "task": options.task,
                "precision": options.precision, "rows": rows,
            },
        )  # fmt: skip


if __name__ == "__main__":
    main()
