"""The GPU's side of `loader.ops`: launches of the core's kernels, and what autograd has to know about them.

Nothing here waits for the GPU. Values of index arrays are trusted to be a sampler's, all else is checked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.machine.gpu import launch_place, require_cuda
from loader.ops.captured_batch import CapturedBlock, draw_keys, narrow
from loader.samples import Block

_DTYPES = tuple(getattr(torch, name) for name in getattr(_core, "cuda_mean_dtypes", ()))
# Rows of codes, which only a first layer reads.
_CODES = tuple(getattr(torch, name) for name in getattr(_core, "cuda_mean_codes", ()))
_INDEX_DTYPES = ((torch.int32, torch.int32), (torch.int64, torch.int32), (torch.int64, torch.int64))
_MOST = 2**31 - 1  # rows and edges of a block: they have numbers of int32
_DROPOUT_STEPS = 65536  # a dropped element is told by 16 random bits
_PADDING_BYTES = 16


class Activation(NamedTuple):
    """ReLU or not; how many elements of 65536 are dropped; the key from which their choice follows."""

    relu: bool = False
    threshold: int = 0
    key: int = 0


IDENTITY = Activation()


class Edges(NamedTuple):
    """A block's arrays.

    Attributes:
        captured: where they are looked up if the block is captured, else None.
        sums: whether rows are summed, not averaged.
        rows: `[num_dst]` int64 the list of each row, and the element of the output that it begins at; None: row i is
            list i, one row after the other.
    """

    indptr: Tensor
    indices: Tensor
    num_dst: int
    captured: Tensor | None
    sums: bool = False
    rows: tuple[Tensor, Tensor] | None = None

    def narrowed(self) -> Edges:
        """With indices of int32. Those of a graph with 2^31 edges or nodes are converted."""
        return self._replace(indptr=narrow(self.indptr), indices=narrow(self.indices))


class Scales(NamedTuple):
    """Scales of codes, `[1, F]` or `[num_rows, 1]` float32, and whether there is one for each row. See `LazyRows`."""

    of: Tensor
    by_row: bool


def draw_activation(relu: bool, dropout: float, block: Block) -> Activation:
    """The activation of one call, its key from torch's CPU generator; that of a captured block its owner draws."""
    if not dropout:
        return Activation(relu)
    threshold = min(round(dropout * _DROPOUT_STEPS), _DROPOUT_STEPS - 1)
    if not threshold:
        return Activation(relu)
    if isinstance(block, CapturedBlock):
        block.draws += 1
        return Activation(relu, threshold)
    return Activation(relu, threshold, draw_keys(1)[0])


def check(x: Tensor, block: Block, *, codes: bool = False) -> None:
    """What can be known without waiting for the GPU, before anything is made."""
    if not _DTYPES:
        require_cuda("an aggregation on the GPU")
    if codes:
        if x.dtype not in _CODES:
            raise TypeError(f"the table has dtype {x.dtype}; rows with scales are int8 or float8_e4m3fn")
    elif x.dtype not in _DTYPES:
        raise TypeError(f"x has dtype {x.dtype}; on the GPU it must be float32, float64, float16 or bfloat16")
    if block.captured is not None:
        return
    indptr, indices = block.indptr, block.indices
    if indptr.get_device() != x.get_device():
        raise ValueError(f"x lies on {x.device}, the block's indptr on {indptr.device}; move one of them")
    if (indptr.dtype, indices.dtype) not in _INDEX_DTYPES:
        raise TypeError(
            f"the block has indptr of {indptr.dtype} and indices of {indices.dtype}; they must be int32 or int64, "
            "and indices must not be the wider one"
        )
    if max(x.shape[0], indices.shape[0]) > _MOST:
        raise ValueError(
            f"there are {x.shape[0]} rows and {indices.shape[0]} edges; a GPU sums over at most {_MOST} of each: split "
            "the block"
        )
    if not (indptr.is_contiguous() and indices.is_contiguous()):
        raise ValueError("the block's arrays are not contiguous; call .contiguous() first")
    if indptr.dim() != 1 or indptr.shape[0] != block.num_dst + 1 or indices.dim() != 1:
        raise ValueError(
            f"the block's indptr has shape {tuple(indptr.shape)}, indices {tuple(indices.shape)}; "
            f"with num_dst = {block.num_dst} they must be [{block.num_dst + 1}] and [num_edges]"
        )
    if block.num_dst > block.num_src:
        raise ValueError(f"the block has {block.num_dst} destinations, but only {block.num_src} sources")


