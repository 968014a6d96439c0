"""Means of rows over sources of several types, those of a node beside each other, for one product per node type."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from loader.ops import gpu as ops_gpu
from loader.ops.hop_layout import Packed
from loader.ops.mean import aggregate_row_mean


def packed_means(
    packed: Packed, x: Sequence[Tensor | None], nodes: Tensor, indptr: Tensor, indices: Tensor, dtype: torch.dtype
) -> Tensor:
    """`[packed.size]` means of the rows, at their places; 0 for an empty row.

    On a GPU they are written there by one launch for each type of sources, unless `x` needs a gradient.

    Args:
        packed: the places, see `HopLayout.packed`.
        x: features by type of sources, `[n, F]`, None of a type whose rows are left out.
        nodes: `[nodes]` int64 the place of each node in the features of its type.
        indptr, indices: of all rows, see `HopLayout`.
        dtype: of the means: that of `x`, or a narrower one than its float32.
    """
    out = torch.empty(packed.size, dtype=dtype, device=nodes.device)
    for rows, order, at in zip(x, packed.order, packed.at, strict=True):
        if rows is None or not len(order):
            continue
        if rows.is_cuda and not rows.requires_grad:
            edges = ops_gpu.Edges(indptr, indices, len(order), None, rows=(order, at))
            ops_gpu.write_means(out.view(-1, packed.step), rows, edges, nodes.to(indices.dtype))
        else:
            means = _means_of(rows, nodes, indptr, indices, order).to(dtype)
            columns = torch.arange(rows.shape[1], device=at.device)
            out = out.index_put((at.unsqueeze(1) + columns,), means)
    return out


def _means_of(x: Tensor, nodes: Tensor, indptr: Tensor, indices: Tensor, order: Tensor) -> Tensor:
    """`[rows, F]`, differentiable."""
    if x.is_cuda:
        # Of all rows, since the host does not know how many entries some have. What the others read is not used.
        places = nodes.index_select(0, indices).clamp(max=len(x))
        every = aggregate_row_mean(torch.nn.functional.pad(x, (0, 0, 0, 1)), indptr, places.to(indices.dtype))
        return every.index_select(0, order)
    begins, lengths = indptr[:-1].index_select(0, order), indptr.diff().index_select(0, order)
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    entry = torch.arange(int(ends[-1]), device=x.device) + (begins - ends[:-1]).repeat_interleave(lengths)
    places = nodes.index_select(0, indices.index_select(0, entry))
    return aggregate_row_mean(x, ends.to(indptr.dtype), places.to(indices.dtype))
