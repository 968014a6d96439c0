from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from graphed_nets import Listed, take_steps_without_graphs
from lightning.pytorch import Trainer
from marks import HAS_GPU, needs_frame
from shop import write_shop
from torch import Tensor

from loader.datamodules.tasks import TaskDataModule
from loader.datasets import RelationalDataset
from loader.samplers import TreeSampler
from loader.samples import TreeMiniBatch
from loader.stores import DeviceFeatures, HostFeatures
from models.training.task_predictor import TaskPredictor

pytestmark = needs_frame


def shop_batches(folder: Path, device: str, lazy: bool | None = False) -> tuple[TaskDataModule, list[TreeMiniBatch]]:
    """Mini-batches of 32 items that lie on the device."""
    shop = write_shop(folder / "shop", customers=60)
    store = HostFeatures if device == "cpu" else partial(DeviceFeatures, device=device, lazy=lazy)
    data = TaskDataModule(
        RelationalDataset(shop, "again", cache_dir=folder / "cache"),
        TreeSampler([6, 4], times="both", device=device),
        features=store,
        batch_size=32,
        drop_last=True,
        prefetch=0,
    )
    data.setup()
    return data, [batch for _ in range(4) for batch in data.train_dataloader()]


class Given(TaskPredictor):
    """Its outputs are those that the mini-batch holds."""

    def forward(self, batch: Any) -> Tensor:
        out: Tensor = batch.out
        return out


def given(kind: str) -> Given:
    column = {"name": "x", "kind": "number", "width": 1, "categories": 0, "first_year": 0}
    return Given({"node": [column]}, [("node", "to", "node")], "node", kind, hidden_channels=2, encoder_layers=1)


def evaluated(kind: str, *batches: tuple[list[float], list[float]]) -> dict[str, float]:
    model = given(kind)
    model._begin("val")
    for out, y in batches:
        labels = torch.tensor(y)
        model._evaluate(SimpleNamespace(out=torch.tensor(out), y=labels, repeats=False, batch_size=len(y)), "val")
    return {name: float(value) for name, value in model.val_scores.compute().items()}


def test_binary_scores_are_of_logits_everywhere() -> None:
    # All logits of the first mini-batch lie between 0 and 1, where probabilities do, too.
    scores = evaluated("binary", ([0.1, 0.2], [1, 1]), ([-1.0, 3.0], [0, 1]))
    assert scores == pytest.approx({"auroc": 1.0, "ap": 1.0, "acc": 1.0, "f1": 1.0})


def test_scores_tell_large_logits_apart() -> None:
    scores = evaluated("binary", ([20.0, 30.0, 25.0], [0, 1, 1]), ([-1.0], [0]))
    assert scores == pytest.approx({"auroc": 1.0, "ap": 1.0, "acc": 3 / 4, "f1": 4 / 5})


@pytest.mark.filterwarnings("ignore:No positive samples found in target")  # the average precision's
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_alone_has_no_auroc(label: int) -> None:
    scores = evaluated("binary", ([0.1, 0.2], [label, label]), ([-1.0], [label]))
    assert math.isnan(scores["auroc"])
    assert scores["acc"] == pytest.approx(2 / 3 if label else 1 / 3)


def test_r2_holds_for_labels_far_from_zero() -> None:
    batches = [
        ([2010.0 + i % 7 for i in range(j, j + 50)], [2010.5 + i % 5 for i in range(j, j + 50)]) for j in range(99)
    ]
    scores = evaluated("regression", *batches)
    out, y = (np.concatenate([batch[end] for batch in batches]) for end in (0, 1))
    expected = 1 - np.square(y - out).sum() / np.square(y - y.mean()).sum()
    assert scores == pytest.approx({"mae": np.abs(y - out).mean(), "r2": expected})


def test_losses_in_bfloat16_do_not_round_labels() -> None:
    """Which has 2008 and 2016, and no year between: a loss against these would teach another label."""
    batch = SimpleNamespace(out=torch.tensor([2008, 2016], dtype=torch.bfloat16), y=torch.tensor([2010.0, 2013.0]))
    assert float(given("regression")._loss(batch.out, batch)) == 2.5  # type: ignore[arg-type]


def test_graphs_are_refused_where_they_cannot_be(tmp_path: Path) -> None:
    data, batches = shop_batches(tmp_path, "cpu")
    model = TaskPredictor(**data.sizes, hidden_channels=4, encoder_layers=1, cuda_graph=True)
    with pytest.raises(RuntimeError, match="cuda_graph is true, but the mini-batch is not on a GPU"):
        model.training_step(batches[0], 0)
    with pytest.raises(TypeError, match="cuda_graph is 'maybe'; it must be True or False"):
        TaskPredictor(**data.sizes, cuda_graph="maybe")  # type: ignore[arg-type]


