"""Rows of two halves that several branches write beside each other, without a copy of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def place(rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Writes rows `[n, 2 width]` to `at`, a part of the memory that `halves` gets.

    Returns:
        What stands for the two halves of the rows, for `halves`; not to be read.
    """
    left, right = _Place.apply(rows, at)
    return left, right


def halves(memory: Tensor, sizes: Sequence[int], left: Sequence[Tensor], right: Sequence[Tensor]) -> list[Tensor]:
    """`[n, width]` twice: the halves of the rows in `memory`, `[n, 2 width]`, as views.

    Args:
        memory: `place` has written the rows to it, or they are zeros.
        sizes: numbers of rows that lie behind each other.
        left, right: what `place` returned for each of these.
    """
    found: tuple[Tensor, Tensor] = _Halves.apply(memory, sizes, *left, *right)
    return list(found)


class _Place(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        at.copy_(rows)
        shape = len(rows), rows.shape[1] // 2
        return rows.new_empty(1).expand(shape), rows.new_empty(1).expand(shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, left: Tensor, right: Tensor) -> tuple[Tensor | None, ...]:
        return torch.cat([left, right], 1), None


class _Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, memory: Tensor, sizes: Sequence[int], *stand_ins: Tensor) -> tuple[Tensor, ...]:
        ctx.sizes = list(sizes)
        left, right = memory.chunk(2, 1)
        return left, right

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, left: Tensor, right: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *left.split(ctx.sizes), *right.split(ctx.sizes)
