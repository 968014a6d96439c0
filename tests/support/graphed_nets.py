"""A small model with and without CUDA graphs, and mini-batches of very different sizes for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from loader.samplers import HopwiseSampler
from loader.samples import LazyRows, MiniBatch
from models.sage import GraphSAGE
from models.training import whole_step
from models.training.cuda_graphs import GraphedLoss
from models.training.module import NodeClassifier
from models.training.task_predictor import TaskPredictor
from models.training.whole_step import ReplayedAdam

# All layers as wide as the output: then the mean comes first whatever the sizes, and dropout with it.
FEATURES, CLASSES, BATCH = 12, 12, 32


class Listed:
    """A loader of mini-batches that are there: Lightning takes a plain list for a list of loaders."""

    def __init__(self, batches: list[MiniBatch]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[MiniBatch]:
        return iter(self.batches)


class Net:
    """A model and its loss, with and without graphs."""

    def __init__(
        self, *, graphed: bool, multilabel: bool = False, ignored_label: int | None = None, **options: Any
    ) -> None:
        torch.manual_seed(0)
        self.net = GraphSAGE(FEATURES, CLASSES, CLASSES, 2, **{"dropout": 0.5, **options}).cuda()
        self.multilabel = multilabel
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3, fused=True)
        self.graphed = GraphedLoss(self.loss_and_logits, self.net, ignored_label)
        self.loss = self.graphed if graphed else self.loss_and_logits

    def loss_and_logits(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        assert batch.features is not None
        assert batch.y is not None
        logits = self.net(batch.blocks, batch.features)
        if self.multilabel:
            return F.binary_cross_entropy_with_logits(logits, batch.y), logits
        return F.cross_entropy(logits, batch.y), logits

    def step(self, batch: MiniBatch) -> Tensor:
        self.optimizer.zero_grad()
        loss, _ = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def make_batches(
    graph: Any, *, multilabel: bool, device: str = "cuda", count: int = 60, lazy: bool = False
) -> list[MiniBatch]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(graph.num_nodes, FEATURES, generator=g)
    y = torch.rand(graph.num_nodes, CLASSES, generator=g).round() if multilabel else (x[:, :CLASSES]).argmax(-1)
    table, found = x.to(device), []
    for i in range(count):
        sampler = HopwiseSampler([1 + i % 5, 2 + i % 3], seed=i)
        seeds = torch.randperm(graph.num_nodes, generator=g)[: BATCH - 5 * (i % 10 == 9)]
        batch = sampler.sample(graph, seeds, batch=i)
        batch = batch.replace(y=y[batch.output_nodes.long()])
        if lazy:
            batch = batch.to(device)
            found.append(batch.replace(rows=LazyRows(table, batch.nodes)))
        else:
            found.append(batch.replace(x=x[batch.nodes.long()]).to(device))
    return found


def gradients(net: Net) -> list[Tensor]:
    return [p.grad.clone() for p in net.net.parameters() if p.grad is not None]


def largest(batches: list[MiniBatch]) -> MiniBatch:
    return max(batches, key=lambda b: (b.batch_size, b.num_edges))


def whole_and_part(batches: list[MiniBatch]) -> tuple[MiniBatch, MiniBatch]:
    """A large mini-batch, and one with fewer seeds that there is room for then."""
    return largest(batches), min((b for b in batches if b.batch_size < BATCH), key=lambda b: b.num_edges)


def captured(batches: list[MiniBatch], **options: Any) -> Net:
    """A net that replays from here on; its parameters are those from the beginning."""
    net = Net(graphed=True, **options)
    batch = largest(batches)
    for _ in range(16):
        net.loss(batch)
    assert net.graphed.captures == 1
    return net


def gradients_of_a_step(net: Net, batch: MiniBatch) -> list[Tensor]:
    """Those of a replayed mini-batch, which the parameters are rid of again."""
    net.loss(batch)[0].backward()
    found = gradients(net)
    net.optimizer.zero_grad()
    return found


class EachStep(NodeClassifier):
    """Another learning rate in each step, or only in each epoch."""

    interval = "step"

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)  # type: ignore[arg-type]
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


class EachEpoch(EachStep):
    interval = "epoch"


def take_steps_without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and gradients are computed, and the optimiser steps, as graphs would do it, on the CPU."""

    def with_gradients(graphed: Any, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        graphed.module.zero_grad()
        with torch.enable_grad():
            loss, found = graphed._function(batch)
            loss.backward()
        return loss.detach(), found

    for name, function in (
        ("with_gradients", with_gradients),
        ("repeats", lambda self, batch: True),
        ("repeat", with_gradients),
        ("__call__", lambda self, batch: self._function(batch)),
    ):
        monkeypatch.setattr(f"models.training.cuda_graphs.GraphedLoss.{name}", function)
    for kind in (NodeClassifier, TaskPredictor):
        monkeypatch.setattr(kind, "may_be_graphed", lambda self, batch: True)
    monkeypatch.setattr(ReplayedAdam, "step", lambda self: self.optimizer.step())
    monkeypatch.setattr(ReplayedAdam, "replay", lambda self: self.optimizer.step())
    monkeypatch.setattr(ReplayedAdam, "replays", True)
    monkeypatch.setattr(whole_step, "_is_fused", lambda group: True)
