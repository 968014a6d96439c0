"""Layers with weights of their own per type, applied to rows that lie type after type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from loader.ops.autocast import working_dtype
from loader.ops.tiles import (
    Norm,
    Spread,
    Tiles,
    add_to_tiles,
    can_norm,
    linear_of_tiles,
    norm_of_tiles,
    spread_over_tiles,
)
from loader.ops.weight_gradients import apart


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

    def spread(self, weight: Tensor, bias: Tensor | None = None) -> Spread | None:
        """Weights as one call of `linear` reads them, for who has the time before: by tile; None for runs."""
        if self._tiles is None:
            return None
        dtype = working_dtype(weight)
        return Spread.of(weight.to(dtype), None if bias is None else bias.to(dtype), self._tiles)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, spread: Spread | None = None) -> Tensor:
        """`x @ weight.T + bias` of each row, with the weights of its type.

        Args:
            x: `[n, in]`.
            weight: `[types, out, in]`.
            bias: `[types, out]`, if there is one.
            spread: what `spread` returned of these.
        """
        tiles = self._tiles
        if tiles is not None:
            spread = self.spread(weight, bias) if spread is None else spread
            assert spread is not None
            dtype = spread.matrices.dtype
            bias = None if bias is None else bias.to(dtype)
            return linear_of_tiles(x.to(dtype), weight.to(dtype), bias, tiles, spread)
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
        return activated(found, relu=relu, dropout=dropout, residual=residual)

    def keys(self, count: int) -> Sequence[Tensor | None]:
        """Keys of `count` layers with dropout, see `norm`. Torch's generator draws them in one launch.

        They are None where torch's own dropout draws.
        """
        if self._tiles is None or not self._tiles.types.is_cuda:
            return [None] * count
        return torch.randint(2**32, (count, 1), device=self._tiles.types.device).unbind()

    def plus(self, x: Tensor, rows: Tensor) -> Tensor:
        """`[n, F]`, of the dtype of `x`: each row of it, and of `rows`, `[types, F]`, the one of its type."""
        if self._tiles is not None:
            return add_to_tiles(x, rows, self._tiles)
        return x + self.rows(rows).to(x.dtype)

    def rows(self, rows: Tensor) -> Tensor:
        """`[n, F]`: for each row that of its type, `[types, F]`."""
        if self._tiles is not None:
            of_tiles = spread_over_tiles(rows, self._tiles)
            return of_tiles.unsqueeze(1).expand(-1, self._tiles.size, -1).reshape(-1, rows.shape[1])
        every = rows.unbind()
        return torch.cat([rows[:0], *(every[t].expand(n, -1) for t, n in zip(self._types, self._sizes, strict=True))])


def activated(x: Tensor, *, relu: bool, dropout: float, residual: Tensor | None) -> Tensor:
    """`residual + dropout(relu(x))`, by torch, see `Grouped.norm`."""
    x = x.relu() if relu else x
    x = F.dropout(x, dropout) if dropout else x
    return x if residual is None else residual + x


def sum_of_relations(parts: Iterable[_Part], slots: Sequence[int], rows: Tensor, weight: Tensor) -> Tensor:
    """`[nodes, out]`: the sum over a node's rows of each times the weight of its relation.

    Args:
        parts: the nodes, see `loader.ops.hop_layout.HopLayout.parts`.
        slots: of each type the number of relations into it.
        rows: `[rows of the nodes, in]`.
        weight: `[relations, in, out]`, type after type.
    """
    dtype = working_dtype(rows)
    return sum_of_rows(parts, rows.to(dtype), by_type(weight.to(dtype), slots))


def sum_of_rows(
    parts: Iterable[_Part],
    rows: Tensor,
    relations: Sequence[Tensor],
    *,
    own: Sequence[Tensor] | None = None,
    base: Tensor | None = None,
) -> Tensor:
    """`[nodes, out]`: as `sum_of_relations`, and a row of each node itself times the weight of its type.

    Args:
        parts: see `sum_of_relations`.
        rows: `[rows of the nodes, in]`; with `own` those of the nodes themselves first, `[nodes + rows, in]`.
        relations: `[relations into the type * in, out]` by type, see `by_type`.
        own: `[in, out]` by type; None for nodes without rows of their own.
        base: `[nodes, out]` that the sum is added to, in its memory: nothing else may read it.
    """
    parts, width, begin, groups = list(parts), rows.shape[1], 0, []
    for of in (own, relations):
        spans = []
        for part in parts if of is not None else ():
            a_node = (1 if of is own else part.slots) * width
            spans.append(Span(part.node_type, begin, part.size, a_node))
            begin += part.size * a_node
        groups += [] if of is None else [spans]
    return _product(groups, rows.reshape(-1), [*(own or ()), *relations], base)


def by_type(weight: Tensor, slots: Sequence[int]) -> list[Tensor]:
    """Weights of relations `[relations, in, out]`, type after type, as a matrix for each type."""
    return [of.view(-1, weight.shape[2]) for of in weight.contiguous().split(list(slots))]


class Span(NamedTuple):
    """Nodes of one type, whose elements lie in a row: `size` times `a_node` of them, from `begin` on."""

    node_type: int
    begin: int
    size: int
    a_node: int


def product_by_type(spans: Sequence[Span], rows: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """`[nodes, out]`: the elements of each node times the matrix of its type.

    Args:
        spans: the nodes, in their order.
        rows: `[elements]` of all of them.
        matrices: by type, `[elements of a node, out]` each, at least one.
    """
    return _product([spans], rows, matrices, None)


def product_by_head(spans: Sequence[Span], rows: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """`[nodes, heads * out]`: of each node and head its elements times the head's matrix of the node's type.

    Args:
        spans, rows: see `product_by_type`. The elements of a node lie head after head.
        matrices: by type, `[heads, elements of a head, out]` each, at least one.
    """
    return _product([spans], rows, matrices, None)


def _product(groups: Sequence[Sequence[Span]], rows: Tensor, matrices: Sequence[Tensor], base: Tensor | None) -> Tensor:
    """The sum over groups of spans, each of which has all nodes; the matrices of a group follow on those before."""
    heads = len(matrices[0]) if matrices[0].dim() == 3 else None
    shape = sum(span.size for span in groups[0]), (heads or 1) * matrices[0].shape[-1]
    detached = [of.detach() for of in matrices]
    weights = apart(partial(_gradients_of_matrices, groups, detached), [rows], matrices, shape)
    found: Tensor = _ProductByType.apply(groups, rows, base, weights, *detached)
    return found


class _ProductByType(torch.autograd.Function):
    """A product for each span, written to where it belongs; autograd would put results and gradients together.

    Matrices of three dimensions are by head.
    """

    @staticmethod
    def forward(
        ctx: Any,
        groups: Sequence[Sequence[Span]],
        rows: Tensor,
        base: Tensor | None,
        weights: Tensor | None,
        *matrices: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(*matrices)
        ctx.groups, ctx.shape = groups, rows.shape
        heads, types = len(matrices[0]) if matrices[0].dim() == 3 else None, len(matrices) // len(groups)
        multiply = torch.mm if heads is None else torch.bmm
        if base is not None:
            ctx.mark_dirty(base)
        nodes_of = sum(span.size for span in groups[0])
        out = rows.new_empty(nodes_of, (heads or 1) * matrices[0].shape[-1]) if base is None else base
        for g, spans in enumerate(groups):
            for span, nodes, wide in _of_spans(spans, out, rows, heads):
                matrix = matrices[g * types + span.node_type]
                if g or base is not None:
                    _add_product(nodes, wide, matrix)
                elif span.a_node:
                    multiply(wide, matrix, out=nodes)
                else:
                    nodes.zero_()
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        matrices, grad_rows = ctx.saved_tensors, None
        if ctx.needs_input_grad[1]:
            heads, types = len(matrices[0]) if matrices[0].dim() == 3 else None, len(matrices) // len(ctx.groups)
            multiply = torch.mm if heads is None else torch.bmm
            of_nodes, grad_rows = grad if heads is None else grad.contiguous(), grad.new_empty(ctx.shape)
            for g, spans in enumerate(ctx.groups):
                for span, nodes, wide in _of_spans(spans, of_nodes, grad_rows, heads):
                    if span.a_node:
                        multiply(nodes, matrices[g * types + span.node_type].transpose(-1, -2), out=wide)
        others = [grad if ctx.needs_input_grad[i] else None for i in (2, 3)]
        return None, grad_rows, *others, *(None for _ in matrices)


def _gradients_of_matrices(
    groups: Sequence[Sequence[Span]], matrices: Sequence[Tensor], grad: Tensor, rows: Tensor
) -> list[Tensor]:
    """From the gradient of the result of `_product`."""
    heads, types = len(matrices[0]) if matrices[0].dim() == 3 else None, len(matrices) // len(groups)
    multiply = torch.mm if heads is None else torch.bmm
    grad = grad if heads is None else grad.contiguous()
    found: list[Tensor | None] = [None for _ in matrices]
    for g, spans in enumerate(groups):
        for span, nodes, wide in _of_spans(spans, grad, rows, heads):
            if span.a_node:
                at, across = g * types + span.node_type, wide.transpose(-1, -2)
                before = found[at]
                if before is None:
                    found[at] = multiply(across, nodes)
                else:
                    _add_product(before, across, nodes)
    return [torch.zeros_like(of) if one is None else one for one, of in zip(found, matrices, strict=True)]


def _add_product(to: Tensor, left: Tensor, right: Tensor) -> None:
    if left.shape[-1]:
        to.addmm_(left, right) if to.dim() == 2 else to.baddbmm_(left, right)


def _of_spans(
    spans: Sequence[Span], of_nodes: Tensor, rows: Tensor, heads: int | None
) -> list[tuple[Span, Tensor, Tensor]]:
    """Of each span what belongs to its nodes, and their elements, `[nodes, elements of a node]`; with heads, both are
    `[heads, nodes, ...]`.
    """
    nodes: Sequence[Tensor] = of_nodes.split([span.size for span in spans])
    wide = [rows[s.begin : s.begin + s.size * s.a_node].view(s.size, s.a_node) for s in spans]
    if heads is not None:
        nodes, wide = (
            [of.unflatten(1, (heads, of.shape[1] // heads)).transpose(0, 1) for of in each] for each in (nodes, wide)
        )
    return list(zip(spans, nodes, wide, strict=True))
