"""A loss that is not finite ends a run of any task before a checkpoint of it is written; metrics are shown."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphed_nets import CLASSES, FEATURES, Listed, make_batches
from graphs import messy_graph
from lightning.pytorch import Callback, Trainer
from marks import needs_gpu
from train_runs import Composer, in_process, run

from models.training import classifier, epoch_loss
from models.training.errors import Interrupted
from models.training.module import NodeClassifier

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")

NODES = 60


def write_graph(folder: Path, bad: slice, value: float) -> list[str]:
    """Options of train.py for a graph in which some nodes have this value as a feature."""
    rng = np.random.default_rng(0)
    features = rng.random((NODES, 6)).astype(np.float32)
    features[bad, 3] = value
    ids = np.arange(NODES)
    alone = ids[-10:]  # the nodes of the test split have edges among themselves only
    edges = rng.integers(0, NODES - 10, (2, 400))
    np.savez(
        folder / "graph.npz",
        edge_index=np.concatenate([edges, [alone, np.roll(alone, 1)]], axis=1),
        features=features,
        labels=ids % 3,
        train=ids[:40],
        val=ids[40:50],
        test=alone,
    )
    return ["dataset=npz", f"dataset.path={folder / 'graph.npz'}", "dataset.check_features=false"]


@pytest.fixture
def ended(composed: Composer, tmp_path: Path) -> Iterator[Any]:
    """Runs, and says how it ended; no checkpoint may be there."""

    def end(*overrides: str) -> str:
        with pytest.raises(ValueError, match="must be finite") as error:
            in_process(composed, *overrides)
        assert list(tmp_path.rglob("*.ckpt")) == []
        return str(error.value)

    return end


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_bad_features_end_a_run_of_nodes(ended: Any, tmp_path: Path, value: float) -> None:
    said = ended(*write_graph(tmp_path, slice(0, 3), value))
    assert re.match(r"train/loss is (nan|inf) in epoch 1, after 1 steps; it must be finite", said)
    assert "lower model.lr, or replace features" in said


@pytest.mark.parametrize("callbacks", ["default", "none"])
def test_bad_features_end_a_run_of_links(ended: Any, tmp_path: Path, callbacks: str) -> None:
    options = write_graph(tmp_path, slice(0, 3), np.nan)
    assert "train/loss is nan in epoch 1" in ended("task=link", f"callbacks={callbacks}", *options)


def test_a_high_rate_ends_a_run_of_walks(ended: Any, tmp_path: Path) -> None:
    options = write_graph(tmp_path, slice(0, 0), 0)
    said = ended("model=node2vec", "model.lr=1e38", "callbacks.step=null", "datamodule.batch_size=64", *options)
    assert re.match(r"train/loss is (nan|inf) in epoch 1", said)


def test_validation_is_looked_at_too(composed: Composer, tmp_path: Path) -> None:
    options = write_graph(tmp_path, slice(40, 50), np.nan)
    with np.load(tmp_path / "graph.npz") as found:
        arrays = dict(found)
    arrays["edge_index"] = arrays["edge_index"][:, ~np.isin(arrays["edge_index"][0], np.arange(40, 50))]
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(ValueError, match="val/loss is nan in epoch 1"):
        in_process(composed, *options)
    assert not (tmp_path / "checkpoints" / "best.ckpt").exists()


def test_scores_that_are_no_numbers_have_no_accuracy(composed: Composer, tmp_path: Path) -> None:
    options = write_graph(tmp_path, slice(NODES - 10, NODES - 9), np.nan)
    with pytest.raises(ValueError, match=r"\d+ of 10 nodes of the test split have scores that are not finite"):
        in_process(composed, *options)


def quiet_trainer(**options: Any) -> Trainer:
    off = {f"enable_{name}": False for name in ("checkpointing", "progress_bar", "model_summary")}
    return Trainer(**{"logger": False, "log_every_n_steps": 0, "max_epochs": 1, "devices": 1, **off, **options})


def batches_on(device: str, count: int, bad: int = -1, value: float = torch.nan) -> Listed:
    """Mini-batches, one of them with a bad feature."""
    batches = make_batches(messy_graph(300, 2400, seed=1), multilabel=False, device=device, count=count)
    if bad >= 0:
        x = batches[bad].x
        assert x is not None
        batches[bad] = batches[bad].replace(x=x.clone().index_fill_(0, torch.zeros(1, dtype=int, device=device), value))
    return Listed(batches)


def test_steps_are_looked_at_within_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "CHECKED_EVERY", 4)
    trainer = quiet_trainer(accelerator="cpu")
    with pytest.raises(ValueError, match="train/loss is nan in epoch 1, after 8 steps"):
        trainer.fit(NodeClassifier(FEATURES, CLASSES, hidden_channels=CLASSES), batches_on("cpu", 20, bad=5))


def test_no_checkpoint_is_written_by_hand(tmp_path: Path) -> None:
    trainer = quiet_trainer(accelerator="cpu")
    model = NodeClassifier(FEATURES, CLASSES, hidden_channels=CLASSES)
    trainer.fit(model, batches_on("cpu", 3))
    model.scores["train"].add_found(torch.zeros(1, dtype=torch.int64), 1, torch.tensor(torch.nan))
    with pytest.raises(ValueError, match="train/loss is nan"):
        trainer.save_checkpoint(tmp_path / "spoilt.ckpt")
    assert list(tmp_path.iterdir()) == []


def test_a_step_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(classifier, "check_finite", lambda *_: looked.append(1))
    quiet_trainer(accelerator="cpu").fit(
        NodeClassifier(FEATURES, CLASSES, hidden_channels=CLASSES), batches_on("cpu", 9)
    )
    assert len(looked) == 1
    assert classifier.CHECKED_EVERY == epoch_loss.CHECKED_EVERY == 1000


def test_all_processes_end_together(tmp_path: Path) -> None:
    options = write_graph(tmp_path, slice(0, 1), np.nan)
    done = run(
        tmp_path, *options, "trainer.devices=2", "device=cpu", "num_threads=1", "datamodule.batch_size=8",
        "trainer.max_epochs=3", f"data_dir={tmp_path}", "hydra.run.dir=run",
    )  # fmt: skip
    assert done.returncode == 1
    assert len(re.findall("train/loss is nan in epoch 1", done.stderr)) == 1
    assert list((tmp_path / "run").rglob("best.ckpt")) == []


def test_links_show_their_metrics_per_epoch(composed: Composer, tmp_path: Path, capsys: Any) -> None:
    in_process(composed, "task=link", *write_graph(tmp_path, slice(0, 0), 0))
    first = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch 1"))
    for name in ("train/loss", "val/auc", "val/ap", "val/mrr", "val/hits@1", "val/hits@10"):
        assert f"{name} 0." in first or f"{name} 1." in first


@pytest.mark.parametrize("task", ["node", "link"])
def test_a_cut_epoch_shows_its_own_loss(composed: Composer, tmp_path: Path, capsys: Any, task: str) -> None:
    options = ["trainer.max_epochs=50", "trainer.val_check_interval=2"]  # a validation amid an epoch ends the training
    if task == "node":
        options += ["callbacks.early_stopping.monitor=val/loss", "callbacks.early_stopping.mode=min", "model.lr=0.5"]
        options += ["callbacks.early_stopping.patience=3", "datamodule.batch_size=8"]
    else:
        options += ["model.lr=1e-12", "callbacks.early_stopping.patience=5", "datamodule.batch_size=64"]
    in_process(composed, f"task={task}", *write_graph(tmp_path, slice(0, 0), 0), *options)
    with (tmp_path / "csv" / "metrics.csv").open(newline="") as file:
        losses = [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    shown = [float(found[1]) for line in lines if (found := re.search(r"train/loss ([\d.]+)", line))]
    assert len(losses) > 1
    assert shown == pytest.approx(losses, abs=1e-4)


@pytest.mark.parametrize("when", ["trainer.val_check_interval=2", "trainer.check_val_every_n_epoch=2"])
def test_a_watched_training_keeps_matching_weights(composed: Composer, tmp_path: Path, when: str) -> None:
    watch = ["monitor=train/loss", "mode=min"]
    watched = [f"callbacks.{name}.{option}" for name in ("best", "early_stopping") for option in watch]
    options = [when, *watched, "optimized_metric=train/loss", "trainer.max_epochs=4", "datamodule.batch_size=8"]
    best = in_process(composed, *write_graph(tmp_path, slice(0, 0), 0), *options)
    saved = torch.load(tmp_path / "checkpoints" / "best.ckpt", weights_only=True)
    with (tmp_path / "csv" / "metrics.csv").open(newline="") as file:
        losses = {int(row["epoch"]): float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]}
    assert best == pytest.approx(min(losses.values()))
    assert losses[saved["epoch"]] == pytest.approx(best)


@pytest.mark.skipif(not hasattr(Trainer(logger=False), "_val_check_time_interval"), reason="an older Lightning")
def test_early_stopping_goes_with_validation_by_time(composed: Composer, tmp_path: Path) -> None:
    options = ["trainer.val_check_interval=00:01:00:00", "optimized_metric=train/loss"]
    assert in_process(composed, *write_graph(tmp_path, slice(0, 0), 0), *options) > 0


def test_walks_show_the_loss_of_their_epoch(composed: Composer, tmp_path: Path, capsys: Any) -> None:
    in_process(composed, "model=node2vec", *write_graph(tmp_path, slice(0, 0), 0))
    first = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch 1"))
    assert "train/loss" in first


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("value", [torch.nan, torch.inf])
    def test_a_replayed_loss_ends_the_run(self, value: float) -> None:
        """The loss of a CUDA graph goes into the sums without a wait; the step after that is not looked at."""
        model = NodeClassifier(FEATURES, CLASSES, hidden_channels=CLASSES, cuda_graph=True)
        with pytest.raises(ValueError, match=r"train/loss is (nan|inf) in epoch 1, after 60 steps"):
            quiet_trainer(accelerator="gpu").fit(model, batches_on("cuda", 60, bad=50, value=value))
        assert model.whole_step.taken > 0
        assert model.graphed.replayed > 30


class PressingAmid(Callback):
    """Presses Ctrl-C in the first epoch, after three steps and a mini-batch."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 10:
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore:.*exists and is not empty")
@pytest.mark.parametrize("task", ["node", "link"])
def test_mini_batches_that_are_repeated_count_once(composed: Composer, tmp_path: Path, task: str) -> None:
    data = write_graph(tmp_path, slice(0, 0), 0)
    size = "datamodule.batch_size=3" if task == "node" else "datamodule.batch_size=32"
    options = [f"task={task}", size, "trainer.accumulate_grad_batches=3", "callbacks.progress=null", *data]

    def losses(*more: str) -> list[str]:
        in_process(composed, *options, *more)
        with (tmp_path / "csv" / "metrics.csv").open(newline="") as file:
            return [row["train/loss"] for row in csv.DictReader(file) if row["train/loss"]]

    whole = losses()
    with pytest.raises(Interrupted):
        losses(f"+callbacks.press._target_={__name__}.PressingAmid")
    assert losses(f"ckpt_path={tmp_path / 'checkpoints' / 'step.ckpt'}") == whole


