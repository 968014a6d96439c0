"""F1, precision, recall, AUC and the confusion matrix, in validation, test and evaluation."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.plugins.precision import HalfPrecision
from train_runs import Composer, in_process

from models.training.more_metrics import MoreMetrics, as_metrics

LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 3.0], [1.0, 0.0, 0.5]])
LABELS = torch.tensor([0, 1, 2, 2, 1])


def test_values_are_those_by_hand() -> None:
    """Hits are 0, 1 and 3; node 2 is taken for class 1, node 4 for class 0."""
    more = MoreMetrics(["precision", "recall", "f1", "confusion"], 3, False)
    more.add(LOGITS[:2], LABELS[:2])
    more.add(LOGITS[2:], LABELS[2:])
    values, confusion = more.result()
    assert values["precision"] == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert values["recall"] == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)
    assert values["f1"] == pytest.approx((2 / 3 + 1 / 2 + 2 / 3) / 3)
    assert confusion is not None
    assert confusion.tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    more.reset()
    more.add(LOGITS[3:4], LABELS[3:4])
    assert more.result()[1].sum() == 1


@pytest.mark.parametrize("multilabel", [False, True])
def test_values_are_exact_whatever_torchs_type_is(multilabel: bool) -> None:
    found, before = [], torch.get_default_dtype()
    try:
        for dtype in (torch.float32, torch.bfloat16):  # as within a run with trainer.precision=bf16-true
            torch.set_default_dtype(dtype)
            more = MoreMetrics(["f1", "precision", "recall", "auc"], 3, multilabel)
            more.add(LOGITS, torch.nn.functional.one_hot(LABELS) if multilabel else LABELS)
            found.append(more.result()[0])
            assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(before)
    assert found[0] == found[1]


def test_the_auc_counts_pairs_in_order() -> None:
    more = MoreMetrics(["auc"], 2, True)
    more.add(torch.tensor([[1.0, 0.0], [2.0, 3.0], [3.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]))
    assert more.result()[0]["auc"] == pytest.approx((1 / 2 + 0) / 2)  # of each label, the pairs in order


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_auc_tells_large_logits_apart(multilabel: bool) -> None:
    """Whose shares are all 1 in float32."""
    first, labels = torch.tensor([20.0, 30.0, 25.0, -1.0]), torch.tensor([1, 0, 0, 1])
    logits = torch.stack((first, -first if multilabel else torch.zeros(4)), 1)
    more = MoreMetrics(["auc"], 2, multilabel)
    more.add(logits, torch.stack((1 - labels, labels), 1).float() if multilabel else labels)
    assert float(more.result()[0]["auc"]) == 1


@pytest.mark.parametrize("precision", ["bf16-true", "16-true"])
def test_values_ignore_torchs_default_type(precision: Any) -> None:
    """In a step of a trainer, in which the exact test computes them, it is that of its precision."""
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (3000,), generator=generator)
    logits = torch.randn(3000, 3, generator=generator) + torch.nn.functional.one_hot(labels, 3)
    more = MoreMetrics(["f1", "auc"], 3, False, shared=False)
    with HalfPrecision(precision).forward_context():
        more.add(logits, labels)
        values = more.result()[0]
        assert torch.get_default_dtype() != torch.float32
    f1 = metrics.f1_score(labels, logits.argmax(1), average="macro")
    assert float(values["f1"]) == pytest.approx(f1, rel=1e-6)
    auc = metrics.roc_auc_score(labels, logits.softmax(1), multi_class="ovr")
    assert float(values["auc"]) == pytest.approx(auc, rel=1e-6)


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_auc_leaves_absent_classes_out(multilabel: bool) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (60,), generator=generator)  # of 4 classes
    true = torch.nn.functional.one_hot(labels, 4)
    if multilabel:
        true[torch.rand(60, 4, generator=generator) < 0.2] = 1
        true[:, 1], true[:, 3] = 1, 0  # no AUC of either
    logits = torch.randn(60, 4, generator=generator) + true
    more = MoreMetrics(["auc"], 4, multilabel)
    for part in torch.arange(60).split(25):
        more.add(logits[part], true[part].float() if multilabel else labels[part])
    scores = logits.sigmoid() if multilabel else logits.softmax(1)
    known = [0, 2] if multilabel else [0, 1, 2]
    wanted = np.mean([metrics.roc_auc_score(true[:, c], scores[:, c]) for c in known])
    assert more.result()[0]["auc"] == pytest.approx(wanted)
    more.reset()
    more.add(logits[:1], true[:1].float() if multilabel else labels[:1])
    assert more.result()[0]["auc"].isnan()


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["f2"], ValueError, "metrics has 'f2'; it must be some of f1, precision, recall, auc, confusion"),
        (["Recal"], ValueError, r"did you mean recall\?"),
        ("f1", TypeError, "metrics is 'f1'; it must be a list of f1, precision"),
    ],
)
def test_names_that_are_none_are_refused(names: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_metrics(names)
    with pytest.raises(ValueError, match="metrics has 'confusion', but nodes have several labels here; leave it out"):
        MoreMetrics(["confusion"], 3, True)


@pytest.fixture
def graph(tmp_path: Path) -> list[str]:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    np.savez(
        tmp_path / "g.npz",
        edge_index=rng.integers(0, 60, (2, 300)),
        features=(labels[:, None] + rng.normal(0, 1, (60, 4))).astype(np.float32),
        labels=labels,
        train=np.arange(30),
        val=np.arange(30, 45),
        test=np.arange(45, 60),
    )
    return ["dataset=npz", f"dataset.path={tmp_path / 'g.npz'}", "callbacks=quiet", "datamodule.batch_size=7"]


def test_a_run_logs_them_and_may_optimise_them(composed: Composer, tmp_path: Path, graph: list[str]) -> None:
    names = "model.metrics=[f1,auc,confusion]"
    best = in_process(composed, *graph, names, "optimized_metric=val/f1", "callbacks.best.monitor=val/f1")
    metrics = json.loads((tmp_path / "result.json").read_text())["metrics"]
    assert 0 < best <= 1
    assert {"val/f1", "val/auc", *(f"test/{split}_f1" for split in ("train", "val", "test"))} <= set(metrics)
    with open(tmp_path / "confusion.csv", newline="") as file:
        (_, *header), *rows = csv.reader(file)
    assert header == ["0", "1", "2"]
    assert [sum(map(int, row[1:])) for row in rows] == [5, 5, 5]  # of the test split
    hits = sum(int(row[1 + place]) for place, row in enumerate(rows))
    assert hits / 15 == pytest.approx(metrics["test/test_acc"])


def test_watched_scores_without_a_value_end_runs(composed: Composer, tmp_path: Path, graph: list[str]) -> None:
    arrays = dict(np.load(tmp_path / "g.npz"))
    arrays["labels"][30:45] = 1  # of the val split
    np.savez(tmp_path / "g.npz", **arrays)
    options = [*graph, "model.metrics=[auc]", "trainer.max_epochs=2"]
    with pytest.raises(ValueError, match=r"val/auc is nan in epoch 1, since the labels of its split do not decide it"):
        in_process(composed, *options, "optimized_metric=val/auc", "callbacks.best.monitor=val/auc")
    in_process(composed, *options, f"run_dir={tmp_path / 'unwatched'}")  # nothing watches it
    metrics = json.loads((tmp_path / "unwatched" / "result.json").read_text())["metrics"]
    assert np.isnan(metrics["val/auc"])


def test_a_test_on_mini_batches_logs_them_too(composed: Composer, tmp_path: Path, graph: list[str]) -> None:
    in_process(composed, *graph, "model.metrics=[recall]", "exact_test=false")
    metrics = json.loads((tmp_path / "result.json").read_text())["metrics"]
    assert metrics["test/recall"] == pytest.approx(metrics["test/acc"])  # equally many nodes of each class
    with pytest.raises(ValueError, match=r"optimized_metric is 'val/f1'; it must be one of .*val/recall"):
        in_process(composed, *graph, "model.metrics=[recall]", "optimized_metric=val/f1")
