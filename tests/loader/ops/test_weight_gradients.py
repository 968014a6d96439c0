from __future__ import annotations

import torch
from torch import Tensor

from loader.ops.weight_gradients import apart, with_dense_gradient


def test_gradients_are_made_of_what_arrives() -> None:
    weight, idle = torch.randn(3, 2, requires_grad=True), torch.randn(2)
    rows = torch.randn(4, 3)
    seen: list[Tensor] = []

    def gradients(grad: Tensor, given: Tensor) -> list[Tensor | None]:
        seen.append(grad)
        return [given.t() @ grad, None]

    stand_in = apart(gradients, [rows], [weight, idle], (4, 2))
    assert stand_in is not None
    assert stand_in.shape == (4, 2)
    mix = torch.randn(4, 2)
    (found,) = torch.autograd.grad(stand_in, weight, mix)
    assert torch.equal(seen[0], mix)
    assert torch.equal(found, rows.t() @ mix)


def test_nothing_stands_for_weights_without_gradients() -> None:
    weight = torch.randn(3, 2)
    assert apart(lambda grad: [grad], [], [weight, None], (3, 2)) is None
    with torch.no_grad():
        assert apart(lambda grad: [grad], [], [weight.requires_grad_()], (3, 2)) is None


def test_gradients_of_transposed_weights_are_contiguous() -> None:
    weight = torch.randn(2, 3, 4, requires_grad=True)
    for of in (weight, with_dense_gradient(weight)):
        (found,) = torch.autograd.grad((of.transpose(1, 2) * torch.ones(2, 4, 3)).sum(), weight)
    assert found.is_contiguous()
    assert torch.equal(found, torch.ones(2, 3, 4))
