"""One optimizer for dense parameters and trained rows: each as torch's own, in steps, schedules and checkpoints."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.trained_rows import TrainedRows
from models.training.optimizers import Optimization
from models.training.rows_optimizer import WithRows


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer = TrainedRows(20, 4), nn.Linear(4, 2)
        self._trainer = None  # which `Optimization.configure` asks for

    def loss(self, ids: Tensor) -> Tensor:
        return self.layer(self.table(ids)).square().sum()


def ids_of(step: int) -> Tensor:
    return torch.randperm(20, generator=torch.Generator().manual_seed(step))[:6]


def steps(net: Net, optimizer: torch.optim.Optimizer, numbers: range) -> None:
    for step in numbers:
        optimizer.zero_grad()
        net.loss(ids_of(step)).backward()
        optimizer.step()


def by_hand(rows: Tensor, gradients: list[Tensor | None], lr: float, decay: float) -> Tensor:
    """Adam of one row, by its formula; None where it is not read. The bias correction counts all steps."""
    m = v = torch.zeros_like(rows)
    for t, gradient in enumerate(gradients, 1):
        if gradient is None:
            continue
        gradient = gradient + decay * rows
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient.square()
        rows = rows - lr * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t) * m / (v.sqrt() + 1e-8)
    return rows


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_rows_that_are_read_get_adam(decay: float) -> None:
    net = Net().double()
    optimizer = Optimization(0.05, decay).configure(net)
    begin, gradients = net.table.weight.detach().clone(), []
    for step in range(8):
        optimizer.zero_grad()
        net.loss(ids_of(step)).backward()
        gradients.append(net.table.weight.grad.to_dense())
        optimizer.step()
    for node in range(20):
        of_node = [g[node] if node in ids_of(step) else None for step, g in enumerate(gradients)]
        wanted = by_hand(begin[node], of_node, 0.05, decay)
        torch.testing.assert_close(net.table.weight.detach()[node], wanted, rtol=1e-9, atol=1e-12)


def test_a_step_is_that_of_two_optimizers() -> None:
    ours, theirs = Net(), Net()
    steps(ours, Optimization(0.05, 0.0, {"name": "Adam", "betas": [0.8, 0.9]}).configure(ours), range(6))
    options = {"lr": 0.05, "betas": (0.8, 0.9)}
    two = (
        torch.optim.Adam(theirs.layer.parameters(), **options),
        torch.optim.SparseAdam([theirs.table.weight], **options),
    )
    for step in range(6):
        for one in two:
            one.zero_grad()
        theirs.loss(ids_of(step)).backward()
        for one in two:
            one.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_rows_read_twice_get_both_gradients() -> None:
    nets = Net(), Net()
    for net, ids in zip(nets, (torch.tensor([3, 5, 3]), torch.tensor([5, 3])), strict=True):
        optimizer = Optimization(0.05, 0.0).configure(net)
        loss = F.embedding(ids, net.table.weight, sparse=True).sum(1)
        (loss.sum() if len(ids) == 3 else (loss * torch.tensor([1.0, 2.0])).sum()).backward()
        optimizer.step()
    assert torch.equal(nets[0].table.weight, nets[1].table.weight)


def saved(optimizer: torch.optim.Optimizer) -> Any:
    """Its state, written and read."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_a_loaded_state_goes_on_with_equal_bytes(name: str) -> None:
    optimization = Optimization(0.05, 0.1, {"name": name}, {"name": "StepLR", "step_size": 1, "gamma": 0.5})
    whole, cut = Net(), Net()
    made = optimization.configure(whole)
    steps(whole, made["optimizer"], range(4))
    made["lr_scheduler"]["scheduler"].step()
    state, scheduler = saved(made["optimizer"]), made["lr_scheduler"]["scheduler"].state_dict()
    cut.load_state_dict(copy.deepcopy(whole.state_dict()))
    again = optimization.configure(cut)
    again["optimizer"].load_state_dict(state)
    again["lr_scheduler"]["scheduler"].load_state_dict(scheduler)
    for net, parts in ((whole, made), (cut, again)):
        steps(net, parts["optimizer"], range(4, 8))
        parts["lr_scheduler"]["scheduler"].step()
        assert [group["lr"] for group in parts["optimizer"].dense.param_groups] == [0.0125]
        assert [group["lr"] for group in parts["optimizer"].rows.param_groups] == [0.0125]
    for mine, other in zip(whole.parameters(), cut.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_copies_step_by_themselves() -> None:
    net = Net()
    optimizer = Optimization(0.05, 0.0).configure(net)
    steps(net, optimizer, range(2))
    both = copy.deepcopy((net, optimizer))
    for one, its in ((net, optimizer), both):
        steps(one, its, range(2, 4))
    assert torch.equal(net.table.weight, both[0].table.weight)
    assert both[1].state is both[1].rows.state


def test_a_closure_is_called_once_with_gradients() -> None:
    net = Net()
    optimizer, calls = Optimization(0.05, 0.0).configure(net), []

    def closure() -> Tensor:
        calls.append(torch.is_grad_enabled())
        loss = net.loss(ids_of(0))
        loss.backward()
        return loss

    assert isinstance(optimizer, WithRows)
    assert float(optimizer.step(closure).detach()) > 0
    assert calls == [True]