def mean_of(x: Tensor, edges: Edges) -> Tensor:
    """`[num_dst, F]`, without autograd."""
    mean = x.new_empty(edges.num_dst, x.shape[1])
    if mean.numel():
        _forward(_rows(x), edges, mean, 0, -1, 0, IDENTITY)
    return mean


def concat_of(
    x: Tensor,
    edges: Edges,
    dtype: torch.dtype,
    padding: int,
    activation: Activation,
    device: torch.device,
    nodes: Tensor | None = None,
    scales: Scales | None = None,
) -> Tensor:
    """`[num_dst, 2 F + padding]`: own features, mean, then a one and zeros; without autograd.

    With `nodes`, source `s` has row `nodes[s]` of `x`. With `scales`, `x` has codes.
    """
    dim = x.shape[1]
    both = torch.empty(edges.num_dst, 2 * dim + padding, dtype=dtype, device=device)
    if edges.num_dst and dim:
        _forward(_rows(x), edges, both, dim, 0, padding, activation, nodes, scales)
    elif padding:
        both.zero_()
        both[:, 2 * dim].fill_(1)
    return both


def write_means(out: Tensor, x: Tensor, edges: Edges, rows: tuple[Tensor, Tensor]) -> None:
    """Writes the means of some rows to their places in `out`, contiguous. See `Edges.rows`."""
    _forward(_rows(x), edges._replace(num_dst=len(rows[0]), rows=rows), out, 0, -1, 0, IDENTITY)


