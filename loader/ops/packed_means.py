"""The rows of a node lie beside each other, whatever the types of its neighbors: one product serves a node type."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from loader.ops import gpu as ops_gpu
from loader.ops.hop_layout import Packed
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
        # Rows that learn get a gradient of zeros where none is read: processes exchange the gradients of all.
        if rows is None or not (len(order) or rows.requires_grad):
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
