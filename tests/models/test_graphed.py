"""Training steps by CUDA graphs: the same losses and gradients as without, whatever the sizes."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from marks import needs_gpu
from torch import Tensor
from torch.nn import functional as F

from loader.lazy_rows import LazyRows
from loader.minibatch import MiniBatch
from loader.samplers import HopwiseSampler
from models.graphed import (
    _HELD_BY_NOBODY,
    GraphedLoss,
    _Captured,
    _held_by_nobody,
    _is_divided_by_one,
    _most_held,
    _Parameters,
)
from models.lightning_module import NodeClassifier
from models.sage import GraphSAGE

# All layers as wide as the output: then the mean comes first whatever the sizes, and dropout with it.
FEATURES, CLASSES, BATCH = 12, 12, 32


class Net:
    """A model and its loss, with and without graphs."""

    def __init__(self, *, graphed: bool, multilabel: bool = False, **options: Any) -> None:
        torch.manual_seed(0)
        self.net = GraphSAGE(FEATURES, CLASSES, CLASSES, 2, **{"dropout": 0.5, **options}).cuda()
        self.multilabel = multilabel
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3, fused=True)
        self.graphed = GraphedLoss(self.loss_and_logits, self.net)
        self.loss = self.graphed if graphed else self.loss_and_logits

    def loss_and_logits(self, batch: MiniBatch) -> tuple[Tensor, Tensor]:
        assert batch.features is not None
        assert batch.y is not None
        logits = self.net(batch.blocks, batch.features)
        if self.multilabel:
            return F.binary_cross_entropy_with_logits(logits, batch.y), logits
        return F.cross_entropy(logits, batch.y), logits

    def step(self, batch: MiniBatch) -> Tensor:
        self.optimizer.zero_grad()
        loss, _ = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Listed:
    """A loader of mini-batches that are there: Lightning takes a plain list for a list of loaders."""

    def __init__(self, batches: list[MiniBatch]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[MiniBatch]:
        return iter(self.batches)


@pytest.fixture
def batches(random_graph: Any) -> list[MiniBatch]:
    """Of very different sizes, some with fewer seeds."""
    return make_batches(random_graph(), multilabel=False)


def make_batches(
    graph: Any, *, multilabel: bool, device: str = "cuda", count: int = 60, lazy: bool = False
) -> list[MiniBatch]:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(graph.num_nodes, FEATURES, generator=g)
    y = torch.rand(graph.num_nodes, CLASSES, generator=g).round() if multilabel else (x[:, :CLASSES]).argmax(-1)
    table, found = x.to(device), []
    for i in range(count):
        sampler = HopwiseSampler([1 + i % 5, 2 + i % 3], seed=i)
        seeds = torch.randperm(graph.num_nodes, generator=g)[: BATCH - 5 * (i % 10 == 9)]
        batch = sampler.sample(graph, seeds, batch=i)
        batch = batch.replace(y=y[batch.output_nodes.long()])
        if lazy:
            batch = batch.to(device)
            found.append(batch.replace(rows=LazyRows(table, batch.nodes)))
        else:
            found.append(batch.replace(x=x[batch.nodes.long()]).to(device))
    return found


def gradients(net: Net) -> list[Tensor]:
    return [p.grad.clone() for p in net.net.parameters() if p.grad is not None]


def test_on_the_cpu_the_function_runs_as_it_is(random_graph: Any) -> None:
    batch = make_batches(random_graph(), multilabel=False, device="cpu", count=1)[0]
    logits = torch.ones(2, requires_grad=True)
    graphed = GraphedLoss(lambda b: (logits.sum() * b.batch_size, logits), torch.nn.Identity())
    for _ in range(40):
        loss, got = graphed(batch)
        assert got is logits
        assert loss.requires_grad
    assert (graphed.replayed, graphed.captures) == (0, 0)


def test_parameters_are_looked_for_again_only_when_something_was_exchanged() -> None:
    net = GraphSAGE(FEATURES, CLASSES, CLASSES, 2)
    of_net = _Parameters(net)
    assert list(of_net.named) == [name for name, _ in net.named_parameters()]
    net.train().eval()
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

    for change in (exchange_layer, exchange_parameter, add, freeze, move):
        of_net = _Parameters(net)
        change()
        assert not of_net.unchanged(), change.__name__
        assert _Parameters(net).unchanged()
    assert "convs.0.lin_self.weight" not in _Parameters(net).named


def test_graphs_that_cannot_be_had_are_refused(random_graph: Any) -> None:
    with pytest.raises(ValueError, match="cuda_graph cannot be had with norm='batch'"):
        NodeClassifier(FEATURES, CLASSES, norm="batch", cuda_graph=True)
    batch = make_batches(random_graph(), multilabel=False, device="cpu", count=1)[0]
    with pytest.raises(RuntimeError, match="cuda_graph is true, but the mini-batch is not on a GPU"):
        NodeClassifier(FEATURES, CLASSES, cuda_graph=True).training_step(batch, 0)
    NodeClassifier(FEATURES, CLASSES, norm="batch").training_step(batch, 0)


def test_a_loss_divided_by_one_is_known_as_such() -> None:
    given = torch.ones(2, requires_grad=True).sum()
    other = torch.ones(2, requires_grad=True).sum()
    for loss in (given / 1, given / 1.0, given / torch.tensor(1)):
        assert _is_divided_by_one(loss, given)
    for loss in (given, given / 2, given * 1, given / 1 / 1, other / 1, given.detach() / 1, torch.ones(()) / given):
        assert not _is_divided_by_one(loss, given)
    assert not _is_divided_by_one(given / torch.nn.Parameter(torch.tensor(1.0)), given)  # which gets a gradient, too
    hooked, retained = given / 1, given / 1
    hooked.register_hook(lambda g: 2 * g)
    retained.retain_grad()
    assert not _is_divided_by_one(hooked, given)
    assert not _is_divided_by_one(retained, given)


def test_a_node_that_somebody_keeps_is_known_as_such() -> None:
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]

    loss = _Sum.apply(*parameters)

    def most_held() -> int:
        return _most_held(loss.grad_fn.next_functions)

    assert most_held() == _HELD_BY_NOBODY
    others = [p.sum() for p in parameters]  # graphs that lead to the same nodes
    assert most_held() == _HELD_BY_NOBODY
    del others
    kept = _node_of(parameters[1])
    assert most_held() > _HELD_BY_NOBODY
    del kept
    assert most_held() == _HELD_BY_NOBODY
    assert _most_held(()) <= _HELD_BY_NOBODY


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_can_be_imported_in_any_mode(mode: Callable[[], Any]) -> None:
    with mode():
        assert _held_by_nobody() == _HELD_BY_NOBODY


def _node_of(parameter: torch.nn.Parameter) -> Any:
    """What accumulates its gradient."""
    return parameter.expand_as(parameter).grad_fn.next_functions[0][0]


class Replayed:
    """In the place of a graph."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.replay = function