class Mean(torch.autograd.Function):
    """Or the sum."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, indptr: Tensor, indices: Tensor, num_dst: int, captured: Tensor | None, sums: bool = False
    ) -> Tensor:
        ctx.save_for_backward(indptr, indices)
        ctx.num_src, ctx.of_block = x.shape[0], (num_dst, captured, sums)
        return mean_of(x, Edges(indptr, indices, *ctx.of_block))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_mean: Tensor) -> tuple[Tensor | None, ...]:
        edges = Edges(*ctx.saved_tensors, *ctx.of_block)
        return _backward(edges, ctx.num_src, None, grad_mean), None, None, None, None, None


class Entries(NamedTuple):
    """Entries of rows, and of sources: `[sources + 1]` where the rows of each begin in `rows`. See `entries_of`."""

    indptr: Tensor
    indices: Tensor
    begins: Tensor
    rows: Tensor


def entries_of(indptr: Tensor, indices: Tensor, num_src: int) -> Entries:
    """Entries by row, see `loader.ops.aggregate_sum`, and by source, there in the order of the rows.

    It takes some ten launches. The host does not wait for the device.
    """
    begins, order = order_by_source(indptr, indices, num_src)
    rows = torch.bucketize(order.to(indptr.dtype), indptr[1:], right=True)
    return Entries(indptr, indices, begins.to(indptr.dtype), rows.to(indices.dtype))


def order_by_source(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor]:
    """`[sources + 1]` int32 where the entries of each source begin in the order by source, and `[entries]` int64 that
    order, see `_sorted_sources`.
    """
    of_entries, order = _sorted_sources(indptr, indices, num_src)
    sources = torch.arange(num_src + 1, dtype=of_entries.dtype, device=indices.device)
    return torch.searchsorted(of_entries, sources, out_int32=True), order


def _sorted_sources(indptr: Tensor, indices: Tensor, num_src: int) -> tuple[Tensor, Tensor]:
    """The sorted sources of all entries, and the entries they belong to, by a stable sort. Entries before the first row
    and behind the last one, which a padded mini-batch has, go behind those of all sources.
    """
    entry = torch.arange(len(indices), device=indices.device)
    of_rows = (entry >= indptr[0]) & (entry < indptr[-1])
    return torch.sort(torch.where(of_rows, indices, num_src), stable=True)


def sum_of_entries(x: Tensor, entries: Entries) -> Tensor:
    """`loader.ops.aggregate_sum`, whose gradient is a sum of the same kind: it has no order to find first."""
    found: Tensor = _SumOfEntries.apply(x, *entries)
    return found


class _SumOfEntries(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, indptr: Tensor, indices: Tensor, begins: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(begins, rows)
        return mean_of(x, Edges(indptr, indices, indptr.shape[0] - 1, None, True))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        begins, rows = ctx.saved_tensors
        return mean_of(grad, Edges(begins, rows, begins.shape[0] - 1, None, True)), None, None, None, None


class SelfAndMean(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, indptr: Tensor, indices: Tensor, num_dst: int, captured: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(indptr, indices)
        ctx.set_materialize_grads(False)
        ctx.num_src, ctx.num_dst, ctx.captured = x.shape[0], num_dst, captured
        return x[:num_dst], mean_of(x, Edges(indptr, indices, num_dst, captured))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_self: Tensor | None, grad_mean: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad_self is None and grad_mean is None:
            return None, None, None, None, None
        indptr, indices = ctx.saved_tensors
        edges = Edges(indptr, indices, ctx.num_dst, ctx.captured)
        return _backward(edges, ctx.num_src, grad_self, grad_mean), None, None, None, None


class ConcatSelfMean(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        indptr: Tensor,
        indices: Tensor,
        num_dst: int,
        captured: Tensor | None,
        dtype: torch.dtype,
        activation: Activation,
    ) -> Tensor:
        ctx.save_for_backward(indptr, indices, *((x,) if activation.relu else ()))
        ctx.shape, ctx.dtype, ctx.activation = x.shape, x.dtype, activation
        ctx.num_dst, ctx.captured = num_dst, captured
        return concat_of(x, Edges(indptr, indices, num_dst, captured), dtype, 0, activation, x.device)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        indptr, indices, *x = ctx.saved_tensors
        edges = Edges(indptr, indices, ctx.num_dst, ctx.captured)
        grad_x = _concat_backward(edges, ctx.shape, ctx.dtype, grad, x, ctx.activation)
        return grad_x, None, None, None, None, None, None


class LinearOfSelfAndMean(torch.autograd.Function):
    """One product for `[own | mean]` and one for each of its gradients.

    The column of ones behind the mean makes the bias' gradient a column of the weights': a sum over all rows of
    its own would take longer than the product.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight_self: Tensor,
        weight_mean: Tensor,
        bias: Tensor,
        indptr: Tensor,
        indices: Tensor,
        num_dst: int,
        captured: Tensor | None,
        dtype: torch.dtype,
        activation: Activation,
        nodes: Tensor | None,
        scales: Scales | None,
    ) -> Tensor:
        dim, padding = x.shape[1], _PADDING_BYTES // dtype.itemsize
        edges = Edges(indptr, indices, num_dst, captured)
        device = weight_self.device  # a captured `x` has none
        both = concat_of(x, edges, dtype, padding, activation, device, nodes, scales)
        weight = torch.cat((weight_self, weight_mean), 1)
        if weight.dtype != dtype:
            weight, bias = weight.to(dtype), bias.to(dtype)
        ctx.save_for_backward(both, weight, indptr, indices, *((x,) if activation.relu else ()))
        ctx.shape, ctx.dtype, ctx.weight_dtype, ctx.activation = x.shape, x.dtype, weight_self.dtype, activation
        ctx.num_dst, ctx.captured = num_dst, captured
        return torch.addmm(bias, both[:, : 2 * dim], weight.t())

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        both, weight, indptr, indices, *x = ctx.saved_tensors
        dim = ctx.shape[1]
        grad_x = grad_self = grad_mean = grad_bias = None
        if any(ctx.needs_input_grad[1:4]):
            grad_weight = (grad.t() @ both).to(ctx.weight_dtype)
            parts: Any = torch.split_with_sizes_copy  # torch's own annotation says that it returned nothing
            sizes = (dim, dim, 1, both.shape[1] - 2 * dim - 1)
            grad_self, grad_mean, grad_bias, _ = parts(grad_weight, sizes, 1)
            grad_bias = grad_bias.view(-1)
        if ctx.needs_input_grad[0]:
            grad_both = grad @ weight
            edges = Edges(indptr, indices, ctx.num_dst, ctx.captured)
            grad_x = _concat_backward(edges, ctx.shape, ctx.dtype, grad_both, x, ctx.activation)
        return grad_x, grad_self, grad_mean, grad_bias, *[None] * 8


