"""Training R-GAT on a graph of the shape of IGB's: an epoch, a step of training alone, and torch_geometric's layers.

    PYTHONPATH=. python benchmarks/rgat_gpu.py
    PYTHONPATH=. python benchmarks/rgat_gpu.py --device cpu --scale 0.0005 --batches 2 --batch-size 32

26 million nodes of 4 types, 8 relations; all types have 1,024 columns in bfloat16, in all 53 GB, and there are 19
classes; all of it is drawn on the GPU and stays there. 60 % of the papers are seeds. Three layers of width 512, 4 heads
of 128, dropout 0.2, Adam, products in bfloat16 under autocast.

"training" repeats mini-batches that lie ready, "loading" reads mini-batches and trains none, "epoch" is both, of a part
of an epoch, with two mini-batches prefetched. Medians of rounds that take turns. The first layer reads features where
they lie. A row is of the kernels of attention that GPUs without products of bfloat16 on tensor cores have.
torch_geometric's row: HeteroConv of GATConv, trimmed by layer, and a linear layer per type for the nodes themselves, on
`to_pyg()` of the same mini-batches, one at a time, since each has 7 GB of features. Its scores of destinations come
from the same product as those of sources, as in MLPerf; ours have vectors of their own.

A mini-batch of (15, 10, 5) x 1,024 has some 3.4 M nodes and 5.3 M edges. Counted, not measured: beside the features,
training takes some 25 GiB, most of it sums of neighbors' rows by head and their gradients. Rows are written as they
come; one that does not fit the memory says so, and the others follow.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import traceback
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ints, write_json
from _hetero_graphs import igb_shaped
from rgcn_gpu import Ours, TheirLayers, Theirs, ms_of, sync
from torch import Tensor, nn
from torch.nn import functional as F

from loader.graph import HeteroGraph
from loader.loaders.nodes import NodeLoader
from loader.ops import attention_gpu
from loader.samplers import fused
from loader.stores import DeviceFeatures, FeatureStore, HostFeatures
from models.training.rgat_classifier import RGATClassifier

CLASSES, COLUMNS, HIDDEN, HEADS, SEEDS = 19, 1024, 512, 4, 0.6
DROPOUT, DTYPE = 0.2, torch.bfloat16
_DRAWN = 1 << 18  # rows of features drawn at once


class TheirNet(TheirLayers):
    """The same model by torch_geometric."""

    def __init__(self, sizes: dict[str, Any], hops: int) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv, HeteroConv

        self.target = sizes["target"]
        self.convs, self.own = nn.ModuleList(), nn.ModuleList()
        for i in range(hops):
            width = HIDDEN if i else COLUMNS
            into = {
                key: GATConv(width, HIDDEN // HEADS, HEADS, add_self_loops=False, bias=False)
                for key in sizes["edge_types"]
            }
            self.convs.append(HeteroConv(into, "sum"))
            self.own.append(nn.ModuleDict({name: nn.Linear(width, HIDDEN) for name in sizes["num_features"]}))
        self.last = nn.Linear(HIDDEN, CLASSES)

    def between(self, rows: Tensor) -> Tensor:
        return F.dropout(F.leaky_relu(rows), DROPOUT, self.training)

    def forward(self, data: Any) -> Tensor:
        return self.last(self.seeds_of(data, data.x_dict))


def drawn(count: int, g: torch.Generator) -> Tensor:
    """`[count, COLUMNS]` normal, without more memory than the result and a part of it."""
    x = torch.empty(count, COLUMNS, dtype=DTYPE, device=g.device)
    for part in x.split(_DRAWN):
        part.normal_(generator=g)
    return x


def ours(sizes: dict[str, Any], hops: int, device: str, graph: bool) -> Ours:
    torch.manual_seed(0)
    model = RGATClassifier(
        **sizes, num_layers=hops, hidden_channels=HIDDEN, heads=HEADS, dropout=DROPOUT, cuda_graph=graph or None
    )
    return Ours(model, device, graph, DTYPE)


class Bench:
    """Graph, loader, mini-batches that lie ready, and the result so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device, self.on_gpu = options, options.device, options.device == "cuda"
        self.hops, self.rows = len(options.fanouts), list[dict[str, Any]]()
        begin = time.perf_counter()
        graph = igb_shaped(options.scale, self.device)
        self.forget()
        g = torch.Generator(self.device).manual_seed(0)
        stores: dict[str, FeatureStore] = {}
        for name, ids in graph.node_types.items():
            x = drawn(len(ids), g)
            stores[name] = DeviceFeatures(x, "cuda", lazy=True) if self.on_gpu else HostFeatures(x)
        self.loader, self.seeds = self._loader(graph, stores)
        self.sizes = {
            "num_features": dict.fromkeys(graph.node_types, COLUMNS), "num_classes": CLASSES,
            "edge_types": list(graph.edge_types), "target": "paper",
        }  # fmt: skip
        self.ready = list(islice(self.loader, options.batches))
        sync(self.device)
        self.result = {
            "gpu": torch.cuda.get_device_name() if self.on_gpu else None, "scale": options.scale,
            "fanouts": list(options.fanouts), "batch_size": options.batch_size, "seeds": self.seeds,
            "num_nodes": sum(map(len, graph.node_types.values())), "num_edges": graph.num_edges,
            "nodes": statistics.mean(batch.nodes.numel() for batch in self.ready),
            "edges": statistics.mean(batch.num_edges for batch in self.ready),
            "features_gib": sum(len(ids) * COLUMNS * 2 for ids in graph.node_types.values()) / 2**30,
            "setup_s": time.perf_counter() - begin,
        }  # fmt: skip
        print(self.result, flush=True)

    def _loader(self, graph: HeteroGraph, stores: dict[str, FeatureStore]) -> tuple[NodeLoader, int]:
        options, papers = self.options, len(graph.node_types["paper"])
        g = torch.Generator().manual_seed(0)
        labels, seeds = torch.randint(CLASSES, (papers,), generator=g), torch.randperm(papers, generator=g)
        seeds = seeds[: int(SEEDS * papers)]
        return NodeLoader(
            graph, stores, labels, ("paper", seeds), fused(options.fanouts, expand="new", device=self.device),
            options.batch_size, shuffle=True, drop_last=True, prefetch=2, device=self.device,
        ), len(seeds)  # fmt: skip

    def forget(self) -> None:
        """Gives back the memory of what is no longer in use, and begins to look for the peak."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> float | None:
        return torch.cuda.max_memory_allocated() / 2**30 if self.on_gpu else None

    def row(self, name: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Adds what `measure` returns, or why it failed, say for lack of memory, and writes all rows so far."""
        self.forget()
        try:
            found = measure()
        except RuntimeError as error:  # torch's OutOfMemoryError is one; in a capture it can be another one
            traceback.print_exc()
            found = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        self.rows.append({"by": name, **found, "peak_gib": self.peak()})
        print(self.rows[-1], flush=True)
        write_json(self.options.json, {**self.result, "rows": self.rows})

    def ours(self, graph: bool, tensor_cores: bool = True) -> dict[str, Any]:
        attention_gpu.TENSOR_CORES = tensor_cores
        train, options = ours(self.sizes, self.hops, self.device, graph), self.options
        warm = 24 if graph else len(self.ready)  # the first sixteen show how large mini-batches get
        ms_of(islice(self.loader, warm), train, self.device)
        training, epoch = [], []
        for _ in range(options.rounds):
            training.append(ms_of(islice(cycle(self.ready), max(options.steps // 4, 1)), train, self.device)[0])
            epoch.append(ms_of(islice(self.loader, options.steps), train, self.device)[0])
        alone, of_epoch = statistics.median(training), statistics.median(epoch)
        return {
            "training_ms": alone, "epoch_ms": of_epoch, "seeds_per_s": 1e3 * options.batch_size / of_epoch,
            "over_training": of_epoch / alone, "replayed": train.model.graphed.replayed,
            "captures": train.model.graphed.captures,
        }  # fmt: skip

    def loading(self) -> dict[str, Any]:
        steps, rounds = self.options.steps, range(self.options.rounds)
        every = [ms_of(islice(self.loader, steps), lambda batch: None, self.device)[0] for _ in rounds]
        return {"loading_ms": statistics.median(every)}

    def theirs(self) -> dict[str, Any]:
        training, converting = list[float](), list[float]()
        train = Theirs(lambda: TheirNet(self.sizes, self.hops), self.device, DTYPE)
        for number, batch in enumerate(islice(cycle(self.ready), 2 + 2 * self.options.rounds)):
            sync(self.device)
            begin = time.perf_counter()
            data = batch.map(torch.clone).to_pyg()  # so that the mini-batch itself keeps no features
            sync(self.device)
            to_pyg = 1e3 * (time.perf_counter() - begin)
            ms, _ = ms_of([data], train, self.device)
            del data
            if number >= 2:
                training.append(ms)
                converting.append(to_pyg)
        alone = statistics.median(training)
        first = next((row for row in self.rows if "training_ms" in row), None)
        found = {"training_ms": alone, "to_pyg_ms": statistics.median(converting)}
        found["seeds_per_s"] = 1e3 * self.options.batch_size / alone
        return found if first is None else {**found, "slower_by": alone / first["training_ms"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanouts", type=ints, default=(15, 10, 5))
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", type=int, default=8, help="that lie ready")
    parser.add_argument("--steps", type=int, default=100, help="mini-batches of an epoch in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-pyg", action="store_true", help="leave out the row of torch_geometric")
    parser.add_argument("--json", type=Path, default=RESULTS / "rgat_gpu.json")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    bench = Bench(options)
    if bench.on_gpu:
        bench.row("ours, CUDA graph", lambda: bench.ours(True))
        bench.row("ours, CUDA graph, attention without tensor cores", lambda: bench.ours(True, False))
    bench.row("ours", lambda: bench.ours(False))
    bench.row("loading alone", bench.loading)
    if not options.no_pyg:
        bench.row("torch_geometric", bench.theirs)


if __name__ == "__main__":
    main()
