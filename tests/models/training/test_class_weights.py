"""Weights of the classes, label smoothing, and what refuses them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from omegaconf import OmegaConf
from torch.nn import functional as F
from torch.utils.data import DataLoader
from train_runs import Composer, in_process

from loader.samplers import FullSampler
from models.training.class_weights import as_class_weights, balanced_weights, weighted_cross_entropy
from models.training.module import NodeClassifier


def test_balanced_weights_have_mean_one_over_the_nodes() -> None:
    labels = torch.tensor([0, 0, 0, 1, 3, 3, 2])
    data = SimpleNamespace(labels=labels, splits={"train": torch.arange(6)}, num_classes=4)
    module: Any = SimpleNamespace(trainer=SimpleNamespace(datamodule=SimpleNamespace(data=data)))
    found = balanced_weights(module)
    assert found.tolist() == pytest.approx([6 / 9, 6 / 3, 1.0, 6 / 6])  # no training node has class 2
    assert found[labels[:6]].mean() == pytest.approx(1.0)


def test_the_loss_is_torchs(random_graph: Any) -> None:
    graph = random_graph()
    batch = FullSampler(2).sample(graph, torch.arange(30))
    batch = batch.replace(x=torch.randn(batch.nodes.numel(), 5), y=torch.arange(30) % 3)
    weights = OmegaConf.create([1.0, 2.0, 0.5])
    model = NodeClassifier(5, 3, hidden_channels=8, dropout=0.0, class_weights=weights, label_smoothing=0.1)
    assert model.class_weights is not None
    model.class_weights.copy_(torch.tensor(list(weights)))
    expected = F.cross_entropy(model(batch), batch.y, torch.tensor(list(weights)), label_smoothing=0.1)
    torch.testing.assert_close(model.training_step(batch, 0), expected)
    assert model.hparams["class_weights"] == [1.0, 2.0, 0.5]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_nodes_without_weight_have_loss_zero(smoothing: float) -> None:
    logits, weights = torch.randn(6, 3, requires_grad=True), torch.tensor([0.0, 2.0, 0.5])
    loss = weighted_cross_entropy(logits, torch.zeros(6, dtype=torch.long), weights, smoothing)
    assert loss == 0
    assert (torch.autograd.grad(loss, logits)[0] == 0).all()
    y = torch.tensor([0, 1, 2, 0, -100, 1])  # of which the fifth is left out
    expected = F.cross_entropy(logits, y, weights, label_smoothing=smoothing)
    torch.testing.assert_close(weighted_cross_entropy(logits, y, weights, smoothing), expected)


def test_weights_reach_the_loss_and_the_checkpoint(composed: Composer, tmp_path: Path) -> None:
    losses = [
        in_process(
            composed, "optimized_metric=train/loss", f"run_dir={tmp_path / str(i)}", f"model.class_weights={given}"
        )
        for i, given in enumerate(("null", "balanced", f"[{','.join(['1.0'] * 9)},50.0]"))
    ]
    assert len({round(loss, 4) for loss in losses}) == 3
    saved = torch.load(tmp_path / "1" / "checkpoints" / "best.ckpt", weights_only=True)
    assert saved["state_dict"]["class_weights"].shape == (10,)
    assert not (saved["state_dict"]["class_weights"] == 1).all()


def test_validation_loss_is_the_same_in_mini_batches(composed: Composer, tmp_path: Path) -> None:
    weights = f"model.class_weights=[{','.join(['1.0'] * 9)},50.0]"
    options = "optimized_metric=val/loss", "sampler=full", "callbacks.best=null", "trainer.max_epochs=1", weights
    losses = [
        in_process(composed, *options, f"run_dir={tmp_path / size}", f"datamodule.eval_batch_size={size}")
        for size in ("1000", "7")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")  # both runs write there
def test_a_resumed_run_has_the_given_weights(composed: Composer, tmp_path: Path) -> None:
    given = [[1.0] * 10, [*[1.0] * 9, 50.0]]
    options = "optimized_metric=train/loss", "callbacks.early_stopping=null", "callbacks.best=null"
    in_process(composed, *options, f"run_dir={tmp_path}", "trainer.max_steps=2", f"model.class_weights={given[0]}")
    step = tmp_path / "checkpoints" / "step.ckpt"
    more = f"run_dir={tmp_path / 'more'}", f"ckpt_path={step}", f"model.class_weights={given[1]}"
    in_process(composed, *options, *more)
    assert torch.load(step, weights_only=True)["state_dict"]["class_weights"].tolist() == given[1]


def test_an_evaluation_has_the_given_weights(random_graph: Any) -> None:
    batch = FullSampler(2).sample(random_graph(), torch.arange(30))
    batch = batch.replace(x=torch.randn(batch.nodes.numel(), 5), y=torch.arange(30) % 3)
    given = [1.0, 2.0, 30.0]
    model = NodeClassifier(5, 3, hidden_channels=8, dropout=0.0, class_weights=given)  # of a checkpoint that has ones
    trainer = Trainer(logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
    trainer.test(model, DataLoader([batch], batch_size=None), verbose=False)
    expected = F.cross_entropy(model(batch), batch.y, torch.tensor(given))
    torch.testing.assert_close(trainer.callback_metrics["test/loss"], expected.detach())


def test_another_number_of_classes_is_refused(composed: Composer) -> None:
    with pytest.raises(ValueError, match="class_weights has 2 numbers, the data have 10 classes; give one for each"):
        in_process(composed, "model.class_weights=[1.0,2.0]")


@pytest.mark.parametrize("given", ["equal", 3, [1.0, -1.0], [1.0, float("nan")], ["a"]])
def test_other_weights_are_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="class_weights is"):
        as_class_weights(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing": 1.0}, r"label_smoothing is 1.0; it must be in \[0, 1\)"),
        ({"multilabel": True, "label_smoothing": 0.1}, "label_smoothing is set, but nodes have several labels"),
        ({"multilabel": True, "class_weights": [1.0, 2.0]}, "class_weights is set, but nodes have several labels"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NodeClassifier(5, 2, **options)


def test_balanced_needs_the_labels(random_graph: Any) -> None:
    module: Any = SimpleNamespace(trainer=SimpleNamespace(datamodule=None))
    with pytest.raises(ValueError, match="class_weights is balanced, but the trainer has no GraphDataModule"):
        balanced_weights(module)
