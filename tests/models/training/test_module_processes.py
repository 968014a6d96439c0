"""The metrics of an epoch that two processes share, whole and resumed: they are those of one process."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from two_processes import call_in_two

from loader.datamodules.nodes import GraphDataModule
from loader.datasets import NodeDataset
from loader.graph import Graph
from loader.samplers import FusedSampler
from loader.stores import HostFeatures
from models.training.module import NodeClassifier

# The resumed run saves nothing; Lightning would have it save again.
pytestmark = pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks")

SAVED = "step={step}.ckpt"


class Metrics(Callback):
    found: dict[str, float]

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.found = {name: float(value) for name, value in trainer.callback_metrics.items()}


def fit(root: Path, saved: str | None = None, num_train: int = 100, **options: Any) -> dict[str, float]:
    """What an epoch of training reports, without learning: 7 mini-batches, so two processes have one twice."""
    g = torch.Generator().manual_seed(0)
    n = 200
    graph = Graph.from_edges(torch.randint(n, (1500,), generator=g), torch.randint(n, (1500,), generator=g), n)
    splits = {"train": torch.arange(num_train), "val": torch.arange(0), "test": torch.arange(0)}
    data = NodeDataset("toy", graph, torch.randn(n, 8, generator=g), torch.arange(n) % 4, splits, num_classes=4)
    datamodule = GraphDataModule(
        data, FusedSampler([4, 3], num_threads=1), features=partial(HostFeatures, num_threads=1), batch_size=15
    )
    torch.manual_seed(0)
    metrics = Metrics()
    callbacks: list[Callback] = [metrics]
    if saved is None:
        callbacks.append(ModelCheckpoint(root, "{step}", every_n_train_steps=1, save_top_k=-1))
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        limit_val_batches=0,
        logger=False,
        callbacks=callbacks,
        enable_checkpointing=saved is None,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=root,
        **options,
    )
    model = NodeClassifier(8, 4, hidden_channels=8, num_layers=2, dropout=0.0, lr=1e-12)
    trainer.fit(model, datamodule=datamodule, ckpt_path=None if saved is None else root / saved)
    datamodule.close()
    return metrics.found


# Called by each of two processes.
def main(root: str) -> None:
    both = partial(fit, devices=2, strategy="ddp")
    path = Path(root)
    found = {"whole": both(path / "whole"), "resumed": both(path / "whole", SAVED.format(step=2))}
    found["odd"] = both(path / "odd", num_train=101)
    found["one mini-batch"] = both(path / "small", num_train=15)
    rank = os.environ["LOCAL_RANK"]
    (path / f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()  # Lightning leaves gloo's threads to the end of the interpreter


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("processes")
    call_in_two(__file__, "main", str(root))
    return root


@pytest.fixture(scope="module")
def found(root: Path) -> dict[str, dict[str, float]]:
    of_ranks = [json.loads((root / f"{rank}.json").read_text()) for rank in range(2)]
    assert of_ranks[0] == of_ranks[1]
    result: dict[str, dict[str, float]] = of_ranks[0]
    return result


def test_repeated_mini_batches_are_not_counted(found: dict[str, dict[str, float]], tmp_path: Path) -> None:
    assert found["whole"] == pytest.approx(fit(tmp_path), rel=1e-6)


def test_an_odd_number_of_nodes_is_counted(found: dict[str, dict[str, float]], tmp_path: Path) -> None:
    assert found["odd"] == pytest.approx(fit(tmp_path, num_train=101), rel=1e-6)


def test_a_process_that_only_repeats_takes_part(found: dict[str, dict[str, float]], tmp_path: Path) -> None:
    assert found["one mini-batch"] == pytest.approx(fit(tmp_path, num_train=15), rel=1e-6)


def test_a_resumed_epoch_includes_scores_of_all_processes(found: dict[str, dict[str, float]]) -> None:
    assert found["resumed"] == pytest.approx(found["whole"], rel=1e-6)


def test_one_process_continues_the_scores_of_two(root: Path, found: dict[str, dict[str, float]]) -> None:
    assert fit(root / "whole", SAVED.format(step=2)) == pytest.approx(found["whole"], rel=1e-6)


def test_an_interrupted_process_saves_without_waiting() -> None:
    def reduce(*_: Any, **__: Any) -> None:
        pytest.fail("the others may never come")

    model = NodeClassifier(8, 4)
    strategy = SimpleNamespace(reduce=reduce)
    model._trainer = SimpleNamespace(world_size=2, interrupted=True, strategy=strategy, current_epoch=0)  # type: ignore
    checkpoint: dict[str, Any] = {}
    with pytest.warns(UserWarning, match="interrupted run of 2 processes has no scores"):
        model.on_save_checkpoint(checkpoint)
    assert checkpoint == {}
