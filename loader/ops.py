"""Neighbourhood aggregation over blocks: differentiable, without an edge-by-feature intermediate on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.minibatch import Block

_CPU_DTYPES = (torch.float32, torch.float64)


def aggregate_mean(x: Tensor, block: Block) -> Tensor:
    """Mean over the sampled in-neighbours: `out[i] = mean(x[indices[e]] for e in row i)`, zero for an empty row.

    The aggregator of GraphSAGE-mean (Hamilton et al. 2017, https://arxiv.org/abs/1706.02216). The implementation
    is chosen by the device of `x`, nothing else:

    - CPU: the C++ core, on `torch.get_num_threads()` threads, without the GIL. Output and gradient have the same
      bits for every number of threads. Nothing is computed backward when `x` needs no gradient.
    - CUDA: `index_select` and `segment_reduce` of torch, on the current stream.

    Args:
        x: `[num_src, F]` features of the block's sources; float32 or float64 on the CPU.
        block: the block; its tensors lie where `x` lies.

    Returns:
        `[num_dst, F]`, dtype and device of `x`.

    Raises:
        ValueError: shapes or devices disagree, or the block's arrays contradict each other.
        TypeError: a dtype that is not supported.
    """
    return self_and_mean(x, block)[1]


def self_and_mean(x: Tensor, block: Block) -> tuple[Tensor, Tensor]:
    """The destinations' own features and their neighbours' mean: `(x[:num_dst], aggregate_mean(x, block))`.

    On the CPU both gradients are summed in place, which spares what autograd would do for the slice: a second
    array of the size of `x`, filled with zeros and added.

    Args and Raises: see `aggregate_mean`.

    Returns:
        Two tensors `[num_dst, F]`; the first one shares the memory of `x`.
    """
    if x.dim() != 2 or x.shape[0] != block.num_src:
        raise ValueError(f"x has shape {tuple(x.shape)}; the block needs [{block.num_src}, F]")
    if x.device != block.indices.device:
        raise ValueError(f"x lies on {x.device}, the block on {block.indices.device}; move one of them")
    if x.device.type == "cpu":
        if x.dtype not in _CPU_DTYPES:
            raise TypeError(f"x has dtype {x.dtype}; on the CPU it must be float32 or float64 (x.float())")
        return _CpuSelfAndMean.apply(x, block.indptr, block.indices, block.num_dst)
    if x.device.type == "cuda":
        return x[: block.num_dst], _torch_mean(x, block)
    raise ValueError(f"x lies on {x.device}; aggregate_mean runs on cpu and cuda")


class _CpuSelfAndMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, indptr: Tensor, indices: Tensor, num_dst: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(indptr, indices)
        ctx.set_materialize_grads(False)
        ctx.num_src = x.shape[0]
        mean = x.new_empty(num_dst, x.shape[1])
        _core.mean_forward(indptr, indices, x.detach().contiguous(), mean, torch.get_num_threads())
        return x[:num_dst], mean

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
            grad_x = grad.new_empty(ctx.num_src, grad.shape[1])
            _core.mean_backward(indptr, indices, grad_mean.contiguous(), grad_x, torch.get_num_threads())
        if grad_self is not None:
            grad_x[: grad_self.shape[0]] += grad_self
        return grad_x, None, None, None


def _torch_mean(x: Tensor, block: Block) -> Tensor:
    rows = x.index_select(0, block.indices)  # [num_edges, F]
    lengths = (block.indptr[1:] - block.indptr[:-1]).long()
    # Without `initial` an empty row would be NaN; `unsafe` saves a check of the lengths that waits for the GPU.
    return torch.segment_reduce(rows, "mean", lengths=lengths, axis=0, initial=0.0, unsafe=True)
