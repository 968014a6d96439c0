"""Training R-GCN on a graph of the shape of ogbn-mag: an epoch, a step of training alone, and torch_geometric's layers.

    PYTHONPATH=. python benchmarks/rgcn_gpu.py
    PYTHONPATH=. python benchmarks/rgcn_gpu.py --device cpu --scale 0.002 --batches 4 --batch-size 64

629,571 papers are seeds (a part, with `--scale`), papers have 128 columns and the other types 64, there are 349
classes; all of it lies in GPU memory. Two layers of width 64, dropout 0.5, Adam. "training" repeats mini-batches that
lie ready, "loading" reads mini-batches and trains none, "epoch" is both, with two mini-batches prefetched. The first
layer reads features where they lie, but for one row, whose features are gathered first.
torch_geometric's rows: HeteroConv of SAGEConv, trimmed by layer, and a linear layer per type for the nodes themselves,
so the same model, on `to_pyg()` of the same mini-batches, which also lie ready. Medians of rounds that take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ints, write_json
from _hetero_graphs import mag_shaped
from torch import Tensor, nn
from torch.nn import functional as F

from loader.loaders.nodes import NodeLoader
from loader.samplers import fused
from loader.stores import DeviceFeatures, FeatureStore, HostFeatures
from models.training.hetero_cuda_graphs import GraphedHeteroClassifier
from models.training.rgcn_classifier import RGCNClassifier
from models.training.whole_step import ReplayedAdam

CLASSES, SEEDS, HIDDEN = 349, 629_571, 64
WIDTHS = {"paper": 128}  # and 64 of other types


def sync(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


class Ours:
    """Trains a model; `graph` says whether its steps are CUDA graphs, `dtype` is that of autocast."""

    def __init__(
        self, model: GraphedHeteroClassifier, device: str, graph: bool, dtype: torch.dtype | None = None
    ) -> None:
        self.model = model.to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.003, fused=device == "cuda")
        self.adam, self.graph, self.is_steady = ReplayedAdam(self.optimizer), graph, False
        self._device, self._dtype = device, dtype

    def __call__(self, batch: Any) -> None:
        graphed = self.model.graphed
        if self.is_steady and graphed.repeats(batch):  # as a Trainer's steps are, see `WholeStep`
            graphed.repeat(batch)
            self.adam.replay()
            return
        self.is_steady = False
        with torch.autocast(self._device, self._dtype, self._dtype is not None):
            if self.graph and graphed.with_gradients(batch) is not None:
                self.adam.step()
                self.is_steady = self.adam.replays and self._dtype is None
                return
            self.optimizer.zero_grad()
            loss, _ = (graphed if self.graph else self.model._loss)(batch)
        with torch.autograd.set_multithreading_enabled(False):
            loss.backward()
        self.optimizer.step()


def ours(sizes: dict[str, Any], hops: int, device: str, graph: bool) -> Ours:
    torch.manual_seed(0)
    model = RGCNClassifier(**sizes, num_layers=hops, hidden_channels=HIDDEN, cuda_graph=graph or None)
    return Ours(model, device, graph)


class TheirLayers(nn.Module):
    """Layers of torch_geometric: `HeteroConv`, and a linear layer per type for the nodes themselves.

    A subclass makes `target`, `convs` and `own`.
    """

    target: str
    convs: nn.ModuleList
    own: Any

    def between(self, rows: Tensor) -> Tensor:
        """What follows each layer but the last."""
        raise NotImplementedError

    def layer(self, i: int, x: dict[str, Tensor], edges: dict[Any, Tensor]) -> dict[str, Tensor]:
        """The rows after layer `i`, and what follows it."""
        own, sums = self.own[i], self.convs[i](x, edges)
        x = {name: own[name](rows) + sums[name] if name in sums else own[name](rows) for name, rows in x.items()}
        return x if i == len(self.convs) - 1 else {name: self.between(rows) for name, rows in x.items()}

    def seeds_of(self, data: Any, x: dict[str, Tensor]) -> Tensor:
        """The seeds' rows after all layers, from the rows `x` of all nodes."""
        from torch_geometric.utils import trim_to_layer

        edges = data.edge_index_dict
        for i in range(len(self.convs)):
            if i:
                x, edges, _ = trim_to_layer(i, data.num_sampled_nodes_dict, data.num_sampled_edges_dict, x, edges)
            x = self.layer(i, x, edges)
        return x[self.target][: data[self.target].batch_size]


class TheirNet(TheirLayers):
    """The same model by torch_geometric."""

    def __init__(self, sizes: dict[str, Any], hops: int) -> None:
        super().__init__()
        from torch_geometric.nn import HeteroConv, SAGEConv

        self.target = sizes["target"]
        self.inputs = nn.ModuleDict({name: nn.Linear(width, HIDDEN) for name, width in sizes["num_features"].items()})
        self.convs, self.own = nn.ModuleList(), nn.ModuleList()
        for i in range(hops):
            out = CLASSES if i == hops - 1 else HIDDEN
            into = {
                key: SAGEConv((HIDDEN, HIDDEN), out, aggr="mean", root_weight=False, bias=False)
                for key in sizes["edge_types"]
            }
            self.convs.append(HeteroConv(into, "sum"))
            self.own.append(nn.ModuleDict({name: nn.Linear(HIDDEN, out) for name in sizes["num_features"]}))

    def between(self, rows: Tensor) -> Tensor:
        return F.dropout(rows.relu(), 0.5, self.training)

    def projected(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: layer(x[name]) for name, layer in self.inputs.items()}

    def forward(self, data: Any) -> Tensor:
        return self.seeds_of(data, self.projected(data.x_dict))


