"""Chains of resumes in this process: a training that is cut at random places, and goes on from what it saved.

`python tests/support/resume_chains.py FIRST COUNT` runs the chains of these numbers, and prints those that fail.
"""

from __future__ import annotations

import random
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch import Tensor, nn

from loader.datamodules.links import LinkDataModule
from loader.datamodules.nodes import GraphDataModule
from loader.datamodules.walks import WalkDataModule
from loader.datasets import NodeDataset
from loader.graph import Graph
from loader.items import Walkers
from loader.loaders import LinkLoader, Loader, NodeLoader
from loader.samplers import FusedSampler, LinkSampler, Negatives, WalkSampler
from models.training.callbacks import RandomState, StepCheckpoint

NODES = 60
PAIRS = torch.stack([torch.arange(24), torch.arange(24) + 30], 1)


def make_dataset() -> NodeDataset:
    """A small graph without directions, whose links a `LinkDataModule` can hold out."""
    g = torch.Generator().manual_seed(3)
    src, dst = torch.randint(NODES, (2, 240), generator=g)
    graph = Graph.from_edges(torch.cat([src, dst]), torch.cat([dst, src]), NODES)
    splits = {"train": torch.arange(24), "val": torch.arange(24, 36), "test": torch.arange(36, 60)}
    return NodeDataset("toy", graph, torch.randn(NODES, 4, generator=g), torch.arange(NODES) % 3, splits, num_classes=3)


DATA = make_dataset()


@dataclass
class Chain:
    """What a number draws. `cuts` are of the runs that do not come to their end."""

    number: int
    source: str = "direct"
    task: str = "node"
    mode: str = "max_size_cycle"
    batches: int = 4
    second: int = 2
    prefetch: int = 0
    epochs: int = 3
    accumulate: int = 1
    scheduler: str = "none"
    options: dict[str, Any] = field(default_factory=dict)
    saving: list[str] = field(default_factory=list)
    cuts: list[tuple[str, int]] = field(default_factory=list)

    def __str__(self) -> str:
        return ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self))


SAVING = ("step", "every", "last", "epoch end", "validation", "exception", "link exception")
CUTS = ("step", "batch end", "validation", "validation end", "epoch end", "max_steps", "signal")


def draw(number: int) -> Chain:
    """The chain of that number."""
    r = random.Random(number)
    source = r.choice(("direct", "own", "module", "combined"))
    batches = r.choice((1, 2, 3, 4, 5, 7))
    accumulate = r.choice((1, 1, 1, 2, 3))
    options: dict[str, Any] = {}
    if r.random() < 0.25 and batches > 1:
        options["limit_train_batches"] = r.randint(1, batches)
    if r.random() < 0.3 and batches > 1:
        options["val_check_interval"] = r.choice((0.5, r.randint(1, options.get("limit_train_batches", batches))))
    if r.random() < 0.2:
        options["limit_val_batches"] = 0
    epochs = r.randint(1, 4)
    mode, second = r.choice(("max_size_cycle", "min_size", "max_size")), r.randint(1, 5)
    if source == "combined" and mode == "min_size" and second < batches:
        options.pop("val_check_interval", None)  # Lightning refuses one beyond the shorter loader
    steps = epochs * -(-options.get("limit_train_batches", batches) // accumulate)
    if r.random() < 0.2:
        options["max_steps"] = r.randint(1, steps)
    saving = r.sample(SAVING, r.randint(1, 3))
    cuts = [(r.choice(CUTS), r.randint(1, max(1, epochs * batches))) for _ in range(r.randint(1, 4))]
    return Chain(
        number, source, r.choice(("node", "link", "walk")), mode, batches, second, r.choice((0, 1, 2)), epochs,
        accumulate, r.choice(("none", "none", "one cycle", "per epoch")), options, saving,
        sorted(cuts, key=lambda cut: cut[1]),
    )  # fmt: skip


class Cut(Exception):
    """Ends a run where its chain says."""


class Seen(LightningModule):
    """A model with dropout, that knows of which mini-batches its weights are."""

    def __init__(self, chain: Chain, cut: tuple[str, int] | None) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
        self.table = nn.Embedding(NODES, 4)
        self.chain, self.cut, self.taken = chain, cut, 0
        self.seen: list[str] = []
        self.given: list[str] = []  # with gradients that are not in the weights yet

    def rows(self, nodes: Tensor) -> Tensor:
        out: Tensor = self.net(self.table(nodes.clamp(min=0).long()))
        return out

    def training_step(self, batch: Any, index: int) -> Tensor:
        parts = [part for part in (batch if isinstance(batch, (list, tuple)) else [batch]) if part is not None]
        self.given.append(" + ".join(f"{part.epoch} {part.index} {part.digest()}" for part in parts))
        loss = torch.stack([self.rows(part.nodes).square().mean() for part in parts]).mean()
        self.reach("step")
        return loss

    def optimizer_step(self, *args: Any, **options: Any) -> None:
        super().optimizer_step(*args, **options)
        self.seen += self.given
        self.given = []

    def on_train_batch_end(self, *_: Any) -> None:
        self.taken += 1
        self.reach("batch end")
        if self.cut is not None and self.cut[0] == "signal" and self.taken == self.cut[1]:
            self.trainer._signal_connector.received_sigterm = True

    def validation_step(self, batch: Any, index: int) -> None:
        self.reach("validation")

    def on_validation_end(self) -> None:
        self.reach("validation end")

    def on_train_epoch_end(self) -> None:
        self.log("loss", float(self.trainer.current_epoch))
        self.reach("epoch end")

    def reach(self, place: str) -> None:
        due = self.cut is not None and self.taken >= self.cut[1] - (place == "step")
        if due and self.cut is not None and self.cut[0] == place:
            raise Cut

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["seen"] = list(self.seen)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.seen = list(checkpoint["seen"])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        if self.chain.scheduler == "none":
            return optimizer
        if self.chain.scheduler == "per epoch":
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]
        assert self.trainer.estimated_stepping_batches > 0  # Lightning makes the loader now
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=1000)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class OnException(Callback):
    """Saves what there is when a run fails."""

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir) / f"exception-{trainer.global_step}.ckpt")


