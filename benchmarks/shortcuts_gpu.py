"""What each shortcut past torch, Lightning or the loader's plain way brings: an epoch with it and one without it.

    python benchmarks/shortcuts_gpu.py [--rounds 7] [--only notes signature]

GraphSAGE on a graph of the size of ogbn-products, sampled on the GPU, steps by CUDA graphs. "last" has as many seeds as
Flickr (GraphSAINT), so an epoch has 44 mini-batches, and the last one is smaller; the other rows leave such a
mini-batch out. The two epochs of a row take turns, each first in every second round, and differ in the shortcut alone.
`brings` is the median, over rounds, of the time without it over the time with it, less one; the rounds' own range
stands beside it. What brings less than 2 % is not worth its code.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ints, write_json
from lightning.pytorch import LightningModule
from pipeline_gpu import HIDDEN, NUM_CLASSES, Classifier, Training, epochs_of_lightning, products_like, session_of
from rich.console import Console
from rich.table import Table
from torch import Tensor

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import fused
from loader.samples import MiniBatch
from loader.stores import CachedFeatures, DeviceFeatures, FeatureStore, StoreContext
from loader.stores.cached import SLOT_BYTES

WARM_UP = 2  # epochs: caches fill, graphs are captured
FLICKR_SEEDS = 44_625  # of training: 43 mini-batches of 1,024 and one of 593
Epoch = Callable[[], float]  # seconds of one more epoch


class PlainNotes(Classifier):
    """Lightning's notes of the running hook are set as torch sets attributes of modules."""

    def __setattr__(self, name: str, value: Any) -> None:
        LightningModule.__setattr__(self, name, value)


class PlainSignature(Classifier):
    """Lightning works out the signature of the step by itself."""

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        return super().training_step(batch, batch_idx)


class LightningsStep(Classifier):
    """Lightning runs each step: hooks, autograd and optimiser, see `models.training.whole_step`."""

    def optimizer_step(self, *given: Any) -> None:
        LightningModule.optimizer_step(self, *given)


