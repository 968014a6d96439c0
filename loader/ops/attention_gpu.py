"""The GPU's side of `loader.ops.attention`: launches of the core's kernels, and what autograd has to know about them.

Nothing here waits for the GPU. Values of index arrays are trusted to be a sampler's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.machine.gpu import launch_place, require_cuda
from loader.ops.captured_batch import narrow
from loader.ops.gpu import order_by_source

DTYPES = (torch.float32, torch.bfloat16)
TENSOR_CORES = True  # for rows of bfloat16; measured without by benchmarks/rgat_gpu.py
_VECTOR_BYTES = 16


class AttendedRelation(NamedTuple):
    """The rows of one relation.

    Attributes:
        number: of the relation.
        source: number of the type of its sources.
        order: `[count]` int64, which rows.
        at: `[count]` int64, the element of the packed sums at which those of the first head begin.
        apart: elements from a head to the next.
    """

    number: int
    source: int
    order: Tensor
    at: Tensor
    apart: int


class AttendedRows:
    """The rows of all relations, and where the entries lie.

    Args:
        indptr: `[rows + 1]`.
        entries: places of the sources in `x`. There may be more than the last row ends at.
        sources: for a gradient of `x`, the rows of this and of other layers by their sources.
    """

    def __init__(self, indptr: Tensor, entries: Tensor, sources: BySource | None = None) -> None:
        self.indptr, self.entries, self.sources = indptr, entries, sources


class BySource:
    """The entries of rows in the order of their sources, made when they are first asked for.

    Layers whose rows are the first ones of these share them, and read these entries.

    Args:
        indptr, entries: see `AttendedRows`.
        count: number of sources.
    """

    def __init__(self, indptr: Tensor, entries: Tensor, count: int) -> None:
        self._indptr, self.entries, self._count = indptr, entries, count

    @cached_property
    def lists(self) -> tuple[Tensor, Tensor, Tensor]:
        """`[sources + 1]` where the entries of each source begin, `[entries]` the entries, `[entries]` the row of each;
        int32. The entries of a source are ascending, so sums over them have a fixed order."""
        indptr, entries, device = self._indptr, self.entries, self.entries.device
        begins, order = order_by_source(indptr, entries, self._count)
        ended = torch.zeros(len(entries) + 1, dtype=torch.int32, device=device)
        ended.scatter_add_(0, indptr[1:].long(), ended.new_ones(1).expand(len(indptr) - 1))
        return begins, order.int(), ended[: len(entries)].cumsum(0, dtype=torch.int32)


def padded(x: Tensor) -> Tensor:
    """With as many columns more as there must be whole vectors in a row on a GPU; zeros."""
    spare = -x.shape[1] % columns_of(x.dtype, x.is_cuda)
    return torch.nn.functional.pad(x, (0, spare)) if spare else x


def columns_of(dtype: torch.dtype, on_gpu: bool) -> int:
    """What the number of columns must be a multiple of."""
    return _VECTOR_BYTES // dtype.itemsize if on_gpu else 1


def attend(
    relations: Sequence[AttendedRelation],
    size: int,
    rows: AttendedRows,
    x: Sequence[Tensor | None],
    vectors: Sequence[Tensor | None],
    sinks: Tensor,
    slope: float,
) -> Tensor:
    """See `loader.ops.attention.attend`. Rows are padded, see `padded`, and so are vectors."""
    if not hasattr(_core, "cuda_attend"):
        require_cuda("attention on the GPU")
    for table in x:
        if table is not None and table.dtype not in DTYPES:
            raise TypeError(f"x has dtype {table.dtype}; attention on a GPU takes float32 or bfloat16: call x.float()")
    narrowed = AttendedRows(narrow(rows.indptr), narrow(rows.entries), rows.sources)
    found: Tensor = _Attend.apply(relations, size, narrowed, slope, len(x), sinks, *x, *vectors)
    return found


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        relations: Sequence[AttendedRelation],
        size: int,
        rows: AttendedRows,
        slope: float,
        tables: int,
        sinks: Tensor,
        *given: Tensor | None,
    ) -> Tensor:
        x, vectors = given[:tables], given[tables:]
        dtype = next((table.dtype for table in x if table is not None), torch.float32)
        out = torch.empty(size, dtype=dtype, device=sinks.device)
        shares = sinks.new_empty(len(rows.entries), sinks.shape[1])
        sinks = sinks.contiguous()
        for one in relations:
            lists = rows.indptr, rows.entries, one.order, one.at
            shape = one.apart, sinks.shape[1], slope, TENSOR_CORES
            vector: Any = vectors[one.number]
            _core.cuda_attend(launch_place(sinks), lists, shape, _of(x, one), vector.contiguous(), sinks, shares, out)
        ctx.save_for_backward(rows.indptr, rows.entries, shares, *given)
        ctx.relations, ctx.slope, ctx.tables, ctx.sources = relations, slope, tables, rows.sources
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        indptr, entries, shares, *given = ctx.saved_tensors
        x, vectors = given[: ctx.tables], given[ctx.tables :]
        grad, heads, where = grad.contiguous(), shares.shape[1], launch_place(shares)
        scores, sinks = torch.empty_like(shares), shares.new_zeros(len(indptr) - 1, heads)
        grads: list[Tensor | None] = [None if vector is None else torch.zeros_like(vector) for vector in vectors]
        for one in ctx.relations:
            lists, table = (indptr, entries, one.order, one.at), _of(x, one)
            shape = one.apart, heads, ctx.slope, TENSOR_CORES
            parts = shares.new_empty(_core.cuda_attend_parts(where, lists, shape, table), heads, table.shape[1])
            _core.cuda_attend_gradient(where, lists, shape, table, shares, grad, scores, sinks, parts)
            grads[one.number] = parts.sum(0)
        of_x: list[Tensor | None] = [None] * ctx.tables
        if any(ctx.needs_input_grad[6 : 6 + ctx.tables]):
            of_x[0] = _gradient_of_sources(ctx, indptr, (shares, scores), grad, x, vectors)
        return None, None, None, None, None, sinks, *of_x, *grads


def _of(x: Sequence[Tensor | None], relation: AttendedRelation) -> Any:
    return x[0] if len(x) == 1 else x[relation.source]


def _gradient_of_sources(
    ctx: Any,
    indptr: Tensor,
    of_entries: tuple[Tensor, Tensor],
    grad: Tensor,
    x: Sequence[Any],
    vectors: Sequence[Tensor | None],
) -> Tensor:
    """That of the one `x` of all types."""
    assert ctx.tables == 1
    assert ctx.sources is not None
    shares, scores = of_entries
    rows, heads, count = len(indptr) - 1, shares.shape[1], len(x[0])
    out = torch.empty_like(x[0], memory_format=torch.contiguous_format)
    if not ctx.relations:
        return out.zero_()
    begins, order, row_of = ctx.sources.lists
    # Of each row, which relation it is of, and where its sums begin.
    relation, at = indptr.new_zeros(rows), shares.new_zeros(rows, dtype=torch.int64)
    every = torch.cat([one.order for one in ctx.relations])
    at.index_copy_(0, every, torch.cat([one.at for one in ctx.relations]))
    for i, one in enumerate(ctx.relations):
        relation.index_fill_(0, one.order, i)
    apart = _on_device([one.apart for one in ctx.relations], shares.device)
    stacked: Any = [vectors[one.number] for one in ctx.relations]
    _core.cuda_attend_sources(
        launch_place(shares), (begins[: count + 1], order, indptr[-1:], row_of), (relation, at, apart), heads,
        torch.stack(stacked), shares, scores, grad, out,
    )  # fmt: skip
    return out


def _on_device(numbers: Sequence[int], device: torch.device) -> Tensor:
    """`[n]` int64, made without a copy from the host, which a CUDA graph could not hold."""
    return torch.cat([torch.full((1,), number, device=device) for number in numbers])
