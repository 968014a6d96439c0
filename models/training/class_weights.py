"""Weights of the classes in the loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn import functional as F

from loader.machine.arguments import as_finite, shown


def as_class_weights(weights: str | Sequence[float] | None) -> str | list[float] | None:
    """The weights as plain values: None, "balanced", or a list.

    Raises:
        TypeError, ValueError: they are something else, or a weight is negative or not finite.
    """
    if weights is None:
        return None
    if isinstance(weights, str) and weights == "balanced":
        return weights
    if isinstance(weights, str) or not isinstance(weights, Sequence):
        raise ValueError(f"class_weights is {shown(weights)}; it must be balanced, or a list with a number per class")
    return [as_finite("class_weights", weight) for weight in cast("Sequence[float]", weights)]


def balanced_weights(module: LightningModule) -> Tensor:
    """`[num_classes]` weights inversely proportional to the number of training nodes of each class, mean 1 over these
    nodes. A class without training nodes has weight 1.

    Raises:
        ValueError: the trainer has no datamodule whose `data` tell the labels.
    """
    data = getattr(getattr(module.trainer, "datamodule", None), "data", None)
    if data is None:
        raise ValueError("class_weights is balanced, but the trainer has no GraphDataModule with labels; give a list")
    counts = torch.bincount(data.labels[data.splits["train"]], minlength=data.num_classes).double()
    present = counts > 0
    balanced = counts.sum() / (present.sum() * counts.clamp(min=1))
    return torch.where(present, balanced, 1.0).float()


def sum_of_weights(weights: Tensor, y: Tensor) -> Tensor:
    """Of the classes `y`, without negative ones: what the loss's weighted mean is divided by."""
    return torch.where(y < 0, 0, weights[y.clamp(min=0)]).sum()


def weighted_cross_entropy(logits: Tensor, y: Tensor, weights: Tensor | None, label_smoothing: float = 0.0) -> Tensor:
    """torch's weighted mean, but 0 in place of NaN if all nodes are of classes whose weight is 0.

    Args:
        logits: `[nodes, num_classes]`.
        y: `[nodes]`, the classes; a negative one leaves the node out.
        weights: `[num_classes]`; None weighs all alike.
        label_smoothing: see `torch.nn.CrossEntropyLoss`.
    """
    if weights is None:
        return F.cross_entropy(logits, y, label_smoothing=label_smoothing)
    total = sum_of_weights(weights, y)
    loss = F.cross_entropy(logits, y, weights, label_smoothing=label_smoothing, reduction="sum")
    return loss / torch.where(total > 0, total, torch.inf)
