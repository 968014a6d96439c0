"""The LightningModule: what a step is, what is measured, how it is optimised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MultilabelF1Score

from loader.graph import Graph
from loader.minibatch import MiniBatch
from models.inference import layerwise_inference
from models.sage import GraphSAGE

SPLITS = ("train", "val", "test")

# What a run of fit and of test on the whole graph logs.
METRICS = ("train/loss", "train/acc", "val/loss", "val/acc", *(f"test/{split}_acc" for split in SPLITS))


@dataclass
class WholeGraph:
    """A loader whose one batch is itself, the whole graph: `trainer.test(model, dataloaders=WholeGraph(...))`.

    `NodeClassifier.test_step` evaluates it by layer-wise inference.

    Attributes:
        graph, features: as `models.inference.layerwise_inference` takes them.
        labels: `[num_nodes]` int64, or `[num_nodes, num_classes]` when multilabel.
        splits: "train", "val" and "test" -> vertices whose accuracy is reported.
    """

    graph: Graph
    features: Tensor
    labels: Tensor
    splits: dict[str, Tensor]

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[WholeGraph]:
        yield self

    def to(self, device: torch.device, **_: Any) -> WholeGraph:
        """Itself: the graph stays in host memory, inference moves what it needs."""
        return self


class NodeClassifier(LightningModule):
    """GraphSAGE that classifies the seeds of mini-batches; Adam.

    Batches are `MiniBatch`es with `x` and `y`, wherever they come from. Per epoch it logs `train/loss`,
    `train/acc`, `val/loss`, `val/acc`; a test on a `WholeGraph` logs `test/train_acc`, `test/val_acc`,
    `test/test_acc` (exact, without sampling), on mini-batches `test/acc`. "acc" is the share of vertices that got
    their class; for multilabel data it is the micro-averaged F1 score.

    Args:
        num_features, num_classes: of the data.
        multilabel: every class is a yes or no of its own (binary cross entropy) instead of one of many.
        num_layers, hidden, dropout, input_dropout, norm: see `models.sage.GraphSAGE`.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        inference_chunk_mib: see `models.inference.layerwise_inference`, in MiB.

    Raises:
        ValueError: a value out of its range.
    """

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        *,
        multilabel: bool = False,
        num_layers: int = 2,
        hidden: int = 256,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        lr: float = 0.01,
        weight_decay: float = 0.0,
        inference_chunk_mib: int = 256,
    ) -> None:
        super().__init__()
        if lr <= 0:
            raise ValueError(f"lr is {lr}; it must be greater than 0")
        if weight_decay < 0:
            raise ValueError(f"weight_decay is {weight_decay}; it must be at least 0")
        if inference_chunk_mib < 1:
            raise ValueError(f"inference_chunk_mib is {inference_chunk_mib}; it must be at least 1")
        self.save_hyperparameters()
        self.net = GraphSAGE(num_features, hidden, num_classes, num_layers, dropout, norm, input_dropout)
        self.multilabel = multilabel
        self.lr = lr
        self.weight_decay = weight_decay
        self.inference_chunk_bytes = inference_chunk_mib * 2**20
        self.metrics = nn.ModuleDict(
            {
                name: MultilabelF1Score(num_classes, average="micro", validate_args=False)
                if multilabel
                else MulticlassAccuracy(num_classes, average="micro", validate_args=False)
                for name in ("train/acc", "val/acc", "test/acc", *(f"test/{split}_acc" for split in SPLITS))
            }
        )

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds, `[batch_size, num_classes]`."""
        if batch.x is None:
            raise ValueError("the mini-batch has no features; a loader fills x (MiniBatch.replace(x=...))")
        return self.net(batch.blocks, batch.x)

    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        return self._step(batch, "train")

    def validation_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        return self._step(batch, "val")

    def test_step(self, batch: MiniBatch | WholeGraph, batch_idx: int) -> None:
        if isinstance(batch, MiniBatch):
            self._step(batch, "test")
            return
        logits = layerwise_inference(self.net, batch.graph, batch.features, chunk_bytes=self.inference_chunk_bytes)
        for split in SPLITS:
            nodes, name = batch.splits[split], f"test/{split}_acc"
            self._metric(name).update(*self._scores(logits[nodes].to(self.device), batch.labels[nodes].to(self.device)))
            self.log(name, self._metric(name), on_epoch=True, batch_size=nodes.numel())

    def predict_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        """Logits of the seeds, `[batch_size, num_classes]`."""
        return self(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr, weight_decay=self.weight_decay)

    def _step(self, batch: MiniBatch, stage: str) -> Tensor:
        if batch.y is None:
            raise ValueError("the mini-batch has no labels; a loader fills y (MiniBatch.replace(y=...))")
        logits = self(batch)
        if self.multilabel:
            loss = F.binary_cross_entropy_with_logits(logits, batch.y)
        else:
            loss = F.cross_entropy(logits, batch.y)
        metric = self._metric(f"{stage}/acc")
        metric.update(*self._scores(logits.detach(), batch.y))
        self.log_dict(
            {f"{stage}/loss": loss, f"{stage}/acc": metric},
            on_step=False,
            on_epoch=True,
            prog_bar=True,
            batch_size=batch.batch_size,
        )
        return loss

    def _scores(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """What the metric compares: probabilities and 0/1 per class, or the likeliest class and the label."""
        if self.multilabel:
            return logits.sigmoid(), labels.long()
        return logits.argmax(-1), labels

    def _metric(self, name: str) -> Metric:
        metric = self.metrics[name]
        assert isinstance(metric, Metric)
        return metric
