"""The arrays that traversals read, in the memory of their device, and the options that all traversals take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph, require_graph, require_square
from loader.machine.arguments import as_flag, shown
from loader.machine.cpus import as_threads, available_cpus
from loader.machine.devices import as_device
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import cuda_device, require_cuda, wait_for_made
from loader.machine.mapped import whole
from loader.machine.memo import Memo, version_of
from loader.machine.renamed_arguments import removed_arguments

no_schedules = removed_arguments(
    dict.fromkeys(("schedule", "access"), "the memory of the graph's lists decides; leave it out")
)
_LINE = 32  # entries in 128 bytes, which cost as much as one of them over the bus
_CHUNK = 1 << 24  # edges hashed at once: bounds the temporary arrays

_memo = Memo()
_lock = ForkSafeLock()


class Lists(NamedTuple):
    """The lists of all nodes: `indptr` `[num_nodes + 1]` and `indices` `[num_edges]`, as a graph has them."""

    indptr: Tensor
    indices: Tensor


class Where(NamedTuple):
    """Where a traversal runs, and how.

    Attributes:
        device: the CPU, or a GPU with its index.
        num_threads: on the CPU.
        line: on a GPU, how many entries of a list cost as much as one to read. It decides how edges are shared out
            (csrc/traverse/cuda/schedule.cuh).
    """

    device: torch.device
    num_threads: int
    line: int

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"


def where(graph: Graph, device: torch.device | str | None, num_threads: int | None) -> Where:
    """Checks graph and options of a traversal.

    Raises:
        TypeError, ValueError: the graph is none, is bipartite or lies elsewhere, or an option is unknown or has no
            effect on that device.
        NoGpuError: a GPU was asked for, and there is none.
    """
    require_graph(graph, hetero=False)
    require_square(graph, "a traversal")
    goal = graph.device if device is None else as_device(device)
    threads = available_cpus() if num_threads is None else as_threads(num_threads)
    if goal.type == "cpu":
        for name, array in (("indptr", graph.indptr), ("indices", graph.indices)):
            if array.device.type != "cpu":
                raise ValueError(
                    f"a traversal on the CPU needs a graph there; its {name} lies on {array.device}; use "
                    "graph.to('cpu')"
                )
        return Where(goal, threads, 1)
    require_cuda("a traversal on a GPU")
    goal = cuda_device(goal)
    if num_threads is not None:
        raise ValueError(
            f"num_threads is {num_threads}, but the traversal runs on {goal}; leave it out, or device='cpu'"
        )
    for name, array in (("indptr", graph.indptr), ("indices", graph.indices)):
        check_readable(name, array, goal)
    return Where(goal, threads, _LINE if graph.indices.device.type == "cpu" else 1)


def check_readable(name: str, array: Tensor, device: torch.device) -> None:
    """Raises ValueError unless the GPU can read `array` where it lies."""
    if array.device != device and not (array.device.type == "cpu" and (array.is_pinned() or array.numel() == 0)):
        raise ValueError(
            f"a traversal on {device} wants a graph there or in pinned memory; its {name} lies on {array.device}; use "
            f"graph.to('{device}') or graph.pin_memory()"
        )


def back_lists(graph: Graph, device: torch.device) -> Lists:
    """The lists of the graph itself: the nodes that edges come from. `indptr` lies on `device`."""
    return Lists(_offsets(graph, graph.indptr, "indptr", device), graph.indices)


def onward_lists(graph: Graph, at: Where, symmetric: bool | None) -> Lists:
    """The nodes that edges lead to. Lists that are not there are made once, and kept with the graph."""
    if is_symmetric(graph, at, symmetric):
        return back_lists(graph, at.device)
    turned, _ = _turned(graph)
    return Lists(_offsets(graph, turned.indptr, "turned indptr", at.device), turned.indices)


def onward_weights(graph: Graph, at: Where, weights: Tensor, symmetric: bool | None) -> tuple[Lists, Tensor]:
    """`onward_lists`, and the weights of their edges."""
    if is_symmetric(graph, at, symmetric, weights):
        return back_lists(graph, at.device), weights
    turned, places = _turned(graph)

    def make() -> Tensor:
        moved = weights[places.to(weights.device).long()]
        wait_for_made(moved.device)
        return moved.pin_memory() if weights.device.type == "cpu" and weights.is_pinned() else moved

    with _lock:
        moved = _by_weights(graph).get(weights, version_of(weights), "turned", make)
    return Lists(_offsets(graph, turned.indptr, "turned indptr", at.device), turned.indices), moved


def is_symmetric(graph: Graph, at: Where, symmetric: bool | None, weights: Tensor | None = None) -> bool:
    """Whether each edge has its reverse, of the same weight. If the caller does not say, all edges are read once, and
    the answer is kept."""
    if symmetric is not None:
        return as_flag("symmetric", symmetric)

    def look() -> bool:
        if graph.indices.device.type == "cpu":
            arrays = (graph.indptr.cpu(), graph.indices)
            of_edges = None if weights is None else weights.cpu()
            with whole(*arrays, of_edges):
                return _core.traverse_symmetric(arrays, of_edges, at.num_threads)
        return _hashes_agree(graph.indptr.to(graph.device), graph.indices, weights)

    with _lock:
        if weights is None:
            return _memo.get(graph, _state(graph), "symmetric", look)
        return _by_weights(graph).get(weights, version_of(weights), "symmetric", look)


def memory_for(lists: Lists, device: torch.device, *, numbers: bool = False) -> Tensor:
    """What a traversal on a GPU needs beside its result. It belongs to the current stream."""
    return torch.empty(_core.traverse_memory(tuple(lists), numbers), dtype=torch.uint8, device=device)


def wait_for_host_arrays(*arrays: Tensor) -> None:
    """Waits for the current stream if one of the arrays that it reads lies in host memory: nothing else knows that a
    kernel reads it, and its owner may free it."""
    if any(array.device.type == "cpu" for array in arrays):
        torch.cuda.current_stream().synchronize()


def as_nodes(graph: Graph, nodes: int | Sequence[int] | Tensor, name: str) -> Tensor:
    """`nodes` as a vector of the graph's type on the CPU.

    Raises:
        TypeError: they are no integers.
        ValueError: there are none, or one is no node.
    """
    try:
        given = nodes if isinstance(nodes, Tensor) else torch.as_tensor(nodes)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} is {shown(nodes)}; it must be a node or a vector of nodes") from None
    if given.dtype == torch.bool:
        raise TypeError(f"{name} has dtype torch.bool; turn a mask into nodes with mask.nonzero().view(-1)")
    if given.is_floating_point() or given.is_complex() or given.dim() > 1:
        raise TypeError(f"{name} is {shown(nodes)}; it must be a node or a vector of nodes")
    given = given.reshape(-1).cpu().long()
    if given.numel() == 0:
        raise ValueError(f"{name} holds no node; it must hold at least 1")
    low, high = (int(x) for x in torch.aminmax(given))
    if low < 0 or high >= graph.num_nodes:
        valid = f"valid ids are 0 to {graph.num_nodes - 1}" if graph.num_nodes else "the graph has no nodes"
        raise ValueError(f"{name} holds node {low if low < 0 else high}; {valid}")
    return given.to(graph.indices.dtype)


def _by_weights(graph: Graph) -> Memo:
    """What was made of the graph and of weights. It goes with either of them."""
    return _memo.get(graph, _state(graph), "by weights", Memo)


def _state(graph: Graph) -> tuple[object, ...]:
    return graph._state(), *(version_of(array) for array in (graph.indptr, graph.indices))


def _offsets(graph: Graph, indptr: Tensor, name: str, device: torch.device) -> Tensor:
    if indptr.device == device:
        return indptr
    with _lock:
        return _memo.get(graph, _state(graph), (name, device), lambda: indptr.to(device))


def _turned(graph: Graph) -> tuple[Lists, Tensor]:
    """The graph with all edges turned round, in memory of the same kind, and the place that each edge had."""

    def make() -> tuple[Lists, Tensor]:
        indices = graph.indices
        other = Graph(graph.indptr.to(indices.device), indices, validate=False).reverse()
        assert other.edge_ids is not None
        lists = Lists(other.indptr.to(graph.indptr.dtype), other.indices.to(indices.dtype))
        if indices.device.type == "cpu" and indices.is_pinned() and indices.numel():
            lists = Lists(lists.indptr, lists.indices.pin_memory())
        wait_for_made(indices.device)
        return lists, other.edge_ids

    with _lock:
        return _memo.get(graph, _state(graph), "turned", make)


def _hashes_agree(indptr: Tensor, indices: Tensor, weights: Tensor | None) -> bool:
    """What csrc/traverse/cpu/symmetry.h does, where the edges lie."""
    total = torch.zeros((), dtype=torch.int64, device=indices.device)
    for begin in range(0, indices.numel(), _CHUNK):
        end = min(begin + _CHUNK, indices.numel())
        places = torch.arange(begin, end, device=indices.device)
        to = torch.searchsorted(indptr, places.to(indptr.dtype), right=True) - 1
        from_ = indices[begin:end].long()
        weight: Tensor | int = 0
        if weights is not None:
            part = weights[begin:end].to(indices.device)
            weight = _mixed(part.view(torch.int32 if part.element_size() == 4 else torch.int64).long())
        total += _hash(from_, to, weight).sum() - _hash(to, from_, weight).sum()
    return int(total) == 0


def _hash(a: Tensor, b: Tensor, weight: Tensor | int) -> Tensor:
    return _mixed(_mixed(a + 0x1E3779B97F4A7C15) + _mixed(b ^ 0x51B54A32D192ED03) * 3 + weight)


def _mixed(x: Tensor) -> Tensor:
    """SplitMix64's finalizer; int64 wraps round."""
    x = (x ^ ((x >> 30) & (2**34 - 1))) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ ((x >> 27) & (2**37 - 1))) * (0x94D049BB133111EB - 2**64)
    return x ^ ((x >> 31) & (2**33 - 1))
