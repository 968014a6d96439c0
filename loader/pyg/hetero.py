"""What a loader reads of a `HeteroData`: the graph, the type of its seeds, and where mini-batches arrive."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData, remote_backend_utils

from loader.graph import EdgeType, Graph, HeteroGraph
from loader.graph.checks import MISSING_TIME
from loader.loaders.options import check_graph_memory
from loader.loaders.torch_options import device_of
from loader.machine.arguments import shown
from loader.machine.memo import Memo
from loader.pyg.edges_read import state_of

_log = logging.getLogger("loader")
_graphs = Memo()  # loaders of the same edges share the graph


def edge_types_of(data: Any) -> list[EdgeType] | None:
    """The edge types of a `HeteroData`, or of a feature store and a graph store of several types; None of others."""
    if isinstance(data, HeteroData):
        return list(data.edge_types)
    if not (isinstance(data, tuple) and len(data) == 2 and hasattr(data[1], "get_all_edge_attrs")):
        return None
    found = list(dict.fromkeys(attr.edge_type for attr in data[1].get_all_edge_attrs()))
    return None if None in found or not found else found


def shape_of_types(shape: str) -> str:
    """The type of subgraphs that are sampled of several types; torch_geometric makes bidirectional ones of these."""
    return "induced" if shape == "induced" else "directional"


def hetero_place_of(data: Any, device: torch.device | str | None) -> torch.device:
    """Where mini-batches arrive: `device`, or by default the device of the first `x` of a node type."""
    if isinstance(data, tuple):
        return device_of(device)
    found = [store["x"].device for store in data.node_stores if isinstance(store.get("x"), Tensor)]
    return device_of(found[0] if device is None and found else device)


def hetero_graph_of(
    data: Any, weight_attr: str | None, time_attr: str | None, device: torch.device, pinned: bool
) -> HeteroGraph:
    """The graph of `data` on `device`; made once for all loaders of these edges, if it has no weights and times."""
    if isinstance(data, tuple):
        return placed(_graph_of_stores(data[0], data[1], weight_attr, time_attr), device, pinned)
    owners = [store.get("edge_index") for store in data.edge_stores]
    named = weight_attr is not None or time_attr is not None
    if named or not all(isinstance(owner, Tensor) for owner in owners):
        return placed(HeteroGraph.from_pyg(data, weight_attr=weight_attr, time_attr=time_attr), device, pinned)
    key = tuple(data.edge_types), tuple((name, data[name].num_nodes) for name in data.node_types)
    made = _graphs.get_of(owners, key, lambda: HeteroGraph.from_pyg(data).to("cpu"), state_of)
    return _graphs.get_of(owners, (*key, device, pinned), lambda: placed(made, device, pinned), state_of)


def counted_times(graph: Graph | HeteroGraph, time_attr: str | None) -> str:
    """Which times of a graph count, as a sampler's option, if `time_attr` names some.

    Raises:
        ValueError: both nodes and edges have them, or some are missing.
    """
    if time_attr is None:
        return "none"
    if isinstance(graph, HeteroGraph):
        nodes, edges = bool(graph.timed_types), bool(graph.timed_relations)
    else:
        nodes, edges = graph.node_times is not None, graph.edge_times is not None
    if nodes and edges:
        raise ValueError(f"time_attr is {time_attr!r}, which both nodes and edges have; rename one of them")
    refuse_missing_times(graph, lambda key: f"data.{time_attr}" if key is None else f"data[{key!r}].{time_attr}")
    return "node" if nodes else "edge"


def tell_untimed(graph: Graph | HeteroGraph, fanouts: Mapping[EdgeType, Sequence[int]], times: str) -> None:
    """Warns of neighbors without times that `temporal_strategy="last"` picks each time, where torch_geometric draws.

    Args:
        fanouts: picks per hop of each edge type.
        times: which times count, "node", "edge" or "both".
    """
    if not isinstance(graph, HeteroGraph):
        return  # whose neighbors all have times
    for key, of_hop in fanouts.items():
        timed = (times != "edge" and key[0] in graph.timed_types) or (times != "node" and key in graph.timed_relations)
        degrees, picks = graph.in_degrees(key), [k for k in of_hop if k > 0]
        if not timed and picks and degrees.numel() and int(degrees.max()) > min(picks):
            _log.warning(
                "temporal_strategy is 'last', and neighbors by %s have no times: of up to %d the %d with the highest "
                "ids are picked each time, where torch_geometric draws; give -1 for this edge type, or 'uniform'",
                key,
                int(degrees.max()),
                min(picks),
            )


def refuse_missing_times(graph: Graph | HeteroGraph, label: Callable[[Any], str]) -> None:
    """Raises ValueError if nodes or edges that have times lack some: torch_geometric knows no missing times.

    Args:
        label: what a message calls the times of a node type or a relation; None: of a graph of one type.
    """
    given: dict[Any, Tensor | None]
    if isinstance(graph, HeteroGraph):
        of_nodes, of_edges = graph.lists.node_times, graph.lists.edge_times
        given = {}
        for name in graph.timed_types:
            assert of_nodes is not None
            given[name] = of_nodes[graph.node_types[name].start : graph.node_types[name].stop]
        for key in graph.timed_relations:
            assert of_edges is not None
            given[key] = of_edges[graph.entries(key)[0].to(of_edges.device)]
    else:
        given = {None: graph.node_times if graph.edge_times is None else graph.edge_times}
    for key, times in given.items():
        if times is not None and (missing := int((times == MISSING_TIME).sum())):
            raise ValueError(
                f"{label(key)} has {missing} missing times of {times.numel()}; leave these rows out, or give them a "
                "time"
            )


def _graph_of_stores(features: Any, store: Any, weight_attr: str | None, time_attr: str | None) -> HeteroGraph:
    """The graph of stores of torch_geometric; an edge's id is its place in the graph store."""
    if weight_attr is not None:
        raise NotImplementedError(f"weight_attr is {weight_attr!r}, but a graph store has no weights; leave it out")
    rows, starts, places = store.csc()
    edges: dict[EdgeType, Tensor] = {}
    for key, row in rows.items():
        ends = torch.arange(starts[key].numel() - 1).repeat_interleave(starts[key].diff().cpu())
        edges[key] = torch.stack([row.cpu().long(), ends])
        if places is not None and places.get(key) is not None:
            edges[key] = torch.empty_like(edges[key]).index_copy_(1, places[key].cpu().long(), edges[key])
    names = dict.fromkeys(name for key in edges for name in (key[0], key[2]))
    sizes = {name: int(remote_backend_utils.num_nodes(features, store, name)) for name in names}
    times = {} if time_attr is None else _times_of_store(features, time_attr)
    of_nodes = {name: of for name, of in times.items() if isinstance(name, str)}
    of_edges = {key: of for key, of in times.items() if not isinstance(key, str)}
    return HeteroGraph.from_edges(edges, sizes, node_times=of_nodes, edge_times=of_edges)


