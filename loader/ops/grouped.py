"""Layers with weights of their own per type, applied to rows that lie type after type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from loader.ops.autocast import working_dtype
from loader.ops.tiles import Norm, Tiles, can_norm, norm_of_tiles, spread_over_tiles


class _Part(Protocol):
    """Nodes of one type, with a row for each relation into it."""

    @property
    def node_type(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def slots(self) -> int: ...


class Grouped:
    """Rows of several types, in runs of one type each.

    If the rows are whole tiles, each of one type, a layer is one product over all tiles. Else it is one for each run.

    Args:
        runs: the type and the number of rows of each.
        tile: what all sizes are multiples of; 1 for runs of any size.
        device: of the rows.
        types: number of types.
    """

    def __init__(self, runs: Iterable[tuple[int, int]], tile: int, device: torch.device, types: int) -> None:
        of_runs = [(t, size) for t, size in runs if size]
        self._sizes = [size for _, size in of_runs]
        self._types = [t for t, _ in of_runs]
        # For runs no tensor is made: the host would wait for the device.
        of_tiles = [t for t, size in of_runs for _ in range(size // tile)] if tile > 1 else []
        self._tiles = Tiles.of(tile, of_tiles, types, device) if tile > 1 else None

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`x @ weight.T + bias` of each row, with the weights of its type.

        Args:
            x: `[n, in]`.
            weight: `[types, out, in]`.
            bias: `[types, out]`, if there is one.
        """
        tiles = self._tiles
        if tiles is not None:
            rows = x.view(-1, tiles.size, x.shape[1])
            matrices = spread_over_tiles(weight, tiles).transpose(1, 2)
            if bias is None:
                found = torch.bmm(rows, matrices)
            else:
                found = torch.baddbmm(spread_over_tiles(bias, tiles).unsqueeze(1), rows, matrices)
            return found.view(x.shape[0], weight.shape[1])
        of_types = weight.unbind(), [None] * len(weight) if bias is None else bias.unbind()
        parts = zip(self._types, x.split(self._sizes), strict=True) if self._sizes else ()
        found_of = [F.linear(part, of_types[0][t], of_types[1][t]) for t, part in parts]
        return torch.cat([x.new_zeros(0, weight.shape[1]), *found_of])

    def norm(
        self,
        x: Tensor,
        weight: Tensor,
        shift: Tensor,
        *,
        bias: Tensor | None = None,
        relu: bool = False,
        dropout: float = 0.0,
        key: Tensor | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """`residual + dropout(relu(norm(x + bias)))` of each row, with the weights of its type.

        On a GPU, if the rows are tiles of float32 and have a multiple of 4 and at most 512 columns, it is one launch.
        Dropout is then by Philox 2x32-7, and the probability is rounded to a multiple of 1/65536; else it is torch's.

        Args:
            x: `[n, F]`.
            weight, shift: `[types, F]` of `torch.nn.LayerNorm`.
            bias: `[types, F]`, what a layer before it would add.
            relu: whether negative elements count as 0.
            dropout: probability in [0, 1) that an element counts as 0; the others are scaled by 1 / (1 - dropout).
            key: on which dropout depends, see `keys`: another one for each layer.
            residual: `[n, F]`.
        """
        tiles = self._tiles
        if tiles is not None and can_norm(x := x.to(weight.dtype)):
            threshold = round(dropout * 65536)
            after = Norm(relu, min(threshold, 65535), key if threshold else None)
            residual = None if residual is None else residual.to(weight.dtype)
            return norm_of_tiles(x, weight, shift, bias, residual, tiles, after)
        shape = x.shape[1:]
        if tiles is not None:
            x = x if bias is None else (x.view(-1, tiles.size, *shape) + spread_over_tiles(bias, tiles).unsqueeze(1))
            rows = F.layer_norm(x, shape).view(-1, tiles.size, *shape)
            of_tiles = [spread_over_tiles(of, tiles).unsqueeze(1) for of in (shift, weight)]
            found = torch.addcmul(of_tiles[0], rows, of_tiles[1]).view(-1, *shape)
        else:
            every = [weight.unbind(), shift.unbind(), *([] if bias is None else [bias.unbind()])]
            parts = zip(self._types, x.split(self._sizes), strict=True) if self._sizes else ()
            found_of = [
                F.layer_norm(part if bias is None else part + every[2][t], shape, every[0][t], every[1][t])
                for t, part in parts
            ]
            found = torch.cat([x[:0], *found_of])
        found = F.dropout(found.relu() if relu else found, dropout) if dropout else found.relu() if relu else found
        return found if residual is None else residual + found

    def keys(self, count: int) -> Sequence[Tensor | None]:
        """Keys of so many layers with dropout, see `norm`, drawn from torch's generator of the GPU by one launch.

        There are none where torch's own dropout draws.
        """
        if self._tiles is None or not self._tiles.types.is_cuda:
            return [None] * count
        return torch.randint(2**32, (count, 1), device=self._tiles.types.device).unbind()

    def rows(self, rows: Tensor) -> Tensor:
        """`[n, F]`: for each row that of its type, `[types, F]`."""
        if self._tiles is not None:
            of_tiles = spread_over_tiles(rows, self._tiles)
            return of_tiles.unsqueeze(1).expand(-1, self._tiles.size, -1).reshape(-1, rows.shape[1])
        every = rows.unbind()
        return torch.cat([rows[:0], *(every[t].expand(n, -1) for t, n in zip(self._types, self._sizes, strict=True))])


def sum_of_relations(parts: Iterable[_Part], slots: Sequence[int], rows: Tensor, weight: Tensor) -> Tensor:
    """`[nodes, out]`: the sum over a node's rows of each times the weight of its relation.

    Args:
        parts: the nodes, see `loader.ops.hop_layout.HopLayout.parts`.
        slots: of each type the number of relations into it.
        rows: `[rows of the nodes, in]`.
        weight: `[relations, in, out]`, type after type.
    """
    dtype = working_dtype(rows)
    shapes = [(segment.node_type, segment.size, segment.slots) for segment in parts]
    found: Tensor = _SumOfRelations.apply(rows.to(dtype), weight.to(dtype), shapes, list(slots))
    return found


class _SumOfRelations(torch.autograd.Function):
    """A product for each part, written to where it belongs; autograd would put results and gradients together."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, parts: list[tuple[int, int, int]], slots: list[int]) -> Tensor:
        rows, weight = rows.contiguous(), weight.contiguous()
        ctx.save_for_backward(rows, weight)
        ctx.parts, ctx.slots = parts, slots
        out = rows.new_empty(sum(size for _, size, _ in parts), weight.shape[2])
        for nodes, wide, matrix in _products(parts, out, rows, _matrices(weight, slots)):
            if wide.shape[1]:
                torch.mm(wide, matrix, out=nodes)
            else:
                nodes.zero_()
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        grad_rows = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_rows = torch.empty_like(rows)
            for nodes, wide, matrix in _products(ctx.parts, grad, grad_rows, _matrices(weight, ctx.slots)):
                torch.mm(nodes, matrix.t(), out=wide)
        if ctx.needs_input_grad[1]:
            grad_weight = torch.zeros_like(weight)
            for nodes, wide, matrix in _products(ctx.parts, grad, rows, _matrices(grad_weight, ctx.slots)):
                matrix.addmm_(wide.t(), nodes)
        return grad_rows, grad_weight, None, None


def _matrices(weight: Tensor, slots: Sequence[int]) -> list[Tensor]:
    """Views by type, `[slots * in, out]`: the matrices of its relations, below each other."""
    return [of.view(-1, weight.shape[2]) for of in weight.split(list(slots))]


def _products(
    parts: Sequence[tuple[int, int, int]], of_nodes: Tensor, rows: Tensor, matrices: Sequence[Tensor]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Of each part what belongs to its nodes, their rows `[nodes, slots * in]`, and the matrix of its type."""
    node = row = 0
    for node_type, size, slots in parts:
        wide = rows[row : row + size * slots].view(size, slots * rows.shape[1])
        yield of_nodes[node : node + size], wide, matrices[node_type]
        node, row = node + size, row + size * slots
