"""The backward pass of a replayed loss: autograd's gradients, past autograd where that would call nobody."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from graphed_nets import Net, captured, gradients, gradients_of_a_step, largest
from marks import needs_gpu
from torch import Tensor

from loader.samples import MiniBatch
from models.training.graphed import (
    _HELD_BY_NOBODY,
    GraphedLoss,
    _Captured,
    _held_by_nobody,
    _is_divided_by_one,
    _most_held,
)


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
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
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

    def test_gradients_accumulate_and_scale(self, batches: list[MiniBatch]) -> None:
        net, plain = captured(batches, dropout=0.0), Net(graphed=False, dropout=0.0)
        first = largest(batches)
        for each in (net, plain):
            for factor in (1.0, 0.5, -3.0):
                (each.loss(first)[0] * factor).backward()
            each.loss(first)  # its forward pass leaves the gradients alone
        assert net.graphed.replayed == 1 + 4
        for a, b in zip(gradients(net), gradients(plain), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)

    def test_backward_of_its_own_is_that_of_the_loss(self, batches: list[MiniBatch]) -> None:
        """Whatever the gradient that the backward pass begins with was before."""
        net = captured(batches, dropout=0.0)
        first = largest(batches)
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
        net = captured(batches, dropout=0.0)
        first = largest(batches)
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
        net = captured(batches, dropout=0.0)
        first = largest(batches)
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
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True):
            assert not self.handed_over(net, first, monkeypatch)
        net.optimizer.zero_grad()
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        assert not self.handed_over(net, first, monkeypatch)

    def test_backward_on_another_stream(self, batches: list[MiniBatch]) -> None:
        net = captured(batches, dropout=0.0)
        first = largest(batches)
        wanted = gradients_of_a_step(net, first)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(100_000_000)
            loss, _ = net.loss(first)
        net.graphed.backward(loss)
        for a, b in zip(gradients(net), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)

    def test_gradients_are_laid_out_as_their_parameters(self, batches: list[MiniBatch]) -> None:
        net = captured(batches, dropout=0.0)
        first = largest(batches)
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
        net = captured(batches, dropout=0.0)
        first = largest(batches)
        wanted = gradients_of_a_step(net, first)
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
        net = captured(batches, dropout=0.0)
        first = largest(batches)
        for again in (net.graphed.backward, Tensor.backward):
            net.optimizer.zero_grad()
            loss, _ = net.loss(first)
            net.graphed.backward(loss)
            with pytest.raises(RuntimeError, match="a second time"):
                again(loss)

    def test_a_gradient_is_never_what_backward_begins_with(self, batches: list[MiniBatch]) -> None:
        """Autograd takes what reaches a parameter by views alone for its `grad`, and then adds to it in place."""
        net = captured(batches, dropout=0.0)
        first = largest(batches)
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

    def test_backward_after_a_later_forward_is_an_error(self, batches: list[MiniBatch]) -> None:
        net = captured(batches)
        batch = largest(batches)
        first, _ = net.loss(batch)
        second, _ = net.loss(batch)
        second.backward()
        with pytest.raises(RuntimeError, match="backward of a mini-batch after the forward pass of a later one"):
            first.backward()
        third, _ = net.loss(batch)
        third.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="backward a second time through a replayed loss"):
            third.backward()

    def test_the_mini_batch_is_let_go_after_backward(self, batches: list[MiniBatch]) -> None:
        net = captured(batches)
        batch = copy.copy(largest(batches))
        seen = weakref.ref(batch)
        loss, _ = net.loss(batch)
        del batch
        assert seen() is not None
        loss.backward()
        gc.collect()
        assert seen() is None
