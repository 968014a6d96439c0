"""Scores of a split with fewer mini-batches than processes are those of one process."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from small_datamodule import make_datamodule, make_dataset
from torchmetrics import MetricCollection
from two_processes import call_in_two

from models.training.module import NodeClassifier
from models.training.more_metrics import MoreMetrics, take_part
from models.training.task_predictor import _scores

NAMES = ["f1", "precision", "recall", "auc"]


def validated(**options: Any) -> dict[str, float]:
    """Of 10 nodes in one mini-batch, which a second process only repeats."""
    datamodule = make_datamodule(dataset=make_dataset(num_val=10))
    torch.manual_seed(0)
    model = NodeClassifier(8, 4, hidden_channels=8, num_layers=2, metrics=[*NAMES, "confusion"])
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, **options)
    trainer.validate(model, datamodule=datamodule, verbose=False)
    datamodule.close()
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def of_multilabel(rank: int) -> dict[str, float]:
    more = MoreMetrics(NAMES, 3, True)
    g = torch.Generator().manual_seed(0)
    if rank == 0:
        more.add(torch.randn(20, 3, generator=g), torch.randint(2, (20, 3), generator=g).float())
    return {name: float(value) for name, value in more.result()[0].items()}


def of_binary(rank: int) -> dict[str, float]:
    scores = MetricCollection(_scores("binary", 1))
    g = torch.Generator().manual_seed(0)
    if rank == 0:
        scores.update(torch.rand(20, generator=g), torch.randint(2, (20,), generator=g))
    for score in scores.values(copy_state=False):
        take_part(score, torch.zeros(0), torch.zeros(0).long())
    return {name: float(value) for name, value in scores.compute().items()}


# Called by each of two processes.
def main(root: str) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    found = {"nodes": validated(devices=2, strategy="ddp")}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The ``compute`` method of metric")
        found |= {"labels": of_multilabel(rank), "binary": of_binary(rank)}
    (Path(root) / f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()  # Lightning leaves gloo's threads to the end of the interpreter


@pytest.fixture(scope="module")
def of_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    root = tmp_path_factory.mktemp("processes")
    call_in_two(__file__, "main", str(root))
    return [json.loads((root / f"{rank}.json").read_text()) for rank in range(2)]


def test_a_process_that_only_repeats_takes_part(of_ranks: list[Any]) -> None:
    alone = validated(devices=1)
    assert alone["val/auc"] == alone["val/auc"]  # not NaN
    for found in of_ranks:
        assert found["nodes"] == pytest.approx(alone)


def test_a_process_without_a_mini_batch_takes_part(of_ranks: list[Any]) -> None:
    for found in of_ranks:
        assert found["labels"] == pytest.approx(of_multilabel(0))
        assert found["binary"] == pytest.approx(of_binary(0))