class OwnModule(LightningDataModule):
    """Somebody's own data module."""

    def __init__(self, train: Any, val: Any) -> None:
        super().__init__()
        self.made = train, val

    def train_dataloader(self) -> Any:
        return self.made[0]

    def val_dataloader(self) -> Any:
        return self.made[1]


def make_loader(task: str, batches: int, seed: int, prefetch: int, rank: int = 0, ranks: int = 1) -> Loader:
    options: dict[str, Any] = {"shuffle": True, "seed": seed, "prefetch": prefetch, "rank": rank, "world_size": ranks}
    size = -(-24 // batches)
    around = FusedSampler([3, 2], num_threads=1)
    if task == "node":
        return NodeLoader(DATA.graph, DATA.features, DATA.labels, DATA.splits["train"], around, size, **options)
    if task == "link":
        sampler = LinkSampler(around, Negatives("binary", 1))
        return LinkLoader(DATA.graph, DATA.features, PAIRS, sampler, size, **options)
    return Loader(DATA.graph, Walkers(torch.arange(24)), WalkSampler(4, num_threads=1), size, **options)


def fit_arguments(chain: Chain, rank: int = 0, ranks: int = 1) -> dict[str, Any]:
    """The data of `Trainer.fit` in one of several processes."""
    if chain.source == "module":
        if chain.task == "link":
            module: Any = LinkDataModule(
                DATA, FusedSampler([3, 2], num_threads=1), batch_size=400 // chain.batches, prefetch=chain.prefetch
            )
        elif chain.task == "walk":
            walks = WalkSampler(4, num_threads=1)
            module = WalkDataModule(DATA, walks, batch_size=-(-NODES // chain.batches), prefetch=chain.prefetch)
        else:
            sampler = FusedSampler([3, 2], num_threads=1)
            module = GraphDataModule(DATA, sampler, batch_size=-(-24 // chain.batches), prefetch=chain.prefetch)
        return {"datamodule": module}
    train: Any = make_loader(chain.task, chain.batches, 0, chain.prefetch, rank, ranks)
    if chain.source == "combined":
        train = CombinedLoader([train, make_loader("node", chain.second, 7, chain.prefetch)], chain.mode)
    val = make_loader("node", 2, 1, 0, rank, ranks)
    if chain.source == "own" or (chain.source == "combined" and chain.number % 2):
        return {"datamodule": OwnModule(train, val)}
    return {"train_dataloaders": train, "val_dataloaders": val}


def make_callbacks(chain: Chain, folder: Path) -> list[Callback]:
    callbacks: list[Callback] = [RandomState()]
    at = {"dirpath": folder, "save_top_k": -1}
    for kind in chain.saving:
        if kind == "step":
            callbacks.append(StepCheckpoint(folder / "step.ckpt", every_n_train_steps=3))
        elif kind == "every":
            callbacks.append(
                ModelCheckpoint(**at, filename="every-{step}", every_n_train_steps=(1, 3)[chain.number % 2])
            )
        elif kind == "last":
            callbacks.append(ModelCheckpoint(folder, "newest-{step}", save_last=True, every_n_train_steps=2))
        elif kind == "epoch end":
            callbacks.append(ModelCheckpoint(**at, filename="epoch-{step}", save_on_train_epoch_end=True))
        elif kind == "validation":
            callbacks.append(ModelCheckpoint(**at, filename="val-{step}", save_on_train_epoch_end=False, mode="max"))
        elif kind == "exception":
            callbacks.append(OnException())
        else:
            callbacks.append(
                ModelCheckpoint(
                    **at, filename="failed-{step}", every_n_train_steps=10**6 + chain.number, save_on_exception=True
                )
            )
    return callbacks


def run(chain: Chain, folder: Path, cut: tuple[str, int] | None, resumed: Path | None) -> Seen:
    """One run of a chain, to its end or to its cut."""
    torch.manual_seed(0)
    model = Seen(chain, cut)
    torch.manual_seed(random.Random(str(resumed)).randrange(2**31) if resumed else 1)
    options = dict(chain.options)
    if cut is not None and cut[0] == "max_steps":
        already = 0 if resumed is None else int(torch.load(resumed, weights_only=True)["global_step"])
        most = options.get("max_steps", 10**9)
        options["max_steps"] = min(already + cut[1], most)
    callbacks = make_callbacks(chain, folder) if cut is not None else [RandomState()]
    trainer = Trainer(
        accelerator="cpu", logger=False, callbacks=callbacks,
        enable_checkpointing=any(isinstance(one, Checkpoint) for one in callbacks),
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, max_epochs=chain.epochs,
        num_sanity_val_steps=0, accumulate_grad_batches=chain.accumulate, **options,
    )  # fmt: skip
    data = fit_arguments(chain)
    try:
        trainer.fit(model, **data, ckpt_path=resumed)
    except (Cut, SystemExit):
        pass
    finally:
        for loader in loaders(data):
            loader.close()
    return model


def goes_on(path: Path, chain: Chain, whole: Seen) -> bool:
    """Whether Lightning trains on from a checkpoint. It does not if `max_steps` ended the last epoch before."""
    saved = torch.load(path, weights_only=True)
    ended = saved["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"] >= chain.epochs
    return not ended or len(saved["seen"]) == len(whole.seen)


def loaders(data: dict[str, Any]) -> Iterator[Any]:
    module = data.get("datamodule")
    if module is not None and not isinstance(module, OwnModule):
        yield module
        return
    train = data["train_dataloaders"] if module is None else module.made[0]
    yield from train.flattened if isinstance(train, CombinedLoader) else [train]


def check(number: int) -> None:
    """Raises AssertionError if the chain of that number does not end as the training that is never cut."""
    check_chain(draw(number))


def check_chain(chain: Chain) -> None:
    """See `check`."""
    r = random.Random(-chain.number - 1)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = run(chain, Path(name) / "whole", None, None)
        folder = Path(name) / "chain"
        resumed: Path | None = None
        told = []
        for cut in chain.cuts:
            run(chain, folder, cut, resumed)
            saved = [path for path in sorted(folder.glob("*.ckpt")) if goes_on(path, chain, whole)]
            if saved:
                resumed = r.choice(saved)
                told.append(f"{cut} -> {resumed.name}")
        last = run(chain, folder, None, resumed)
    first = {}
    for line in whole.seen:
        first.setdefault(line, len(first))
    found = [first.get(line, line) for line in last.seen]
    assert last.seen == whole.seen, f"{chain}\n{told}\nmini-batches {found} of {len(whole.seen)}"
    state, expected = last.state_dict(), whole.state_dict()
    assert all(torch.equal(state[name], expected[name]) for name in expected), f"{chain}\n{told}\nother weights"
    expect_all(chain, whole.seen)


def expect_all(chain: Chain, seen: list[str]) -> None:
    """Each mini-batch of each epoch once, in its order, as the loader's numbers say."""
    firsts = [tuple(map(int, line.split()[:2])) for line in seen]
    epochs = sorted({epoch for epoch, _ in firsts})
    assert epochs == list(range(len(epochs))), chain
    per_epoch = [[index for epoch, index in firsts if epoch == e] for e in epochs]
    for indices in per_epoch[:-1] if "max_steps" in chain.options else per_epoch:
        if chain.source != "combined" or chain.batches >= chain.second:
            assert indices == list(range(len(indices))), (chain, indices)
            assert len(indices) == len(per_epoch[0]), (chain, per_epoch)


def holds(number: int) -> bool:
    """Whether a chain ends as it should; if not, it is printed."""
    try:
        check(number)
    except AssertionError as error:
        print(f"{number}: {error}\n", flush=True)
    except Exception:
        print(f"{number}: {draw(number)}\n{traceback.format_exc(limit=-6)}\n", flush=True)
    else:
        return True
    return False


def main(first: int, count: int) -> int:
    import logging

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    failed = sum(not holds(number) for number in range(first, first + count))
    print(f"{count - failed} of {count} chains end as the training that is never cut")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