def _times_of_store(features: Any, time_attr: str) -> dict[Any, Tensor]:
    """Node type or edge type -> the times that a feature store has by this name."""
    found = {}
    for attr in features.get_all_tensor_attrs():
        if attr.attr_name == time_attr:
            of_all = copy.copy(attr)
            of_all.index = None
            found[attr.group_name] = torch.as_tensor(features.get_tensor(of_all)).view(-1)
    if not found:
        raise ValueError(f"time_attr is {time_attr!r}, which the feature store does not have; put it there")
    return found


def is_pinned(memory: str, device: torch.device) -> bool:
    """Whether the graph lies in page-locked memory; raises ValueError if it cannot, or `memory` is no name of one."""
    check_graph_memory(memory)
    if memory == "pinned" and device.type == "cpu":
        raise ValueError("graph is 'pinned', for a GPU to read, but mini-batches are sampled on the CPU; leave it out")
    return memory == "pinned"


def placed(graph: Any, device: torch.device, pinned: bool) -> Any:
    """The `Graph` or `HeteroGraph` on `device`, or in page-locked memory for it."""
    return graph.pin_memory() if device.type == "cuda" and pinned else graph.to(device)


def inputs_by_type(graph: Graph | HeteroGraph, input_nodes: Any) -> tuple[str | None, range, Any]:
    """The type of the seeds, the ids of its nodes, and which of them are seeds; None for all.

    Raises:
        TypeError: of several types `input_nodes` is no name of a type, and no pair of it and ids.
        ValueError: there is no such type.
    """
    if not isinstance(graph, HeteroGraph):
        return None, range(graph.num_nodes), input_nodes
    types = list(graph.node_types)
    pair = (input_nodes, None) if isinstance(input_nodes, str) else input_nodes
    if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str)):
        raise TypeError(
            f"input_nodes is {shown(input_nodes)}; data has the node types {types}: give the name of one, or "
            f"({types[0]!r}, ids or mask)"
        )
    if pair[0] not in types:
        raise ValueError(f"input_nodes names the node type {pair[0]!r}; data has {types}")
    return pair[0], graph.node_types[pair[0]], pair[1]
