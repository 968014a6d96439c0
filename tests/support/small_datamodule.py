"""A data module of a small graph, trainers for it, and a model that writes down what it is given."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus
from torch import Tensor

from loader.datamodules.nodes import GraphDataModule
from loader.datasets import NodeDataset
from loader.graph import Graph
from loader.samplers import FusedSampler
from loader.samples import MiniBatch
from loader.stores import HostFeatures

NUM_TRAIN, BATCH_SIZE = 100, 15
NUM_BATCHES = 7  # the last one is smaller


def make_dataset(num_val: int = 40, num_test: int = 60) -> NodeDataset:
    g = torch.Generator().manual_seed(0)
    n = 200
    graph = Graph.from_edges(torch.randint(n, (1500,), generator=g), torch.randint(n, (1500,), generator=g), n)
    splits = {
        "train": torch.arange(NUM_TRAIN),
        "val": torch.arange(100, 100 + num_val),
        "test": torch.arange(140, 140 + num_test),
    }
    return NodeDataset("toy", graph, torch.randn(n, 8, generator=g), torch.arange(n) % 4, splits, num_classes=4)


def make_datamodule(**changes: Any) -> GraphDataModule:
    arguments: dict[str, Any] = {
        "dataset": make_dataset(),
        "sampler": FusedSampler([4, 3], num_threads=2),
        "features": partial(HostFeatures, num_threads=1),
        "batch_size": BATCH_SIZE,
        **changes,
    }
    return GraphDataModule(**arguments)


class Recorder(LightningModule):
    """Trains a little, and writes down what it is given; a line is on the disk before the step goes on."""

    def __init__(self, log: Path, on_step: Callable[[int], None] = lambda step: None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)
        self.log_path, self.on_step = log, on_step

    def note(self, kind: str, batch: MiniBatch) -> None:
        with self.log_path.open("a") as file:
            file.write(f"{kind} {batch.epoch} {batch.index} {batch.digest()}\n")
            file.flush()
            os.fsync(file.fileno())

    def loss(self, batch: MiniBatch) -> Tensor:
        x = batch.gathered().x  # a GPU may have left the rows in their table
        return torch.nn.functional.cross_entropy(self.layer(x[: batch.batch_size]), batch.y)

    def training_step(self, batch: MiniBatch) -> Tensor:
        self.note("train", batch)
        self.on_step(self.global_step)
        return self.loss(batch)

    def validation_step(self, batch: MiniBatch) -> None:
        self.note("val", batch)

    def test_step(self, batch: MiniBatch) -> None:
        self.note("test", batch)

    def predict_step(self, batch: MiniBatch) -> Tensor:
        return batch.output_nodes

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def make_trainer(root: Path, every: int | None = None, **changes: Any) -> Trainer:
    callbacks = []
    if every is not None:
        callbacks.append(ModelCheckpoint(root, "{step}", every_n_train_steps=every, save_top_k=-1))
    arguments: dict[str, Any] = {
        "accelerator": "cpu",
        "max_epochs": 4,
        "logger": False,
        "callbacks": callbacks,
        "enable_checkpointing": every is not None,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": root,
        **changes,
    }
    return Trainer(**arguments)


def make_trainer_of(rank: int, world_size: int, fn: TrainerFn) -> Any:
    """What the data module sees of a trainer that runs `fn` in one of several processes."""
    return SimpleNamespace(
        world_size=world_size,
        global_rank=rank,
        overfit_batches=0,
        state=SimpleNamespace(fn=fn, status=TrainerStatus.RUNNING),
    )


def lines(log: Path, kind: str = "train") -> list[str]:
    return [line for line in log.read_text().splitlines() if line.startswith(kind)]


class Crash(Exception):
    pass


def crash_at(step: int) -> Callable[[int], None]:
    def on_step(now: int) -> None:
        if now == step:
            raise Crash

    return on_step
