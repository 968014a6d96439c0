"""Training steps by CUDA graphs: the same losses and gradients as without, whatever the sizes."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest
import torch
from graphed_nets import (
    BATCH,
    CLASSES,
    FEATURES,
    Listed,
    Net,
    captured,
    gradients,
    largest,
    make_batches,
    whole_and_part,
)
from graphs_on_cpu import simulate_graphs
from lightning.pytorch import Trainer
from marks import needs_gpu
from torch import Tensor
from torch.nn import functional as F

from loader.samples import MiniBatch
from models.sage import GraphSAGE
from models.training.cuda_graphs import GraphedLoss, _Parameters
from models.training.module import NodeClassifier


def test_on_the_cpu_the_function_runs_unchanged(random_graph: Any) -> None:
    batch = make_batches(random_graph(), multilabel=False, device="cpu", count=1)[0]
    logits = torch.ones(2, requires_grad=True)
    graphed = GraphedLoss(lambda b: (logits.sum() * b.batch_size, logits), torch.nn.Identity())
    for _ in range(40):
        loss, got = graphed(batch)
        assert got is logits
        assert loss.requires_grad
    assert (graphed.replayed, graphed.captures) == (0, 0)


def test_only_exchanges_trigger_a_new_parameter_search() -> None:
    net = GraphSAGE(FEATURES, CLASSES, CLASSES, 2)
    of_net = _Parameters(net)
    assert list(of_net.named) == [name for name, _ in net.named_parameters()]
    net.eval().train()
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    torch.optim.Adam(net.parameters()).step()
    net.load_state_dict(net.state_dict())
    assert of_net.unchanged()

    def exchange_layer() -> None:
        net.convs[1] = copy.deepcopy(net.convs[1])

    def exchange_parameter() -> None:
        net.first.lin_self.bias = torch.nn.Parameter(torch.zeros(CLASSES))

    def add() -> None:
        net.register_parameter("scale", torch.nn.Parameter(torch.ones(())))

    def freeze() -> None:
        net.first.lin_self.weight.requires_grad_(False)

    def move() -> None:
        net.first.lin_neigh.weight.data = net.first.lin_neigh.weight.data.clone()

    def drop_more() -> None:
        net.input_dropout = 0.25

    for change in (exchange_layer, exchange_parameter, add, freeze, move, drop_more, net.eval):
        of_net = _Parameters(net)
        change()
        assert not of_net.unchanged(), change.__name__
        assert _Parameters(net).unchanged()
    of_net = _Parameters(dropout := torch.nn.Dropout(0.5))
    dropout.p = 0.25
    assert not of_net.unchanged()
    dropout.dropout_mask = torch.ones(3)  # of a step, as in variational dropout
    of_net = _Parameters(dropout)
    dropout.dropout_mask = torch.zeros(3)
    assert of_net.unchanged()
    assert "convs.0.lin_self.weight" not in _Parameters(net).named


def test_graphs_that_cannot_be_had_are_refused(random_graph: Any) -> None:
    with pytest.raises(ValueError, match="cuda_graph is true, but norm='batch' mixes rows"):
        NodeClassifier(FEATURES, CLASSES, norm="batch", cuda_graph=True)
    batch = make_batches(random_graph(), multilabel=False, device="cpu", count=1)[0]
    with pytest.raises(RuntimeError, match="cuda_graph is true, but the mini-batch is not on a GPU"):
        NodeClassifier(FEATURES, CLASSES, cuda_graph=True).training_step(batch, 0)
    NodeClassifier(FEATURES, CLASSES, norm="batch").training_step(batch, 0)


@pytest.fixture
def cpu_batches(random_graph: Any, monkeypatch: pytest.MonkeyPatch) -> list[MiniBatch]:
    """For graphs that are simulated: with all seeds, and every tenth with fewer."""
    simulate_graphs(monkeypatch)
    return make_batches(random_graph(), multilabel=False, device="cpu", count=40)


def relabelled(batch: MiniBatch) -> MiniBatch:
    """With labels that the loss ignores in the data themselves, the last one's among them."""
    assert batch.y is not None
    y = batch.y.clone()
    y[::3] = y[-1] = -100
    return batch.replace(y=y)


