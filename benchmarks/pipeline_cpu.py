"""Does the loader keep two cores busy? The epoch time with `prefetch` beside that with `prefetch=0`, on the CPU.

    python benchmarks/pipeline_cpu.py                                    # a random graph of 4 M edges
    python benchmarks/pipeline_cpu.py --csc indptr.npy indices.npy       # a graph of your own

One thread samples, one gathers, one trains (torch has one thread, so the stages do not take each other's cores), which
is the case where overlap is all that can help. The model is GraphSAGE; its width is chosen by measuring, so that
training a mini-batch takes about as long as sampling and gathering it. Then epochs with and without prefetch take
turns. With both stages equally long and two cores, a perfect pipeline needs half the time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import RESULTS, add_graph_options, free_cores, load_graph, write_json
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import FusedSampler
from loader.samples import MiniBatch
from loader.stores import HostFeatures
from models.sage import GraphSAGE

NUM_CLASSES = 47
WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def random_graph(num_nodes: int = 400_000, num_edges: int = 4_000_000) -> Graph:
    rng = np.random.default_rng(0)
    degrees = rng.multinomial(num_edges, rng.dirichlet(np.full(num_nodes, 2.0)))
    indptr = np.concatenate(([0], np.cumsum(degrees)))
    return Graph(torch.from_numpy(indptr), torch.from_numpy(rng.integers(0, num_nodes, num_edges, dtype=np.int32)))


class Trainer:
    """Forward, backward, Adam."""

    def __init__(self, num_features: int, width: int, num_layers: int) -> None:
        torch.manual_seed(0)
        self.model = GraphSAGE(num_features, width, NUM_CLASSES, num_layers)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def step(self, batch: MiniBatch) -> None:
        assert batch.x is not None
        assert batch.y is not None
        loss = F.cross_entropy(self.model(batch.blocks, batch.x), batch.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def choose_width(loader: NodeLoader, make: Callable[[int], Trainer]) -> int:
    """The width with which a training step takes as long as sampling and gathering its mini-batch, as near as it gets.

    Both are medians over mini-batches of the same pass, so that whatever else the machine does slows both.
    """
    gap = {}
    for width in WIDTHS:
        trainer = make(width)
        load, train = [], []
        begin = time.perf_counter()
        for batch in loader:
            loaded = time.perf_counter()
            trainer.step(batch)
            trained = time.perf_counter()
            load.append(loaded - begin)
            train.append(trained - loaded)
            begin = trained
        ratio = statistics.median(train) / statistics.median(load)
        gap[width] = max(ratio, 1 / ratio)
        if ratio > 2:
            break
    return min(gap, key=lambda width: gap[width])


def epoch(loader: NodeLoader, trainer: Trainer) -> dict[str, float]:
    """Seconds of one epoch: in all, and in the consumer's two parts."""
    train, begin = 0.0, time.perf_counter()
    for batch in loader:
        started = time.perf_counter()
        trainer.step(batch)
        train += time.perf_counter() - started
    total = time.perf_counter() - begin
    return {"epoch": total, "train": train, "load_or_wait": total - train}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_graph_options(parser)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--fanouts", type=int, nargs="+", default=[10, 10, 10])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=25, help="mini-batches of an epoch")
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=7, help="of each kind")
    parser.add_argument("--json", type=Path, default=RESULTS / "pipeline_cpu.json")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    graph = load_graph("csc", arguments) if arguments.csc else random_graph()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(graph.num_nodes, arguments.features, generator=generator)
    y = torch.randint(NUM_CLASSES, (graph.num_nodes,), generator=generator)
    seeds = torch.randperm(graph.num_nodes, generator=generator)[: arguments.batches * arguments.batch_size]

    def make_loader(prefetch: int) -> NodeLoader:
        sampler = FusedSampler(arguments.fanouts, num_threads=1)
        features = HostFeatures(x, num_threads=1)
        return NodeLoader(graph, features, y, seeds, sampler, arguments.batch_size, shuffle=True, prefetch=prefetch)

    def make_trainer(width: int) -> Trainer:
        return Trainer(arguments.features, width, len(arguments.fanouts))

    loaders = {"prefetch=0": make_loader(0), f"prefetch={arguments.prefetch}": make_loader(arguments.prefetch)}
    plain, ahead = loaders
    for _ in loaders[plain]:  # warm up
        pass
    width = choose_width(loaders[plain], make_trainer)
    cores = [free_cores()]

    trainer = make_trainer(width)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in loaders}
    for _ in range(1 + arguments.epochs):
        for name, loader in loaders.items():
            runs[name].append(epoch(loader, trainer))
    cores.append(free_cores())
    medians: dict[str, dict[str, Any]] = {
        name: {part: statistics.median(run[part] for run in rows[1:]) for part in rows[0]}
        for name, rows in runs.items()
    }
    ratio = statistics.median(b["epoch"] / a["epoch"] for a, b in zip(runs[plain][1:], runs[ahead][1:], strict=True))

    table = Table("", "epoch s", "training s", "sampling and gathering, or waiting s")
    table.title = f"{graph.num_edges:,} edges, {arguments.features} features, hidden width {width}"
    for name, row in medians.items():
        table.add_row(name, f"{row['epoch']:.3f}", f"{row['train']:.3f}", f"{row['load_or_wait']:.3f}")
    console = Console(width=120)
    console.print(table)
    balance = medians[plain]["load_or_wait"] / medians[plain]["train"]
    console.print(f"epoch time with prefetch: {ratio:.3f} of that without (stages' lengths: {balance:.2f} to 1)")
    console.print(f"two threads got {cores[0]:.2f} (before) and {cores[1]:.2f} (after) times the work of one done")
    if min(cores) < 1.7:
        console.print("[bold]Something else kept the cores busy: the ratio says little.[/bold] Run it again.")
    write_json(
        arguments.json,
        {
            "num_edges": graph.num_edges,
            "num_features": arguments.features,
            "hidden_width": width,
            "batch_size": arguments.batch_size,
            "fanouts": arguments.fanouts,
            "medians": medians,
            "epoch_ratio": ratio,
            "free_cores": cores,
            "load_to_train_ratio": balance,
        },
    )
    for loader in loaders.values():
        loader.close()


if __name__ == "__main__":
    main()
