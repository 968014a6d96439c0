"""Which classes occur among labels: fewer than two cannot be told apart, and a user is told what was found."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.errors import DatasetError

log = logging.getLogger(__name__)

_NAMED = 5  # of a longer list, so many are named


def check_classes(labels: Tensor, name: str) -> None:
    """Refuses labels that no model can tell apart: whatever it says of the one class that is there is right.

    Args:
        labels: `[n]` integer, a negative one is none; or `[n, num_classes]` of 0 and 1.
        name: of the dataset.

    Raises:
        DatasetError: fewer than two classes occur, or all nodes have the same labels.
    """
    if labels.dim() == 2:
        if len(labels) and bool((labels == labels[0]).all()):
            raise DatasetError(
                f"{name}: all {len(labels):,} nodes have the same labels, so whatever model is right; at least 2 "
                "of them must differ"
            )
        return
    known = labels[labels >= 0]
    found = torch.aminmax(known) if known.numel() else None
    if found is not None and int(found.min) < int(found.max):
        return
    occur = "no class occurs" if found is None else f"only class {int(found.min)} occurs"
    none = labels.numel() - known.numel()
    without = f", and {none:,} of {labels.numel():,} have no label (a negative number, or NaN)" if none else ""
    raise DatasetError(
        f"{name}: {occur} among the labels{without}; at least 2 classes are needed: number the classes from 0 on, so "
        "that -1 and 1 become 0 and 1"
    )


def check_split_classes(splits: Mapping[str, Tensor], labels: Tensor, name: str) -> None:
    """`check_classes` of the nodes that are trained on or evaluated; warns of classes that are only evaluated.

    Args:
        splits: "train" and others -> node ids.
        labels: `[num_nodes]` int64, or `[num_nodes, num_classes]` of 0 and 1.
        name: of the dataset.

    Raises:
        DatasetError: fewer than two classes occur in the splits, or all of their nodes have the same labels.
    """
    check_classes(torch.cat([labels[ids] for ids in splits.values()]), name)
    if labels.dim() == 2:
        return
    learned = labels[splits["train"]].unique()
    for split, ids in splits.items():
        classes = labels[ids].unique()
        if unknown := classes[~torch.isin(classes, learned)].tolist():
            log.warning(
                "%s: class %s of split %s has no node in the train split, so no model learns it",
                name,
                listed(unknown),
                split,
            )


def describe_classes(labels: NDArray[Any], num_classes: int, counted: bool) -> str:
    """What a conversion found, for its user to compare with what was meant.

    Args:
        labels: as stored: `[num_nodes]` int64 with -1 for none, or `[num_nodes, num_classes]` of 0 and 1.
        num_classes: of the dataset.
        counted: the source did not say `num_classes`; it is one more than the largest label.
    """
    if labels.ndim == 2:
        per_node = labels.sum(axis=1)
        said = f"{num_classes} labels, several per node"
        if num_classes > 1 and (per_node == 1).all():
            return f"{said}: each has exactly one, so labels.argmax(1) would make them classes"
        return _without(said, int((per_node == 0).sum()), labels.shape[0], "none of them")
    if (labels < 0).all():
        return "no labels"
    sizes = np.bincount(labels[labels >= 0], minlength=num_classes)
    empty = np.flatnonzero(sizes == 0).tolist()
    said = f"{num_classes} classes"
    if empty:
        said += f" (no node has {listed(empty)})"
    said = _without(said, labels.shape[0] - int(sizes.sum()), labels.shape[0], "no label")
    if counted:
        said += (
            "; if these are numbers to predict, not classes, give them to NodeLoader as floats, in a loop of your own"
        )
    return said


def _without(said: str, count: int, total: int, what: str) -> str:
    return f"{said}; {count:,} of {total:,} nodes have {what}" if count else said


def listed(values: Sequence[object]) -> str:
    """Values in words: all, or the first ones and how many more."""
    if len(values) <= _NAMED:
        return ", ".join(map(str, values))
    return f"{', '.join(map(str, values[:_NAMED]))} and {len(values) - _NAMED} more"
