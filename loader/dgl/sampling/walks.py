"""`dgl.sampling.random_walk`, `node2vec_random_walk` and `pack_traces` on our walks."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor

from loader.dgl.hetero import edge_type
from loader.dgl.original_dgl import drawn
from loader.dgl.sampling.frontier import EdgeType, nodes_of, refusing_as_dgl, require_graph, weights_by_type
from loader.dgl.sampling.lists import Lists, lists_of
from loader.machine.arguments import as_flag, as_size, shown
from loader.samplers.walk_call import random_walk as walk


@refusing_as_dgl
def random_walk(
    g: Any,
    nodes: Any,
    *,
    metapath: Any = None,
    length: int | None = None,
    prob: str | None = None,
    restart_prob: Any = None,
    return_eids: bool = False,
) -> tuple[Tensor, ...]:
    """`dgl.sampling.random_walk`: walks along the direction of the edges.

    Args:
        g: of one or several types.
        nodes: `[n]`, where walks start; of several types, of the type at which the metapath begins.
        metapath: edge types, one per step.
        length: steps, in place of a metapath, if the graph has one edge type.
        prob: name in `g.edata` of weights, float32 or float64, or of a mask. Steps by edge types without it are
            uniform.
        restart_prob: a walk ends before each step with this probability, a float in [0, 1); or `[steps]`, one for each
            step, in [0, 1].
        return_eids: return the ids of the edges, too.

    Returns:
        `[n, steps + 1]` nodes; with `return_eids` `[n, steps]` edges; `[steps + 1]` numbers of node types. A walk that
        ended has -1.

    Raises:
        TypeError, ValueError: an argument is not as said above. The latter is a `dgl.DGLError`, too.
    """
    require_graph(g)
    path = _path(g, metapath, length)
    types = [path[0][0] if path else g.ntypes[0], *(key[2] for key in path)]
    starts, weights = nodes_of(g, "nodes", nodes, types[0]), weights_by_type(g, "prob", prob)
    stop, ends_before = _restart(g, restart_prob, len(path))
    seed = drawn()
    traces = torch.full((len(starts), len(path) + 1), -1, dtype=g.idtype, device=g.device)
    edges = torch.full((len(starts), len(path)), -1, dtype=g.idtype, device=g.device)
    traces[:, 0] = starts
    begin = 0
    for key, group in groupby(path):  # equal steps are one walk
        end = begin + len(list(group))
        alive = (traces[:, begin] >= 0).nonzero().view(-1)
        lists = lists_of(g, key, weights.get(key), out=True)
        part, ids = _walk(lists, traces[alive, begin], end - begin, seed=seed, batch=begin, stop=stop)
        if ends_before is not None:
            coins = torch.Generator().manual_seed((seed + begin) % 2**63)
            ended = torch.rand(part.shape[0], end - begin, dtype=torch.float64, generator=coins).to(g.device)
            ended = (ended < ends_before[begin:end]).cumsum(1) > 0
            part[:, 1:][ended], ids[ended] = -1, -1
        traces[alive, begin + 1 : end + 1], edges[alive, begin:end] = part[:, 1:].to(g.idtype), ids.to(g.idtype)
        begin = end
    of_types = torch.tensor([g.get_ntype_id(name) for name in types], dtype=g.idtype, device=g.device)
    return (traces, edges, of_types) if as_flag("return_eids", return_eids) else (traces, of_types)


@refusing_as_dgl
def node2vec_random_walk(
    g: Any, nodes: Any, p: float, q: float, walk_length: int, prob: str | None = None, return_eids: bool = False
) -> Any:
    """`dgl.sampling.node2vec_random_walk`: walks of the second order, along the direction of the edges.

    A walk that came from t to v goes to x with a probability proportional to 1/p if x is t, to 1 if there is an edge
    from t to x, and to 1/q otherwise. DGL looks for an edge from x to t. On an undirected graph this is the same.

    Args:
        g: of one edge type, which leads from a node type to itself.
        nodes: `[n]`, where walks start.
        p, q: see `loader.WalkSampler`.
        walk_length: steps.
        prob: name in `g.edata` of weights, float32 or float64, or of a mask; then the largest of 1/p, 1 and 1/q may be
            at most 1024 times the smallest.
        return_eids: return the ids of the edges, too.

    Returns:
        `[n, walk_length + 1]` nodes; with `return_eids` also `[n, walk_length]` edges. A walk that ended has -1.

    Raises:
        TypeError, ValueError: an argument is not as said above. The latter is a `dgl.DGLError`, too.
    """
    require_graph(g)
    key = _only_type(g, "node2vec_random_walk walks in graphs with one")
    steps = as_size("walk_length", walk_length, least=0)
    starts, weights = nodes_of(g, "nodes", nodes, key[0]), weights_by_type(g, "prob", prob)
    lists = lists_of(g, key, weights.get(key), out=True)
    traces, edges = (made.to(g.idtype) for made in _walk(lists, starts, steps, seed=drawn(), p=p, q=q))
    return (traces, edges) if as_flag("return_eids", return_eids) else traces


def pack_traces(traces: Tensor, types: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`dgl.sampling.pack_traces`: the nodes of all walks behind each other, without the -1 of walks that ended.

    Args:
        traces: `[n, length]` int32 or int64, from `random_walk`.
        types: `[length]` int32 or int64, from `random_walk`.

    Returns:
        Nodes and their types, `[m]` each; `[n]` int64, how many nodes each walk has, and where its first one is.

    Raises:
        TypeError, ValueError: an argument is not as said above.
    """
    for name, value, dims in (("traces", traces, 2), ("types", types, 1)):
        if not isinstance(value, Tensor) or value.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"{name} is {shown(value)}; it must be a tensor of int32 or int64, from random_walk")
        if value.dim() != dims:
            raise ValueError(f"{name} has shape {list(value.shape)}; it must have {dims} dimensions")
    if traces.shape[1] != types.numel():
        raise ValueError(f"traces has {traces.shape[1]} columns and types {types.numel()} entries; they must be equal")
    there = traces >= 0
    lengths = there.sum(1)
    return traces[there], types.expand_as(traces)[there], lengths, lengths.cumsum(0) - lengths


