"""Edges of graphs of torch_geometric and of DGL, as `Graph.from_edges` takes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.graph.checks import check_integers, signed, time_vector
from loader.machine.arguments import kind_of, shown


def pyg_edges(data: Any, weight_attr: str | None, time_attr: str | None) -> dict[str, Any]:
    """The arguments of `Graph.from_edges` for a `Data` of torch_geometric; see `Graph.from_pyg`."""
    if isinstance(data, Tensor) or not hasattr(data, "num_nodes"):
        raise TypeError(f"data is {kind_of(data)}; it must be a torch_geometric.data.Data{way_to_data(data)}")
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        way = way_to_data(data)
        if way.startswith(": "):
            way = f": HeteroGraph.from_pyg(data) keeps the types; or give {way[2:]}"
        raise TypeError(f"data is {kind_of(data)}; it must be of one type{way}")
    if getattr(data, "edge_index", None) is not None:
        edges = data.edge_index
        if not isinstance(edges, Tensor) or edges.dim() != 2 or edges.shape[0] != 2:
            kind = list(edges.shape) if isinstance(edges, Tensor) else f"the type {type(edges).__name__}"
            raise ValueError(f"edge_index has {kind}; it must be a tensor [2, num_edges] (edge_index.t())")
        src, dst = plain(edges)
    elif getattr(data, "adj_t", None) is not None:
        dst, src = coordinates("adj_t", data.adj_t)
    else:
        way = "Graph.from_dgl takes a DGLGraph" if hasattr(data, "is_homogeneous") else "a graph needs one of them"
        raise ValueError(f"{type(data).__name__} has neither edge_index nor adj_t; {way}")
    if data.num_nodes is None:
        raise ValueError(f"{type(data).__name__} does not say how many nodes it has; set num_nodes")
    arrays: dict[str, Any] = {}
    if weight_attr is not None:
        arrays["edge_weights"] = weights_of("data", data, weight_attr, src.numel())
    if time_attr is not None:
        times = attribute("data", data, time_attr, "time_attr")
        if times.shape not in ((data.num_nodes,), (src.numel(),)):
            raise ValueError(
                f"time_attr is {time_attr!r}, and data.{time_attr} has shape {list(data[time_attr].shape)}; it must be "
                f"[{data.num_nodes}], a time per node, or [{src.numel()}], a time per edge"
            )
        if times.is_floating_point():
            times = time_vector(f"data.{time_attr}", times, times.device)
        arrays["edge_times" if has_events(data) or data.is_edge_attr(time_attr) else "node_times"] = times
    return {"src": src, "dst": dst, "num_nodes": data.num_nodes, **arrays}


def way_to_data(data: Any) -> str:
    """The end of the message on an object that is no `Data`: how to get one from it, if that is known."""
    if hasattr(data, "node_types") and hasattr(data, "edge_types") and hasattr(data, "to_homogeneous"):
        return f": data.to_homogeneous(), whose ids follow each other type by type{_changed(data)}"
    if has_events(data):
        return (
            ": its times would be ignored, and mini-batches see the future. torch_geometric's TemporalDataLoader takes "
            "events in order; if times don't matter, give Data(edge_index=data.edge_index, num_nodes=data.num_nodes)"
        )
    if hasattr(data, "indptr"):
        return "; a loader.Graph goes with loader.NodeLoader"
    several = isinstance(data, (list, tuple)) or type(data).__module__.startswith("torch_geometric.")
    return ", one graph: data[0]" if several and hasattr(data, "__getitem__") else ""


def has_events(data: Any) -> bool:
    """Whether it is a `TemporalData`: all its rows are of events, which are edges, and there may be as many nodes."""
    return hasattr(data, "num_events")


def _changed(data: Any) -> str:
    """What `to_homogeneous` does to the attributes of a `HeteroData`, to warn of it."""
    uneven = set()
    for stores in (data.node_stores, data.edge_stores):
        shapes: dict[str, list[Any]] = {}
        for store in stores:
            for name, value in store.items():
                if name not in ("edge_index", "adj", "adj_t", "num_nodes"):
                    shapes.setdefault(name, []).append(value.shape[1:] if isinstance(value, Tensor) else None)
        uneven |= {name for name, of in shapes.items() if len(of) < len(stores) or len({*of}) > 1 or None in of}
    if not uneven:
        return ""
    names = ", ".join(sorted(uneven))
    return f"; it drops, pads or fills with NaN what not every type has in one shape, so first make these even: {names}"


def dgl_graph_edges(g: Any, weight_attr: str | None) -> dict[str, Any]:
    """The arguments of `Graph.from_edges` for a `DGLGraph` of one type; see `Graph.from_dgl`."""
    if not hasattr(g, "is_homogeneous"):
        raise TypeError(f"g is {kind_of(g)}; it must be a dgl.DGLGraph")
    check_no_block(g)
    if not g.is_homogeneous:
        raise TypeError(
            f"g has types {list(g.ntypes)} of nodes and {len(g.canonical_etypes)} of edges; HeteroGraph.from_dgl(g) "
            "keeps them, or give dgl.to_homogeneous(g), whose ids follow each other type by type"
        )
    src, dst = dgl_edges(g)
    weights = None
    if weight_attr is not None:
        if not isinstance(weight_attr, str) or weight_attr not in g.edata:
            raise ValueError(f"weight_attr is {weight_attr!r}; g.edata has {sorted(g.edata)}")
        weights = mask_as_weights(g.edata[weight_attr])
    return {"src": src, "dst": dst, "num_nodes": g.num_nodes(), "edge_weights": weights}


def check_no_block(g: Any) -> None:
    """Raises ValueError if a `DGLGraph` is a block: node 0 of its sources need not be node 0 of its destinations."""
    if g.is_block:
        raise ValueError("g is a block, whose sources and destinations are numbered apart; give the graph it is of")


def mask_as_weights(column: Tensor) -> Tensor:
    """A mask of edges as weights of 1 and 0; other columns as they are."""
    return column.float() if column.dtype == torch.bool else column


def dgl_edges(g: Any, ids: Tensor | None = None, etype: Any = None) -> tuple[Tensor, Tensor]:
    """Sources and destinations of a `DGLGraph`, also of one that was restricted to lists (`formats`).

    Args:
        ids: of the edges; by default all of them, by id.
        etype: the edge type, if there are several.
    """
    allowed = g.formats()
    formats = allowed["created"] + allowed["not created"]
    if "coo" in formats:
        src, dst = g.edges(order="eid", etype=etype) if ids is None else g.find_edges(ids, etype=etype)
        return src, dst
    if ids is not None:
        src, dst = dgl_edges(g, etype=etype)
        return src[ids.long()], dst[ids.long()]
    kind = "csc" if "csc" in formats else "csr"
    indptr, indices, edge_ids = g.adj_tensors(kind, etype=etype)
    owners = torch.arange(indptr.numel() - 1, dtype=indices.dtype, device=indices.device)
    owners = owners.repeat_interleave(indptr.diff().long())
    src, dst = (indices, owners) if kind == "csc" else (owners, indices)
    if edge_ids.numel() == 0:  # they are in order
        return src, dst
    order = edge_ids.argsort()
    return src[order], dst[order]


def check_pyg_edges(data: Any) -> None:
    """Raises an error that names what a `Data` has, if its `edge_index` is refused."""
    edges, num_nodes = getattr(data, "edge_index", None), data.num_nodes
    if edges is None:
        return
    check_integers("edge_index", edges, ": edge_index.long()")
    if edges.numel() and not edges.is_meta:
        low, high = (int(x) for x in torch.aminmax(signed("edge_index", plain(edges))))
        if low < 0 or high >= num_nodes:
            raise ValueError(
                f"edge_index holds node {low if low < 0 else high}, but data has {num_nodes} nodes, 0 to "
                f"{num_nodes - 1}; correct the edges, or set data.num_nodes"
            )


def plain(edges: Tensor) -> Tensor:
    """An `edge_index` as an ordinary tensor: an `EdgeIndex` watches what is done to it."""
    return edges.as_tensor() if hasattr(edges, "as_tensor") else edges


def weights_of(owner: str, data: Any, weight_attr: str, num_edges: int) -> Tensor:
    """The edge weights that a `Data`, or a store of a `HeteroData`, has by this name; integers as float64.

    Args:
        owner: what the messages call `data`.
    """
    weights = attribute(owner, data, weight_attr, "weight_attr")
    if weights.shape != (num_edges,):
        raise ValueError(
            f"weight_attr is {weight_attr!r}, and {owner}.{weight_attr} has shape {list(data[weight_attr].shape)}; "
            f"it must be [{num_edges}], a weight per edge"
        )
    if weights.is_floating_point() or weights.is_complex() or weights.dtype == torch.bool:
        return weights
    made = weights.double()
    if not torch.equal(made.to(weights.dtype), weights):
        raise ValueError(
            f"{owner}.{weight_attr} holds integers beyond 2**53, which no float64 has; divide them, or give floats"
        )
    return made


def attribute(owner: str, data: Any, name: str, option: str) -> Tensor:
    """The attribute that an option names; one column is taken as a vector."""
    if not isinstance(name, str) or name not in data:
        raise ValueError(f"{option} is {shown(name)}; {owner} has {sorted(data.keys())}")
    value = data[name]
    if not isinstance(value, Tensor):
        raise TypeError(f"{owner}.{name} is {kind_of(value)}; it must be a torch tensor")
    return value.reshape(-1) if value.dim() == 2 and value.shape[1] == 1 else value


def coordinates(name: str, adj_t: Any) -> tuple[Tensor, Tensor]:
    """Rows (destinations) and columns (sources) of a transposed adjacency matrix, in the order of its entries."""
    if isinstance(adj_t, Tensor):
        if adj_t.layout == torch.sparse_csr:
            lengths = adj_t.crow_indices().diff()
            rows = torch.arange(lengths.numel(), device=lengths.device).repeat_interleave(lengths)
            return rows, adj_t.col_indices()
        if adj_t.layout == torch.sparse_coo:
            row, col = adj_t._indices()  # also of entries that are out of order, or there several times
            return row, col
        raise ValueError(f"{name} has layout {adj_t.layout}; it must be torch.sparse_csr or torch.sparse_coo")
    if not hasattr(adj_t, "coo"):
        raise TypeError(
            f"{name} is {kind_of(adj_t)}; it must be a sparse torch tensor or a SparseTensor: "
            "of a scipy matrix, give edge_index (torch_geometric.utils.from_scipy_sparse_matrix)"
        )
    row, col, _ = adj_t.coo()  # a SparseTensor of torch_sparse
    return row, col
