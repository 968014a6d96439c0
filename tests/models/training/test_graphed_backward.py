"""The backward pass of a replayed loss: autograd hands over its gradients, as hooks and accumulation want it."""

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
from models.training.cuda_graphs import GraphedLoss, _Captured


class Replayed:
    """In the place of a graph."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.replay = function


class CapturedOnCPU(_Captured):
    """Half the sum of the parameters' squares, whose gradients are the parameters, without a GPU."""

    def __init__(self) -> None:
        self.parameters = [torch.nn.Parameter(torch.arange(1.0, 1 + n)) for n in (1, 3, 2)]
        self.runs = 0
        self.gradients = [torch.empty_like(p) for p in self.parameters]
        self._handed = list(zip(self.parameters, self.gradients, strict=True))
        self.loss = self.output = torch.zeros(())
        self._grad_loss = torch.ones(())
        self.forward: Any = Replayed(lambda: None)
        self.backward: Any = Replayed(self.differentiate)
        self.stand_in: Any = SimpleNamespace(load=lambda batch: None)

    def differentiate(self) -> None:
        for p, g in zip(self.parameters, self.gradients, strict=True):
            g.copy_(p.detach() * self._grad_loss)

    def new_loss(self) -> Tensor:
        loss, _ = self.run(torch.ones(1))
        return loss

    def check(self, times: float) -> None:
        """Each parameter has its gradient, `times` over."""
        for p in self.parameters:
            assert torch.equal(p.grad, times * p.detach())

    def forget(self) -> None:
        for p in self.parameters:
            p.grad = None


@pytest.mark.parametrize(("factor", "divisor"), [(1, 1), (1, 2), (3, 1), (-0.5, 4)])
def test_gradients_are_those_of_the_loss(factor: float, divisor: float) -> None:
    on_cpu = CapturedOnCPU()
    for _ in range(2):  # whatever the backward pass before began with
        on_cpu.new_loss().backward()
        on_cpu.check(1)
        on_cpu.forget()
        (factor * on_cpu.new_loss() / divisor).backward()
        on_cpu.check(factor / divisor)
        on_cpu.forget()


def test_gradients_accumulate() -> None:
    on_cpu = CapturedOnCPU()
    for times in (1, 2, 3):
        on_cpu.new_loss().backward()
        on_cpu.check(times)
    on_cpu.new_loss()  # a forward pass leaves them alone
    on_cpu.check(3)


@pytest.mark.parametrize("where", ["parameter", "accumulated", "node"])
def test_hooks_of_parameters_are_called(where: str) -> None:
    on_cpu, called = CapturedOnCPU(), []
    parameter = on_cpu.parameters[1]
    node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # kept, as Horovod does
    if where == "parameter":
        handle = parameter.register_hook(lambda g: called.append(where))
    elif where == "accumulated":
        handle = parameter.register_post_accumulate_grad_hook(lambda p: called.append(where))
    else:
        handle = node.register_hook(lambda *_: called.append(where))
    for i in range(3):
        on_cpu.forget()
        on_cpu.new_loss().backward()
        on_cpu.check(1)
        assert called == [where] * (i + 1)
    handle.remove()
    on_cpu.new_loss().backward()
    assert len(called) == 3


def test_hooks_of_the_loss_are_called() -> None:
    on_cpu = CapturedOnCPU()
    loss = on_cpu.new_loss()
    loss.register_hook(lambda g: 2 * g)
    loss.backward()
    on_cpu.check(2)
    loss = on_cpu.new_loss()
    loss.retain_grad()
    loss.backward()
    assert loss.grad == 1


def test_torchs_profiler_sees_the_backward_pass() -> None:
    loss = CapturedOnCPU().new_loss()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        loss.backward()
    assert any("_ReplayBackward" in event.key for event in profile.key_averages())


def test_a_parameter_frozen_later_gets_no_gradient() -> None:
    on_cpu = CapturedOnCPU()
    loss = on_cpu.new_loss()
    on_cpu.parameters[0].requires_grad_(False)
    loss.backward()
    assert on_cpu.parameters[0].grad is None
    assert on_cpu.parameters[1].grad is not None


def test_a_replayed_loss_has_one_backward_pass() -> None:
    loss = CapturedOnCPU().new_loss()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward a second time through a replayed loss"):
        loss.backward()


def test_backward_after_a_later_forward_is_an_error() -> None:
    on_cpu = CapturedOnCPU()
    first, second = on_cpu.new_loss(), on_cpu.new_loss()
    second.backward()
    with pytest.raises(RuntimeError, match="backward of a mini-batch after the forward pass of a later one"):
        first.backward()


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

    def test_backward_on_another_stream_waits(self, batches: list[MiniBatch]) -> None:
        net = captured(batches, dropout=0.0)
        first = largest(batches)
        wanted = gradients_of_a_step(net, first)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(100_000_000)
            loss, _ = net.loss(first)
        loss.backward()
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
            net.graphed(first)[0].backward()
            assert net.net.extra.grad.stride() == net.net.extra.stride()
        assert net.graphed.replayed > 20

    def test_hooks_of_the_loss_run(self, batches: list[MiniBatch]) -> None:
        net = captured(batches, dropout=0.0)
        first = largest(batches)
        wanted = gradients_of_a_step(net, first)
        loss, _ = net.loss(first)
        loss.register_hook(lambda g: 2 * g)
        loss.backward()
        for a, b in zip(gradients(net), wanted, strict=True):
            torch.testing.assert_close(a, 2 * b, rtol=1e-5, atol=1e-7)
        loss, _ = net.loss(first)
        loss.retain_grad()
        loss.backward()
        assert loss.grad == 1

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
