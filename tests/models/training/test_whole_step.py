"""Training steps past Lightning's closure: results as by Lightning's way, and only if nobody could tell."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from graphed_nets import (
    CLASSES,
    FEATURES,
    EachEpoch,
    EachStep,
    Listed,
    Net,
    make_batches,
    take_steps_without_graphs,
    whole_and_part,
)
from lightning.pytorch import Callback, Trainer
from marks import needs_gpu
from torch import Tensor

from loader.samples import MiniBatch
from models.training.module import NodeClassifier
from models.training.whole_step import ReplayedAdam

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")


class Losses(Callback):
    """Notes the loss of each step, and that there are gradients then."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        assert all(p.grad is not None for p in module.parameters())
        self.losses.append(float(outputs["loss"]))


def net(kind: type[NodeClassifier] = NodeClassifier, **options: Any) -> NodeClassifier:
    torch.manual_seed(0)
    return kind(FEATURES, CLASSES, hidden_channels=CLASSES, **options)


def train(model: NodeClassifier, batches: list[MiniBatch], **options: Any) -> tuple[Trainer, list[float]]:
    torch.manual_seed(1)  # of dropout
    losses = Losses()
    defaults: dict[str, Any] = {"accelerator": "gpu" if batches[0].nodes.is_cuda else "cpu", "max_epochs": 2}
    quiet = {f"enable_{name}": False for name in ("checkpointing", "progress_bar", "model_summary")}
    callbacks = [losses, *options.pop("callbacks", [])]
    trainer = Trainer(
        **{**defaults, **quiet, "devices": 1, "logger": False, "log_every_n_steps": 0, **options}, callbacks=callbacks
    )
    trainer.fit(model, Listed(batches))
    return trainer, losses.losses


def assert_equal_runs(model: NodeClassifier, other: NodeClassifier, batches: list[MiniBatch], **options: Any) -> None:
    """Both train; losses, parameters, scores and counters are equal, on a GPU but for the order of its sums."""
    one, losses = train(model, batches, **copy.deepcopy(options))
    two, expected = train(other, batches, **options)
    near: dict[str, Any] = {"rtol": 2e-2, "atol": 3e-3} if batches[0].nodes.is_cuda else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(losses, expected, **near)
    assert one.global_step == two.global_step > 0
    torch.testing.assert_close(model.state_dict(), other.state_dict(), **near)
    assert one.callback_metrics.keys() == two.callback_metrics.keys() >= {"train/loss", "train/acc"}
    near["atol"] *= 10  # a node more or less is right
    torch.testing.assert_close(dict(one.callback_metrics), dict(two.callback_metrics), **near)


@pytest.fixture
def without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    take_steps_without_graphs(monkeypatch)


def cpu_batches(graph: Any) -> list[MiniBatch]:
    return make_batches(graph, multilabel=False, device="cpu", count=6)


@pytest.mark.usefixtures("without_graphs")
def test_results_and_counters_are_those_of_lightning(random_graph: Any) -> None:
    model, other = net(), net()
    other.whole_step.take = lambda *_: False  # type: ignore[method-assign]
    assert_equal_runs(model, other, cpu_batches(random_graph()))
    assert model.whole_step.taken == 12


class HasHook(Callback):
    def on_after_backward(self, trainer: Trainer, module: Any) -> None:
        pass


class OwnStep(NodeClassifier):
    def training_step(self, batch: MiniBatch, batch_idx: int) -> Tensor:
        return 2 * super().training_step(batch, batch_idx)


class OwnLossOf(NodeClassifier):
    def loss_of(self, batch: MiniBatch, stage: str) -> tuple[Tensor, Tensor]:
        loss, found = super().loss_of(batch, stage)
        return 2 * loss, found


class OwnHook(NodeClassifier):
    def on_before_optimizer_step(self, optimizer: Any) -> None:
        pass


class OwnOptimizer(NodeClassifier):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (OwnStep, {}),
        (OwnLossOf, {}),
        (OwnHook, {}),
        (OwnOptimizer, {}),
        (NodeClassifier, {"callbacks": [HasHook()]}),
        (NodeClassifier, {"gradient_clip_val": 0.1}),
        (NodeClassifier, {"accumulate_grad_batches": 2}),
        (NodeClassifier, {"precision": "bf16-mixed"}),
        (NodeClassifier, {"detect_anomaly": True}),
    ],
)
def test_what_could_tell_has_lightnings_way(random_graph: Any, kind: Any, options: dict[str, Any]) -> None:
    model = net(kind)
    train(model, cpu_batches(random_graph()), max_epochs=1, **options)
    assert model.whole_step.taken == 0


@pytest.mark.usefixtures("without_graphs")
def test_a_hook_of_a_gradient_is_called(random_graph: Any) -> None:
    model, called = net(), []
    next(model.parameters()).register_hook(called.append)
    train(model, cpu_batches(random_graph()), max_epochs=1)
    assert (model.whole_step.taken, len(called)) == (0, 6)


@pytest.mark.parametrize(
    "register", ["forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook"]
)
def test_hooks_of_modules_are_in_no_graph(register: str) -> None:
    model = net()
    assert model.graphs_cover_all()
    model.on_train_start()
    handle = getattr(next(model.net.children()), f"register_{register}")(lambda *_: None)
    assert not model.graphs_cover_all()
    handle.remove()
    model.on_train_start()
    assert model.graphs_cover_all()


def test_on_the_cpu_lightning_trains(random_graph: Any) -> None:
    model = net()
    train(model, cpu_batches(random_graph()), max_epochs=1)
    assert model.whole_step.taken == 0


