"""Gradients of weights that the rest of a backward pass does not wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from loader.ops.side_streams import beside, in_branch, keep

Gradients = Callable[..., Sequence[Tensor | None]]


def apart(
    gradients: Gradients, saved: Sequence[Tensor | None], weights: Sequence[Tensor | None], shape: Sequence[int]
) -> Tensor | None:
    """Stands for the weights of an operation whose own backward pass computes the gradients of its other inputs.

    The operation is a `torch.autograd.Function` that takes the weights detached, and this. Its gradient of this is what
    the gradients of the weights are made of: that of its result, say. Autograd hands it on to `gradients`, which runs
    in a branch (`loader.ops.side_streams`): other gradients depend on those of the rows alone.

    Args:
        gradients: called as `gradients(grad, *saved)`, returns a gradient for each weight.
        saved: what else it reads.
        weights: what gets gradients.
        shape: that of `grad`, which has the dtype of the first weight.

    Returns:
        Memory of one element in that shape, which is not to be read; None if no weight wants a gradient.
    """
    if not torch.is_grad_enabled() or not any(of is not None and of.requires_grad for of in weights):
        return None
    detached = [None if of is None else of.detach() for of in saved]

    def stand_in() -> Tensor:
        found: Tensor = _Apart.apply(gradients, detached, tuple(shape), *weights)
        return found

    return stand_in() if in_branch() else beside("gradients", stand_in)()


class _Apart(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gradients: Gradients, saved: Sequence[Tensor | None], shape: tuple[int, ...], *weights: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(*saved)
        ctx.gradients = gradients
        first = next(of for of in weights if of is not None)
        return first.new_empty(1).expand(shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        if grad.is_cuda:
            keep([grad, *saved], torch.cuda.current_stream(grad.device))
        found = zip(ctx.gradients(grad, *saved), ctx.needs_input_grad[3:], strict=True)
        return None, None, None, *(of if needed else None for of, needed in found)


def with_dense_gradient(x: Tensor) -> Tensor:
    """`x`, whose gradient lies in memory as a contiguous tensor does.

    For a stack of parameters that is read transposed: one copy of the gradient of all of them, not one for each.
    """
    found: Tensor = _WithDenseGradient.apply(x)
    return found


class _WithDenseGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.contiguous()
