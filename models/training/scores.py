"""Loss and accuracy of an epoch, summed where the model computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class RunningScores:
    """Mean loss and accuracy over the nodes of any number of mini-batches.

    Sums stay on the device of the first mini-batch, and adding one neither waits for the device nor moves anything: a
    training step has no time to lose. Accuracy is the share of nodes that got their class; for multilabel data the
    micro-averaged F1 score, `2 TP / (2 TP + FP + FN)` over all nodes and classes, 0 where nothing is positive.

    Args:
        multilabel: labels are `[batch, num_classes]` of 0 and 1 instead of `[batch]` classes.
    """

    def __init__(self, multilabel: bool) -> None:
        self.multilabel = multilabel
        self.count = 0  # nodes
        self._weight: Tensor | float = 0.0  # of the losses, together
        self._loss: Tensor | None = None
        self._found: Tensor | None = None

    def reset(self) -> None:
        """Forgets everything."""
        self.count = 0
        self._weight = 0.0
        self._loss = self._found = None

    def find(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What `add_found` takes, of `logits [batch, num_classes]`: hits, and if multilabel what is said plus true."""
        logits = logits.detach()
        if not self.multilabel:
            return (logits.argmax(-1) == labels).sum().reshape(1)
        said, true = logits > 0, labels > 0
        return torch.stack(((said & true).sum(), said.sum() + true.sum()))

    def add(self, logits: Tensor, labels: Tensor, loss: Tensor | None = None) -> None:
        """One mini-batch: `logits [batch, num_classes]`, and its mean loss unless that is of no interest."""
        self.add_found(self.find(logits, labels), labels.shape[0], loss)

    def add_found(self, found: Tensor, count: int, loss: Tensor | None = None, weight: Tensor | None = None) -> None:
        """One mini-batch of `count` nodes, in which `find` found this much, and its mean loss.

        `weight` is what that mean was divided by, if that is not `count`: else the mean over all nodes would depend on
        how they were divided into mini-batches.
        """
        if self._found is None:
            self._found = torch.zeros_like(found)
            self._loss = torch.zeros((), dtype=torch.float64, device=found.device)
        assert self._loss is not None
        self.count += count
        self._found.add_(found)
        if loss is not None:
            if weight is None:
                self._loss.add_(loss.detach(), alpha=count)
            else:
                self._loss.add_(loss.detach() * weight.double())
            self._weight = self._weight + (count if weight is None else weight.double())

    def sums(self) -> Tensor:
        """`[5]` float64: summed loss, hits, positives, count, summed weights of the losses; addable over processes.
        Zeros before the first batch.
        """
        if self._found is None or self._loss is None:
            return torch.zeros(5, dtype=torch.float64)
        sums = torch.zeros(5, dtype=torch.float64, device=self._found.device)
        sums[0] = self._loss
        sums[1 : 1 + self._found.numel()] = self._found
        sums[3] = self.count
        sums[4] = self._weight
        return sums

    def result(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss and accuracy, float32, from `sums`."""
        loss, hits, positives, count, weight = sums.unbind()
        accuracy = 2 * hits / positives.clamp(min=1) if self.multilabel else hits / count
        # Nodes whose classes all have the weight 0 have the loss 0, as in a mini-batch.
        return (loss / torch.where((weight > 0) | (count == 0), weight, torch.inf)).float(), accuracy.float()

    def state_dict(self, sums: Tensor | None = None) -> dict[str, Any]:
        """What `load_state_dict` takes, on the CPU: of `sums`, those over all processes say, or of its own."""
        sums = self.sums() if sums is None else sums
        return {"count": int(sums[3]), "sums": sums.tolist()}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Goes on from a state, on `device`."""
        self.count = int(state["count"])
        loss, hits, positives, _, *weight = state["sums"]
        self._weight = weight[0] if weight else float(self.count)  # earlier releases wrote none
        self._loss = torch.tensor(loss, dtype=torch.float64, device=device)
        found = [int(hits), int(positives)] if self.multilabel else [int(hits)]
        self._found = torch.tensor(found, device=device)