class CapturedOnCPU(_Captured):
    """Half the sum of the parameters' squares, whose gradients are the parameters, without a GPU."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self.parameters, self.runs, self.stream, self.passed = parameters, 0, 1, 0
        self.gradients = [torch.empty_like(p) for p in parameters]
        self._handed = list(zip(parameters, self.gradients, strict=True))
        self.loss = self.output = torch.zeros(())
        self.one, self._grad_loss, self._is_one = torch.ones(()), torch.ones(()), True
        self.forward: Any = Replayed(lambda: None)
        self.backward: Any = Replayed(self.differentiate)
        self.live: Any = SimpleNamespace(load=lambda batch: None)

    def differentiate(self) -> None:
        for p, g in zip(self.parameters, self.gradients, strict=True):
            g.copy_(p.detach() * self._grad_loss)

    def hand_over(self, loss: Tensor) -> None:
        self.passed += 1
        super().hand_over(loss)

    def _current_stream(self) -> int:
        return self.stream


class OnCPU:
    """A `GraphedLoss` that captured something."""

    def __init__(self) -> None:
        self.parameters = [torch.nn.Parameter(torch.arange(1.0, 1 + n)) for n in (1, 3, 2)]
        self.graphed = GraphedLoss(lambda batch: (batch.x, batch.x), torch.nn.Identity())
        self.captured = self.graphed._captured = CapturedOnCPU(self.parameters)

    def loss(self) -> Tensor:
        self.graphed._given, _ = self.captured.run(torch.ones(1))
        return self.graphed._given

    def passes(self, change: Callable[[Tensor], Tensor] = lambda loss: loss, times: float = 1) -> bool:
        """Whether the backward pass of a new loss goes past autograd. Its gradients are right either way."""
        before = self.captured.passed
        for p in self.parameters:
            p.grad = None
        self.graphed.backward(change(self.loss()))
        for p in self.parameters:
            assert torch.equal(p.grad, times * p.detach())
        return self.captured.passed > before


def test_backward_goes_past_autograd_where_it_would_call_nobody() -> None:
    on_cpu = OnCPU()
    assert on_cpu.passes()
    assert on_cpu.passes(lambda loss: loss / 1)
    assert not on_cpu.passes(lambda loss: loss / 2, times=0.5)
    assert not on_cpu.passes(lambda loss: 3 * loss, times=3)
    assert on_cpu.passes()
    on_cpu.graphed.backward(on_cpu.loss())  # on top of what is there
    assert on_cpu.captured.passed == 3
    for p in on_cpu.parameters:
        assert torch.equal(p.grad, 2 * p.detach())


@pytest.mark.parametrize("where", ["parameter", "accumulated", "node"])
def test_hooks_of_parameters_are_called(where: str) -> None:
    on_cpu, called = OnCPU(), []
    parameter = on_cpu.parameters[1]
    node = None
    if where == "parameter":
        handle = parameter.register_hook(lambda g: called.append(where))
    elif where == "accumulated":
        handle = parameter.register_post_accumulate_grad_hook(lambda p: called.append(where))
    else:
        node = _node_of(parameter)  # as Horovod does, which keeps it
        handle = node.register_hook(lambda *_: called.append(where))
    for i in range(3):
        assert not on_cpu.passes()
        assert called == [where] * (i + 1)
    handle.remove()
    del handle, node
    assert on_cpu.passes()
    assert len(called) == 3


def test_hooks_of_the_loss_are_called() -> None:
    on_cpu = OnCPU()

    def hooked(loss: Tensor) -> Tensor:
        loss.register_hook(lambda g: 2 * g)
        return loss

    assert not on_cpu.passes(hooked, times=2)
    retained: list[Tensor] = []

    def retaining(loss: Tensor) -> Tensor:
        loss.retain_grad()
        retained.append(loss)
        return loss

    assert not on_cpu.passes(retaining)
    assert retained[0].grad == 1


def test_who_watches_autograd_sees_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = OnCPU()
    with torch.autograd.set_detect_anomaly(True):
        assert not on_cpu.passes()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        assert not on_cpu.passes()
    assert any("_ReplayBackward" in event.key for event in profile.key_averages())
    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        assert not on_cpu.passes()
    assert on_cpu.passes()
    on_cpu.captured.run(torch.ones(1))
    loss = on_cpu.loss()
    on_cpu.captured.stream = 2  # autograd would make it wait for the one of the forward pass
    assert not on_cpu.captured.alone_sees(loss)


def test_a_parameter_frozen_after_the_forward_pass_gets_no_gradient() -> None:
    on_cpu = OnCPU()
    loss = on_cpu.loss()
    on_cpu.parameters[0].requires_grad_(False)
    assert not on_cpu.captured.alone_sees(loss)


def test_a_replayed_loss_has_one_backward_pass() -> None:
    on_cpu = OnCPU()
    for again in (on_cpu.graphed.backward, Tensor.backward):
        for p in on_cpu.parameters:
            p.grad = None
        loss = on_cpu.loss()
        on_cpu.graphed.backward(loss)
        with pytest.raises(RuntimeError, match="a second time"):
            again(loss)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> Tensor:
        return sum(p.sum() for p in parameters)


class TestOnGPU:
    pytestmark = needs_gpu

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

    def captured(self, batches: list[MiniBatch], **options: Any) -> Net:
        """A net that replays from here on; its parameters are those from the beginning."""
        net = Net(graphed=True, **options)
        largest = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        for _ in range(16):
            net.loss(largest)
        assert net.graphed.captures == 1
        return net

    def test_gradients_of_small_mini_batches_hold_nothing_of_larger_ones(self, batches: list[MiniBatch]) -> None:
        net, plain = self.captured(batches, dropout=0.0), Net(graphed=False, dropout=0.0)
        largest = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        full = [
            b
            for b in batches
            if b.batch_size == BATCH
            and all(m <= n for m, n in zip(b.frontier_sizes, largest.frontier_sizes, strict=True))
        ]
        smallest = min(full, key=lambda b: b.num_edges)
        assert smallest.num_edges < 0.5 * largest.num_edges
        for batch in (largest, smallest, largest, smallest):
            grads = []
            for each in (net, plain):
                each.optimizer.zero_grad()
                each.loss(batch)[0].backward()
                grads.append(gradients(each))
            for a, b in zip(*grads, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)

    def test_gradients_accumulate_and_scale(self, batches: list[MiniBatch]) -> None:
        net, plain = self.captured(batches, dropout=0.0), Net(graphed=False, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        for each in (net, plain):
            for factor in (1.0, 0.5, -3.0):
                (each.loss(first)[0] * factor).backward()
            each.loss(first)  # its forward pass leaves the gradients alone
        assert net.graphed.replayed == 1 + 4
        for a, b in zip(gradients(net), gradients(plain), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)

    def test_backward_of_its_own_is_that_of_the_loss(self, batches: list[MiniBatch]) -> None:
        """Whatever the gradient that the backward pass begins with was before."""
        net = self.captured(batches, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        found = []
        for factor, own in ((1, False), (1, True), (-3, True), (1, True), (1, True), (2, False), (1, True)):
            net.optimizer.zero_grad()
            loss, _ = net.loss(first)
            loss = loss if factor == 1 else factor * loss
            (net.graphed.backward if own else Tensor.backward)(loss)
            found.append([g / factor for g in gradients(net)])
        assert net.graphed.replayed == 1 + 7
        for others in found[1:]:
            for a, b in zip(others, found[0], strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
        net.optimizer.zero_grad()
        net.graphed.backward(net.loss_and_logits(first)[0])  # a loss that was not replayed
        for a, b in zip(gradients(net), found[0], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
        with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
            net.graphed.backward(net.loss(first)[0].repeat(2))

    def test_what_lightning_divides_by_one_needs_no_gradient_of_its_own(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        net.graphed.backward(net.loss(first)[0])
        wanted = gradients(net)
        for divisor, spared in ((1, True), (2, False), (torch.ones((), device="cuda"), False), (1, True)):
            net.optimizer.zero_grad()
            net.graphed.backward(net.loss(first)[0] / divisor)
            assert net.graphed._captured is not None
            assert net.graphed._captured._is_one == spared
            for a, b in zip(gradients(net), wanted, strict=True):
                torch.testing.assert_close(a * divisor, b, rtol=1e-5, atol=1e-7)
        loss = net.loss(first)[0] / 1
        net.graphed.backward(loss)
        with pytest.raises(RuntimeError, match="a second time"):
            net.graphed.backward(loss)

    def handed_over(self, net: Net, batch: MiniBatch, monkeypatch: pytest.MonkeyPatch) -> bool:
        """Whether a step's backward pass goes past autograd."""
        calls: list[Tensor] = []
        whole = _Captured.hand_over
        with monkeypatch.context() as patch:
            patch.setattr(_Captured, "hand_over", lambda self, loss: (calls.append(loss), whole(self, loss)))
            net.graphed.backward(net.loss(batch)[0])
        return bool(calls)

    def test_backward_goes_past_autograd_where_nobody_can_tell(
        self, batches: list[MiniBatch], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        net = self.captured(batches, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        assert self.handed_over(net, first, monkeypatch)
        wanted = gradients(net)
        parameter = net.net.first.lin_self.weight

        def of_node() -> Any:
            node = _node_of(parameter)
            return node, node.register_hook(lambda *_: called.append("node"))  # as Horovod does, which keeps the node

        def accumulate(p: torch.nn.Parameter) -> None:
            called.append("accumulated")

        hooks: dict[str, Callable[[], Any]] = {
            "parameter": lambda: parameter.register_hook(lambda g: called.append("parameter")),
            "accumulated": lambda: parameter.register_post_accumulate_grad_hook(accumulate),
            "node": of_node,
        }
        for name, put in hooks.items():
            called: list[str] = []
            held = put()
            for i in range(3):
                net.optimizer.zero_grad()
                assert not self.handed_over(net, first, monkeypatch), name
                assert called == [name] * (i + 1)
                for a, b in zip(gradients(net), wanted, strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
            (held[1] if isinstance(held, tuple) else held).remove()
            del held
            net.optimizer.zero_grad()
            assert self.handed_over(net, first, monkeypatch), name
        # On top of the gradients that are there; and for a process group's hooks, which do not show.
        assert not self.handed_over(net, first, monkeypatch)
        for a, b in zip(gradients(net), wanted, strict=True):
            torch.testing.assert_close(a, 2 * b, rtol=1e-5, atol=1e-7)
        net.optimizer.zero_grad()
        with torch.autograd.set_detect_anomaly(True):
            assert not self.handed_over(net, first, monkeypatch)
        net.optimizer.zero_grad()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            assert not self.handed_over(net, first, monkeypatch)
        net.optimizer.zero_grad()
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        assert not self.handed_over(net, first, monkeypatch)

    def test_backward_on_another_stream(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        net.graphed.backward(net.loss(first)[0])
        wanted = gradients(net)
        net.optimizer.zero_grad()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(100_000_000)
            loss, _ = net.loss(first)
        net.graphed.backward(loss)
        for a, b in zip(gradients(net), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)

    def test_gradients_are_laid_out_as_their_parameters(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        net.net.register_parameter("extra", torch.nn.Parameter(torch.ones(3, 2, device="cuda")))
        plain = net.loss_and_logits

        def with_extra(batch: MiniBatch) -> tuple[Tensor, Tensor]:
            loss, logits = plain(batch)
            return loss + (net.net.extra.t() * torch.ones(2, 3, device="cuda")).sum(), logits

        net.graphed = GraphedLoss(with_extra, net.net)
        for _ in range(40):
            net.optimizer.zero_grad()
            net.net.extra.grad = None
            net.graphed.backward(net.graphed(first)[0])
            assert net.net.extra.grad.stride() == net.net.extra.stride()
        assert net.graphed.replayed > 20

    def test_hooks_of_the_loss_run(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        net.graphed.backward(net.loss(first)[0])
        wanted = gradients(net)
        net.optimizer.zero_grad()
        loss, _ = net.loss(first)
        loss.register_hook(lambda g: 2 * g)
        net.graphed.backward(loss)
        for a, b in zip(gradients(net), wanted, strict=True):
            torch.testing.assert_close(a, 2 * b, rtol=1e-5, atol=1e-7)
        loss, _ = net.loss(first)
        loss.retain_grad()
        net.graphed.backward(loss)
        assert loss.grad == 1

    def test_a_second_backward_pass_is_an_error(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        for again in (net.graphed.backward, Tensor.backward):
            net.optimizer.zero_grad()
            loss, _ = net.loss(first)
            net.graphed.backward(loss)
            with pytest.raises(RuntimeError, match="a second time"):
                again(loss)

    def test_a_gradient_is_never_what_backward_begins_with(self, batches: list[MiniBatch]) -> None:
        """Autograd takes what reaches a parameter by views alone for its `grad`, and then adds to it in place."""
        net = self.captured(batches, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        scale = torch.nn.Parameter(torch.ones(1, device="cuda"))
        wanted = None
        for i in range(3):
            net.graphed.backward(net.loss(first)[0] + scale.squeeze())
            assert scale.grad is not None
            assert scale.grad.item() == i + 1
            wanted = gradients(net) if wanted is None else wanted
        for a, b in zip(gradients(net), wanted, strict=True):
            torch.testing.assert_close(a, 3 * b, rtol=1e-5, atol=1e-7)
        net.optimizer.zero_grad()
        net.graphed.backward(net.loss(first)[0])
        for a, b in zip(gradients(net), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)

    def test_an_exchanged_layer_is_captured_again(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches, dropout=0.0)
        first = max(batches, key=lambda b: (b.batch_size, b.num_edges))
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
    def test_autocast_is_part_of_what_is_captured(self, batches: list[MiniBatch], low: torch.dtype) -> None:
        batch = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        net = Net(graphed=True, dropout=0.0)
        with torch.autocast("cuda", low):
            for _ in range(17):
                _, logits = net.loss(batch)
            assert logits.dtype == low
        assert (net.graphed.captures, net.graphed.replayed) == (1, 2)
        _, logits = net.loss(batch)
        assert logits.dtype == torch.float32
        assert net.graphed.replayed == 2

    def test_larger_mini_batches_run_as_they_are_until_they_are_many(self, batches: list[MiniBatch]) -> None:
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

    def test_another_batch_size_takes_over_when_the_old_one_is_gone(self, batches: list[MiniBatch]) -> None:
        whole = next(b for b in batches if b.batch_size == BATCH)
        part = next(b for b in batches if b.batch_size < BATCH)
        net = self.captured([whole])
        for _ in range(40):  # the last mini-batch of many epochs
            net.step(whole)
            net.step(part)
        assert (net.graphed.captures, net.graphed.replayed) == (1, 41)
        for _ in range(40):
            net.step(part)
        assert net.graphed.captures == 2
        assert net.graphed.replayed > 45

    def test_parameters_that_moved_are_captured_again(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches)
        batch = max(batches, key=lambda b: (b.batch_size, b.num_edges))
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

    def test_backward_after_a_later_forward_is_an_error(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches)
        batch = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        first, _ = net.loss(batch)
        second, _ = net.loss(batch)
        second.backward()
        with pytest.raises(RuntimeError, match="backward of a mini-batch after the forward pass of a later one"):
            first.backward()
        third, _ = net.loss(batch)
        third.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="backward a second time through a replayed loss"):
            third.backward()

    def test_features_that_get_a_gradient_are_not_replayed(self, batches: list[MiniBatch]) -> None:
        net = Net(graphed=True)
        batch = max(batches, key=lambda b: (b.batch_size, b.num_edges))
        assert batch.x is not None
        x = batch.x.clone().requires_grad_()
        for _ in range(40):
            net.loss(batch.replace(x=x))[0].backward()
            assert x.grad is not None
            x.grad = None
        assert net.graphed.replayed == 0

    def test_a_function_that_reads_the_blocks_itself_is_told_so(self, batches: list[MiniBatch]) -> None:
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

    def test_the_mini_batch_is_let_go_after_backward(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches)
        batch = copy.copy(max(batches, key=lambda b: (b.batch_size, b.num_edges)))
        seen = weakref.ref(batch)
        loss, _ = net.loss(batch)
        del batch
        assert seen() is not None
        loss.backward()
        gc.collect()
        assert seen() is None

    def test_a_replayed_step_does_not_wait_for_the_gpu(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches)
        full = [b for b in batches if b.batch_size == BATCH]
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in full[:8]:
                net.step(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert net.graphed.replayed > 4

    def test_memory_that_the_rest_of_torch_gives_up_is_not_the_graphs(self, batches: list[MiniBatch]) -> None:
        net = self.captured(batches, dropout=0.0)
        batch = max(batches, key=lambda b: (b.batch_size, b.num_edges))
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
    def test_in_a_trainer(self, random_graph: Any, precision: str) -> None:
        batches = make_batches(random_graph(), multilabel=False)
        losses = {}
        for cuda_graph in (False, True):
            torch.manual_seed(3)
            model = NodeClassifier(
                FEATURES, CLASSES, hidden=CLASSES, cuda_graph=cuda_graph, lr=0.003, matmul_precision="highest"
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
