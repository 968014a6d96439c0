"""Graphs with several types of nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from loader.graph.checks import MAX_VERTICES, check_length, check_range, check_weights, integer_vector, weight_vector
from loader.graph.csc import Graph
from loader.graph.placement import Placement
from loader.machine.arguments import as_flag, as_size, shown

EdgeType = tuple[str, str, str]

MAX_TYPES = 64  # of nodes: their bounds are arguments of the kernels
MAX_RELATIONS = 1024


class HeteroGraph:
    """A directed graph with types of nodes and of edges.

    An edge type, or relation, is a triple `(source type, name, destination type)`. The nodes of all types are numbered
    in one range of ids, type after type in the order of `node_types`: node `i` of a type has the id
    `node_types[type].start + i`. A node has one list of in-neighbors for each relation into its type, in the order of
    `edge_types`. The order of the relations decides what is sampled, as that of the nodes does.

    Make one by `from_edges`, `from_pyg`, `from_dgl` or `of`.

    Args:
        lists: the lists of all nodes, node after node and within a node relation after relation; sources are ids of the
            one range.
        num_nodes: node type -> number of nodes.
        edge_types: the relations.

    Attributes:
        lists: a `Graph` with a row for each node and relation into its type. `lists.edge_ids`, if there are any, are
            places among the edges of a relation as they were given.
        node_types: node type -> `range` of ids.
        edge_types: the relations, in order.
        relations_into: node type -> numbers of the relations into it, ascending; the place of a relation there is its
            slot.
        first_row: node type -> row of the first list of its first node.

    Raises:
        TypeError: a name is no text, or a relation no triple of names.
        ValueError: a relation names an unknown type, or comes twice; there are more than 64 types or 1,024 relations.
    """

    def __init__(self, lists: Graph, num_nodes: Mapping[str, int], edge_types: Sequence[EdgeType]) -> None:
        sizes = check_node_types(num_nodes)
        self.edge_types = check_edge_types(edge_types, sizes)
        self.node_types: dict[str, range] = {}
        self.relations_into: dict[str, tuple[int, ...]] = {}
        self.first_row: dict[str, int] = {}
        end = rows = 0
        for name, size in sizes.items():
            self.node_types[name] = range(end, end + size)
            self.relations_into[name] = tuple(r for r, (_, _, dst) in enumerate(self.edge_types) if dst == name)
            self.first_row[name] = rows
            end += size
            rows += size * len(self.relations_into[name])
        if lists.num_src != end or lists.num_dst != rows:
            raise ValueError(
                f"lists has {lists.num_dst} rows of {lists.num_src} sources; the types and relations have {rows} rows "
                f"of {end} nodes"
            )
        self.lists = lists

    @classmethod
    def from_edges(
        cls,
        edges: Mapping[EdgeType, Tensor],
        num_nodes: Mapping[str, int],
        *,
        edge_weights: Mapping[EdgeType, Tensor] | None = None,
        keep_edge_ids: bool = True,
    ) -> HeteroGraph:
        """Builds the lists of the edges of each relation; lists are sorted by source.

        Args:
            edges: relation -> `[2, num_edges]`, integer, sources and destinations, numbered within their types.
            num_nodes: node type -> number of nodes.
            edge_weights: relation -> `[num_edges]`, float32 or float64; a relation that is not named has weights of 1.
            keep_edge_ids: keep the place of each edge in its relation as its id, which samplers return. Without it an
                edge's id is its place in `lists.indices`.
        """
        sizes = check_node_types(num_nodes)
        relations = check_edge_types(list(edges), sizes)
        weights = {} if edge_weights is None else dict(edge_weights)
        for key in weights:
            if key not in edges:
                raise ValueError(f"edge_weights names {key!r}, which is no relation; the relations are {list(edges)}")
        into = {name: [r for r, (_, _, dst) in enumerate(relations) if dst == name] for name in sizes}
        first, rows, end, row = {}, {}, 0, 0
        for name, size in sizes.items():
            first[name], rows[name] = end, row
            end, row = end + size, row + size * len(into[name])
        src, dst, ids, masses = [], [], [], []
        wide = any(w.dtype == torch.float64 for w in weights.values() if isinstance(w, Tensor))
        for r, (key, pairs) in enumerate(edges.items()):
            source, name, target = relations[r]
            label = f"edges[{key!r}]"
            if not isinstance(pairs, Tensor) or pairs.dim() != 2 or pairs.shape[0] != 2:
                raise ValueError(f"{label} is {shown(pairs)}; it must be a tensor [2, num_edges]")
            u, v = (
                integer_vector(f"{label}[0]", pairs[0], pairs.device),
                integer_vector(f"{label}[1]", pairs[1], pairs.device),
            )
            check_range(f"{label}[0]", u, sizes[source])
            check_range(f"{label}[1]", v, sizes[target])
            slot = into[target].index(r)
            src.append(u.long() + first[source])
            dst.append(rows[target] + v.long() * len(into[target]) + slot)
            if as_flag("keep_edge_ids", keep_edge_ids):
                ids.append(torch.arange(u.numel(), device=u.device))
            if weights:
                weight = weights.get(key)
                if weight is None:
                    weight = torch.ones(u.numel(), device=u.device)
                weight = weight_vector(weight, u.device)
                check_length(f"edge_weights[{key!r}]", weight, u.numel(), f"{label} has {u.numel()}")
                check_weights(weight, u, dst=v)
                masses.append(weight.double() if wide else weight)
        none = torch.empty(0, dtype=torch.int64)
        graph = Graph.from_edges(
            torch.cat(src) if src else none,
            torch.cat(dst) if dst else none,
            row,
            num_src=end,
            keep_edge_ids=keep_edge_ids,
            edge_weights=torch.cat(masses) if masses else None,
        )
        if graph.edge_ids is not None and ids:
            graph.edge_ids = torch.cat(ids)[graph.edge_ids]
        return cls(graph, sizes, relations)

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all types."""
        return self.lists.num_src

    @property
    def num_edges(self) -> int:
        """Number of edges of all relations."""
        return self.lists.num_edges

    @property
    def device(self) -> torch.device:
        return self.lists.device

    @property
    def placement(self) -> dict[str, Placement]:
        """Where each array of the lists lies, by name."""
        return self.lists.placement

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Node types and edge types, as torch_geometric's models take them."""
        return list(self.node_types), list(self.edge_types)

    def to(self, device: torch.device | str) -> HeteroGraph:
        """The same graph on a device."""
        return self._with(self.lists.to(device))

    def pin_memory(self) -> HeteroGraph:
        """The same graph in page-locked host memory, see `Graph.pin_memory`."""
        return self._with(self.lists.pin_memory())

    def require_sound(self) -> None:
        """See `Graph.require_sound`."""
        self.lists.require_sound()

    def state(self) -> tuple[int, ...]:
        """See `Graph.state`."""
        return self.lists.state()

    def _with(self, lists: Graph) -> HeteroGraph:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, lists=lists)
        return other

    def __repr__(self) -> str:
        sizes = {name: len(ids) for name, ids in self.node_types.items()}
        return (
            f"HeteroGraph(num_nodes={sizes}, edge_types={list(self.edge_types)}, num_edges={self.num_edges}, "
            f"device='{self.device}')"
        )


