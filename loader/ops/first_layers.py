"""Linear maps of numbers and codes, whose results several branches write beside each other, without a copy of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

_MOST_ONES = 2**24  # elements of codes as rows of ones and zeros


class FirstLayer(NamedTuple):
    """The sum of `bias`, `numbers @ matrix`, and the rows of a table that codes name.

    Attributes:
        bias: `[2 width]`.
        numbers, matrix: `[n, k]`, which gets no gradient, and `[k, 2 width]`; None without numbers.
        codes, table: `[n, columns]` int64, and `[rows, 2 width]`; None without codes. The rows that first codes name,
            and no others, have the bias in them already, detached: `bias` is then for its gradient.
    """

    bias: Tensor
    numbers: Tensor | None
    matrix: Tensor | None
    codes: Tensor | None
    table: Tensor | None


def write_to(layer: FirstLayer, at: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Writes what a layer gives to `at`, parts of the memory that `halves` gets, one after the other.

    The gradient of all weights is one product.

    Returns:
        What stands for the halves of each part, for `halves`; not to be read.
    """
    weights = (None if of is None else of.to(at[0].dtype) for of in (layer.bias, layer.matrix, layer.table))
    numbers = None if layer.numbers is None else layer.numbers.to(at[0].dtype)
    found: tuple[Tensor, ...] = _FirstLayer.apply(at, numbers, layer.codes, *weights)
    return list(zip(found[: len(at)], found[len(at) :], strict=True))


def halves(memory: Tensor, sizes: Sequence[int], left: Sequence[Tensor], right: Sequence[Tensor]) -> list[Tensor]:
    """`[n, width]` twice: the halves of the rows in `memory`, `[n, 2 width]`, as views.

    Args:
        memory: `write_to` has written the rows to it, or they are zeros.
        sizes: numbers of rows that lie behind each other.
        left, right: what `write_to` returned for each of these; anything of `[size, width]` for zeros.
    """
    found: tuple[Tensor, Tensor] = _Halves.apply(memory, sizes, *left, *right)
    return list(found)


class _FirstLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        at: Sequence[Tensor],
        numbers: Tensor | None,
        codes: Tensor | None,
        bias: Tensor,
        matrix: Tensor | None,
        table: Tensor | None,
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(numbers, codes)
        ctx.table_rows = 0 if table is None else len(table)
        sizes, width = [len(of) for of in at], bias.shape[0] // 2
        every = ([None] * len(at) if of is None else of.split(sizes) for of in (numbers, codes))
        for to, some, of_codes in zip(at, *every, strict=True):
            if table is None or of_codes is None:
                assert some is not None
                assert matrix is not None
                torch.addmm(bias, some, matrix, out=to)
                continue
            if of_codes.shape[1] == 1:
                torch.index_select(table, 0, of_codes[:, 0], out=to)
            else:
                to.copy_(F.embedding_bag(of_codes, table, mode="sum"))
            if some is not None:
                to.addmm_(some, matrix)
        return tuple(bias.new_empty(1).expand(n, width) for _ in range(2) for n in sizes)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        numbers, codes = ctx.saved_tensors
        count, rows = len(grads) // 2, ctx.table_rows
        sides = [of[0] if count == 1 else torch.cat(of) for of in (grads[:count], grads[count:])]
        n, width = sides[0].shape
        # Codes as rows of ones and zeros: a product is sooner done than codes are sorted, and its order is fixed.
        ones = rows if sides[0].is_cuda and n * rows <= _MOST_ONES else 0
        k = 0 if numbers is None else numbers.shape[1]
        factors = sides[0].new_zeros(n, -(-(k + 1 + ones) // 4) * 4)
        factors[:, k] = 1
        if numbers is not None:
            factors[:, :k] = numbers
        if ones:
            factors[:, k + 1 : k + 1 + ones].scatter_(1, codes, 1)
        found = factors.new_empty(factors.shape[1], 2 * width)
        for side, half in zip(sides, found.chunk(2, 1), strict=True):
            torch.mm(factors.t(), side, out=half)
        of_table = found[k + 1 : k + 1 + rows] if ones else None
        if rows and not ones:
            of_table, side = factors.new_zeros(rows, 2 * width), torch.cat(sides, 1)
            for column in codes.unbind(1):
                of_table.index_add_(0, column, side)
        return None, None, None, found[k], found[:k] if k else None, of_table


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