@pytest.mark.filterwarnings("ignore:.*exists and is not empty")
@pytest.mark.parametrize("task", ["node", "link"])
@pytest.mark.parametrize("name", ["best-8", "step-14", "step-28"])
def test_a_resumed_run_leaves_out_no_row(composed: Composer, tmp_path: Path, task: str, name: str) -> None:
    size = "datamodule.batch_size=3" if task == "node" else "datamodule.batch_size=45"  # 14 mini-batches
    options = [f"task={task}", size, "callbacks.progress=null", *write_graph(tmp_path, slice(0, 0), 0)]
    keep = "dirpath: ${checkpoint_dir}, save_top_k: -1, auto_insert_metric_name: false"
    if name.startswith("best"):  # of a validation amid an epoch
        options += [
            "trainer.val_check_interval=4",
            "+callbacks.best.save_top_k=-1",
            "callbacks.best.filename='best-{step}'",
        ]
    else:  # of the last step of an epoch, before its validation
        saving = f"filename: 'step-{{step}}', every_n_train_steps: 14, {keep}"
        options += [f"+callbacks.own={{_target_: lightning.pytorch.callbacks.ModelCheckpoint, {saving}}}"]

    def logged(*more: str) -> str:
        in_process(composed, *options, *more)
        return (tmp_path / "csv" / "metrics.csv").read_text()

    whole = logged()
    assert logged(f"ckpt_path={tmp_path / 'checkpoints' / name}.ckpt") == whole