class FullOnly(Classifier):
    """Runs the last, smaller mini-batch of an epoch without a CUDA graph, since the loss might not ignore a label."""

    def _loss(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        return super()._loss(batch)


class Setting:
    """Graph, rows and seeds that all epochs share."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        nodes = arguments.nodes
        self.fanouts, self.batch_size = arguments.fanouts, arguments.batch_size
        self.graph: Graph = products_like(nodes, arguments.edges, "cuda")
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(nodes, arguments.features, device="cuda").cpu()
        self.y = torch.randint(NUM_CLASSES, (nodes,), generator=generator)
        self.seeds = torch.randperm(nodes, generator=generator)[: arguments.seeds]

    @cached_property
    def pinned(self) -> Graph:
        """The graph, with lists that are read over the bus."""
        return self.graph.to("cpu").pin_memory()

    def loader(self, store: FeatureStore, seeds: int | None = None, graph: Graph | None = None) -> NodeLoader:
        """Of whole mini-batches of all seeds, or of all mini-batches of this many."""
        sampler = fused(self.fanouts, device="cuda", batches_per_launch=8)
        return NodeLoader(
            graph or self.graph, store, self.y, self.seeds[:seeds], sampler, self.batch_size, shuffle=True,
            drop_last=seeds is None, prefetch=2, device="cuda",
        )  # fmt: skip

    def training(self) -> Training:
        return Training(self.x.shape[1], len(self.fanouts), graphed=True)

    def classifier(self, kind: type[Classifier]) -> Classifier:
        return kind(
            self.x.shape[1], NUM_CLASSES, num_layers=len(self.fanouts), hidden_channels=HIDDEN, lr=3e-3, cuda_graph=True
        )

    def cached(
        self, share: float = 0.25, lookahead: int = 0, beside: int = 0, graph: Graph | None = None
    ) -> CachedFeatures:
        """With room for this share of the rows, less `beside` bytes. The arrays of `lookahead` have to fit in, too."""
        budget = (share * self.x.nbytes + len(self.x) * SLOT_BYTES - beside) / 2**30
        context = StoreContext(graph or self.graph)
        return CachedFeatures(self.x, "cuda", budget_gib=budget, lookahead=lookahead, context=context)


def of_lightning(
    setting: Setting, kind: type[Classifier], seeds: int | None = None
) -> Callable[[FeatureStore], tuple[Epoch, Epoch]]:
    """Epochs of Lightning's loop that differ in the module; a fit is warmed up by itself."""

    def epochs(store: FeatureStore) -> tuple[Epoch, Epoch]:
        loader = setting.loader(store, seeds)

        def epoch(module: type[Classifier]) -> float:
            return statistics.median(epochs_of_lightning(loader, setting.classifier(module), WARM_UP + 3)[WARM_UP:])

        return partial(epoch, Classifier), partial(epoch, kind)

    return epochs


def of_asking(setting: Setting, _: FeatureStore) -> tuple[Epoch, Epoch]:
    """A cache that asks for the order of one gather's ids in 17, beside one that always does."""
    seldom, always = setting.cached(), setting.cached()
    always._open().order_from = 0
    first, second = (partial(setting.training().epoch, setting.loader(store)) for store in (seldom, always))
    return first, second


def of_lookahead(setting: Setting, share: float, plain: FeatureStore) -> tuple[Epoch, Epoch]:
    """A cache that keeps what the next mini-batches of a group read, beside one of equally many bytes that does not."""
    loader = setting.loader(plain)
    noted = 2 * 8 * next(iter(loader)).input_nodes.numel()  # a byte per row of two groups
    loader.close()
    stores = setting.cached(share, 8, noted), setting.cached(share)
    first, second = (partial(setting.training().epoch, setting.loader(store)) for store in stores)
    return first, second


def of_streams(setting: Setting, _: FeatureStore) -> tuple[Epoch, Epoch]:
    """A cache that is renewed while the bus is read, beside one that does all on the stream of the gathers."""
    several, single = setting.cached(lookahead=8), setting.cached(lookahead=8)
    assert single._renewal is not None
    single._renewal._choice = single._renewal._bus = None
    first, second = (partial(setting.training().epoch, setting.loader(store)) for store in (several, single))
    return first, second


def of_fetching(setting: Setting, share: float, lookahead: int, _: FeatureStore) -> tuple[Epoch, Epoch]:
    """A sampler that copies lists over the bus from few multiprocessors, beside one that does so from all of its."""
    graph = setting.pinned
    few, many = (setting.loader(setting.cached(share, lookahead, graph=graph), graph=graph) for _ in range(2))
    session_of(many)._space.engine.fetch_blocks = 0
    return partial(setting.training().epoch, few), partial(setting.training().epoch, many)


def of_blocks(setting: Setting, _: FeatureStore) -> tuple[Epoch, Epoch]:
    """A cache that is renewed and reads rows with the thread blocks for lists on the bus, beside those without."""
    graph = setting.pinned
    own, usual = setting.cached(0.25, 8, graph=graph), setting.cached(0.25, 8, graph=graph)
    usual._open().blocks = 0
    first, second = (partial(setting.training().epoch, setting.loader(store, graph=graph)) for store in (own, usual))
    return first, second


def rows_of(setting: Setting) -> dict[str, tuple[str, Callable[[FeatureStore], tuple[Epoch, Epoch]]]]:
    """name -> what it is, and its two epochs: with and without."""
    return {
        "asking": ("a cache asks once in 17", partial(of_asking, setting)),
        **{
            f"lookahead-{share}": (
                f"a cache of {share} % knows what comes",
                partial(of_lookahead, setting, share / 100),
            )
            for share in (5, 10, 25, 50, 75)
        },
        "lookahead-streams": ("a cache is renewed while the bus is read", partial(of_streams, setting)),
        **{
            f"bus-{kind}-{share}": (
                f"lists are copied by few blocks, {share} % of the rows {kind}",
                partial(of_fetching, setting, share / 100, ahead),
            )
            for kind, ahead, shares in (("cached", 0, (25, 50)), ("renewed", 8, (10, 25)))
            for share in shares
        },
        "bus-blocks": ("rows are read by fewer blocks, 25 % of them renewed", partial(of_blocks, setting)),
        "notes": ("__setattr__ past torch's", of_lightning(setting, PlainNotes)),
        "signature": ("the step's signature ready made", of_lightning(setting, PlainSignature)),
        "whole": ("a step past autograd and hooks", of_lightning(setting, LightningsStep)),
        "last": ("a graph for the smaller last mini-batch", of_lightning(setting, FullOnly, FLICKR_SEEDS)),
    }


def compare(epochs: tuple[Epoch, Epoch], rounds: int, warm_up: int) -> dict[str, Any]:
    """Seconds of both, and what the first brings."""
    for _ in range(warm_up):
        for epoch in epochs:
            epoch()
    seconds: tuple[list[float], list[float]] = [], []
    for i in range(rounds):
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            seconds[which].append(epochs[which]())
    ratios = [without / with_it - 1 for with_it, without in zip(*seconds, strict=True)]
    return {
        "with_s": statistics.median(seconds[0]),
        "without_s": statistics.median(seconds[1]),
        "brings": statistics.median(ratios),
        "from": min(ratios),
        "to": max(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanouts", type=ints, default=(15, 10, 5))
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--nodes", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=123_718_280)
    parser.add_argument("--seeds", type=int, default=196_615)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=None, help="rows, by name; default: all")
    parser.add_argument("--json", type=Path, default=RESULTS / "shortcuts_gpu.json")
    arguments = parser.parse_args()

    torch.set_float32_matmul_precision("high")
    setting = Setting(arguments)
    rows, found = rows_of(setting), []
    if unknown := set(arguments.only or ()) - rows.keys():
        parser.error(f"--only {min(unknown)}: there is no such row; the rows are {', '.join(rows)}")
    table = Table("shortcut", "with, s", "without, s", "brings", "from", "to", "took")
    store = DeviceFeatures(setting.x, "cuda", lazy=True)
    for name in arguments.only or rows:
        words, make = rows[name]
        begin = time.perf_counter()
        fits = not name.startswith(("asking", "lookahead", "bus"))  # an epoch is one of a fit, which warms up by itself
        row = compare(make(store), 3 if fits else arguments.rounds, 0 if fits else WARM_UP)
        found.append({"shortcut": name, "what": words, **row})
        shares = (f"{100 * row[key]:+.1f} %" for key in ("brings", "from", "to"))
        took = f"{time.perf_counter() - begin:.0f} s"
        table.add_row(words, f"{row['with_s']:.3f}", f"{row['without_s']:.3f}", *shares, took)
    Console(width=120).print(table)
    write_json(
        arguments.json,
        {
            "benchmark": "shortcuts_gpu",
            "gpu": torch.cuda.get_device_name(),
            "graph": repr(setting.graph),
            "fanouts": arguments.fanouts,
            "batch": arguments.batch_size,
            "rounds": arguments.rounds,
            "rows": found,
        },
    )


if __name__ == "__main__":
    main()
