"""Loss and accuracy of an epoch, summed where the model computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class RunningScores:
    """Mean loss and accuracy over the vertices of any number of mini-batches.

    Sums stay on the device of the first mini-batch, and adding one neither waits for the device nor moves anything: a
    training step has no time to lose. Accuracy is the share of vertices that got their class; for multilabel data the
    micro-averaged F1 score, `2 TP / (2 TP + FP + FN)` over all vertices and classes, 0 where nothing is positive.

    Args:
        multilabel: labels are `[batch, num_classes]` of 0 and 1 instead of `[batch]` classes.
    """

    def __init__(self, multilabel: bool) -> None:
        self.multilabel = multilabel
        self.count = 0  # vertices
        self._loss: Tensor | None = None
        self._hits: Tensor | None = None
        self._positives: Tensor | None = None  # said to be plus true, multilabel alone

    def reset(self) -> None:
        """Forgets everything."""
        self.count = 0
        self._loss = self._hits = self._positives = None

    def add(self, logits: Tensor, labels: Tensor, loss: Tensor | None = None) -> None:
        """One mini-batch: `logits [batch, num_classes]`, and its mean loss unless that is of no interest."""
        if self._hits is None:
            self._hits = torch.zeros((), dtype=torch.int64, device=logits.device)
            self._loss = torch.zeros((), dtype=torch.float64, device=logits.device)
            self._positives = torch.zeros((), dtype=torch.int64, device=logits.device)
        assert self._loss is not None
        assert self._positives is not None
        self.count += labels.shape[0]
        logits = logits.detach()
        if loss is not None:
            self._loss.add_(loss.detach(), alpha=labels.shape[0])
        if self.multilabel:
            said, true = logits > 0, labels > 0
            self._hits.add_((said & true).sum())
            self._positives.add_(said.sum()).add_(true.sum())
        else:
            self._hits.add_((logits.argmax(-1) == labels).sum())

    def sums(self) -> Tensor:
        """`[4]` float64: summed loss, hits, positives, count; addable over processes. Zeros before the first batch."""
        if self._hits is None:
            return torch.zeros(4, dtype=torch.float64)
        count = torch.full((), self.count, device=self._hits.device)
        return torch.stack([t.double() for t in (self._loss, self._hits, self._positives, count)])  # type: ignore[union-attr]

    def result(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss and accuracy, float32, from `sums`."""
        loss, hits, positives, count = sums.unbind()
        accuracy = 2 * hits / positives.clamp(min=1) if self.multilabel else hits / count
        return (loss / count).float(), accuracy.float()

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` takes, on the CPU."""
        return {"count": self.count, "sums": self.sums().tolist()}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Goes on from a state, on `device`."""
        self.count = int(state["count"])
        loss, hits, positives, _ = state["sums"]
        self._loss = torch.tensor(loss, dtype=torch.float64, device=device)
        self._hits = torch.tensor(int(hits), device=device)
        self._positives = torch.tensor(int(positives), device=device)