def test_fewer_seeds_have_their_own_loss_and_gradients(cpu_batches: list[MiniBatch]) -> None:
    whole, part = whole_and_part(cpu_batches)
    torch.manual_seed(0)
    model = NodeClassifier(FEATURES, CLASSES, hidden_channels=CLASSES, dropout=0.0)
    for _ in range(16):
        model.graphed(whole)
    for batch in (part, relabelled(part), whole):
        model.zero_grad()
        wanted, hits = model._loss(batch)
        wanted.backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        for way in ("passes", "whole"):
            model.zero_grad()
            if way == "passes":
                loss, found = model.graphed(batch)
                loss.backward()
            else:
                done = model.graphed.with_gradients(batch)
                assert done is not None
                loss, found = done
            assert torch.equal(found, hits)
            torch.testing.assert_close(loss.detach(), wanted.detach(), rtol=1e-5, atol=1e-6)
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                torch.testing.assert_close(p.grad, gradient, rtol=1e-5, atol=1e-6)
    assert (model.graphed.captures, model.graphed.replayed) == (1, 7)


@pytest.mark.parametrize("way", ["passes", "whole", "short"])
def test_many_with_fewer_seeds_are_captured_anew(cpu_batches: list[MiniBatch], way: str) -> None:
    whole, part = whole_and_part(cpu_batches)
    graphed = NodeClassifier(FEATURES, CLASSES, hidden_channels=CLASSES).graphed

    def call(batch: MiniBatch) -> None:
        if way == "short" and graphed.repeats(batch):
            graphed.repeat(batch)
        elif way == "passes" or graphed.with_gradients(batch) is None:
            graphed(batch)

    for batch in [whole] * 16:
        call(batch)
    for _ in range(3):  # epochs
        for batch in [part] * 15 + [whole]:
            call(batch)
    assert (graphed.captures, graphed.replayed) == (1, 1 + 3 * 16)
    for _ in range(60):
        call(part)
    assert graphed.captures == 2
    assert graphed.replayed > 49 + 15  # and some by a graph of their own


def test_only_the_classifiers_own_loss_is_padded(cpu_batches: list[MiniBatch]) -> None:
    whole, part = whole_and_part(cpu_batches)
    for kind, replayed in ((NodeClassifier, 2), (OtherLoss, 1), (MixesSeeds, 1)):
        graphed = kind(FEATURES, CLASSES, hidden_channels=CLASSES).graphed
        for batch in [*[whole] * 16, part]:
            graphed(batch)
        assert graphed.replayed == replayed


