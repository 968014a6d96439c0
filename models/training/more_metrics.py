"""Further metrics of classes, by torchmetrics: F1, precision, recall, AUC and the confusion matrix."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torchmetrics.classification as classes
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

from loader.machine.arguments import shown
from loader.machine.spelling import nearest
from loader.machine.whole_files import replaced
from models.training.precision import at_least_float32


def _mean_of_known(of: type[Any]) -> type[Any]:
    """The AUC `of` torchmetrics as the mean over the classes that occur among the labels, and are not all of them; NaN
    without one. torchmetrics counts 0 for the others, whose AUC no scores decide.
    """

    class Mean(of):
        def __init__(self, **options: Any) -> None:
            super().__init__(average=None, **options)

        def compute(self) -> Tensor:
            with warnings.catch_warnings():  # that such a class counts as 0, which is not so here
                warnings.filterwarnings("ignore", message="No (positive|negative) samples in targets")
                each: Tensor = super().compute()
            labels = dim_zero_cat(self.target)
            true = labels if labels.dim() == 2 else F.one_hot(labels, each.numel())
            return each[(true == 1).any(0) & (true == 0).any(0)].mean()

    return Mean


class KnownAUROC(classes.BinaryAUROC):
    """The AUC of a yes or no; NaN if all labels are equal, for which torchmetrics counts 0."""

    def compute(self) -> Tensor:  # type: ignore[override]  # a base of its base returns a curve
        labels = dim_zero_cat(self.target)
        return labels.new_full((), torch.nan, dtype=torch.float32) if (labels == labels[0]).all() else super().compute()


def take_part(metric: Metric, scores: Tensor, labels: Tensor) -> None:
    """Prepares a metric for `compute` in a process that may have counted nothing, while others did.

    torchmetrics gathers the states of all processes: of one without any it takes none, or empty ones of another type
    and shape, at which gloo ends the process and NCCL waits.

    Args:
        metric: of this process; nothing happens if it has counted something.
        scores, labels: like those of a mini-batch, with no rows.
    """
    if metric.update_called:
        return
    for name, like in (("preds", scores), ("target", labels)):
        if isinstance(getattr(metric, name, None), list):
            setattr(metric, name, [like])
    metric._update_count = 1  # else it warns that it knows nothing


# Name -> class for one label per node, class for several labels; the confusion matrix goes to a file.
_CLASSES: dict[str, tuple[Any, Any]] = {
    "f1": (classes.MulticlassF1Score, classes.MultilabelF1Score),
    "precision": (classes.MulticlassPrecision, classes.MultilabelPrecision),
    "recall": (classes.MulticlassRecall, classes.MultilabelRecall),
    "auc": (_mean_of_known(classes.MulticlassAUROC), _mean_of_known(classes.MultilabelAUROC)),
    "confusion": (classes.MulticlassConfusionMatrix, None),
}


def as_metrics(names: Sequence[str] | None) -> list[str]:
    """The names of further metrics.

    Raises:
        TypeError: it is no list of names.
        ValueError: there is no such metric.
    """
    if isinstance(names, str) or not isinstance(names or (), Sequence):
        raise TypeError(f"metrics is {shown(names)}; it must be a list of {', '.join(_CLASSES)}")
    for name in names or ():
        if name not in _CLASSES:
            known = f"{', '.join(_CLASSES)}{nearest(str(name), _CLASSES)}"
            raise ValueError(f"metrics has {shown(name)}; it must be some of {known}")
    return list(dict.fromkeys(names or ()))


def logged_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """What a run logs of them: of the validation, of a test with sampled neighbors, and of the exact test."""
    return tuple(
        f"{begin}{name}"
        for name in names
        if name != "confusion"
        for begin in ("val/", "test/", "test/train_", "test/val_", "test/test_")
    )


class MoreMetrics:
    """Counts logits and labels, and computes metrics of them: means over the classes, each of which counts alike.

    Args:
        names: see `as_metrics`.
        num_classes: of the data.
        multilabel: a node may have several labels.
        shared: the nodes were divided among the processes, so their counts are added up.

    Raises:
        ValueError: the confusion matrix of several labels per node.
    """

    def __init__(self, names: Sequence[str], num_classes: int, multilabel: bool, *, shared: bool = True) -> None:
        if multilabel and "confusion" in names:
            raise ValueError("metrics has 'confusion', but nodes have several labels here; leave it out")
        labels = torch.zeros((0, num_classes) if multilabel else 0, dtype=torch.int64)
        self._nothing = torch.zeros(0, num_classes, dtype=torch.float64), labels
        size = {"num_labels" if multilabel else "num_classes": num_classes, "sync_on_compute": shared}
        # Macro averages are the default of all of them.
        self._metrics = {name: _CLASSES[name][multilabel](**size) for name in names}

    def reset(self, device: torch.device | None = None) -> None:
        """Forgets everything. Processes that compute on GPUs have to say so: one may have nothing to add."""
        for metric in self._metrics.values():
            metric.reset()
            if device is not None:
                metric.to(device)

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Some nodes: `[n, num_classes]`, and labels `[n]`, or `[n, num_classes]` of 0 and 1."""
        logits = logits.detach().double()  # in float32, logits from 17 on are all the share 1, and equal to an AUC
        shares = logits.sigmoid() if labels.dim() == 2 else logits.softmax(-1)
        for metric in self._metrics.values():
            metric.to(logits.device).update(shares, labels.to(logits.device).long())

    def result(self) -> tuple[dict[str, Tensor], Tensor | None]:
        """Name -> value, and the confusion matrix `[true class, predicted class]` if it was asked for."""
        for metric in self._metrics.values():
            take_part(metric, *(nothing.to(metric.device) for nothing in self._nothing))
        with at_least_float32():
            values = {name: metric.compute() for name, metric in self._metrics.items()}
        return values, values.pop("confusion", None)


def write_confusion(path: Path, matrix: Tensor, classes: Sequence[Any]) -> None:
    """Writes a CSV file: a row per true class, a column per predicted class, by their names or numbers."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["true class", *classes])
    table.writerows([name, *row] for name, row in zip(classes, matrix.to(torch.int64).tolist(), strict=True))
    with replaced(path) as file:
        file.write(text.getvalue().encode())
