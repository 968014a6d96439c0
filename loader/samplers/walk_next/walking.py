"""Walks on the CPU by a `Next`, compiled or run by Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.subnormals import shares_of_largest
from loader.samplers.picks import weighed
from loader.samplers.walk_next import oracle
from loader.samplers.walk_next.faults import Fault
from loader.samplers.walk_next.next import Next

_HEAVIEST = 2**32 - 1


def integer_weights(graph: Graph) -> Tensor:
    """`[num_edges]` weights above 0 as integers from 1 to 2**32 - 1, which is the heaviest: their bits as int32, on the
    CPU."""
    assert graph.edge_weights is not None
    whole = shares_of_largest(graph.edge_weights, _HEAVIEST)
    return torch.where(whole < 2**31, whole, whole - 2**32).to(torch.int32)


def walk(
    engine: _core.WalkEngine, graph: Graph, weights: Tensor | None, step: Next, starts: Tensor, length: int, key: int
) -> Tensor:
    """`[n, length + 1]` nodes of walkers at `starts` `[n]`, nodes of the graph; -1 after the end of a walk.

    Args:
        engine: of the graph, with what `step` needs.
        weights: of `integer_weights`, if `step` asks for them.

    Raises:
        NextError: `step` did what it may not do.
    """
    if not step.compiled:
        return _by_python(graph, weights, step, starts, length, key)
    nodes = torch.empty(len(starts), length + 1, dtype=starts.dtype)
    function = step.cpu_function(graph.indptr.dtype, graph.indices.dtype)
    fault = engine.walk_by(
        function,
        starts,
        0,
        key,
        length,
        step.turns,
        step.values,
        weights,
        step.searches,
        "by_weight" in step.uses,
        nodes,
    )
    if fault is not None:
        raise step.error(Fault(*fault), graph.num_nodes)
    return nodes


def _by_python(graph: Graph, weights: Tensor | None, step: Next, starts: Tensor, length: int, key: int) -> Tensor:
    assert step.source is not None
    cells = None
    if "by_weight" in step.uses:
        bits = weighed(graph, "a walk by weight").tables(1)[0].numpy().view(np.uint32)
        cells = bits[0::2].tolist(), bits[1::2].tolist()
    whole: Sequence[int] | None = None if weights is None else weights.numpy().view(np.uint32).tolist()
    lists = oracle.Lists(graph.indptr.tolist(), graph.indices.tolist(), whole, cells)
    try:
        walks = oracle.walk(step.source, lists, starts.tolist(), length, key, memory=step.memory, turns=step.turns)
    except oracle.Faulted as faulted:
        raise step.error(faulted.fault, graph.num_nodes) from None
    return torch.tensor(walks, dtype=starts.dtype).view(len(starts), length + 1)
