"""Layers on a GPU over rows that lie in tiles, each of nodes of one type, with weights by type."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.machine.gpu import launch_place
from loader.ops.weight_gradients import apart

EPSILON = 1e-5  # of the norm, as in torch.nn.LayerNorm
_ROWS_OF_PART = 64  # of a thread block of the norm's gradient: with more, multiprocessors have unequal work


class Tiles(NamedTuple):
    """Which rows have which type.

    Attributes:
        size: rows of a tile.
        types: `[tiles]` int64.
        order: `[tiles]` int64, the tiles by their type.
        begins: `[types + 1]` int64, where those of each type begin in `order`.
    """

    size: int
    types: Tensor
    order: Tensor
    begins: Tensor

    @property
    def parts(self) -> int:
        """Parts of a tile whose gradients of weights are summed first."""
        return self.size // _ROWS_OF_PART if self.size % _ROWS_OF_PART == 0 else 1

    @classmethod
    def of(cls, size: int, types: Sequence[int], count: int, device: torch.device) -> Tiles:
        """Those of `count` types, whose tiles are given by their type."""
        every = torch.tensor(types, dtype=torch.int64)
        begins = torch.cat([every.new_zeros(1), torch.bincount(every, minlength=count).cumsum(0)])
        return cls(size, every.to(device), torch.argsort(every, stable=True).to(device), begins.to(device))


class Norm(NamedTuple):
    """What follows a layer norm: ReLU, then dropout.

    Attributes:
        relu: whether negative elements become 0.
        threshold: an element is dropped where 16 random bits are below it.
        key: `[1]` int64 on the GPU, what the random bits depend on besides row and column; None without dropout.
    """

    relu: bool
    threshold: int
    key: Tensor | None


def can_norm(x: Tensor) -> bool:
    """Whether `norm_of_tiles` takes rows like these."""
    return x.is_cuda and x.dtype == torch.float32 and x.shape[1] % 4 == 0 and x.shape[1] <= _core.cuda_most_normed


class Spread(NamedTuple):
    """Weights by type as `linear_of_tiles` reads them; no gradient comes this way.

    Attributes:
        matrices: `[tiles, out, in]`.
        bias: `[n, out]`, which the result takes the place of; None without.
    """

    matrices: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, tiles: Tiles) -> Spread:
        """That of `[types, out, in]` and `[types, out]`."""
        matrices = weight.detach().index_select(0, tiles.types)
        if bias is None:
            return cls(matrices, None)
        of_tiles = bias.detach().index_select(0, tiles.types).unsqueeze(1)
        return cls(matrices, of_tiles.expand(-1, tiles.size, -1).contiguous().view(-1, bias.shape[1]))


def linear_of_tiles(x: Tensor, weight: Tensor, bias: Tensor | None, tiles: Tiles, spread: Spread) -> Tensor:
    """`x @ weight.T + bias` of each row, with the weights of its type.

    Args:
        x: `[n, in]`.
        weight, bias: `[types, out, in]` and `[types, out]`; there may be no bias.
        tiles: of the rows.
        spread: the same by tile, in the dtype of `x`, which no other call may be given.
    """
    weights = apart(
        partial(_gradients_of_weights, tiles, bias is not None), [x], [weight, bias], (len(x), weight.shape[1])
    )
    found: Tensor = _LinearOfTiles.apply(x, weights, spread, tiles.size)
    return found


def norm_of_tiles(
    x: Tensor, weight: Tensor, shift: Tensor, bias: Tensor | None, residual: Tensor | None, tiles: Tiles, after: Norm
) -> Tensor:
    """`residual + dropout(relu(weight * norm(x + bias) + shift))` by one launch, and its gradient by two.

    Gradients are summed in a fixed order. The moments of a row are all that is stored besides `x`.

    Args:
        x, residual: `[n, F]` float32, see `can_norm`; there may be no residual.
        weight, shift, bias: `[types, F]`; there may be no bias.
        tiles: of the rows.
        after: what follows the norm.
    """
    every = [weight, shift, bias]
    shape = len(tiles.types) * tiles.parts, 2 if bias is None else 3, x.shape[1]
    weights = apart(partial(_sums_of_vectors, tiles), [], every, shape)
    detached = [None if of is None else of.detach() for of in every]
    found: Tensor = _NormOfTiles.apply(x, weights, *detached, residual, tiles, after)
    return found


def spread_over_tiles(weights: Tensor, tiles: Tiles) -> Tensor:
    """`[tiles, ...]` of weights by type, `[types, ...]`, whose gradient is summed in a fixed order."""
    found: Tensor = _SpreadOverTiles.apply(weights, tiles)
    return found


def add_to_tiles(x: Tensor, weights: Tensor, tiles: Tiles) -> Tensor:
    """`x`, `[n, F]`, with the row of `weights`, `[types, F]`, added to each tile; in the dtype of `x`.

    The gradient of `weights` is summed in float32, or in its own dtype if that is wider, and in a fixed order.
    """
    found: Tensor = _AddToTiles.apply(x, weights, tiles)
    return found


def _vectors(rows: Tensor) -> Tensor:
    """Itself, or a copy where its rows do not begin at multiples of 16 bytes."""
    fits = rows.stride(1) == 1 and rows.stride(0) % 4 == 0 and rows.data_ptr() % 16 == 0
    return rows if fits else rows.clone(memory_format=torch.contiguous_format)


def _sums(rows: Tensor, tiles: Tiles) -> Tensor:
    """`[types, ...]` sums of `rows`, some for each tile, `[tiles * parts, ...]`, over the tiles of each type."""
    if rows.dim() == 3 and not rows.is_contiguous() and rows.transpose(1, 2).is_contiguous():  # of a product
        return _sums(rows.transpose(1, 2), tiles).transpose(1, 2)
    types, width = tiles.begins.shape[0] - 1, rows[:1].numel()
    if rows.is_cuda and rows.dtype == torch.float32 and width % 4 == 0 and len(rows):
        out = rows.new_empty(types, *rows.shape[1:])
        _core.cuda_sum_tiles(launch_place(rows), rows.contiguous(), tiles.order, tiles.begins, out)
        return out
    of_rows = tiles.types
    if len(rows) != len(of_rows):  # a launch that most rows need not have
        of_rows = of_rows.repeat_interleave(len(rows) // len(of_rows))
    return rows.new_zeros(types, *rows.shape[1:]).index_add_(0, of_rows, rows)


class _SpreadOverTiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, tiles: Tiles) -> Tensor:
        ctx.tiles = tiles
        return weights.index_select(0, tiles.types)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _sums(grad, ctx.tiles), None


class _AddToTiles(torch.autograd.Function):
    """Neither the rows of all tiles nor their gradient is written in the wider dtype, as autograd would have it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, tiles: Tiles) -> Tensor:
        ctx.tiles, ctx.dtype = tiles, weights.dtype
        of_tiles = weights.to(x.dtype).index_select(0, tiles.types).unsqueeze(1)
        return (x.view(-1, tiles.size, x.shape[1]) + of_tiles).view(x.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        of_weights = None
        if ctx.needs_input_grad[1]:
            wide = torch.promote_types(ctx.dtype, torch.float32)
            of_tiles = grad.reshape(-1, ctx.tiles.size, grad.shape[1]).sum(1, dtype=wide)
            of_weights = _sums(of_tiles, ctx.tiles).to(ctx.dtype)
        return grad, of_weights, None


class _LinearOfTiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor | None, spread: Spread, size: int) -> Tensor:
        ctx.save_for_backward(spread.matrices)
        ctx.size = size
        rows, matrices, out = x.view(-1, size, x.shape[1]), spread.matrices.transpose(1, 2), spread.bias
        if out is None:
            return torch.bmm(rows, matrices).view(len(x), matrices.shape[2])
        out.view(-1, size, matrices.shape[2]).baddbmm_(rows, matrices)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (of_tiles,) = ctx.saved_tensors
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.bmm(grad.reshape(-1, ctx.size, grad.shape[1]), of_tiles).view(len(grad), of_tiles.shape[2])
        return grad_x, grad if ctx.needs_input_grad[1] else None, None, None


