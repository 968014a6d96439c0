"""Neighbourhood aggregation over blocks: differentiable, without an edge-by-feature intermediate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from loader import _core
from loader.minibatch import Block

_CPU_DTYPES = (torch.float32, torch.float64)
_CUDA_DTYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
_DROPOUT_STEPS = 65536  # a dropped element is told by 16 random bits


def aggregate_mean(x: Tensor, block: Block) -> Tensor:
    """Mean over the sampled in-neighbours: `out[i] = mean(x[indices[e]] for e in row i)`, zero for an empty row.

    The aggregator of GraphSAGE-mean (Hamilton et al. 2017, https://arxiv.org/abs/1706.02216). The implementation
    is chosen by the device of `x`, nothing else:

    - CPU: the C++ core, on `torch.get_num_threads()` threads, without the GIL. Output and gradient have the same
      bits for every number of threads.
    - CUDA: kernels of the core, on the current stream, without a wait for the GPU; sums of float16 and bfloat16 are
      taken in float32. The output has the same bits every time. The gradient is summed in an order that chance
      decides, unless `torch.use_deterministic_algorithms(True)` is set: then the edges are sorted first, which
      takes longer. Values of the block's arrays are not looked at, they are trusted to be a sampler's.

    Nothing is computed backward when `x` needs no gradient.

    Args:
        x: `[num_src, F]` features of the block's sources; float32 or float64, on CUDA float16 or bfloat16 too.
        block: the block; its tensors lie where `x` lies.

    Returns:
        `[num_dst, F]`, dtype and device of `x`.

    Raises:
        ValueError: shapes or devices disagree, or (on the CPU) the block's arrays contradict each other.
        TypeError: a dtype that is not supported.
        RuntimeError: `x` lies on a GPU and the build of the loader has no CUDA.
    """
    if x.is_cuda:
        _check(x, block)
        mean: Tensor = _CudaMean.apply(x, block.indptr, block.indices, block.num_dst)
        return mean
    return self_and_mean(x, block)[1]


def self_and_mean(x: Tensor, block: Block) -> tuple[Tensor, Tensor]:
    """The destinations' own features and their neighbours' mean: `(x[:num_dst], aggregate_mean(x, block))`.

    Both gradients are summed in one array, which spares what autograd would do for the slice: a second array of the
    size of `x`, filled with zeros and added.

    Args and Raises: see `aggregate_mean`.

    Returns:
        Two tensors `[num_dst, F]`; the first one shares the memory of `x`.
    """
    _check(x, block)
    function = _CudaSelfAndMean if x.is_cuda else _CpuSelfAndMean
    own, mean = function.apply(x, block.indptr, block.indices, block.num_dst)
    return own, mean


def concat_self_mean(x: Tensor, block: Block, *, relu: bool = False, dropout: float = 0.0) -> Tensor:
    """Each destination's own features beside its neighbours' mean: `torch.cat(self_and_mean(f(x), block), 1)`.

    `f` is ReLU if `relu`, then dropout. On CUDA it is applied to each row as it is read, so that neither `f(x)` nor
    its gradient ever lies in memory; which elements are dropped follows from a number drawn from torch's CPU
    generator (`torch.manual_seed`), by Philox 2x32-10. There the probability is rounded to 1/65536, and under
    autocast a float32 `x` gives the result in autocast's dtype, summed in float32.

    Args:
        x, block: see `aggregate_mean`.
        relu: whether negative elements of `x` count as 0.
        dropout: probability in [0, 1) that an element of `x` counts as 0; the others are scaled by 1 / (1 - dropout).

    Returns:
        `[num_dst, 2 F]`.

    Raises:
        As `aggregate_mean`, and ValueError for a probability outside of [0, 1).
    """
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}; it must be in [0, 1)")
    _check(x, block)
    if not x.is_cuda:
        x = F.relu(x) if relu else x
        return torch.cat(self_and_mean(F.dropout(x, dropout) if dropout else x, block), 1)
    dtype = x.dtype
    if dtype == torch.float32 and torch.is_autocast_enabled():
        dtype = _autocast_dtype()
    threshold = min(round(dropout * _DROPOUT_STEPS), _DROPOUT_STEPS - 1)
    key = int(torch.randint(2**32, (), dtype=torch.int64)) if threshold else 0
    both: Tensor = _CudaConcat.apply(x, block.indptr, block.indices, block.num_dst, dtype, (relu, threshold, key))
    return both


def _autocast_dtype() -> torch.dtype:
    if hasattr(torch, "get_autocast_dtype"):  # since torch 2.4, where the other one warns
        return torch.get_autocast_dtype("cuda")
    return torch.get_autocast_gpu_dtype()


def _check(x: Tensor, block: Block) -> None:
    if x.dim() != 2 or x.shape[0] != block.num_src:
        raise ValueError(f"x has shape {tuple(x.shape)}; the block needs [{block.num_src}, F]")
    if x.device != block.indices.device:
        raise ValueError(f"x lies on {x.device}, the block on {block.indices.device}; move one of them")
    if x.is_cuda:
        _check_cuda(x, block)
    elif x.device.type != "cpu":
        raise ValueError(f"x lies on {x.device}; aggregate_mean runs on cpu and cuda")
    elif x.dtype not in _CPU_DTYPES:
        raise TypeError(f"x has dtype {x.dtype}; on the CPU it must be float32 or float64 (x.float())")


def _check_cuda(x: Tensor, block: Block) -> None:
    """What can be known without waiting for the GPU; the kernels get no more than addresses."""
    if not _core.with_cuda:
        from loader.samplers.cuda import require_cuda

        require_cuda("an aggregation on the GPU")
    if x.dtype not in _CUDA_DTYPES:
        raise TypeError(f"x has dtype {x.dtype}; on the GPU it must be float32, float64, float16 or bfloat16")
    indptr, indices = block.indptr, block.indices
    if indptr.device != x.device:
        raise ValueError(f"x lies on {x.device}, the block's indptr on {indptr.device}; move one of them")
    if (indptr.dtype, indices.dtype) not in _INDEX_DTYPES:
        raise TypeError(
            f"the block has indptr of {indptr.dtype} and indices of {indices.dtype}; they must be int32 or int64, "
            "and indices must not be the wider one"
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


_INDEX_DTYPES = ((torch.int32, torch.int32), (torch.int64, torch.int32), (torch.int64, torch.int64))


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


class _CudaMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, indptr: Tensor, indices: Tensor, num_dst: int) -> Tensor:
        ctx.save_for_backward(indptr, indices)
        ctx.num_src = x.shape[0]
        mean = x.new_empty(num_dst, x.shape[1])
        _cuda_forward(x, indptr, indices, mean, None)
        return mean

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_mean: Tensor) -> tuple[Tensor | None, ...]:
        indptr, indices = ctx.saved_tensors
        return _cuda_backward(indptr, indices, ctx.num_src, None, grad_mean), None, None, None


class _CudaSelfAndMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, indptr: Tensor, indices: Tensor, num_dst: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(indptr, indices)
        ctx.set_materialize_grads(False)
        ctx.num_src = x.shape[0]
        mean = x.new_empty(num_dst, x.shape[1])
        _cuda_forward(x, indptr, indices, mean, None)
        return x[:num_dst], mean

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_self: Tensor | None, grad_mean: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad_self is None and grad_mean is None:
            return None, None, None, None
        indptr, indices = ctx.saved_tensors
        return _cuda_backward(indptr, indices, ctx.num_src, grad_self, grad_mean), None, None, None


_Activation = tuple[bool, int, int]  # ReLU, elements dropped of 65536, the key of their choice
_IDENTITY: _Activation = (False, 0, 0)


class _CudaConcat(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        indptr: Tensor,
        indices: Tensor,
        num_dst: int,
        dtype: torch.dtype,
        activation: _Activation,
    ) -> Tensor:
        relu = activation[0]
        ctx.save_for_backward(indptr, indices, *((x,) if relu else ()))
        ctx.shape, ctx.dtype, ctx.activation = x.shape, x.dtype, activation
        both = x.new_empty(num_dst, 2 * x.shape[1], dtype=dtype)
        _cuda_forward(x, indptr, indices, both[:, x.shape[1] :], both, activation)
        return both

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        indptr, indices, *saved = ctx.saved_tensors
        num_src, dim = ctx.shape
        grad = grad.to(ctx.dtype)
        own, mean = grad[:, :dim], grad[:, dim:]
        x = saved[0] if saved else None
        grad_x = _cuda_backward(indptr, indices, num_src, own, mean, x, ctx.activation)
        return grad_x, None, None, None, None, None


def _cuda_call(
    x: Tensor, indptr: Tensor, indices: Tensor, num_dst: int, num_src: int, activation: _Activation
) -> _core.CudaMeanCall:
    return _core.CudaMeanCall(
        indptr.data_ptr(),
        indices.data_ptr(),
        indptr.element_size(),
        indices.element_size(),
        num_dst,
        num_src,
        indices.shape[0],
        *activation,
        x.get_device(),
        torch.cuda.current_stream(x.device).cuda_stream,
    )


def _rows(x: Tensor) -> Tensor:
    """Itself, or a copy where the elements of a row are not neighbours in memory."""
    return x if x.stride(1) == 1 or x.shape[1] == 1 else x.contiguous()


def _cuda_forward(
    x: Tensor,
    indptr: Tensor,
    indices: Tensor,
    mean: Tensor,
    own: Tensor | None,
    activation: _Activation = _IDENTITY,
) -> None:
    """Writes the mean and, if wanted, the destinations' own rows; both have the rows' distance of `mean`."""
    if mean.numel() == 0:
        return
    x = _rows(x.detach())
    workspace = indptr.new_empty(_core.cuda_mean_forward_workspace(indices.shape[0]), dtype=torch.uint8)
    _cuda_call(x, indptr, indices, mean.shape[0], x.shape[0], activation).forward(
        _CUDA_DTYPES[x.dtype],
        _CUDA_DTYPES[mean.dtype],
        x.data_ptr(),
        x.stride(0),
        x.shape[1],
        mean.data_ptr(),
        0 if own is None else own.data_ptr(),
        mean.stride(0),
        workspace.data_ptr(),
    )


def _cuda_backward(
    indptr: Tensor,
    indices: Tensor,
    num_src: int,
    grad_self: Tensor | None,
    grad_mean: Tensor | None,
    x: Tensor | None = None,
    activation: _Activation = _IDENTITY,
) -> Tensor:
    grad_self = None if grad_self is None else _rows(grad_self)
    grad_mean = None if grad_mean is None else _rows(grad_mean)
    grad = grad_self if grad_mean is None else grad_mean
    assert grad is not None
    num_dst, dim = grad.shape
    grad_x = grad.new_empty(num_src, dim)
    if grad_x.numel() == 0:
        return grad_x
    sources = order = None
    if grad_mean is not None and torch.are_deterministic_algorithms_enabled():
        sources, order = torch.sort(indices, stable=True)
    x = None if x is None else _rows(x)
    sizes = (indptr.element_size(), indices.element_size())
    bytes_needed = _core.cuda_mean_backward_workspace(num_src, indices.shape[0], *sizes)
    workspace = indptr.new_empty(bytes_needed, dtype=torch.uint8)
    _cuda_call(grad, indptr, indices, num_dst, num_src, activation).backward(
        _CUDA_DTYPES[grad.dtype],
        _address(sources),
        _address(order),
        *_address_and_stride(grad_mean),
        *_address_and_stride(grad_self),
        *_address_and_stride(x),
        dim,
        grad_x.data_ptr(),
        workspace.data_ptr(),
    )
    return grad_x


def _address(t: Tensor | None) -> int:
    return 0 if t is None else t.data_ptr()


def _address_and_stride(t: Tensor | None) -> tuple[int, int]:
    return (0, 0) if t is None else (t.data_ptr(), t.stride(0))