class Scaled(TaskPredictor):
    """A parameter beside the net."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.scale = torch.nn.Parameter(torch.ones(()))


class OwnForward(TaskPredictor):
    def forward(self, batch: Any) -> Tensor:
        return super().forward(batch) + batch.nodes.numel()


@pytest.mark.parametrize("kind", [Scaled, OwnForward])
def test_what_a_graph_may_lack_has_plain_steps(tmp_path: Path, kind: type[TaskPredictor]) -> None:
    data, batches = shop_batches(tmp_path, "cpu")
    on_gpu: Any = SimpleNamespace(nodes=SimpleNamespace(is_cuda=True))
    assert TaskPredictor(**data.sizes, hidden_channels=4, encoder_layers=1).may_be_graphed(on_gpu)
    model = kind(**data.sizes, hidden_channels=4, encoder_layers=1)
    assert not model.may_be_graphed(on_gpu)
    if kind is Scaled:
        model.cuda_graph = True
        with pytest.raises(RuntimeError, match="or there are parameters outside of net, or hooks"):
            model.may_be_graphed(on_gpu)
        model.cuda_graph = None
    assert torch.isfinite(model.training_step(batches[0], 0))


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_steps_past_lightning_train_as_lightnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_steps_without_graphs(monkeypatch)
    data, batches = shop_batches(tmp_path, "cpu")
    found = []
    for taken in (True, False):
        torch.manual_seed(0)
        model = TaskPredictor(**data.sizes, hidden_channels=8, encoder_layers=1)
        if not taken:
            model.whole_step.take = lambda *_: False  # type: ignore[method-assign]
        quiet: dict[str, Any] = {f"enable_{name}": False for name in ("checkpointing", "progress_bar", "model_summary")}
        trainer = Trainer(accelerator="cpu", devices=1, max_epochs=2, logger=False, log_every_n_steps=0, **quiet)
        torch.manual_seed(1)  # of dropout
        trainer.fit(model, Listed(batches[:6]))
        assert model.whole_step.taken == (12 if taken else 0)
        found.append((trainer.callback_metrics["train/loss"], trainer.global_step, model.state_dict()))
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode", "ignore:Attempting to run cuBLAS")
@pytest.mark.parametrize("unique_rows", [True, False])
def test_graphs_train_as_plain_steps_do(tmp_path: Path, unique_rows: bool) -> None:
    """Losses of 200 steps, captured and plain; most steps are replayed, and the host waits for none of them."""
    data, batches = shop_batches(tmp_path, "cuda")
    losses: dict[bool, list[Tensor]] = {}
    for graph in (True, False):
        torch.manual_seed(0)
        options: dict[str, Any] = {
            "hidden_channels": 16,
            "encoder_layers": 2,
            "dropout": 0.0,
            "unique_rows": unique_rows,
        }
        model = TaskPredictor(**data.sizes, **options, cuda_graph=graph).cuda()
        optimizer = torch.optim.Adam(model.net.parameters(), lr=1e-3, fused=True)
        losses[graph] = []
        for step in range(200):
            batch = batches[step % len(batches)]
            optimizer.zero_grad()
            loss = model.training_step(batch, step)
            loss.backward()
            optimizer.step()
            losses[graph].append(loss.detach().clone())
        if graph:
            assert model.graphed.replayed > 150
            assert model.graphed.captures <= 2
            fits = next(batch for batch in batches if model.graphed.repeats(batch))
            model.graphed.with_gradients(fits)  # captures both passes as one
            try:
                torch.cuda.set_sync_debug_mode("error")
                model.graphed.repeat(fits)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(torch.stack(losses[True]), torch.stack(losses[False]), rtol=1e-2, atol=1e-3)
    assert losses[True][-1] < 0.8 * losses[True][0]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("lazy", [False, True])
def test_wide_graphs_give_gradients_of_plain_steps(tmp_path: Path, lazy: bool) -> None:
    """At the width of real jobs, whose sums take other kernels: loss and gradients from the same weights."""
    data, batches = shop_batches(tmp_path, "cuda", lazy)
    torch.manual_seed(0)
    options: dict[str, Any] = {"hidden_channels": 128, "dropout": 0.0, "matmul_precision": "highest"}
    model = TaskPredictor(**data.sizes, **options, cuda_graph=True).cuda()
    optimizer = torch.optim.Adam(model.net.parameters(), lr=1e-3, fused=True)
    parameters, far = dict(model.net.named_parameters()), list[Tensor]()
    for step in range(60):
        batch = batches[step % len(batches)]
        plain, _ = model._loss_and_outputs(batch)
        wanted = torch.autograd.grad(plain, list(parameters.values()), allow_unused=True)
        optimizer.zero_grad()
        loss, _ = model.graphed(batch)
        loss.backward()
        torch.testing.assert_close(loss, plain, rtol=1e-4, atol=1e-6)
        for (name, parameter), gradient in zip(parameters.items(), wanted, strict=True):
            assert (parameter.grad is None) == (gradient is None), name
            if gradient is not None:
                far.append((parameter.grad - gradient).norm() / gradient.norm().clamp(min=1e-6))
                # Where a sum that is rounded otherwise has another sign, a ReLU passes on a row more or less.
                assert far[-1] < 0.05, f"{name} at step {step}"
        optimizer.step()
    assert torch.stack(far).median() < 1e-4
    assert model.graphed.replayed > 20
