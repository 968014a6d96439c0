"""What a `HeteroGraph` is made of: a graph of torch_geometric, one of DGL, or a `Graph` with types."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from loader.graph.csc import Graph, require_square
from loader.graph.interop import attribute, check_no_block, coordinates, dgl_edges, mask_as_weights, plain, weights_of
from loader.graph.relations import EdgeType, Labels, check_edge_types, check_node_types
from loader.machine.arguments import kind_of, shown


def pyg_relations(data: Any, weight_attr: str | None, time_attr: str | None) -> dict[str, Any]:
    """The arguments of `HeteroGraph._of_edges` for a `HeteroData` of torch_geometric; see `HeteroGraph.from_pyg`."""
    if not hasattr(data, "node_stores") or not hasattr(data, "edge_stores") or not hasattr(data, "node_types"):
        way = ": Graph.from_pyg takes a Data of one type" if hasattr(data, "num_nodes") else ""
        raise TypeError(f"data is {kind_of(data)}; it must be a torch_geometric.data.HeteroData{way}")
    num_nodes = {}
    for name in data.node_types:
        with warnings.catch_warnings():  # torch_geometric warns, and we raise an error
            warnings.simplefilter("ignore")
            num_nodes[name] = data[name].num_nodes
        if num_nodes[name] is None:
            raise ValueError(f"data[{name!r}] does not say how many nodes there are; set data[{name!r}].num_nodes")
    edges: dict[EdgeType, Tensor] = {}
    weights: dict[EdgeType, Tensor] = {}
    labels: dict[EdgeType, str] = {}
    for key in data.edge_types:
        store, owner = data[key], f"data[{key!r}]"
        if "edge_index" in store:
            labels[key] = f"{owner}.edge_index"
            edges[key] = plain(store["edge_index"])
        elif "adj_t" in store:
            labels[key] = f"{owner}.adj_t"
            edges[key] = torch.stack(coordinates(labels[key], store["adj_t"])).flip(0)
        else:
            raise ValueError(f"{owner} has neither edge_index nor adj_t; set edge_index, or delete the edge type")
        if weight_attr is not None and weight_attr in store:
            weights[key] = weights_of(owner, store, weight_attr, store.num_edges)
    if weight_attr is not None and not weights:
        had = sorted({str(name) for store in data.edge_stores for name in store})
        raise ValueError(f"weight_attr is {shown(weight_attr)}, which no relation has; they have {had}")
    given = None if weight_attr is None else weights
    node_times, edge_times = (None, None) if time_attr is None else times_of(data, time_attr)

    def of_store(name: str | None) -> Callable[[str | EdgeType], str]:
        return lambda key: f"data[{key!r}].{name}"

    names = Labels(lambda key: labels[key], of_store(weight_attr), of_store(time_attr), of_store(time_attr))
    times = {"node_times": node_times, "edge_times": edge_times}
    return {"edges": edges, "num_nodes": num_nodes, "weights": given, **times, "keep_edge_ids": True, "labels": names}


def times_of(data: Any, time_attr: str) -> tuple[dict[str, Tensor], dict[EdgeType, Tensor]]:
    """The times that a `HeteroData` has by this name, of nodes by type and of edges by relation.

    Raises:
        ValueError: it has none.
    """
    node_times, edge_times = (
        {key: attribute(f"data[{key!r}]", data[key], time_attr, "time_attr") for key in keys if time_attr in data[key]}
        for keys in (data.node_types, data.edge_types)
    )
    if not node_times and not edge_times:
        had = sorted({str(name) for store in data.stores for name in store})
        raise ValueError(f"time_attr is {shown(time_attr)}, which no type and no relation has; they have {had}")
    return node_times, edge_times


def dgl_relations(g: Any, weight_attr: str | None) -> dict[str, Any]:
    """The arguments of `HeteroGraph._of_edges` for a `DGLGraph`; see `HeteroGraph.from_dgl`."""
    if not hasattr(g, "canonical_etypes"):
        raise TypeError(f"g is {kind_of(g)}; it must be a dgl.DGLGraph")
    check_no_block(g)
    edges = {key: torch.stack(dgl_edges(g, etype=key)) for key in g.canonical_etypes}
    weights = None
    if weight_attr is not None:
        frames = {key: g.edges[key].data for key in edges}
        weights = {key: mask_as_weights(frame[weight_attr]) for key, frame in frames.items() if weight_attr in frame}
        if not weights:
            had = sorted({name for frame in frames.values() for name in frame})
            raise ValueError(f"weight_attr is {shown(weight_attr)}, which no relation has; they have {had}")
    labels = Labels("g.edges(etype={!r})".format, lambda key: f"g.edges[{key!r}].data[{weight_attr!r}]")
    sizes = {name: g.num_nodes(name) for name in g.ntypes}
    times = {"node_times": None, "edge_times": None}
    return {"edges": edges, "num_nodes": sizes, "weights": weights, **times, "keep_edge_ids": True, "labels": labels}


def relations_of_graph(graph: Graph) -> dict[str, Any]:
    """The arguments of `HeteroGraph._made` for a `Graph`; see `HeteroGraph.of`."""
    if not isinstance(graph, Graph):
        raise TypeError(f"graph is {kind_of(graph)}; it must be a loader.Graph: HeteroGraph.from_edges takes edges")
    require_square(graph, "HeteroGraph.of")
    graph.require_sound()
    types = graph.node_types or {"node": range(graph.num_nodes)}
    sizes = check_node_types({name: len(ids) for name, ids in types.items()})
    device, names = graph.device, list(sizes)
    stops = torch.tensor([ids.stop for ids in types.values()], device=device)
    dst = torch.arange(graph.num_nodes, device=device).repeat_interleave(graph.in_degrees().to(device).long())
    code = torch.bucketize(graph.indices, stops, right=True) * len(names)
    code += torch.bucketize(dst, stops, right=True)
    if graph.edge_types is not None:
        code += graph.edge_types.to(device).long() * len(names) ** 2
    codes, relation = code.unique(return_inverse=True)
    del code
    edge_types: list[EdgeType] = []
    for one in codes.tolist():
        number, pair = divmod(one, len(names) ** 2)
        source, target = (names[i] for i in divmod(pair, len(names)))
        edge_types.append((source, "to" if graph.edge_types is None else str(number), target))
    check_edge_types(edge_types, sizes)
    order = relation.argsort(stable=True)  # by relation, and within one as in the lists
    parts = order.split(torch.bincount(relation, minlength=codes.numel()).tolist())
    by_edge = {"edge_ids": graph.edge_ids, "edge_weights": graph.edge_weights, "edge_times": graph.edge_times}
    given = {name: array for name, array in by_edge.items() if array is not None}

    def contents(r: int) -> dict[str, Tensor]:
        at = parts[r]
        arrays = {"indices": graph.indices[at] - types[edge_types[r][0]].start, "edge_ids": at}
        return {**arrays, **{name: array[at.to(array.device)] for name, array in given.items()}}

    dtypes = {"edge_ids": graph.indptr.dtype, **{name: array.dtype for name, array in given.items()}}
    degrees = [
        torch.bincount(dst[at] - types[key[2]].start, minlength=sizes[key[2]])
        for key, at in zip(edge_types, parts, strict=True)
    ]
    times = None if graph.node_times is None else graph.node_times.to(device)
    relations = {"edge_types": edge_types, "degrees": degrees, "dtypes": dtypes, "contents": contents}
    return {"num_nodes": sizes, **relations, "device": device, "node_times": times}
