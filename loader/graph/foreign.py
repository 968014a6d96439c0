"""Objects that users give in place of a graph, and how to convert them."""

from __future__ import annotations

from typing import Any

from loader.graph.csc import Graph
from loader.graph.hetero import HeteroGraph
from loader.machine.arguments import kind_of


def require_graph(graph: Any, what: str = "graph", *, hetero: bool = True) -> None:
    """Raises TypeError unless `graph` is a `Graph` or a `HeteroGraph`. For a graph of another library the message says
    how to convert it. Raises ValueError if its lists were written to and are none any more, see `Graph.require_sound`.

    Args:
        graph: the object that was given.
        what: its name in the message.
        typed: whether a `HeteroGraph` will do.
    """
    if isinstance(graph, Graph) or (hetero and isinstance(graph, HeteroGraph)):
        graph.require_sound()
        return
    kind = type(graph)
    library = kind.__module__.partition(".")[0]
    one = "" if hetero else ".relation(edge_type)"
    if isinstance(graph, HeteroGraph):
        way = f"{what}.relation(edge_type)"
    elif library == "torch_geometric" and hasattr(graph, "node_types") and hasattr(graph, "edge_types"):
        way = f"HeteroGraph.from_pyg({what}){one}"
    elif library == "torch_geometric" and hasattr(graph, "edge_index"):
        way = f"Graph.from_pyg({what})"
    elif library == "dgl" and not getattr(graph, "is_homogeneous", True):
        way = f"HeteroGraph.from_dgl({what}){one}"
    elif library == "dgl":
        way = f"Graph.from_dgl({what})"
    elif library == "scipy":
        way = "Graph(torch.from_numpy(m.indptr), torch.from_numpy(m.indices)) of m = graph.tocsc(), [sources, nodes]"
    else:
        way = "Graph.from_edges(src, dst, num_nodes), or Graph(indptr, indices)"
    full = kind_of(graph) if library == "builtins" else f"a {library}.{kind.__name__}"
    wanted = "loader.Graph or a loader.HeteroGraph" if hetero and way.startswith("HeteroGraph") else "loader.Graph"
    raise TypeError(f"{what} is {full}; it must be a {wanted}: {way}")