def test_a_module_with_it_is_copied(random_graph: Any) -> None:
    model = net()
    train(model, cpu_batches(random_graph()), max_epochs=1)
    model.trainer = None
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        train(other, cpu_batches(random_graph()), max_epochs=1)


class OwnLoss(NodeClassifier):
    def _loss(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        return super()._loss(batch)


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("lazy", [False, True])
    @pytest.mark.parametrize("kind", [NodeClassifier, EachStep, EachEpoch])
    def test_results_are_those_of_lightning(self, random_graph: Any, kind: type[NodeClassifier], lazy: bool) -> None:
        batches = make_batches(random_graph(), multilabel=False, lazy=lazy)
        model, other = net(kind, cuda_graph=True), net(kind, cuda_graph=True)
        other.whole_step.take = lambda *_: False  # type: ignore[method-assign]
        assert_equal_runs(model, other, batches)
        assert model.graphed.replayed == other.graphed.replayed > 60
        assert model.whole_step.taken == model.graphed.replayed - model.graphed.captures  # the first one of each

    def test_the_smaller_last_mini_batch_is_replayed(self, random_graph: Any) -> None:
        whole, last = whole_and_part(make_batches(random_graph(), multilabel=False))
        model, other = net(cuda_graph=True), net(cuda_graph=False)
        assert_equal_runs(model, other, [*[whole] * 20, last])
        assert model.graphed.replayed == 2 * 21 - 15
        assert model.whole_step.taken == model.graphed.replayed - 1

    def test_an_own_loss_replays_no_smaller_mini_batch(self, random_graph: Any) -> None:
        whole, last = whole_and_part(make_batches(random_graph(), multilabel=False))
        model = net(OwnLoss, cuda_graph=True)
        train(model, [*[whole] * 20, last])
        assert model.graphed.replayed == 2 * 20 - 15

    def test_both_ways_take_turns(self, random_graph: Any) -> None:
        batches = make_batches(random_graph(), multilabel=False)
        model, other = net(cuda_graph=True), net(cuda_graph=True)
        other.whole_step.take = lambda *_: False  # type: ignore[method-assign]
        take, steps = model.whole_step.take, iter(range(1000))
        model.whole_step.take = lambda *given: next(steps) % 3 > 0 and take(*given)  # type: ignore[method-assign]
        assert_equal_runs(model, other, batches)
        assert 0 < model.whole_step.taken < model.graphed.replayed

    def test_a_backward_pass_before_it_is_refused(self, random_graph: Any) -> None:
        batches = make_batches(random_graph(), multilabel=False)
        one = Net(graphed=True)
        for batch in batches[:40]:
            one.step(batch)
        whole = [b for b in batches if one.graphed._captured is not None and one.graphed._captured.stand_in.holds(b)]
        loss, _ = one.graphed(whole[0])
        assert one.graphed.with_gradients(whole[1]) is not None
        with pytest.raises(RuntimeError, match="backward of a mini-batch after the forward pass of a later one"):
            loss.backward()

    def test_options_of_adam_may_change(self) -> None:
        torch.manual_seed(0)
        parameters = [torch.randn(5, 7, device="cuda", requires_grad=True) for _ in range(3)]
        others = [p.detach().clone().requires_grad_() for p in parameters]
        optimizer, other = (torch.optim.Adam(ps, lr=0.1, fused=True) for ps in (parameters, others))
        for p in parameters:
            p.grad = torch.empty_like(p)
        replayed, graphs = ReplayedAdam(optimizer), set()
        for i in range(30):
            for p, q in zip(parameters, others, strict=True):
                assert p.grad is not None
                q.grad = p.grad.normal_().clone()
            for each in (optimizer, other):
                each.param_groups[0]["lr"] = 0.1 if i < 10 else 0.05 if i < 20 else 0.01 * i
                each.param_groups[0]["weight_decay"] = 0.1 * (i > 5)
            replayed.step()
            other.step()
            graphs.add(replayed._graph)
            for p, q in zip(parameters, others, strict=True):
                assert torch.equal(p, q)
        assert len(graphs) == 4  # none, and three sets of options that stayed
        assert not optimizer.param_groups[0]["capturable"]


@pytest.mark.parametrize("options", [{}, {"amsgrad": True, "weight_decay": 0.1}, {"maximize": True, "eps": 1e-3}])
def test_adam_in_parts_is_adam(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.training.whole_step._A_PART", 7)
    monkeypatch.setattr("models.training.whole_step._A_LAUNCH", 3)
    g = torch.Generator().manual_seed(0)
    first = [torch.randn(shape, generator=g) for shape in ((5, 6), (3,), (), (4, 2))]
    first.append(torch.randn(6, 5, generator=g).t())
    both = [[torch.nn.Parameter(of.clone(memory_format=torch.preserve_format)) for of in first] for _ in range(2)]
    optimizers = [
        torch.optim.Adam([{"params": of[:2], "lr": 0.1}, {"params": of[2:]}], fused=True, **options) for of in both
    ]
    replayed = ReplayedAdam(optimizers[1])
    for step in range(4):
        for mine, theirs in zip(*both, strict=True):
            mine.grad = torch.randn(mine.shape, generator=g)
            theirs.grad = mine.grad.clone()
        both[0][1].grad = both[1][1].grad = None
        optimizers[0].step()
        optimizers[1].step() if not step else replayed._step_side_by_side()  # a first step makes the moments
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
    for mine, theirs in zip(*(of.state.values() for of in optimizers), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
