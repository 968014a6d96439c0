from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from marks import needs_frame
from torch import Tensor

from models.training.task_predictor import TaskPredictor

pytestmark = needs_frame


class Given(TaskPredictor):
    """Its outputs are those that the mini-batch holds."""

    def forward(self, batch: Any) -> Tensor:
        out: Tensor = batch.out
        return out


def evaluated(kind: str, *batches: tuple[list[float], list[float]]) -> dict[str, float]:
    column = {"name": "x", "kind": "number", "width": 1, "categories": 0, "first_year": 0}
    model = Given({"node": [column]}, [("node", "to", "node")], "node", kind, hidden=2, encoder_layers=1)
    model._begin("val")
    for out, y in batches:
        labels = torch.tensor(y)
        model._evaluate(SimpleNamespace(out=torch.tensor(out), y=labels, repeats=False, batch_size=len(y)), "val")
    return {name: float(value) for name, value in model.val_scores.compute().items()}


def test_binary_scores_are_of_logits_everywhere() -> None:
    # All logits of the first mini-batch lie between 0 and 1, where probabilities do, too.
    scores = evaluated("binary", ([0.1, 0.2], [1, 1]), ([-1.0, 3.0], [0, 1]))
    assert scores == pytest.approx({"auroc": 1.0, "ap": 1.0, "acc": 1.0, "f1": 1.0})