def check_node_types(num_nodes: Any) -> dict[str, int]:
    """Node type -> number of nodes; raises TypeError or ValueError if it is none."""
    if not isinstance(num_nodes, Mapping):
        raise TypeError(f"num_nodes is {shown(num_nodes)}; it must be a dict: node type -> number of nodes")
    for name in num_nodes:
        if not isinstance(name, str):
            raise TypeError(f"num_nodes has the key {name!r}; the name of a type must be a string")
    sizes = {name: as_size(f"num_nodes[{name!r}]", n, 0, MAX_VERTICES) for name, n in num_nodes.items()}
    if not 1 <= len(sizes) <= MAX_TYPES:
        raise ValueError(f"num_nodes has {len(sizes)} types; 1 to {MAX_TYPES} are possible")
    if sum(sizes.values()) > MAX_VERTICES:
        raise ValueError(f"num_nodes has {sum(sizes.values())} nodes; at most {MAX_VERTICES} are possible")
    return sizes


def check_edge_types(edge_types: Any, sizes: Mapping[str, int]) -> tuple[EdgeType, ...]:
    """The relations; raises TypeError or ValueError if they are none of these types, or one comes twice."""
    found: list[EdgeType] = []
    for key in edge_types:
        if not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key)):
            raise TypeError(f"edge type {shown(key)} is no triple of names (source type, name, destination type)")
        for name in (key[0], key[2]):
            if name not in sizes:
                raise ValueError(f"edge type {key!r} names the node type {name!r}; the node types are {list(sizes)}")
        if key in found:
            raise ValueError(f"edge type {key!r} comes twice; give each relation once")
        found.append(key)
    if len(found) > MAX_RELATIONS:
        raise ValueError(f"there are {len(found)} edge types; at most {MAX_RELATIONS} are possible")
    return tuple(found)
