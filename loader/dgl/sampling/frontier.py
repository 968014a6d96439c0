"""What the functions that pick edges are given, and the graph that they return."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from loader.dgl import original_dgl
from loader.dgl.graphs import fill, weights_of
from loader.dgl.hetero import by_edge_type, by_node_type
from loader.dgl.sampling.lists import Picked
from loader.graph.checks import check_range, integer_vector
from loader.loaders.torch_options import as_ids
from loader.machine.arguments import as_flag, as_index, kind_of, shown

EdgeType = tuple[str, str, str]
Made = TypeVar("Made", bound=Callable[..., Any])


def refusing_as_dgl(function: Made) -> Made:
    """Lets `except dgl.DGLError` catch the ValueError of a function, too, as scripts for DGL expect."""

    @functools.wraps(function)
    def called(*given: Any, **options: Any) -> Any:
        try:
            return function(*given, **options)
        except ValueError as error:
            if isinstance(error, original_dgl.dgl().DGLError):
                raise
            raise _error_of_both()(str(error)) from error

    return called  # type: ignore[return-value]


@functools.cache
def _error_of_both() -> type[ValueError]:
    return type("DGLError", (original_dgl.dgl().DGLError, ValueError), {"__module__": __name__})


def require_graph(g: Any) -> None:
    """Raises TypeError or ValueError unless `g` is a graph of DGL that is no block."""
    if not hasattr(g, "canonical_etypes"):
        raise TypeError(f"g is {kind_of(g)}; it must be a dgl.DGLGraph")
    if g.is_block:
        raise ValueError("g is a block, whose sources and destinations are numbered apart; give the graph it is of")


def nodes_of(g: Any, name: str, ids: Any, of: str) -> Tensor:
    """`[n]` ids of nodes of one type, where the graph lies; a number is one node.

    Args:
        name: of the argument, for the messages.
        of: the node type.

    Raises:
        TypeError, ValueError: these are no nodes of that type, or lie elsewhere.
    """
    made = _ids(name, ids)
    if isinstance(ids, Tensor) and ids.device != g.device:
        raise ValueError(f"{name} lies on {ids.device}, and the graph on {g.device}; move one of them")
    check_range(name, made, g.num_nodes(of))
    return made.to(g.device)


def by_type(g: Any, nodes: Any) -> dict[str, Tensor]:
    """Node type -> `[n]` ids of the nodes that pick."""
    given = by_node_type("nodes", g, nodes)
    if not given:
        raise ValueError("nodes is an empty dict; give at least one type, with an empty tensor if there are no nodes")
    names = {of: "nodes" if len(g.ntypes) == 1 else f"nodes[{of!r}]" for of in given}
    return {of: nodes_of(g, names[of], ids, of) for of, ids in given.items()}


def by_relation(g: Any, name: str, given: Any) -> dict[EdgeType, int]:
    """Edge type -> picks per node, of one number or of a dict with one for each.

    Raises:
        TypeError, ValueError: an edge type is unknown or left out, or a number is below -1.
    """
    numbers = by_edge_type(name, g, given) if isinstance(given, Mapping) else dict.fromkeys(g.canonical_etypes, given)
    if missing := [key for key in g.canonical_etypes if key not in numbers]:
        raise ValueError(f"{name} has none for the edge type {missing[0]}; give it, 0 where nothing is picked")
    found = {}
    for key, value in numbers.items():
        number = as_index(value)
        if number is None:
            raise TypeError(f"{name} is {shown(value)}; it must be an integer")
        if number < -1:
            raise ValueError(f"{name} is {number}; it must be at least 0, or -1 for all")
        found[key] = number
    return found


def is_out(edge_dir: Any) -> bool:
    """Whether nodes pick from the edges that begin at them; ValueError for a direction that is none."""
    if edge_dir not in ("in", "out"):
        raise ValueError(f"edge_dir is {shown(edge_dir)}; it must be 'in' or 'out'")
    return bool(edge_dir == "out")


def weights_by_type(g: Any, name: str, column: Any) -> dict[EdgeType, Tensor]:
    """Edge type -> `[num_edges]` weights, of the edge types that have this column.

    Args:
        name: of the argument, for the messages.

    Raises:
        TypeError, ValueError: no edge type has it, or it is no vector.
    """
    if column is not None and not isinstance(column, str):
        raise TypeError(f"{name} is {shown(column)}; it must be the name of the weights in g.edata, or None")
    found = dict(weights_of(g, column, name))
    for key, weights in found.items():
        if weights.dim() != 1:
            raise ValueError(
                f"{name} is {column!r}, which has shape {list(weights.shape)} for {key}; it must be a number per edge, "
                f"[{g.num_edges(key)}]"
            )
    return found


def edges_by_type(g: Any, name: str, ids: Any) -> dict[EdgeType, Tensor]:
    """Edge type -> `[n]` ids of edges; nothing for None."""
    if ids is None:
        return {}
    given = by_edge_type(name, g, ids)
    return {key: _ids(name, of).to(g.device) for key, of in given.items()}


def _ids(name: str, ids: Any) -> Tensor:
    """`[n]` integers; a number is one."""
    made = as_ids(name, ids)
    return integer_vector(name, made.reshape(1) if made.dim() == 0 else made, made.device)


def frontier(
    g: Any,
    nodes: Mapping[str, Tensor],
    picked: Mapping[EdgeType, Picked],
    *,
    out: bool,
    copy_ndata: bool,
    copy_edata: bool,
    device: Any,
) -> Any:
    """The graph of all nodes and only the picked edges, with the features of `g` as DGL gives them.

    Args:
        nodes: that picked, by type.
        out: they are the sources.
        copy_ndata, copy_edata: whether it has features of nodes; those of edges, and `dgl.EID`.
        device: where it goes, or None.
    """
    dgl = original_dgl.dgl()
    none = torch.empty(0, dtype=g.idtype, device=g.device)
    ends: dict[EdgeType, tuple[Tensor, Tensor]] = dict.fromkeys(g.canonical_etypes, (none, none))
    for key, edges in picked.items():
        own = nodes[key[0] if out else key[2]][edges.rows].to(g.idtype)
        other = edges.others.to(g.idtype)
        ends[key] = (own, other) if out else (other, own)
    made = dgl.heterograph(ends, {name: g.num_nodes(name) for name in g.ntypes}, idtype=g.idtype)
    if as_flag("copy_ndata", copy_ndata):
        for name in g.ntypes:
            made._node_frames[made.get_ntype_id(name)] = g._node_frames[g.get_ntype_id(name)].clone()
    if as_flag("copy_edata", copy_edata):
        for key in g.canonical_etypes:
            ids = picked[key].ids.to(g.idtype) if key in picked else none
            frame = made._edge_frames[made.get_etype_id(key)]
            frame[dgl.EID] = ids
            fill(frame, g._edge_frames[g.get_etype_id(key)], ids)
    return made if device is None else made.to(device)