def _gradients_of_weights(tiles: Tiles, has_bias: bool, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Of the weights and, where there is one, the bias of `linear_of_tiles`."""
    of_tiles = grad.reshape(-1, tiles.size, grad.shape[1])
    grad_weight = torch.bmm(of_tiles.transpose(1, 2), x.view(-1, tiles.size, x.shape[1]))
    return _sums(grad_weight, tiles), _sums(of_tiles.sum(1), tiles) if has_bias else None


def _sums_of_vectors(tiles: Tiles, grad: Tensor) -> Sequence[Tensor | None]:
    """Of `norm_of_tiles`: weight, shift and bias."""
    grad_weight, grad_shift, *others = _sums(grad, tiles).unbind(1)
    return grad_weight, grad_shift, others[0] if others else None


class _NormOfTiles(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weights: Tensor | None,
        weight: Tensor,
        shift: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        tiles: Tiles,
        after: Norm,
    ) -> Tensor:
        x, weight, shift = _vectors(x), _vectors(weight), _vectors(shift)
        bias = None if bias is None else _vectors(bias)
        residual = None if residual is None else _vectors(residual)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        moments = x.new_empty(len(x), 2) if any(ctx.needs_input_grad[:2]) else None
        by_type, activation = (tiles.types, tiles.size, weight, shift, bias), (EPSILON, *after)
        _core.cuda_norm(launch_place(x), x, by_type, activation, residual, out, moments)
        ctx.save_for_backward(x, weight, shift, bias, moments, after.key)
        ctx.tiles, ctx.after = tiles, after._replace(key=None)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, shift, bias, moments, key = ctx.saved_tensors
        grad_x = sums = None
        if moments is not None:
            tiles: Tiles = ctx.tiles
            grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            parts = tiles.parts
            sums = x.new_empty(len(tiles.types) * parts, 2 if bias is None else 3, x.shape[1])
            weights, activation = (
                (tiles.types, tiles.size, weight, shift, bias),
                (EPSILON, *ctx.after._replace(key=key)),
            )
            _core.cuda_norm_gradient(
                launch_place(x), x, weights, activation, _vectors(grad), moments, grad_x, parts, sums
            )
        grad_residual = grad if ctx.needs_input_grad[5] else None
        return grad_x, sums if ctx.needs_input_grad[1] else None, None, None, None, grad_residual, None, None
