"""What a run says at its start and at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.callbacks import EarlyStopping

from models.training.callbacks import RunSummary, StageTimes
from models.training.callbacks.summary import summary_lines
from models.training.embedder import NodeEmbedder

ACCURACIES = {"test/train_acc": 1.0, "test/val_acc": 0.9734, "test/test_acc": 0.5}


def test_the_summary_has_accuracies_and_times() -> None:
    times = StageTimes()
    times.epoch_seconds, times.training_seconds = [1.0, 3.0, 2.5], 8.0
    times.stage_seconds = {"sample": 4.0, "train": 6.0, "waiting": 0.5}
    times.moved_bytes = {"gather": 3 * 2**30}
    times.max_bytes = 5 * 2**20
    times.placement = {"sample": "FusedSampler on cpu", "ahead": "a thread per stage runs ahead"}
    assert summary_lines(ACCURACIES, times) == [
        "accuracy: train 100.00%, val 97.34%, test 50.00% with all neighbors (best checkpoint)",
        "an epoch: 2.5 s (median of 3, without validation)",
        "stages, which overlap: sample 4.00 s, train 6.00 s; the model waited 0.50 of 8.00 s for data",
        "data: features read 3.00 GiB, about 5 MiB of mini-batches (a thread per stage runs ahead)",
    ]


@pytest.mark.parametrize(
    ("replayed", "line"), [((150, 1166), "150 of 1,166"), ((0, 166), "0 of 166 (model.cuda_graph says when")]
)
def test_on_a_gpu_replayed_steps_are_counted(replayed: tuple[int, int], line: str) -> None:
    times = StageTimes()
    times.stage_seconds = {"train": 6.0}
    assert any(text.startswith(f"steps by CUDA graphs {line}") for text in summary_lines({}, times, replayed))


def test_without_times_there_are_only_accuracies() -> None:
    assert len(summary_lines(ACCURACIES, None)) == len(summary_lines(ACCURACIES, StageTimes())) == 1


def test_a_sampled_test_says_so() -> None:
    assert summary_lines({"test/acc": 0.5}, None) == ["accuracy: test 50.00% with sampled neighbors (best checkpoint)"]


def test_errors_are_no_shares() -> None:
    assert summary_lines({"test/mae": 13.0092, "test/r2": -0.6388}, None, hetero=True) == [
        "mae: test 13.01 with sampled neighbors (best checkpoint)",
        "r2: test -0.6388 with sampled neighbors (best checkpoint)",
    ]


@pytest.mark.parametrize(("edge_types", "how"), [([("a", "to", "b")], "sampled"), (None, "all")])
def test_models_of_types_are_tested_by_sampling(edge_types: Any, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    trainer: Any = SimpleNamespace(is_global_zero=True, callback_metrics={"test/auc": 0.5}, callbacks=[])
    model: Any = SimpleNamespace(hparams={"edge_types": edge_types})
    RunSummary().on_test_end(trainer, model)
    assert capsys.readouterr().out == f"auc: test 50.00% with {how} neighbors (weights of the last step)\n"
    trainer.ckpt_path = "best.ckpt"
    RunSummary().on_test_end(trainer, model)
    assert capsys.readouterr().out == f"auc: test 50.00% with {how} neighbors (best checkpoint)\n"


def test_each_further_metric_has_its_line() -> None:
    found = {"test/val_acc": 0.5, "test/val_f1": 0.4, "test/test_acc": 0.6, "test/test_f1": 0.3}
    assert summary_lines(found, None, sampled=0.7) == [
        "accuracy: val 50.00%, test 60.00% with all neighbors; val 70.00% with sampled neighbors (best checkpoint)",
        "f1: val 40.00%, test 30.00% with all neighbors (best checkpoint)",
    ]
    sampled = {"test/acc": 0.5, "test/macro_f1": 0.25, "test/f1": 0.125}
    assert summary_lines(sampled, None) == [
        "accuracy: test 50.00% with sampled neighbors (best checkpoint)",
        "macro_f1: test 25.00% with sampled neighbors (best checkpoint)",
        "f1: test 12.50% with sampled neighbors (best checkpoint)",
    ]


def test_the_sampled_validation_stands_beside_the_exact_one() -> None:
    (line,) = summary_lines({"test/val_acc": 0.649}, None, sampled=0.574)
    assert line == "accuracy: val 64.90% with all neighbors; val 57.40% with sampled neighbors (best checkpoint)"


def test_an_embedding_is_tested_without_neighbors() -> None:
    (line,) = summary_lines({"test/test_acc": 0.5}, None, tested_by=NodeEmbedder.TESTED_BY)
    assert line == "accuracy: test 50.00% by logistic regression (best checkpoint)"


def test_a_split_without_nodes_is_not_named() -> None:
    (line,) = summary_lines({"test/train_acc": 1.0}, None)
    assert "val" not in line


@pytest.mark.parametrize("first", [True, False])
def test_is_printed_after_the_test_by_one_process(first: bool, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = SimpleNamespace(
        is_global_zero=first, callback_metrics={**ACCURACIES, "val/loss": 3.0}, callbacks=[StageTimes()]
    )
    RunSummary().on_test_end(trainer, None)  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert ("val 97.34%" in shown) == first
    assert "loss" not in shown


@pytest.mark.parametrize("first", [True, False])
def test_the_devices_are_one_line(first: bool, capsys: pytest.CaptureFixture[str]) -> None:
    datamodule = SimpleNamespace(placement=lambda: {"sample": "FusedSampler on cpu", "train": "cpu"})
    trainer = SimpleNamespace(is_global_zero=first, datamodule=datamodule, world_size=1)
    RunSummary().on_train_start(trainer, None)  # type: ignore[arg-type]
    assert capsys.readouterr().out == ("sample: FusedSampler on cpu; train: cpu\n" if first else "")
    trainer.datamodule = None
    RunSummary().on_train_start(trainer, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epoch", "waited", "line"),
    [
        (26, 10, "stopped after epoch 27: val/acc got no better 10 times in a row"),
        (0, 10, "stopped after epoch 1: val/acc got no better 10 times in a row"),  # of several validations in it
        (26, 3, ""),
    ],
)
def test_a_training_that_stopped_early_says_why(
    epoch: int, waited: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = EarlyStopping("val/acc", mode="max", patience=10)
    stop.stopped_epoch, stop.wait_count = epoch, waited
    trainer = SimpleNamespace(is_global_zero=True, callback_metrics=ACCURACIES, callbacks=[stop])
    summary = RunSummary()
    summary.on_train_end(trainer, None)  # type: ignore[arg-type]
    stop.stopped_epoch = stop.wait_count = 0  # as in the best checkpoint, from which Lightning restores it for the test
    summary.on_test_end(trainer, None)  # type: ignore[arg-type]
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(line or "accuracy: ")


def test_few_bytes_are_shown_in_mebibytes() -> None:
    times = StageTimes()
    times.stage_seconds, times.moved_bytes = {"train": 6.0}, {"gather": 3 * 2**19}
    assert "data: features read 1.5 MiB" in summary_lines({}, times)
