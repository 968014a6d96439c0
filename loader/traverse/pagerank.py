"""PageRank."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.arguments import as_flag, as_number, as_size
from loader.machine.gpu import current_stream_handle, made_current
from loader.machine.mapped import whole
from loader.machine.subnormals import as_doubles, with_subnormals
from loader.traverse.arrays import back_lists, memory_for, no_schedules, onward_lists, where

_WHOLE = 2**62  # stands for 1 (csrc/traverse/rank.h)


@no_schedules
def pagerank(
    graph: Graph,
    alpha: float = 0.85,
    *,
    tol: float = 1e-6,
    max_iter: int = 100,
    personalization: Tensor | None = None,
    reverse: bool = False,
    symmetric: bool | None = None,
    device: torch.device | str | None = None,
    num_threads: int | None = None,
) -> Tensor:
    """The PageRank of each node: how often a surfer is there who follows edges at random, and at times begins anew.

    The rank goes along the direction of edges, and each of parallel edges counts. A node without out-edges passes its
    rank to all nodes as `personalization` says. Each node adds up the shares that its in-neighbors pass on. These
    are integers, multiples of 2**-62, so their sums are exact in any order, and CPU and GPU give the same bytes.

    Args:
        graph: square; see `bfs`.
        alpha: the probability to follow an edge, at least 0 and at most 1.
        tol: it ends as soon as an iteration changes the ranks by less than this in sum. (networkx allows `num_nodes *
            tol`, which on a million nodes any change is less than.)
        max_iter: the most iterations.
        personalization: `[num_nodes]`, floating point, finite and at least 0, not all 0: where the surfer begins anew,
            in proportion to these numbers. By default all nodes are equally likely.
        reverse: follow edges from a node to its in-neighbors, as samplers do.
        symmetric: only with `reverse`: see `bfs`.
        device: see `bfs`.
        num_threads: on the CPU, 1 to 1024; by default one per processor.

    Returns:
        `[num_nodes]` float64 on the device; the sum is 1.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
        RuntimeError: it did not end within `max_iter` iterations.
        NoGpuError: a GPU was asked for, and there is none.
    """
    at = where(graph, device, num_threads)
    follows, limit = as_number("alpha", alpha), as_number("tol", tol)
    if not 0 <= follows <= 1:
        raise ValueError(f"alpha is {alpha}; it must be at least 0 and at most 1")
    turned = as_flag("reverse", reverse)
    if symmetric is not None and not turned:
        raise ValueError(
            f"symmetric is {symmetric}, but only reverse=True reads lists of the other direction; leave it out"
        )
    if not limit > 0:
        raise ValueError(f"tol is {tol}; it must be above 0")
    iterations = as_size("max_iter", max_iter, most=2**31 - 1)
    own = None if personalization is None else _shares(graph, personalization).to(at.device)
    ranks = torch.empty(graph.num_nodes, dtype=torch.float64, device=at.device)
    if graph.num_nodes == 0:
        return ranks
    close = max(int(min(limit * _WHOLE, 2.0**63)), 1)
    lists = onward_lists(graph, at, symmetric) if turned else back_lists(graph, at.device)
    damping = round(follows * _WHOLE)
    if at.on_gpu:
        with made_current(at.device):
            memory, index = memory_for(lists, at.device, numbers=True), at.device.index
            stream = current_stream_handle(index)
            _core.traverse_pagerank_cuda(
                tuple(lists), damping, own, close, iterations, at.line, ranks, memory, index, stream
            )
            change, took = memory[8:24].view(torch.int64).tolist()  # GridState::result
            change %= 2**64
    else:
        with whole(*lists):
            change, took = _core.traverse_pagerank(tuple(lists), damping, own, close, iterations, ranks, at.num_threads)
    if change >= close:
        raise RuntimeError(
            f"after {took} iterations the ranks still change by {change / _WHOLE:.3g} in sum; tol is {tol}: raise "
            "max_iter or tol"
        )
    return ranks


def _shares(graph: Graph, given: Tensor) -> Tensor:
    """`given` as integers that are in proportion to it, and whose sum is `_WHOLE`, but for rounding."""
    if not isinstance(given, Tensor) or not given.is_floating_point():
        kind = given.dtype if isinstance(given, Tensor) else f"a {type(given).__name__}"
        raise TypeError(f"personalization is {kind}; it must be a tensor of floating point numbers")
    if given.shape != (graph.num_nodes,):
        raise ValueError(f"personalization has shape {list(given.shape)}; it must be [{graph.num_nodes}]")
    numbers = as_doubles(given)
    if not numbers.size:
        return torch.empty(0, dtype=torch.int64)
    with with_subnormals(), np.errstate(over="ignore", invalid="ignore"):
        total = float(np.cumsum(numbers)[-1])  # one after the other, whatever the number of threads
        if total == math.inf and bool(np.isfinite(numbers).all()):
            numbers = numbers / numbers.max()
            total = float(np.cumsum(numbers)[-1])
        if not bool((numbers >= 0).all()) or not 0 < total < math.inf:
            raise ValueError(
                f"personalization has the sum {total}; its numbers must be finite, at least 0 and not all 0"
            )
        return torch.from_numpy((numbers / total * _WHOLE).astype(np.int64))