def test_labels_that_are_no_classes_are_not_padded(random_graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_graphs(monkeypatch)
    whole, part = whole_and_part(make_batches(random_graph(), multilabel=True, device="cpu", count=40))
    graphed = NodeClassifier(FEATURES, CLASSES, hidden_channels=CLASSES, multilabel=True).graphed
    for batch in [*[whole] * 16, part, whole, part]:
        graphed(batch)
        assert batch is whole or graphed.with_gradients(batch) is None
    assert (graphed.captures, graphed.replayed) == (1, 2)


class OtherLoss(NodeClassifier):
    def _loss(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        loss, found = super()._loss(batch)
        return 2 * loss, found


class SeesCollector(NodeClassifier):
    """Writes down whether garbage may be collected."""

    def __init__(self) -> None:
        super().__init__(FEATURES, CLASSES, hidden_channels=CLASSES)
        self.seen: list[bool] = []

    def _loss(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        self.seen.append(gc.isenabled())
        return super()._loss(batch)


class MixesSeeds(NodeClassifier):
    def forward(self, batch: MiniBatch) -> Tensor:
        logits = super().forward(batch)
        return logits - logits.mean(0)


class TestOnGPU:
    pytestmark = needs_gpu

    def test_no_garbage_is_collected_amid_a_capture(self, random_graph: Any) -> None:
        model = SeesCollector().cuda()
        for batch in make_batches(random_graph(), multilabel=False)[:20]:
            model.graphed(batch)[0].backward()
        assert model.graphed.captures > 0
        assert model.seen[:16] == [True] * 16
        assert not all(model.seen)
        assert gc.isenabled()

    @pytest.mark.parametrize(
        "options",
        [{}, {"norm": "layer"}, {"dropout": 0.0}, {"input_dropout": 0.3}, {"multilabel": True}, {"lazy": True}],
        ids=lambda options: "-".join(options) or "plain",
    )
    def test_losses_and_parameters_are_those_without_graphs(self, random_graph: Any, options: dict[str, Any]) -> None:
        options = dict(options)
        lazy = options.pop("lazy", False)
        batches = make_batches(random_graph(), multilabel="multilabel" in options, lazy=lazy)
        plain, graphed = Net(graphed=False, **options), Net(graphed=True, **options)
        losses = []
        for net in (plain, graphed):
            torch.manual_seed(1)
            losses.append(torch.stack([net.step(batch) for batch in batches * 3]))
        assert graphed.graphed.captures in (1, 2)
        assert graphed.graphed.replayed > 100
        torch.testing.assert_close(losses[1], losses[0], rtol=2e-3, atol=2e-3)
        for a, b in zip(graphed.net.parameters(), plain.net.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=2e-2, atol=3e-3)

    def test_small_mini_batches_have_only_their_gradients(self, batches: list[MiniBatch]) -> None:
        net, plain = captured(batches, dropout=0.0), Net(graphed=False, dropout=0.0)
        most = largest(batches)
        full = [
            b
            for b in batches
            if b.batch_size == BATCH and all(m <= n for m, n in zip(b.frontier_sizes, most.frontier_sizes, strict=True))
        ]
        smallest = min(full, key=lambda b: b.num_edges)
        assert smallest.num_edges < 0.5 * most.num_edges
        for batch in (most, smallest, most, smallest):
            grads = []
            for each in (net, plain):
                each.optimizer.zero_grad()
                each.loss(batch)[0].backward()
                grads.append(gradients(each))
            for a, b in zip(*grads, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)

    def test_fewer_seeds_are_replayed_with_ignored_labels(self, batches: list[MiniBatch]) -> None:
        whole = largest(batches)
        net, plain = captured([whole], dropout=0.0, ignored_label=-100), Net(graphed=False, dropout=0.0)
        graphs = net.graphed._captured
        assert graphs is not None
        parts = [b for b in batches if b.batch_size < BATCH and graphs.stand_in.holds(b)]
        assert parts
        for batch in (parts[0], whole, parts[-1], whole):
            found = []
            for each in (net, plain):
                each.optimizer.zero_grad()
                loss, _ = each.loss(batch)
                loss.backward()
                found.append([loss.detach(), *gradients(each)])
            for a, b in zip(*found, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
        assert (net.graphed.captures, net.graphed.replayed) == (1, 5)

    def test_an_exchanged_layer_is_captured_again(self, batches: list[MiniBatch]) -> None:
        net = captured(batches, dropout=0.0)
        first = largest(batches)
        old = net.net.convs[1]
        net.net.convs[1] = copy.deepcopy(old)
        for p in net.net.convs[1].parameters():
            torch.nn.init.zeros_(p)
        for _ in range(40):
            loss, logits = net.loss(first)
            assert not logits.any()
        assert net.graphed.captures == 2
        loss.backward()
        assert all(p.grad is None for p in old.parameters())
        assert all(p.grad is not None for p in net.net.convs[1].parameters())

    @pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
    def test_a_captured_graph_includes_autocast(self, batches: list[MiniBatch], low: torch.dtype) -> None:
        batch = largest(batches)
        net = Net(graphed=True, dropout=0.0)
        with torch.autocast("cuda", low):
            for _ in range(17):
                _, logits = net.loss(batch)
            assert logits.dtype == low
        assert (net.graphed.captures, net.graphed.replayed) == (1, 2)
        _, logits = net.loss(batch)
        assert logits.dtype == torch.float32
        assert net.graphed.replayed == 2

    def test_only_many_larger_mini_batches_are_captured(self, batches: list[MiniBatch]) -> None:
        full = sorted((b for b in batches if b.batch_size == BATCH), key=lambda b: b.num_edges)
        small, large = full[0], full[-1]
        net = Net(graphed=True)
        for _ in range(15):
            net.step(small)
        assert net.graphed.replayed == 0
        net.step(small)
        assert (net.graphed.captures, net.graphed.replayed) == (1, 1)
        for i in range(15):
            net.step(large)
            net.step(small)
            assert (net.graphed.captures, net.graphed.replayed) == (1, 2 + i)
        net.step(large)
        assert (net.graphed.captures, net.graphed.replayed) == (2, 17)

    def test_a_new_batch_size_replaces_the_old(self, batches: list[MiniBatch]) -> None:
        whole = next(b for b in batches if b.batch_size == BATCH)
        part = next(b for b in batches if b.batch_size < BATCH)
        net = captured([whole])
        for _ in range(40):  # the last mini-batch of many epochs
            net.step(whole)
            net.step(part)
        assert (net.graphed.captures, net.graphed.replayed) == (1, 41)
        for _ in range(40):
            net.step(part)
        assert net.graphed.captures == 2
        assert net.graphed.replayed > 45

    def test_parameters_that_moved_are_captured_again(self, batches: list[MiniBatch]) -> None:
        net = captured(batches)
        batch = largest(batches)
        held = [p.data for p in net.net.parameters()]  # else they may find the same place again
        net.net.cpu()
        net.net.cuda()
        assert len(held) == 6
        with torch.no_grad():
            for p in net.net.parameters():
                p.mul_(2)
        net.net.eval()  # no dropout: a capture of what was before would show
        net.graphed.reset()
        for _ in range(16):
            loss, _ = net.loss(batch)
        assert net.graphed.captures == 2
        assert net.graphed.replayed > 0
        torch.testing.assert_close(loss, net.loss_and_logits(batch)[0], rtol=1e-3, atol=1e-3)
        with torch.no_grad():
            before = net.graphed.replayed
            net.loss(batch)
            assert net.graphed.replayed == before

    def test_features_that_get_a_gradient_are_not_replayed(self, batches: list[MiniBatch]) -> None:
        net = Net(graphed=True)
        batch = largest(batches)
        assert batch.x is not None
        x = batch.x.clone().requires_grad_()
        for _ in range(40):
            net.loss(batch.replace(x=x))[0].backward()
            assert x.grad is not None
            x.grad = None
        assert net.graphed.replayed == 0

    def test_reading_the_features_directly_is_an_error(self, batches: list[MiniBatch]) -> None:
        linear = torch.nn.Linear(FEATURES, CLASSES).cuda()

        def loss(batch: MiniBatch) -> tuple[Tensor, Tensor]:
            assert batch.x is not None
            assert batch.y is not None
            logits = linear(batch.x)[: batch.batch_size]
            return F.cross_entropy(logits, batch.y), logits

        graphed = GraphedLoss(loss, linear)
        for _ in range(15):
            graphed(batches[0])
        with pytest.raises(RuntimeError, match=r"on meta|device meta"):
            graphed(batches[0])
        assert torch.ones(2, device="cuda").sum() == 2  # nothing is left in capture

    def test_a_replayed_step_waits_for_no_gpu(self, batches: list[MiniBatch]) -> None:
        net = captured(batches)
        full = [b for b in batches if b.batch_size == BATCH]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in full[:8]:
                net.step(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert net.graphed.replayed > 4

    def test_graphs_keep_their_memory_when_torch_frees_some(self, batches: list[MiniBatch]) -> None:
        net = captured(batches, dropout=0.0)
        batch = largest(batches)
        wanted = net.loss(batch)[0]
        torch._C._cuda_clearCublasWorkspaces()  # as a Trainer does at its end
        torch.cuda.empty_cache()
        held = [torch.full((2**22,), torch.nan, device="cuda") for _ in range(8)]
        got = net.loss(batch)[0]
        got.backward()
        assert torch.equal(got, wanted)
        assert all(torch.isfinite(g).all() for g in gradients(net))
        assert all(h.isnan().all() for h in held)

    @pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
    @pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
    def test_a_trainer_gives_the_same_losses(self, random_graph: Any, precision: str) -> None:
        batches = make_batches(random_graph(), multilabel=False)
        losses = {}
        for cuda_graph in (False, True):
            torch.manual_seed(3)
            model = NodeClassifier(
                FEATURES, CLASSES, hidden_channels=CLASSES, cuda_graph=cuda_graph, lr=0.003, matmul_precision="highest"
            )
            trainer = Trainer(
                accelerator="cuda", devices=1, max_epochs=4, precision=precision, logger=False,
                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                gradient_clip_val=1.0, accumulate_grad_batches=2,
            )  # fmt: skip
            trainer.fit(model, train_dataloaders=Listed(batches))
            losses[cuda_graph] = trainer.callback_metrics["train/loss"]
            assert (model.graphed.replayed > 150) == cuda_graph
            torch.testing.assert_close(pickle.loads(pickle.dumps(model)).state_dict(), model.state_dict())
        torch.testing.assert_close(losses[True], losses[False], rtol=0.02, atol=0.01)
