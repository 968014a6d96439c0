"""Loss and accuracy over mini-batches: those of all nodes at once, also through a saved state."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torchmetrics.classification import MulticlassAccuracy, MultilabelF1Score

from models.training.class_weights import sum_of_weights, weighted_cross_entropy
from models.training.scores import RunningScores

SIZES = [7, 1, 30, 12]


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("saved_after", [None, 0, 2])
def test_equals_torchmetrics_over_all_nodes(multilabel: bool, saved_after: int | None) -> None:
    torch.manual_seed(0)
    logits = torch.randn(sum(SIZES), 5)
    labels = (torch.rand(sum(SIZES), 5) < 0.3).float() if multilabel else torch.randint(5, (sum(SIZES),))
    scores = RunningScores(multilabel)
    losses = torch.rand(len(SIZES))
    parts = zip(logits.split(SIZES), labels.split(SIZES), losses, strict=True)
    for i, (said, true, loss) in enumerate(parts):
        if i == saved_after:
            state = scores.state_dict()
            scores = RunningScores(multilabel)
            scores.load_state_dict(state, torch.device("cpu"))
        scores.add(said, true, loss)
    loss, accuracy = scores.result(scores.sums())
    if multilabel:
        expected = MultilabelF1Score(5, average="micro")(logits.sigmoid(), labels.long())
    else:
        expected = MulticlassAccuracy(5, average="micro")(logits, labels)
    torch.testing.assert_close(accuracy, expected)
    torch.testing.assert_close(loss, (losses * torch.tensor(SIZES)).sum() / sum(SIZES))
    assert scores.count == sum(SIZES)


def test_sums_of_several_processes_add_up() -> None:
    logits, labels = torch.randn(20, 3), torch.randint(3, (20,))
    whole, parts = RunningScores(False), [RunningScores(False) for _ in range(2)]
    whole.add(logits, labels, torch.tensor(2.0))
    for part, rows in zip(parts, (slice(0, 5), slice(5, 20)), strict=True):
        part.add(logits[rows], labels[rows], torch.tensor(2.0))
    assert whole.result(whole.sums()) == whole.result(sum(p.sums() for p in parts))  # type: ignore[arg-type]


def test_without_anything_positive_f1_is_0() -> None:
    scores = RunningScores(True)
    scores.add(torch.full((4, 3), -1.0), torch.zeros(4, 3))
    assert scores.result(scores.sums())[1] == 0


@pytest.mark.parametrize("size", [1, 7, 50])
def test_weighted_loss_does_not_depend_on_mini_batches(size: int) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(50, 3), torch.randint(3, (50,))
    weights = torch.tensor([0.0, 1.0, 20.0])
    scores = RunningScores(False)
    for said, true in zip(logits.split(size), labels.split(size), strict=True):
        loss, weight = weighted_cross_entropy(said, true, weights), sum_of_weights(weights, true)
        scores.add_found(scores.find(said, true), len(true), loss, weight)
        state, scores = scores.state_dict(), RunningScores(False)
        scores.load_state_dict(state, torch.device("cpu"))
    loss, accuracy = scores.result(scores.sums())
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels, weights))
    assert accuracy == (logits.argmax(1) == labels).double().mean().float()


def test_state_of_an_earlier_release_goes_on() -> None:
    scores = RunningScores(False)
    scores.load_state_dict({"count": 4, "sums": [8.0, 3.0, 0.0, 4.0]}, torch.device("cpu"))
    scores.add(torch.eye(2), torch.tensor([0, 0]), torch.tensor(5.0))
    assert scores.result(scores.sums()) == (torch.tensor(3.0), torch.tensor(4 / 6))


def test_reset_forgets() -> None:
    scores = RunningScores(False)
    scores.add(torch.eye(3), torch.zeros(3, dtype=torch.int64), torch.tensor(1.0))
    scores.reset()
    assert scores.count == 0
    assert scores.sums().tolist() == [0, 0, 0, 0, 0]
