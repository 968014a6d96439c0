"""Rows of nodes of several types, those of a node beside each other, for one product per node type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from loader.ops import gpu as ops_gpu
from loader.ops.hop_layout import Packed, Span
from loader.ops.mean import aggregate_row_mean


def packed_means(
    packed: Packed, x: Sequence[Tensor | None], nodes: Tensor, indptr: Tensor, indices: Tensor, dtype: torch.dtype
) -> Tensor:
    """`[packed.size]` means of features over the rows of a layout, 0 for an empty row, and features of its nodes.

    On a GPU they are written to their places by one launch for each type of sources, unless `x` needs a gradient.

    Args:
        packed: the places, see `HopLayout.packed`.
        x: features by type, `[n, F]`, None of a type whose rows are left out.
        nodes: `[nodes]` int64 the place of each node in the features of its type.
        indptr, indices: of all rows, see `HopLayout`.
        dtype: of the result: that of `x`, or a narrower one than its float32.
    """
    # Each node follows as a row of its own. There may be entries that no row has: the row between has them.
    count = sum(span.size for span in packed.spans)
    own = torch.arange(count + 1, device=nodes.device) + indices.numel()
    ends = torch.cat([indptr, own.to(indptr.dtype)])
    entries = torch.cat([nodes.index_select(0, indices), nodes[:count]]).to(indices.dtype)
    out = torch.empty(packed.size, dtype=dtype, device=nodes.device)
    for rows, order, at in zip(x, packed.order, packed.at, strict=True):
        if rows is None or not len(order):
            continue
        if rows.is_cuda and not rows.requires_grad:
            ops_gpu.write_means(out.view(-1, packed.step), rows, ops_gpu.Edges(ends, entries, 0, None), (order, at))
        else:
            columns = torch.arange(rows.shape[1], device=at.device)
            out = out.index_put((at.unsqueeze(1) + columns,), _means_of(rows, ends, entries, order).to(dtype))
    return out


def _means_of(x: Tensor, indptr: Tensor, indices: Tensor, order: Tensor) -> Tensor:
    """`[rows, F]`, differentiable."""
    if x.is_cuda:
        # Of all rows, since the host does not know how many entries some have. What the others read is not used.
        every = aggregate_row_mean(F.pad(x, (0, 0, 0, 1)), indptr, indices.clamp(max=len(x)))
        return every.index_select(0, order)
    begins, lengths = indptr[:-1].index_select(0, order), indptr.diff().index_select(0, order)
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    entry = torch.arange(int(ends[-1]), device=x.device) + (begins - ends[:-1]).repeat_interleave(lengths)
    return aggregate_row_mean(x, ends.to(indptr.dtype), indices.index_select(0, entry))


def packed_product(packed: Packed, rows: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """`[nodes, out]`: what lies beside each other of each node times the matrix of its type.

    Args:
        packed: places of the rows.
        rows: `[packed.size]`, see `packed_means`.
        matrices: by type, `[elements of a node, out]` each, at least one.
    """
    found: Tensor = _PackedProduct.apply(packed.spans, rows, *(matrix.to(rows.dtype) for matrix in matrices))
    return found


class _PackedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, spans: list[Span], rows: Tensor, *matrices: Tensor) -> Tensor:
        ctx.save_for_backward(rows, *matrices)
        ctx.spans = spans
        out = rows.new_empty(sum(span.size for span in spans), matrices[0].shape[1])
        for span, nodes, wide in _of_spans(spans, out, rows):
            if span.a_node:
                torch.mm(wide, matrices[span.node_type], out=nodes)
            else:
                nodes.zero_()
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        rows, *matrices = ctx.saved_tensors
        grad_rows = torch.empty_like(rows) if ctx.needs_input_grad[1] else None
        grads: list[Tensor | None] = [None for _ in matrices]
        for span, nodes, wide in _of_spans(ctx.spans, grad, rows):
            before, t = grads[span.node_type], span.node_type
            grads[t] = wide.t() @ nodes if before is None else before.addmm_(wide.t(), nodes)
        if grad_rows is not None:
            for span, nodes, wide in _of_spans(ctx.spans, grad, grad_rows):
                torch.mm(nodes, matrices[span.node_type].t(), out=wide)
        every = zip(grads, matrices, strict=True)
        return None, grad_rows, *(torch.zeros_like(of) if found is None else found for found, of in every)


def _of_spans(spans: list[Span], of_nodes: Tensor, rows: Tensor) -> list[tuple[Span, Tensor, Tensor]]:
    """Of each span what belongs to its nodes, and their rows, `[nodes, elements of a node]`."""
    sizes = [span.size for span in spans]
    wide = [rows[s.begin : s.begin + s.size * s.a_node].view(s.size, s.a_node) for s in spans]
    return list(zip(spans, of_nodes.split(sizes), wide, strict=True))