def _walk(lists: Lists, starts: Tensor, length: int, **options: Any) -> tuple[Tensor, Tensor]:
    """Nodes `[n, length + 1]` and edges `[n, length]` of walks through the lists."""
    weights = None if lists.graph.edge_weights is None else "edge_weights"
    nodes, edges = walk(lists.graph, starts, length, weights=weights, edge_ids=True, **options)
    return nodes, edges


def _path(g: Any, metapath: Any, length: Any) -> list[EdgeType]:
    """The edge type of each step."""
    if (metapath is None) == (length is None):
        both = "both are" if length is not None else "neither is"
        raise ValueError(f"a walk has a metapath or a length, and {both} given; give one of them")
    if metapath is None:
        return [_only_type(g, "a walk by length needs a graph with one: give a metapath")] * as_size(
            "length", length, least=0
        )
    return path_of(g, metapath)


def path_of(g: Any, metapath: Any) -> list[EdgeType]:
    """The edge types of a metapath.

    Raises:
        TypeError, ValueError: it is no list of edge types, or a step does not begin where the one before ends.
    """
    if not isinstance(metapath, (list, tuple)) or not metapath:
        raise TypeError(f"metapath is {shown(metapath)}; it must be a list of edge types")
    path = [edge_type("metapath", g, key) for key in metapath]
    for step, (before, after) in enumerate(pairwise(path)):
        if before[2] != after[0]:
            raise ValueError(
                f"metapath has {before} before {after}: step {step} ends at {before[2]!r}, where the next one does not "
                "begin"
            )
    return path


def _only_type(g: Any, why: str) -> EdgeType:
    if len(g.canonical_etypes) != 1 or len(g.ntypes) != 1:
        raise ValueError(f"the graph has the edge types {g.canonical_etypes}, and {why}")
    key: EdgeType = g.canonical_etypes[0]
    return key


def _restart(g: Any, given: Any, steps: int) -> tuple[float, Tensor | None]:
    """The probability that holds for all steps, and `[steps]` those of each; one of them is nothing."""
    if given is None:
        return 0.0, None
    if isinstance(given, Tensor) and given.dim() > 0:
        if given.shape != (steps,):
            raise ValueError(f"restart_prob has shape {list(given.shape)}; it must be [{steps}], one for each step")
        each = given.detach().double().to(g.device)
        if bool((wrong := ~((each >= 0) & (each <= 1))).any()):
            at = int(wrong.nonzero()[0])
            raise ValueError(f"restart_prob[{at}] is {float(each[at])}; it must be in [0, 1]")
        return 0.0, each
    if not isinstance(given, (float, int, Tensor)):
        raise TypeError(f"restart_prob is {shown(given)}; it must be a float or a tensor, one for each step")
    if not 0 <= float(given) < 1:
        raise ValueError(f"restart_prob is {float(given)}; it must be in [0, 1)")
    return float(given), None
