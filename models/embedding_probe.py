"""A logistic regression on an embedding: what the embedding knows of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from loader.machine.arguments import as_finite, as_flag, as_size, kind_of

_FOLDS = 5


class LogisticRegression:
    """Multinomial logistic regression, or for several labels per node one regression a label (one-vs-rest).

    Minimises the summed loss plus `|W|^2 / (2 C)` (the bias is free) by L-BFGS (Liu and Nocedal, 1989), as
    scikit-learn's `LogisticRegression(C=C, solver="lbfgs")` does. If there are several C, `fit` takes the best one by
    cross-validation on what it is given, as scikit-learn's `LogisticRegressionCV`: it fits to four fifths, says the
    labels of the other fifth, and so on for each fifth, then scores all that was said. The score is the macro-averaged
    F1 of `top_labels` for several labels per node, else the share of nodes that got their class. Every fifth row
    makes a part.

    Args:
        multilabel: labels are `[n, num_classes]` of 0 and 1 instead of `[n]` classes.
        num_classes: number of classes, or labels.
        c: the inverse of the penalty, greater than 0; or several to choose from, the first one if scores are equal.
        max_iter: iterations of L-BFGS.

    Attributes:
        c: the one that was fitted with; before, and without a choice, the first one.

    Raises:
        TypeError, ValueError: `c` or `max_iter` is out of range.
    """

    def __init__(
        self, num_classes: int, *, multilabel: bool = False, c: float | Sequence[float] = 1.0, max_iter: int = 150
    ) -> None:
        self.choices = penalties("c", c)
        as_size("max_iter", max_iter)
        as_size("num_classes", num_classes)
        multilabel = as_flag("multilabel", multilabel)
        self.num_classes, self.multilabel, self.max_iter = num_classes, multilabel, max_iter
        self.c = self.choices[0]
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None

    def fit(self, x: Tensor, y: Tensor) -> LogisticRegression:
        """Fits `x [n, dim]` and `y`, in float64, on the device of `x`.

        Raises:
            TypeError, ValueError: they are no tensors of these shapes, or too few rows for a choice.
        """
        for name, array in (("x", x), ("y", y)):
            if not isinstance(array, Tensor):
                raise TypeError(f"{name} is {kind_of(array)}; it must be a torch tensor (torch.as_tensor)")
        wanted = (len(x), self.num_classes) if self.multilabel else (len(x),)
        if x.dim() != 2 or y.shape != wanted:
            raise ValueError(
                f"x has shape {list(x.shape)} and y {list(y.shape)}; they must be [n, dim] and [n]"
                f"{', several labels [n, num_classes]' if self.multilabel else ''}"
            )
        if not self.multilabel:
            _check_classes(y, self.num_classes)
        x = x.detach().double()
        y = y.to(x.device)
        if len(self.choices) > 1:
            if len(x) < _FOLDS:
                raise ValueError(f"{len(x)} nodes are too few to choose among {self.choices}; give one c")
            self.c = max(self.choices, key=lambda c: self._score(x, y, c))
        return self._fit(x, y)

    def _score(self, x: Tensor, y: Tensor, c: float) -> float:
        """Of `c`, by cross-validation."""
        fold = torch.arange(len(x), device=x.device) % _FOLDS
        said = torch.empty(len(x), self.num_classes, dtype=x.dtype, device=x.device)
        for part in range(_FOLDS):
            rest = fold != part
            probe = LogisticRegression(self.num_classes, multilabel=self.multilabel, c=c, max_iter=self.max_iter)
            said[~rest] = probe._fit(x[rest], y[rest]).logits(x[~rest])
        if self.multilabel:
            return f1_scores(top_labels(said, y), y)[1]
        return float((said.argmax(1) == y).double().mean())

    def _fit(self, x: Tensor, y: Tensor) -> LogisticRegression:
        target = y.double() if self.multilabel else y
        shape = x.shape[1], self.num_classes
        with torch.enable_grad(), torch.inference_mode(False):
            x, target = x.clone(), target.clone()  # also of tensors made in inference mode
            weight = torch.zeros(shape, dtype=x.dtype, device=x.device, requires_grad=True)
            bias = torch.zeros(self.num_classes, dtype=x.dtype, device=x.device, requires_grad=True)
            optimizer = torch.optim.LBFGS(
                [weight, bias],
                max_iter=self.max_iter,
                tolerance_grad=1e-7,
                tolerance_change=1e-12,
                line_search_fn="strong_wolfe",
            )
            loss = F.binary_cross_entropy_with_logits if self.multilabel else F.cross_entropy

            def closure() -> Tensor:
                optimizer.zero_grad()
                # By the number of nodes, so that the tolerance means the same for all data sets.
                penalty = weight.square().sum() / (2 * self.c)
                total = (loss(torch.addmm(bias, x, weight), target, reduction="sum") + penalty) / len(x)
                total.backward()
                return total

            optimizer.step(closure)
        self.weight, self.bias = weight.detach(), bias.detach()
        return self

    def logits(self, x: Tensor) -> Tensor:
        """`x [n, dim]` -> `[n, num_classes]` float64.

        Raises:
            RuntimeError: nothing was fitted.
        """
        if self.weight is None or self.bias is None:
            raise RuntimeError("call fit() first")
        return torch.addmm(self.bias, x.detach().double(), self.weight)


def penalties(name: str, value: Any) -> list[float]:
    """`value`, one or several inverse penalties, as a list.

    Raises:
        TypeError, ValueError: one of them is not a number greater than 0, or there is none.
    """
    several = isinstance(value, Sequence) and not isinstance(value, str)
    found = [float(as_finite(name, c, positive=True)) for c in (value if several else [value])]
    if not found:
        raise ValueError(f"{name} is empty; give a number greater than 0, or several to choose from")
    return found


def _check_classes(y: Tensor, num_classes: int) -> None:
    """Raises TypeError or ValueError unless `y` holds classes."""
    if y.is_floating_point() or y.dtype == torch.bool:
        raise TypeError(f"y has dtype {y.dtype}; it must be an integer type: y.long()")
    if y.numel() == 0:
        raise ValueError("y is empty; at least one node is needed to fit to")
    low, high = (int(x) for x in torch.aminmax(y))
    if low < 0 or high >= num_classes:
        raise ValueError(f"y holds class {low if low < 0 else high}; valid classes are 0 to {num_classes - 1}")


def top_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """`[n, num_classes]` of 0 and 1: each node gets as many labels as `labels` says that it has, the likeliest ones.

    So do the papers of DeepWalk and node2vec predict several labels per node.
    """
    counts = (labels > 0).sum(1, keepdim=True)
    ranks = (-logits).argsort(dim=1, stable=True).argsort(dim=1)
    return ranks < counts.to(logits.device)


def f1_scores(said: Tensor, labels: Tensor) -> tuple[float, float]:
    """Micro- and macro-averaged F1 of `[n, num_classes]` predictions, as scikit-learn's `f1_score` has them.

    Micro: over all nodes and labels. Macro: the mean over the labels, 0 for one that is neither said nor true.
    """
    true = labels.to(said.device) > 0
    said = said > 0
    hits, positives = (said & true).sum(0).double(), (said.sum(0) + true.sum(0)).double()
    micro = 2 * hits.sum() / positives.sum().clamp(min=1)
    macro = (2 * hits / positives.clamp(min=1)).mean()
    return float(micro), float(macro)
