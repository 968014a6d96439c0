"""Layers with weights of their own per type, applied to rows that lie type after type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

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
        return activated(found, relu=relu, dropout=dropout, residual=residual)

    def keys(self, count: int) -> Sequence[Tensor | None]:
        """Keys of `count` layers with dropout, see `norm`. Torch's generator draws them in one launch.

        They are None where torch's own dropout draws.
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
    dtype, width = working_dtype(rows), weight.shape[2]
    matrices = [of.view(-1, width) for of in weight.to(dtype).contiguous().split(list(slots))]
    spans, begin = [], 0
    for part in parts:
        spans.append(Span(part.node_type, begin, part.size, part.slots * rows.shape[1]))
        begin += part.size * part.slots * rows.shape[1]
    return product_by_type(spans, rows.to(dtype).reshape(-1), matrices)


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
    found: Tensor = _ProductByType.apply(spans, rows, *matrices)
    return found


def product_by_head(spans: Sequence[Span], rows: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """`[nodes, heads * out]`: of each node and head its elements times the head's matrix of the node's type.

    Args:
        spans, rows: see `product_by_type`. The elements of a node lie head after head.
        matrices: by type, `[heads, elements of a head, out]` each, at least one.
    """
    found: Tensor = _ProductByType.apply(spans, rows, *matrices)
    return found


class _ProductByType(torch.autograd.Function):
    """A product for each span, written to where it belongs; autograd would put results and gradients together.

    Matrices of three dimensions are by head.
    """

    @staticmethod
    def forward(ctx: Any, spans: Sequence[Span], rows: Tensor, *matrices: Tensor) -> Tensor:
        ctx.save_for_backward(rows, *matrices)
        ctx.spans = spans
        by_head = matrices[0].dim() == 3
        multiply, heads = (torch.bmm, len(matrices[0])) if by_head else (torch.mm, 1)
        out = rows.new_empty(sum(span.size for span in spans), heads * matrices[0].shape[-1])
        for span, nodes, wide in _of_spans(spans, out, rows, heads if by_head else None):
            if span.a_node:
                multiply(wide, matrices[span.node_type], out=nodes)
            else:
                nodes.zero_()
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        rows, *matrices = ctx.saved_tensors
        heads = len(matrices[0]) if matrices[0].dim() == 3 else None
        multiply = torch.mm if heads is None else torch.bmm
        grad = grad if heads is None else grad.contiguous()
        grad_rows = torch.empty_like(rows) if ctx.needs_input_grad[1] else None
        if grad_rows is not None:
            for span, nodes, wide in _of_spans(ctx.spans, grad, grad_rows, heads):
                if span.a_node:
                    multiply(nodes, matrices[span.node_type].transpose(-1, -2), out=wide)
        grads: list[Tensor | None] = [None for _ in matrices]
        if any(ctx.needs_input_grad[2:]):
            for span, nodes, wide in _of_spans(ctx.spans, grad, rows, heads):
                if span.a_node:
                    before, t, across = grads[span.node_type], span.node_type, wide.transpose(-1, -2)
                    if before is None:
                        grads[t] = multiply(across, nodes)
                    elif heads is None:
                        before.addmm_(across, nodes)
                    else:
                        before.baddbmm_(across, nodes)
        every = zip(grads, matrices, strict=True)
        return None, grad_rows, *(torch.zeros_like(of) if found is None else found for found, of in every)


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