class Theirs:
    """Trains a network of torch_geometric's classes, with weights by seed 0; `dtype` is that of autocast."""

    def __init__(self, make: Callable[[], TheirLayers], device: str, dtype: torch.dtype | None = None) -> None:
        torch.manual_seed(0)
        self.net = make().to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.003, fused=device == "cuda")
        self._device, self._dtype = device, dtype

    def __call__(self, data: Any) -> None:
        self.optimizer.zero_grad()
        with torch.autocast(self._device, self._dtype, self._dtype is not None):
            loss = F.cross_entropy(self.net(data), data[self.net.target].y)
        loss.backward()
        self.optimizer.step()


def ms_of(batches: Iterable[Any], step: Callable[[Any], Any], device: str) -> tuple[float, int]:
    """Milliseconds of a step, and how many there were."""
    sync(device)
    begin, steps = time.perf_counter(), 0
    for batch in batches:
        step(batch)
        steps += 1
    sync(device)
    return 1e3 * (time.perf_counter() - begin) / steps, steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanouts", type=ints, default=(25, 20))
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", type=int, default=40, help="that lie ready")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-pyg", action="store_true", help="leave out the row of torch_geometric")
    parser.add_argument("--json", type=Path, default=RESULTS / "rgcn_gpu.json")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    device, on_gpu, hops = options.device, options.device == "cuda", len(options.fanouts)
    graph = mag_shaped(options.scale, device)
    g = torch.Generator(device).manual_seed(0)
    widths = {name: WIDTHS.get(name, 64) for name in graph.node_types}
    tables = {
        name: torch.randn(len(ids), widths[name], generator=g, device=device) for name, ids in graph.node_types.items()
    }
    papers = len(graph.node_types["paper"])
    labels = torch.randint(CLASSES, (papers,), generator=torch.Generator().manual_seed(0))
    seeds = torch.randperm(papers, generator=torch.Generator().manual_seed(0))[: int(SEEDS * options.scale)]
    sizes = {"num_features": widths, "num_classes": CLASSES, "edge_types": list(graph.edge_types), "target": "paper"}

    def loader_of(lazy: bool) -> NodeLoader:
        stores: dict[str, FeatureStore] = {
            name: DeviceFeatures(x, "cuda", lazy=lazy) if on_gpu else HostFeatures(x) for name, x in tables.items()
        }
        return NodeLoader(
            graph, stores, labels, ("paper", seeds), fused(options.fanouts, expand="new", device=device),
            options.batch_size, shuffle=True, drop_last=True, prefetch=2, device=device,
        )  # fmt: skip

    loaders = {lazy: loader_of(lazy) for lazy in ((True, False) if on_gpu else (False,))}
    ready = {lazy: list(islice(iter(loader), options.batches)) for lazy, loader in loaders.items()}
    held = ready[False]
    nodes = statistics.mean(batch.nodes.numel() for batch in held)
    edges = statistics.mean(batch.num_edges for batch in held)
    # By name: how it trains, and whether its first layer reads features where they lie.
    trains = {"ours": (ours(sizes, hops, device, False), on_gpu)}
    if on_gpu:
        graphed = {"ours, CUDA graph": True, "ours, CUDA graph, features gathered first": False}
        trains = {name: (ours(sizes, hops, device, True), lazy) for name, lazy in graphed.items()} | trains
    training: dict[str, list[float]] = {name: [] for name in trains}
    epoch_ms: dict[str, list[float]] = {name: [] for name in trains}
    loading = []
    for train, lazy in trains.values():  # to warm up, and to see the sizes
        ms_of(islice(iter(loaders[lazy]), 100) if on_gpu else held, train, device)
        ms_of(ready[lazy], train, device)
    steps = len(loaders[False])
    for number in range(options.rounds):
        for name, (train, lazy) in trains.items():
            training[name].append(ms_of([*ready[lazy], *ready[lazy]], train, device)[0])
            if train.graph or number == 0:
                epoch_ms[name].append(ms_of(loaders[lazy], train, device)[0])
        loading.append(ms_of(loaders[on_gpu], lambda batch: None, device)[0])
    rows: list[dict[str, Any]] = []
    for name, (train, _) in trains.items():
        alone, of_epoch = statistics.median(training[name]), statistics.median(epoch_ms[name])
        rows.append(
            {
                "by": name, "training_ms": alone, "epoch_s": of_epoch * steps / 1e3, "over_training": of_epoch / alone,
                "replayed": train.model.graphed.replayed, "captures": train.model.graphed.captures,
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    if not options.no_pyg:
        begin = time.perf_counter()
        theirs, data = Theirs(lambda: TheirNet(sizes, hops), device), [batch.to_pyg() for batch in held]
        converting = 1e3 * (time.perf_counter() - begin) / len(data)
        ms_of(data, theirs, device)
        alone = statistics.median(ms_of(data, theirs, device)[0] for _ in range(options.rounds))
        rows.append({"by": "torch_geometric", "training_ms": alone, "to_pyg_ms": converting})
        rows[-1]["slower_by"] = alone / rows[0]["training_ms"]
        print(rows[-1], flush=True)
    write_json(
        options.json,
        {
            "gpu": torch.cuda.get_device_name() if on_gpu else None, "scale": options.scale,
            "fanouts": list(options.fanouts), "batch_size": options.batch_size, "seeds": len(seeds), "nodes": nodes,
            "edges": edges, "steps": steps, "loading_ms": statistics.median(loading),
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None, "rows": rows,
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