def _rows(x: Tensor) -> Tensor:
    """Itself, or a copy where the elements of a row are not neighbors in memory."""
    return x if x.stride(1) == 1 or x.shape[1] == 1 else x.contiguous()


def _forward(
    x: Tensor,
    edges: Edges,
    out: Tensor,
    mean_at: int,
    own_at: int,
    padding: int,
    activation: Activation,
    nodes: Tensor | None = None,
    scales: Scales | None = None,
) -> None:
    """Launches the mean to columns of `out` from `mean_at` on, and own rows from `own_at` on unless that is -1."""
    edges, nodes = edges.narrowed(), None if nodes is None else narrow(nodes)
    num_edges = edges.indices.shape[0]
    workspace = None  # for the list of long rows
    if num_edges > _core.cuda_mean_long_row:
        workspace = out.new_empty(_core.cuda_mean_forward_workspace(num_edges), dtype=torch.uint8)
    where = launch_place(out)
    codes = (None, False) if scales is None else scales
    _core.cuda_mean_forward(where, edges, x, nodes, out, mean_at, own_at, padding, activation, workspace, codes)


def _concat_backward(
    edges: Edges, shape: torch.Size, dtype: torch.dtype, grad: Tensor, x: list[Tensor], activation: Activation
) -> Tensor:
    num_src, dim = shape
    grad = grad.to(dtype)
    return _backward(edges, num_src, grad[:, :dim], grad[:, dim : 2 * dim], x[0] if x else None, activation)


def _backward(
    edges: Edges,
    num_src: int,
    grad_self: Tensor | None,
    grad_mean: Tensor | None,
    x: Tensor | None = None,
    activation: Activation = IDENTITY,
) -> Tensor:
    """The gradient of `x`, `[num_src, F]`."""
    edges = edges.narrowed()
    indptr, indices = edges.indptr, edges.indices
    grad_self = None if grad_self is None else _rows(grad_self)
    grad_mean = None if grad_mean is None else _rows(grad_mean)
    grad = grad_self if grad_mean is None else grad_mean
    assert grad is not None
    dim = grad.shape[1]
    grad_x = grad.new_empty(num_src, dim)
    if not grad_x.numel():
        return grad_x
    sources = order = None
    if grad_mean is not None and torch.are_deterministic_algorithms_enabled():
        if edges.captured is not None:
            raise RuntimeError(
                "torch.use_deterministic_algorithms(True) sorts a block's edges, but a captured block has none; train "
                "without CUDA graphs"
            )
        sources, order = _sorted_sources(indptr, indices, num_src)
    x = None if x is None else _rows(x)
    needed = _core.cuda_mean_backward_workspace(num_src, indices.shape[0])
    workspace = grad.new_empty(needed, dtype=torch.uint8)
    where = launch_place(grad)
    _core.cuda_mean_backward(where, edges, sources, order, grad_mean, grad_self, x, grad_x, activation, workspace)
    return grad_x
