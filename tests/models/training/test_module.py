"""The LightningModule: steps, metrics, the exact test, and that it takes batches from anywhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from graphed_nets import Listed
from lightning.pytorch import Callback, LightningModule, Trainer
from marks import needs_gpu
from torch import Tensor

from loader.graph import Graph
from loader.samplers import HopwiseSampler
from loader.samples import MiniBatch
from models.inference import layerwise_inference
from models.training.callbacks import StepCheckpoint
from models.training.metric_names import METRICS
from models.training.module import NodeClassifier, WholeGraph

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")

NUM_CLASSES = 3


class HandMade:
    """A loader of the plainest kind: no Lightning, no torch DataLoader."""

    def __init__(self, graph: Graph, x: Tensor, y: Tensor, batch_size: int = 40) -> None:
        self.graph, self.x, self.y, self.batch_size = graph, x, y, batch_size
        self.neighbors = HopwiseSampler([4, 4], seed=0)

    def __len__(self) -> int:
        return self.graph.num_nodes // self.batch_size

    def __iter__(self) -> Iterator[MiniBatch]:
        for i, seeds in enumerate(torch.arange(self.graph.num_nodes).split(self.batch_size)):
            batch = self.neighbors.sample(self.graph, seeds, batch=i)
            yield batch.replace(x=self.x[batch.nodes.long()], y=self.y[batch.output_nodes.long()])


def make_loader(graph: Graph, multilabel: bool) -> HandMade:
    """Labels that the features tell."""
    x = torch.randn(graph.num_nodes, 5, generator=torch.Generator().manual_seed(0))
    y = (x[:, :NUM_CLASSES] > 0).float() if multilabel else x[:, :NUM_CLASSES].argmax(-1)
    return HandMade(graph, x, y)


def make_trainer(**options: Any) -> Trainer:
    defaults = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 0,
    }
    return Trainer(**{**defaults, **options})


@pytest.mark.parametrize("multilabel", [False, True])
def test_learns_and_reports_its_metrics(random_graph: Any, multilabel: bool) -> None:
    torch.manual_seed(0)
    loader = make_loader(random_graph(), multilabel)
    model = NodeClassifier(5, NUM_CLASSES, multilabel=multilabel, hidden_channels=32, dropout=0.0, lr=0.02)
    trainer = make_trainer(max_epochs=15)
    trainer.fit(model, train_dataloaders=loader, val_dataloaders=loader)
    fitted = dict(trainer.callback_metrics)
    assert fitted["val/acc"] > 0.9

    splits = {"train": torch.arange(100), "val": torch.arange(100, 150), "test": torch.arange(150, 200)}
    (tested,) = trainer.test(model, dataloaders=WholeGraph(loader.graph, loader.x, loader.y, splits), verbose=False)
    logits = layerwise_inference(model.net, loader.graph, loader.x, progress=False)
    for split, nodes in splits.items():
        assert tested[f"test/{split}_acc"] == pytest.approx(score(logits[nodes], loader.y[nodes], multilabel))
    assert {*fitted, *tested} == set(METRICS)


def score(logits: Tensor, y: Tensor, multilabel: bool) -> float:
    """Accuracy, or micro-averaged F1, by its definition."""
    if not multilabel:
        return (logits.argmax(-1) == y).double().mean().item()
    said, true = logits > 0, y > 0
    hits = (said & true).sum()
    return (2 * hits / (said.sum() + true.sum())).item()


def test_validation_accuracy_is_that_of_the_epoch(random_graph: Any) -> None:
    """Batches of 70, 70 and 60 nodes: the mean over nodes, not over batches."""
    loader = make_loader(random_graph(), multilabel=False)
    loader.batch_size = 70
    model = NodeClassifier(5, NUM_CLASSES, hidden_channels=8)
    model.eval()
    batches = list(loader)
    expected_acc = score(torch.cat([model(b) for b in batches]), loader.y, multilabel=False)
    losses = [torch.nn.functional.cross_entropy(model(b), b.y, reduction="sum").item() for b in batches]
    (got,) = make_trainer().validate(model, dataloaders=Listed(batches), verbose=False)
    assert got["val/acc"] == pytest.approx(expected_acc)
    assert got["val/loss"] == pytest.approx(sum(losses) / 200, rel=1e-5)


def test_tests_on_mini_batches_too_and_predicts(random_graph: Any) -> None:
    loader = make_loader(random_graph(), multilabel=False)
    model = NodeClassifier(5, NUM_CLASSES, hidden_channels=8)
    (got,) = make_trainer().test(model, dataloaders=loader, verbose=False)
    predicted = make_trainer().predict(model, dataloaders=loader)
    assert predicted is not None
    logits = torch.cat([p for p in predicted if isinstance(p, Tensor)])
    assert logits.shape == (200, NUM_CLASSES)
    assert got["test/acc"] == pytest.approx(score(logits, loader.y, multilabel=False))


def test_is_restored_from_its_checkpoint(random_graph: Any, tmp_path: Any) -> None:
    loader = make_loader(random_graph(), multilabel=False)
    model = NodeClassifier(5, NUM_CLASSES, hidden_channels=8, num_layers=2, norm="batch", lr=0.02)
    trainer = make_trainer(max_epochs=1)
    trainer.fit(model, train_dataloaders=loader, val_dataloaders=loader)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    again = NodeClassifier.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=True)
    assert again.lr == 0.02
    batch = next(iter(loader))
    assert torch.equal(again.eval()(batch), model.eval()(batch))


def test_optimiser_is_adam_with_the_given_settings() -> None:
    optimiser = NodeClassifier(5, NUM_CLASSES, lr=0.125, weight_decay=0.25).configure_optimizers()
    assert isinstance(optimiser, torch.optim.Adam)
    assert (optimiser.defaults["lr"], optimiser.defaults["weight_decay"]) == (0.125, 0.25)
    assert not optimiser.defaults["fused"]


def test_a_batch_without_features_or_labels_is_refused(random_graph: Any) -> None:
    batch = next(iter(make_loader(random_graph(), multilabel=False)))
    model = NodeClassifier(5, NUM_CLASSES)
    with pytest.raises(ValueError, match="no features"):
        model(batch.replace(x=None))
    with pytest.raises(ValueError, match="no labels"):
        model.training_step(batch.replace(y=None), 0)


class Seen(Callback):
    """What callbacks find in the metrics at the end of each epoch of training; saves in the middle of the second."""

    def __init__(self, path: Any = None) -> None:
        self.path = path
        self.epochs: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self.path is not None and trainer.global_step == 7:
            trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.epochs.append({k: v.item() for k, v in trainer.callback_metrics.items()})


class StatefulLoader(Listed):
    """Goes on where it was, as Lightning asks of a loader."""

    def __init__(self, batches: list[MiniBatch]) -> None:
        super().__init__(batches)
        self.done = 0

    def __iter__(self) -> Iterator[MiniBatch]:
        self.done %= len(self.batches)
        while self.done < len(self.batches):
            self.done += 1
            yield self.batches[self.done - 1]

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


def make_stateful_loader(graph: Graph, multilabel: bool) -> StatefulLoader:
    loader = make_loader(graph, multilabel)
    loader.batch_size = 45  # 45, 45, 45, 45 and 20 nodes
    return StatefulLoader(list(loader))


@pytest.mark.parametrize("multilabel", [False, True])
def test_training_metrics_are_those_of_the_epoch(random_graph: Any, multilabel: bool) -> None:
    loader = make_stateful_loader(random_graph(), multilabel)
    model = NodeClassifier(5, NUM_CLASSES, multilabel=multilabel, hidden_channels=8, dropout=0.0)
    losses: list[float] = []
    logits: list[Tensor] = []

    class Remember(Callback):
        def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, *_: Any) -> None:
            with torch.no_grad():
                said = module(batch)
                loss_of = torch.nn.functional.binary_cross_entropy_with_logits
                loss = loss_of(said, batch.y) if multilabel else torch.nn.functional.cross_entropy(said, batch.y)
            logits.append(said)
            losses.append(loss.item() * batch.batch_size)

    seen = Seen()
    make_trainer(max_epochs=1, callbacks=[Remember(), seen]).fit(model, train_dataloaders=loader)
    y = torch.cat([b.y for b in loader.batches if b.y is not None])
    assert seen.epochs[0]["train/loss"] == pytest.approx(sum(losses) / 200, rel=1e-5)
    assert seen.epochs[0]["train/acc"] == pytest.approx(score(torch.cat(logits), y, multilabel))


@pytest.mark.parametrize("multilabel", [False, True])
def test_a_resumed_epoch_reports_all_of_itself(random_graph: Any, tmp_path: Any, multilabel: bool) -> None:
    graph = random_graph()
    results: list[list[dict[str, float]]] = []
    for resumed in (False, True):
        torch.manual_seed(0)
        seen = Seen(None if resumed else tmp_path / "a.ckpt")
        model = NodeClassifier(5, NUM_CLASSES, multilabel=multilabel, hidden_channels=8, dropout=0.0)
        loader = make_stateful_loader(graph, multilabel)
        make_trainer(max_epochs=3, callbacks=[seen]).fit(
            model, train_dataloaders=loader, ckpt_path=tmp_path / "a.ckpt" if resumed else None
        )
        results.append(seen.epochs)
    whole, rest = results
    assert len(whole) == 3
    assert rest == whole[1:]


def test_a_run_goes_on_after_its_last_epoch(random_graph: Any, tmp_path: Any) -> None:
    loader, seen = make_stateful_loader(random_graph(), multilabel=False), [Seen(), Seen(), Seen()]
    for callback, epochs, resumed in zip(seen, (3, 2, 3), (None, None, tmp_path / "step.ckpt"), strict=True):
        torch.manual_seed(0)
        saving = StepCheckpoint(tmp_path / "step.ckpt", every_n_train_steps=1)
        make_trainer(max_epochs=epochs, callbacks=[callback, saving], enable_checkpointing=True).fit(
            NodeClassifier(5, NUM_CLASSES, hidden_channels=8, dropout=0.0), train_dataloaders=loader, ckpt_path=resumed
        )
    assert seen[1].epochs + seen[2].epochs == seen[0].epochs


def test_an_epoch_cut_short_is_reported_too(random_graph: Any) -> None:
    loader = make_stateful_loader(random_graph(), multilabel=False)
    seen = Seen()
    trainer = make_trainer(max_steps=7, callbacks=[seen])
    trainer.fit(NodeClassifier(5, NUM_CLASSES, hidden_channels=8), train_dataloaders=loader)
    assert len(seen.epochs) == 2
    assert seen.epochs[0] != seen.epochs[1]
    assert {"train/loss", "train/acc"} <= set(trainer.callback_metrics)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lr": 0.0}, "lr is 0.0; it must be greater than 0"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0; it must be at least 0"),
        ({"inference_chunk_mib": 0}, "inference_chunk_mib is 0"),
        ({"matmul_precision": "tf32"}, "matmul_precision is 'tf32'; it must be one of highest, high, medium"),
        ({"norm": "group"}, "norm is 'group'"),
        (
            {"num_features": 0},
            "num_features is 0; it must be at least 1",
        ),
        ({"num_classes": "ten"}, "num_classes is 'ten'; it must be an integer"),
        ({"multilabel": "no"}, "multilabel is 'no'; it must be True or False"),
        ({"lr": "fast"}, "lr is 'fast'; it must be a number"),
        ({"lr": float("inf")}, "lr is inf; it must be greater than 0 and finite"),
        ({"weight_decay": float("nan")}, "weight_decay is nan; it must be at least 0 and finite"),
        ({"cuda_graph": "maybe"}, "cuda_graph is 'maybe'; it must be True or False"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        NodeClassifier(**{"num_features": 5, "num_classes": NUM_CLASSES, **wrong})


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("multilabel", [False, True])
    def test_a_training_step_waits_for_no_gpu(self, random_graph: Any, multilabel: bool) -> None:
        batches = [b.to("cuda") for b in make_loader(random_graph(), multilabel)]
        model = NodeClassifier(5, NUM_CLASSES, multilabel=multilabel).cuda()
        optimizer = model.configure_optimizers()
        assert optimizer.defaults["fused"]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for i, batch in enumerate(batches):
                optimizer.zero_grad()
                model.training_step(batch, i).backward()
                optimizer.step()
            with torch.no_grad():
                model.validation_step(batches[0], 0)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert model.scores["train"].count == 200

    def test_a_trainer_waits_for_no_gpu_between_epochs(self, random_graph: Any) -> None:
        loader = Listed([b.to("cuda") for b in make_loader(random_graph(), multilabel=False)])

        class Watch(Callback):
            def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: Any, index: int) -> None:
                torch.cuda.set_sync_debug_mode("error" if 0 < index < 4 else "default")

            def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
                if trainer.is_last_batch:
                    torch.cuda.set_sync_debug_mode("default")

        try:
            make_trainer(accelerator="cuda", devices=1, max_epochs=3, callbacks=[Watch()]).fit(
                NodeClassifier(5, NUM_CLASSES), train_dataloaders=loader
            )
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_backward_stays_in_the_thread_of_the_loop(self, random_graph: Any) -> None:
        model = NodeClassifier(5, NUM_CLASSES)
        threads: set[int] = set()
        for parameter in model.parameters():
            parameter.register_hook(lambda _: threads.add(threading.get_ident()))
        loader = make_loader(random_graph(), multilabel=False)
        make_trainer(accelerator="cuda", devices=1, max_epochs=1).fit(model, train_dataloaders=loader)
        assert threads == {threading.get_ident()}

    @pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
    @pytest.mark.parametrize("multilabel", [False, True])
    def test_learns_in_every_precision(self, random_graph: Any, precision: str, multilabel: bool) -> None:
        torch.manual_seed(0)
        loader = make_loader(random_graph(), multilabel)
        model = NodeClassifier(5, NUM_CLASSES, multilabel=multilabel, hidden_channels=32, dropout=0.0, lr=0.02)
        trainer = make_trainer(accelerator="cuda", devices=1, max_epochs=15, precision=precision)
        before = torch.get_float32_matmul_precision()
        trainer.fit(model, train_dataloaders=loader, val_dataloaders=loader)
        assert torch.get_float32_matmul_precision() == before
        assert trainer.callback_metrics["val/acc"] > 0.9
        splits = {"train": torch.arange(100), "val": torch.arange(100, 150), "test": torch.arange(150, 200)}
        whole = WholeGraph(loader.graph, loader.x, loader.y, splits)
        (tested,) = trainer.test(model, dataloaders=whole, verbose=False)
        assert tested["test/test_acc"] > 0.8

    def test_matmul_precision_holds_while_the_trainer_runs(self, random_graph: Any) -> None:
        class Watch(Callback):
            def on_train_batch_start(self, *_: Any) -> None:
                assert torch.get_float32_matmul_precision() == "medium"

        make_trainer(accelerator="cuda", devices=1, max_epochs=1, callbacks=[Watch()]).fit(
            NodeClassifier(5, NUM_CLASSES, matmul_precision="medium"),
            train_dataloaders=make_loader(random_graph(), multilabel=False),
        )
