"""Gradients in one piece of memory, exchanged as they are; others are copied there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.training import exchange
from models.training.exchange import FlatTensors, GradientExchange

LIKE = [torch.ones(3, 5), torch.ones(7), torch.ones(4, 6).T, torch.ones(2, dtype=torch.float64), torch.ones(65)]


@pytest.fixture
def exchanged(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What was exchanged by two processes that have the same gradients."""
    found: list[Tensor] = []

    def all_reduce(tensor: Tensor, *_: Any) -> None:
        found.append(tensor)
        tensor.mul_(2)

    monkeypatch.setattr(exchange.dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(exchange.dist, "get_backend", lambda group: "gloo")
    monkeypatch.setattr(exchange.dist, "all_reduce", all_reduce)
    return found


def with_gradients(views: list[Tensor] | None = None) -> nn.ParameterList:
    parameters = nn.ParameterList(nn.Parameter(t.clone()) for t in LIKE)
    for i, parameter in enumerate(parameters):
        parameter.grad = torch.empty_like(parameter) if views is None else views[i]
        parameter.grad.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + 10 * i)
    return parameters


def test_views_share_one_piece_per_type() -> None:
    flat = FlatTensors(LIKE)
    assert [(v.shape, v.stride(), v.dtype) for v in flat.views] == [(t.shape, t.stride(), t.dtype) for t in LIKE]
    assert [piece.dtype for piece in flat.pieces] == [torch.float32, torch.float64]
    for number, view in enumerate(flat.views, 1):
        assert view.data_ptr() % 64 == flat.pieces[view.dtype == torch.float64].data_ptr() % 64
        view.fill_(number)
    for number, view in enumerate(flat.views, 1):
        assert torch.all(view == number)  # none overlaps another


def test_gradients_in_one_piece_are_not_copied(exchanged: list[Tensor]) -> None:
    flat = FlatTensors(LIKE)
    parameters = with_gradients(flat.views)
    wanted = [p.grad.clone() for p in parameters]
    averaging = GradientExchange(parameters.named_parameters())
    for _ in range(2):
        averaging.run()
    assert [t.data_ptr() for t in exchanged] == [piece.data_ptr() for piece in flat.pieces] * 2
    for parameter, view, gradient in zip(parameters, flat.views, wanted, strict=True):
        assert parameter.grad is view
        assert torch.equal(view, gradient)


def test_other_gradients_become_views_of_a_piece(exchanged: list[Tensor]) -> None:
    parameters = with_gradients()
    wanted = [p.grad.clone() for p in parameters]
    averaging = GradientExchange(parameters.named_parameters())
    averaging.run()
    assert len(exchanged) == 2
    assert sum(t.numel() for t in exchanged) < sum(t.numel() for t in LIKE) + 64 * len(LIKE)
    own = {t.untyped_storage().data_ptr() for t in exchanged}
    for parameter, gradient in zip(parameters, wanted, strict=True):
        assert parameter.grad.untyped_storage().data_ptr() in own
        assert torch.equal(parameter.grad, gradient)
    # Zeroed in place, they are exchanged where they are; replaced, they come to the same piece.
    averaging.run()
    parameters[0].grad = torch.full_like(parameters[0], 3.0)
    averaging.run()
    assert len({t.data_ptr() for t in exchanged}) == 2
    assert torch.all(parameters[0].grad == 3.0)
    assert parameters[0].grad.untyped_storage().data_ptr() in own


def test_views_in_another_order_are_copied(exchanged: list[Tensor]) -> None:
    flat = FlatTensors([LIKE[1], LIKE[0]])
    parameters = nn.ParameterList([nn.Parameter(LIKE[0].clone()), nn.Parameter(LIKE[1].clone())])
    parameters[0].grad, parameters[1].grad = flat.views[1].fill_(1.0), flat.views[0].fill_(2.0)
    GradientExchange(parameters.named_parameters()).run()
    assert exchanged[0].data_ptr() != flat.pieces[0].data_ptr()
    assert exchanged[0][:15].tolist() == [1.0] * 15
    assert exchanged[0][64:71].tolist() == [2.0] * 7


def test_sparse_gradients_are_exchanged_by_themselves(exchanged: list[Tensor]) -> None:
    table, weight = nn.Embedding(10, 3, sparse=True), nn.Linear(3, 1)
    weight(table(torch.tensor([1, 4, 4]))).sum().backward()
    model = nn.ModuleList([table, weight])
    wanted = table.weight.grad.to_dense()
    GradientExchange(model.named_parameters()).run()
    assert [t.is_sparse for t in exchanged] == [True, False]
    assert torch.equal(table.weight.grad.to_dense(), wanted)


def test_a_missing_gradient_is_named(exchanged: list[Tensor]) -> None:
    parameters = with_gradients()
    parameters[3].grad = None
    averaging = GradientExchange(parameters.named_parameters())
    with pytest.raises(RuntimeError, match=r"^3 got no gradient in this step, but all parameters are exchanged"):
        averaging.run()
    parameters[3].requires_grad_(False)
    averaging.run()
    assert [t.dtype for t in exchanged] == [torch.float32]
