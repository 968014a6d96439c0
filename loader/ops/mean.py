"""Neighborhood aggregation over blocks. It is differentiable, and makes no tensor of edges times features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from loader import _core
from loader.machine.arguments import as_fraction, kind_of
from loader.ops import gpu as ops_gpu
from loader.ops.autocast import working_dtype
from loader.samples import Block, LazyRows

_NARROW_DTYPES = (torch.float16, torch.bfloat16)
_CPU_DTYPES = (torch.float32, torch.float64, *_NARROW_DTYPES)


def aggregate_mean(x: Tensor, block: Block) -> Tensor:
    """Mean over the sampled in-neighbors: `out[i] = mean(x[indices[e]] for e in row i)`, zero for an empty row.

    The aggregator of GraphSAGE-mean (Hamilton et al. 2017, https://arxiv.org/abs/1706.02216). The implementation
    depends only on the device of `x`:

    - CPU: the C++ core, on `torch.get_num_threads()` threads, without the GIL. Output and gradient have the same
      bits for every number of threads. float16 and bfloat16 are converted to float32 before, and back afterwards.
    - CUDA: kernels of the core, on the current stream. The host does not wait for the GPU. float16 and bfloat16 are
      summed in float32. The output has the same bits every time. The order in which the gradient is summed changes
      from run to run. With `torch.use_deterministic_algorithms(True)` the edges are sorted first, which fixes the
      order and takes longer. The values of the block's arrays are not checked: they must be those of a sampler.

    If `x` needs no gradient, none is computed.

    Args:
        x: `[num_src, F]` features of the block's sources; float32, float64, float16 or bfloat16.
        block: the block; its tensors lie where `x` lies. On CUDA it has fewer than 2^31 edges and sources; indices of
            int64, which graphs with 2^31 edges or nodes have, are converted to int32 first.

    Returns:
        `[num_dst, F]`, dtype and device of `x`.

    Raises:
        ValueError: shapes or devices disagree, or (on the CPU) the block's arrays contradict each other.
        TypeError: the dtype is not supported.
        RuntimeError: `x` lies on a GPU and the build of the loader has no CUDA.
    """
    if isinstance(x, Tensor) and x.is_cuda:
        _check(x, block)
        edges = ops_gpu.Edges(block.indptr, block.indices, block.num_dst, block.captured)
        if not (x.requires_grad and torch.is_grad_enabled()):
            return ops_gpu.mean_of(x, edges)
        mean: Tensor = ops_gpu.Mean.apply(x, *edges[:4])
        return mean
    return self_and_mean(x, block)[1]


def aggregate_sum(x: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    """Sum over the entries of each row: `out[i] = sum(x[indices[e]] for e in row i)`, zero for an empty row.

    Unlike `aggregate_mean` it takes rows that are no destinations, e.g. one for each node and relation. See there for
    the implementation and for what is checked; on the CPU it is the mean times the length of the row.

    Args:
        x: `[n, F]`; float32, float64, float16 or bfloat16.
        indptr: `[rows + 1]` where the entries of each row begin; int32 or int64.
        indices: places in `x`; int32 or int64. There may be some before the first row, and after the last one.

    Returns:
        `[rows, F]`, dtype and device of `x`.

    Raises:
        ValueError: shapes or devices disagree.
        TypeError: the dtype is not supported.
    """
    if x.is_cuda:
        return _of_rows(x, indptr, indices, sums=True)
    mean, length = _of_rows(x, indptr, indices, sums=False), indptr.diff().unsqueeze(1)
    if mean.dtype in _NARROW_DTYPES:  # which cannot hold every length
        return (mean.float() * length).to(mean.dtype)
    found: Tensor = mean * length.to(mean.dtype)
    return found


def aggregate_row_mean(x: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    """Mean over the entries of each row: `out[i] = mean(x[indices[e]] for e in row i)`, zero for an empty row.

    Args, Returns and Raises: see `aggregate_sum`.
    """
    return _of_rows(x, indptr, indices, sums=False)


def _of_rows(x: Tensor, indptr: Tensor, indices: Tensor, *, sums: bool) -> Tensor:
    """Means; or, which is for a GPU, sums."""
    rows = indptr.shape[0] - 1
    if x.dim() != 2 or indptr.dim() != 1 or indices.dim() != 1 or rows < 0:
        shapes = f"{tuple(x.shape)}, {tuple(indptr.shape)} and {tuple(indices.shape)}"
        raise ValueError(f"x, indptr and indices have shapes {shapes}; they must be [n, F], [rows + 1] and [entries]")
    _check(x, Block(indptr[:1], indices, x.shape[0], 0))  # dtypes and devices
    if not x.is_cuda or torch.are_deterministic_algorithms_enabled():  # which go through the entries by themselves
        first, last = int(indptr[0]), int(indptr[-1])
        indptr, indices = indptr - first if first else indptr, indices[first:last]
    if x.is_cuda:
        mean: Tensor = ops_gpu.Mean.apply(x, indptr.contiguous(), indices.contiguous(), rows, None, sums)
        return mean
    _, mean = _CpuSelfAndMean.apply(x, indptr, indices, rows)
    return mean


def self_and_mean(x: Tensor, block: Block) -> tuple[Tensor, Tensor]:
    """The destinations' own features and their neighbors' mean: `(x[:num_dst], aggregate_mean(x, block))`.

    Both gradients are summed in one array. For a slice, autograd would fill a second array of the size of `x` with
    zeros and add it.

    Args and Raises: see `aggregate_mean`.

    Returns:
        Two tensors `[num_dst, F]`; the first one shares the memory of `x`.
    """
    _check(x, block)
    if x.is_cuda:
        own, mean = ops_gpu.SelfAndMean.apply(x, block.indptr, block.indices, block.num_dst, block.captured)
    else:
        own, mean = _CpuSelfAndMean.apply(x, block.indptr, block.indices, block.num_dst)
    return own, mean


def concat_self_mean(x: Tensor, block: Block, *, relu: bool = False, dropout: float = 0.0) -> Tensor:
    """The own features of each destination beside the mean of its neighbors: `torch.cat(self_and_mean(f(x), block),
    1)`.

    `f` is ReLU if `relu`, then dropout. On CUDA it is applied to each row when the row is read, so neither `f(x)` nor
    its gradient takes memory. There the dropped elements depend on a number that is drawn from torch's CPU generator
    (`torch.manual_seed`), by Philox 2x32-7, and the probability is rounded to a multiple of 1/65536. Under autocast,
    the result of a float32 `x` has autocast's dtype and is summed in float32.

    Args:
        x, block: see `aggregate_mean`.
        relu: whether negative elements of `x` count as 0.
        dropout: probability in [0, 1) that an element of `x` counts as 0; the others are scaled by 1 / (1 - dropout).

    Returns:
        `[num_dst, 2 F]`.

    Raises:
        As `aggregate_mean`, and ValueError for a probability outside of [0, 1).
    """
    as_fraction("dropout", dropout)
    _check(x, block)
    if not x.is_cuda:
        x = F.relu(x) if relu else x
        dtype = working_dtype(x)
        return torch.cat(self_and_mean(F.dropout(x, dropout) if dropout else x, block), 1).to(dtype)
    activation = ops_gpu.draw_activation(relu, dropout, block)
    both: Tensor = ops_gpu.ConcatSelfMean.apply(
        x, block.indptr, block.indices, block.num_dst, block.captured, working_dtype(x), activation
    )
    return both


def linear_self_mean(
    x: Tensor | LazyRows,
    block: Block,
    weight_self: Tensor,
    weight_mean: Tensor,
    bias: Tensor,
    *,
    relu: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """A layer of GraphSAGE-mean: `own @ weight_self.T + mean @ weight_mean.T + bias` of `concat_self_mean`'s halves.

    On CUDA it is one node of the autograd graph with one matrix product forward and two backward. Under autocast the
    products have autocast's dtype.

    Args:
        x, block, relu, dropout: see `concat_self_mean`. `x` may be `LazyRows`, which are read in their table. Dropout
            then depends on the row of the table, so repeated rows lose the same elements.
        weight_self, weight_mean: `[out, F]`, dtype and device of `x`.
        bias: `[out]`.

    Returns:
        `[num_dst, out]`.

    Raises:
        As `concat_self_mean`.
    """
    nodes = scales = None
    _check_weights(x, weight_self, weight_mean, bias)
    if isinstance(x, LazyRows):
        _check_lazy(x, block)
        dtype = working_dtype(x)
        nodes = None if block.captured is not None else x.nodes
        scales = None if x.scales is None else ops_gpu.Scales(x.scales, x.by_row)
        x = x.table
    elif not (x.is_cuda or block.captured is not None):
        both = concat_self_mean(x, block, relu=relu, dropout=dropout)
        return F.linear(both, torch.cat((weight_self, weight_mean), 1), bias)
    else:
        _check(x, block, may_be_captured=True)
        dtype = working_dtype(x)
    as_fraction("dropout", dropout)
    activation = ops_gpu.draw_activation(relu, dropout, block)
    out: Tensor = ops_gpu.LinearOfSelfAndMean.apply(
        x,
        weight_self,
        weight_mean,
        bias,
        block.indptr,
        block.indices,
        block.num_dst,
        block.captured,
        dtype,
        activation,
        nodes,
        scales,
    )
    return out


def _check(x: Tensor, block: Block, *, may_be_captured: bool = False) -> None:
    if not isinstance(x, Tensor) or not isinstance(block, Block):
        raise TypeError(f"x is {kind_of(x)} and block is {kind_of(block)}; give a tensor, then a Block")
    if x.dim() != 2 or x.shape[0] != block.num_src:
        raise ValueError(f"x has shape {tuple(x.shape)}; the block needs [{block.num_src}, F], a row per source")
    if block.captured is not None:
        if not (x.is_cuda or (x.is_meta and may_be_captured)):
            raise ValueError(
                f"x lies on {x.device}; a captured block needs it on the GPU, or captured in linear_self_mean"
            )
        ops_gpu.check(x, block)
        return
    if x.device != block.indices.device:
        raise ValueError(f"x lies on {x.device}, the block on {block.indices.device}; move one of them")
    if x.is_cuda:
        ops_gpu.check(x, block)
    elif x.device.type != "cpu":
        raise ValueError(f"x lies on {x.device}; aggregate_mean runs on cpu and cuda")
    elif x.dtype not in _CPU_DTYPES:
        raise TypeError(f"x has dtype {x.dtype}; it must be float32, float64, float16 or bfloat16 (x.float())")


def _check_weights(x: Tensor | LazyRows, weight_self: Tensor, weight_mean: Tensor, bias: Tensor) -> None:
    rows = x.table if isinstance(x, LazyRows) else x
    if not isinstance(rows, Tensor) or rows.dim() != 2:
        return  # which is told with the block
    for name, weight in (("weight_self", weight_self), ("weight_mean", weight_mean), ("bias", bias)):
        if not isinstance(weight, Tensor):
            raise TypeError(f"{name} is {kind_of(weight)}; it must be a torch tensor")
    width = rows.shape[1]
    if weight_self.dim() != 2 or weight_self.shape[1] != width or weight_mean.shape != weight_self.shape:
        raise ValueError(
            f"weight_self has shape {tuple(weight_self.shape)}, weight_mean {tuple(weight_mean.shape)}; x has rows of "
            f"{width}, so both must be [out, {width}], as those of torch.nn.Linear({width}, out)"
        )
    if bias.shape != weight_self.shape[:1]:
        raise ValueError(f"bias has shape {tuple(bias.shape)}; with these weights it must be [{weight_self.shape[0]}]")


def _check_lazy(x: LazyRows, block: Block) -> None:
    if x.table.dim() != 2 or x.nodes.shape != (block.num_src,):
        raise ValueError(
            f"the table has shape {tuple(x.table.shape)}, nodes {tuple(x.nodes.shape)}; "
            f"the block needs [num_nodes, F] and [{block.num_src}]"
        )
    if block.captured is not None:  # the table of the moment is of this kind
        return ops_gpu.check(x.table, block, codes=True)
    if not x.table.is_cuda or x.table.device != block.indices.device or x.nodes.device != x.table.device:
        raise ValueError(
            f"the table lies on {x.table.device}, nodes on {x.nodes.device}, the block on {block.indices.device}; "
            "rows are read in place from the block's own GPU"
        )
    if x.nodes.dtype != block.indices.dtype:
        raise TypeError(f"nodes has dtype {x.nodes.dtype}, the block's indices {block.indices.dtype}; make them equal")
    if x.table.requires_grad:
        raise ValueError("the table gets no gradient; gather its rows first (LazyRows.gather)")
    apart = x.scales is not None and x.table.stride(1) == 1  # rows of codes may be
    if not ((apart or x.table.is_contiguous()) and x.nodes.is_contiguous()):
        raise ValueError("table and nodes must be contiguous; call .contiguous() first")
    if x.scales is not None:
        _check_scales(x)
    ops_gpu.check(x.table, block, codes=x.scales is not None)


def _check_scales(x: LazyRows) -> None:
    scales = x.scales
    assert scales is not None
    shapes = ((1, x.table.shape[1]), (x.table.shape[0], 1))
    if scales.shape not in shapes or scales.dtype != torch.float32 or not scales.is_contiguous():
        raise ValueError(
            f"scales has shape {tuple(scales.shape)} and dtype {scales.dtype}; codes {tuple(x.table.shape)} have "
            f"scales {shapes[0]} or {shapes[1]} of float32, contiguous"
        )
    if scales.device != x.table.device:
        raise ValueError(f"scales lies on {scales.device}, the table on {x.table.device}; move one of them")


class _CpuSelfAndMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, indptr: Tensor, indices: Tensor, num_dst: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(indptr, indices)
        ctx.set_materialize_grads(False)
        ctx.num_src = x.shape[0]
        summed = _summed(x.detach())
        mean = summed.new_empty(num_dst, x.shape[1])
        _core.mean_forward(indptr, indices, summed, mean, torch.get_num_threads())
        return x[:num_dst], mean.to(x.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_self: Tensor | None, grad_mean: Tensor | None) -> tuple[Tensor | None, ...]:
        grad = grad_self if grad_mean is None else grad_mean
        if grad is None or not ctx.needs_input_grad[0]:
            return None, None, None, None
        if grad_mean is None:
            grad_x = grad.new_zeros(ctx.num_src, grad.shape[1])
        else:
            indptr, indices = ctx.saved_tensors
            summed = _summed(grad_mean)
            grad_x = summed.new_empty(ctx.num_src, grad.shape[1])
            _core.mean_backward(indptr, indices, summed, grad_x, torch.get_num_threads())
        if grad_self is not None:
            grad_x[: grad_self.shape[0]] += grad_self
        return grad_x.to(grad.dtype), None, None, None


def _summed(x: Tensor) -> Tensor:
    """`x`, contiguous, in a dtype that the core's CPU part sums."""
    return (x.float() if x.dtype in _NARROW_DTYPES else x).contiguous()
