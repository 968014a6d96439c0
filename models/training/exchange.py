"""Gradients side by side in memory, which processes that train together average in one exchange."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

import torch
import torch.distributed as dist
from torch import Tensor

_requires_grad = attrgetter("requires_grad")
_ALIGNMENT = 256  # bytes: each view begins on a boundary that kernels read vectors from


class FlatTensors:
    """Tensors of zeros like given ones, in one piece of memory for each element type.

    Equal shapes and types in an equal order give equal pieces, in each process.

    Args:
        like: dense tensors on one device, at least one.

    Attributes:
        views: like the given tensors, in their order and with their strides.
        pieces: `[n]` each: the memory of all views of one type, with some unused elements between them.
    """

    def __init__(self, like: Sequence[Tensor]) -> None:
        places, sizes = _places(like)
        memory = {dtype: torch.zeros(size, dtype=dtype, device=like[0].device) for dtype, size in sizes.items()}
        self.pieces = list(memory.values())
        self.views = [
            memory[tensor.dtype].as_strided(tensor.shape, strides, begin)
            for tensor, (begin, strides) in zip(like, places, strict=True)
        ]


class GradientExchange:
    """Replaces the gradients of a model's parameters by their mean over all processes of a group.

    `torch.nn.parallel.DistributedDataParallel` has a hook on each parameter, which copies the gradient to a bucket. A
    step that CUDA graphs replay has its gradients ready at once, and in one piece of memory (`FlatTensors`): this
    exchanges that piece as it is, without a copy and without a hook. Other gradients are copied to such a piece first,
    and become views of it. So it makes no difference to the others which way a process takes.

    Sparse gradients are exchanged one by one, which gloo does and NCCL does not.

    Args:
        named: name and parameter, of all parameters of the model, in an order that all processes share.
        group: of processes; by default all.
    """

    def __init__(self, named: Iterable[tuple[str, Tensor]], group: dist.ProcessGroup | None = None) -> None:
        self._named = list(named)
        self._every = [parameter for _, parameter in self._named]
        self._group = group
        self._size = dist.get_world_size(group)
        self._averages = dist.get_backend(group) == "nccl"  # by itself
        self._own: FlatTensors | None = None
        # Where the gradients lay that were exchanged last, and their pieces, which keep that memory from being reused.
        self._addresses: list[int] = []
        self._pieces: list[Tensor] = []
        self._dense: list[Tensor] = []  # the parameters that had them
        self._wanted: list[bool] = []  # which parameters wanted one

    def run(self) -> None:
        """Averages the gradients. On a GPU it puts this on the current stream, and the host does not wait.

        All processes of the group have to call it.

        Raises:
            RuntimeError: a parameter that wants a gradient has none.
        """
        if self._are_where_they_were():
            for piece in self._pieces:
                self._average(piece)
            return
        parameters = [(name, p) for name, p in self._named if p.requires_grad]
        gradients: list[Tensor] = []
        for name, parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                raise RuntimeError(
                    f"{name} got no gradient in this step, but all parameters are exchanged; freeze it "
                    "(requires_grad=False), or give trainer.strategy=ddp_find_unused_parameters_true"
                )
            if gradient.is_sparse:
                self._average(gradient)
            else:
                gradients.append(gradient)
        if not gradients:
            return
        dense = [p for _, p in parameters if p.grad is not None and not p.grad.is_sparse]
        pieces = _pieces_of(gradients) or self._gathered(dense, gradients)
        for piece in pieces:
            self._average(piece)
        if len(dense) == len(parameters):  # else the next run has to look at each gradient again
            self._pieces, self._dense = pieces, dense
            self._wanted = [p.requires_grad for _, p in self._named]
            self._addresses = [p.grad.data_ptr() for p in dense if p.grad is not None]
        else:
            self._addresses = []

    def _are_where_they_were(self) -> bool:
        """Whether all gradients lie in the pieces that were exchanged last. It is asked in each step."""
        if not self._addresses or list(map(_requires_grad, self._every)) != self._wanted:
            return False
        found = [p.grad.data_ptr() for p in self._dense if p.grad is not None and not p.grad.is_sparse]
        return found == self._addresses

    def _average(self, tensor: Tensor) -> None:
        if self._averages:
            dist.all_reduce(tensor, dist.ReduceOp.AVG, self._group)
        else:
            dist.all_reduce(tensor, dist.ReduceOp.SUM, self._group)
            tensor.div_(self._size)

    def _gathered(self, parameters: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Pieces of this object's own that hold the gradients, which the parameters get from there."""
        layout = [(g.dtype, g.shape, g.stride()) for g in gradients]
        if self._own is None or [(v.dtype, v.shape, v.stride()) for v in self._own.views] != layout:
            self._own = FlatTensors(gradients)
        torch._foreach_copy_(self._own.views, gradients)
        for parameter, view in zip(parameters, self._own.views, strict=True):
            parameter.grad = view
        return self._own.pieces


def check_sparse_exchange() -> None:
    """Raises ValueError if NCCL connects the processes: it does not add up sparse gradients."""
    if dist.is_available() and dist.is_initialized() and "nccl" in dist.get_backend():
        raise ValueError(
            f"{dist.get_world_size()} processes on GPUs would exchange sparse gradients, and NCCL cannot: "
            "train on one GPU (trainer.devices=1), or in processes on CPUs (device=cpu)"
        )


def _places(tensors: Sequence[Tensor]) -> tuple[list[tuple[int, tuple[int, ...]]], dict[torch.dtype, int]]:
    """Where `FlatTensors` puts each tensor, as (first element, strides), and the elements of each type's piece."""
    places, sizes = [], dict.fromkeys((tensor.dtype for tensor in tensors), 0)
    for tensor in tensors:
        places.append((sizes[tensor.dtype], torch.empty_like(tensor, device="meta").stride()))
        step = _ALIGNMENT // tensor.element_size()
        sizes[tensor.dtype] += -(-tensor.numel() // step) * step
    return places, sizes


def _pieces_of(tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """The pieces whose views these tensors are, if a `FlatTensors` made them."""
    places, sizes = _places(tensors)
    pieces: dict[torch.dtype, Tensor] = {}
    for tensor, place in zip(tensors, places, strict=True):
        size, memory = sizes[tensor.dtype], tensor.untyped_storage()
        if (tensor.storage_offset(), tensor.stride()) != place or memory.nbytes() != size * tensor.element_size():
            return None
        if tensor.dtype not in pieces:
            nothing = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            pieces[tensor.dtype] = nothing.set_(memory, 0, (size,), (1,))
        elif memory.data_ptr() != pieces[tensor.dtype].data_ptr():
            return None
    return list(pieces.values())
