"""Graphs with several types of nodes and edges."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from loader.graph.checks import MISSING_TIME, check_room
from loader.graph.csc import Graph, list_order
from loader.graph.hetero_interop import dgl_relations, pyg_relations, relations_of_graph
from loader.graph.placement import Placement
from loader.graph.relations import (
    EdgeType,
    Labels,
    check_edge_types,
    check_edge_weights,
    check_edges,
    check_node_types,
    check_sources,
    reversed_type,
)
from loader.graph.times import TimedLists, check_edge_times, check_node_times, lists_by_time
from loader.machine.arguments import as_flag, kind_of, shown

_INT32_MAX = 2**31 - 1

# The arrays by edge of one relation, list after list: "indices", ids within the source type, and those of a Graph.
Contents = Callable[[int], Mapping[str, Tensor]]


class HeteroGraph:
    """A directed graph with types of nodes and of edges.

        HeteroGraph.from_edges({("author", "writes", "paper"): edge_index}, {"author": 50, "paper": 80})

    An edge type, or relation, is a triple `(source type, name, destination type)`. The nodes of all types are numbered
    in one range of ids, type after type in the order of `node_types`: node `i` of a type has the id
    `node_types[type].start + i`. A node has one list of in-neighbors for each relation into its type, in the order of
    `edge_types`. The order of the types and of the relations decides what is sampled, as the order of the nodes does.

    Make one by `from_edges`, `from_pyg`, `from_dgl` or `of`.

    Args:
        lists: the lists of all nodes, node after node and within a node relation after relation; sources are ids of the
            one range.
        num_nodes: node type -> number of nodes.
        edge_types: the relations.
        timed_types, timed_relations: whose nodes and edges the times of `lists` belong to; None: all of them.

    Attributes:
        lists: a `Graph` with a row for each node and relation into its type, see `rows`. Its `edge_ids`, if there are
            any, number the edges of each relation: `from_edges` sets them to their places there.
        node_types: node type -> `range` of ids.
        edge_types: the relations, in order.
        relations_into: node type -> numbers of the relations into it, ascending; the place of a relation there is its
            slot.
        first_row: node type -> row of the first list of its first node.
        timed_types, timed_relations: the node types whose nodes have times, and the relations whose edges have times,
            in order. The times are in `lists.node_times` and `lists.edge_times`, int64. There, -2^63 means that the
            time is missing, or that the node type or relation has no times.

    Raises:
        TypeError: a name is no text, or a relation no triple of names.
        ValueError: a relation names an unknown type, or comes twice; there are more than 64 types or 1,024 relations;
            the lists have other sizes, or sources of another type than their relation's.
    """

    def __init__(
        self,
        lists: Graph,
        num_nodes: Mapping[str, int],
        edge_types: Sequence[EdgeType],
        *,
        timed_types: Collection[str] | None = None,
        timed_relations: Collection[EdgeType] | None = None,
    ) -> None:
        if not isinstance(lists, Graph):
            raise TypeError(
                f"lists is {kind_of(lists)}; it must be a Graph with a row per node and relation: of edges, "
                "HeteroGraph.from_edges makes them"
            )
        self._number(num_nodes, edge_types)
        nodes, rows = self._sizes()
        if lists.num_src != nodes or lists.num_dst != rows:
            raise ValueError(
                f"lists has {lists.num_dst} rows of {lists.num_src} sources; the types and relations have {rows} rows "
                f"of {nodes} nodes: of edges, HeteroGraph.from_edges makes the lists"
            )
        self.lists = lists
        self._set_timed(timed_types, timed_relations)
        self._sound: tuple[int, ...] | None = None  # the state in which sources were of the right types
        self.require_sound()

    def _number(self, num_nodes: Mapping[str, int], edge_types: Any) -> None:
        """Sets all attributes but the lists."""
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

    def _set_timed(self, types: Collection[str] | None, relations: Collection[EdgeType] | None) -> None:
        """Sets whose nodes and edges have times; the lists are set."""
        for what, given, known, times in (
            ("timed_types", types, self.node_types, self.lists.node_times),
            ("timed_relations", relations, self.edge_types, self.lists.edge_times),
        ):
            if unknown := [name for name in given or () if name not in known]:
                raise ValueError(f"{what} names {shown(unknown[0])}; there are {list(known)}")
            if given and times is None:
                raise ValueError(
                    f"{what} is {shown(given)}, but lists has no {'node' if given is types else 'edge'}_times"
                )
        has_nodes, has_edges = self.lists.node_times is not None, self.lists.edge_times is not None
        self.timed_types = tuple(n for n in self.node_types if has_nodes and (types is None or n in types))
        self.timed_relations = tuple(k for k in self.edge_types if has_edges and (relations is None or k in relations))
        self._by_time: dict[tuple[str, str], tuple[tuple[int, ...], TimedLists]] = {}

    @classmethod
    def _made(
        cls,
        num_nodes: Mapping[str, int],
        edge_types: Sequence[EdgeType],
        degrees: Sequence[Tensor],
        dtypes: Mapping[str, torch.dtype],
        contents: Contents,
        device: torch.device,
        node_times: Tensor | None = None,
        timed_types: Collection[str] | None = None,
        timed_relations: Collection[EdgeType] | None = None,
    ) -> HeteroGraph:
        """The graph of relations whose arrays are made one after the other, so that few of them are in memory.

        Args:
            degrees: of each relation the lengths of its lists.
            dtypes: array by edge -> its type of number; without `indices`.
            contents: number of a relation -> its arrays.
            timed_types, timed_relations: see the class.
        """
        graph = object.__new__(cls)
        graph._number(num_nodes, edge_types)
        nodes, rows = graph._sizes()
        indptr = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        for key, lengths in zip(graph.edge_types, degrees, strict=True):
            indptr[1:][graph.rows(key)] = lengths
        torch.cumsum(indptr, 0, out=indptr)
        num_edges = int(indptr[-1])
        narrow = torch.int32 if max(nodes, rows) <= _INT32_MAX else torch.int64
        arrays: dict[str, Any] = {
            name: torch.empty(num_edges, dtype=dtype, device=device)
            for name, dtype in {"indices": narrow, **dtypes}.items()
        }
        for r, key in enumerate(graph.edge_types):
            places = _places(indptr, graph.rows(key))
            for name, array in contents(r).items():
                array = array.detach().to(arrays[name].dtype)  # weights decide the picks, and get no gradient
                arrays[name][places] = array + graph.node_types[key[0]].start if name == "indices" else array
        graph.lists = Graph(indptr, num_src=nodes, node_times=node_times, validate=False, **arrays)
        graph._set_timed(timed_types, timed_relations)
        graph._sound = graph.lists._state()
        return graph

    @classmethod
    def from_edges(
        cls,
        edges: Mapping[EdgeType, Tensor],
        num_nodes: Mapping[str, int],
        *,
        edge_weights: Mapping[EdgeType, Tensor] | None = None,
        node_times: Mapping[str, Tensor] | None = None,
        edge_times: Mapping[EdgeType, Tensor] | None = None,
        keep_edge_ids: bool = True,
    ) -> HeteroGraph:
        """Builds the lists of the edges of each relation; lists are sorted by source.

        Parallel edges and self loops are kept; parallel edges keep their order. There may be types without nodes and
        relations without edges.

        Args:
            edges: relation -> `[2, num_edges]`, integer, sources and destinations, numbered within their types.
            num_nodes: node type -> number of nodes.
            edge_weights: relation -> `[num_edges]`, float32 or float64, finite and at least 0; the edges of a relation
                that is not named have weights of 1.
            node_times: node type -> `[num_nodes]`, when each node of the type came to be, in any unit: integers, or
                floats that are whole numbers. A missing time is NaN, or -2^63 (NumPy's NaT). The nodes of a type that
                is not named have no times, and were always there.
            edge_times: relation -> `[num_edges]`, times of the edges, as `node_times`.
            keep_edge_ids: keep the place of each edge in its relation as its id, which samplers return. Without it an
                edge's id is its place in `lists.indices`.

        Raises:
            TypeError: a name is no text, an edge type no triple, or an array is no tensor of that kind of numbers.
            ValueError: the arrays contradict each other or lie on several devices; the message names the first
                offending value.
        """
        return cls._of_edges(
            edges,
            num_nodes,
            edge_weights,
            node_times,
            edge_times,
            keep_edge_ids,
            Labels(),
        )

    @classmethod
    def _of_edges(
        cls,
        edges: Mapping[EdgeType, Tensor],
        num_nodes: Mapping[str, int],
        weights: Mapping[EdgeType, Tensor] | None,
        node_times: Mapping[str, Tensor] | None,
        edge_times: Mapping[EdgeType, Tensor] | None,
        keep_edge_ids: bool,
        labels: Labels,
    ) -> HeteroGraph:
        """`from_edges`, with other names for the arrays in the messages."""
        sizes = check_node_types(num_nodes)
        found, device = check_edges(edges, sizes, labels.edges)
        dtypes = {"edge_ids": torch.int64} if as_flag("keep_edge_ids", keep_edge_ids) else {}
        if weights is not None:
            dtypes["edge_weights"] = check_edge_weights(weights, found, device, labels.edge_weights)
        of_nodes = check_node_times(node_times or {}, sizes, device, labels.node_times)
        of_edges = check_edge_times(edge_times or {}, found, device, labels.edge_times)
        all_times = None
        if of_nodes:
            unknown = torch.tensor(MISSING_TIME, device=device)
            all_times = torch.cat([of_nodes.get(name, unknown.expand(size)) for name, size in sizes.items()])
        if of_edges:
            dtypes["edge_times"] = torch.int64
        relations = list(found)

        def contents(r: int) -> dict[str, Tensor]:
            key = relations[r]
            src, dst = found[key]
            order = list_order(src, dst, sizes[key[0]], sizes[key[2]])
            arrays = {"indices": src[order]}
            if "edge_ids" in dtypes:
                arrays["edge_ids"] = order
            if weights is not None:
                weight = weights.get(key)
                arrays["edge_weights"] = order.new_ones(()).expand(order.numel()) if weight is None else weight[order]
            if of_edges:
                times = of_edges.get(key)
                arrays["edge_times"] = order.new_full(order.shape, MISSING_TIME) if times is None else times[order]
            return arrays

        check_room(f"num_nodes is {shown(dict(sizes))}", sum(sizes[key[2]] for key in found))
        degrees = [torch.bincount(dst, minlength=sizes[key[2]]) for key, (_, dst) in found.items()]
        return cls._made(sizes, relations, degrees, dtypes, contents, device, all_times, of_nodes, of_edges)

    @classmethod
    def from_pyg(cls, data: Any, *, weight_attr: str | None = None, time_attr: str | None = None) -> HeteroGraph:
        """The graph of a `torch_geometric.data.HeteroData`, with its types and relations in their order.

        An edge's id is its place in `data[edge_type].edge_index`.

        Args:
            data: has `edge_index` `[2, num_edges]`, or `adj_t` (then ids are places of its entries), for each edge
                type, and `num_nodes` for each node type.
            weight_attr: name of the edge weights, `[num_edges]`. The edges of a relation without them have weights
                of 1.
            time_attr: name of the times, of the nodes of types `[num_nodes]` and of the edges of relations
                `[num_edges]`, see `from_edges`.

        Raises:
            TypeError: `data` is no `HeteroData`, or an attribute is no tensor.
            ValueError: an attribute is missing; and as `from_edges`.
        """
        return cls._of_edges(**pyg_relations(data, weight_attr, time_attr))

    @classmethod
    def from_dgl(cls, g: Any, *, weight_attr: str | None = None) -> HeteroGraph:
        """The graph of a `dgl.DGLGraph`, with its types and relations in their order; an edge's id is DGL's.

        Args:
            g: of one or several types; no block.
            weight_attr: name of the edge weights in `g.edges[edge_type].data`, `[num_edges]`, or of a mask: weights of
                1 and 0. The edges of a relation without them have weights of 1.

        Raises:
            TypeError: `g` is no graph of DGL.
            ValueError: an attribute is missing; and as `from_edges`.
        """
        return cls._of_edges(**dgl_relations(g, weight_attr))

    @classmethod
    def of(cls, graph: Graph) -> HeteroGraph:
        """The typed form of a `Graph` with `node_types` and `edge_types`: nodes keep their numbers.

        There is a relation for each (source type, edge type, destination type) that occurs. Its name is the number of
        the edge type, as in `("author", "0", "paper")`, or "to" if the graph has no `edge_types`. Relations are sorted
        by edge type, then by the order of their source type, then by that of their destination type. Without
        `node_types` all nodes are of a type "node".

        Lists keep their order. Edges keep their ids, or get their places in `graph.indices` as ids. Weights and times
        are kept.

        Raises:
            TypeError: it is no `Graph`.
            ValueError: its sources and destinations are different nodes; it has more than 64 types of nodes, or 1,024
                relations.
        """
        return cls._made(**relations_of_graph(graph))

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
        """The device of `lists.indices`; `placement` says it of each array."""
        return self.lists.device

    @property
    def placement(self) -> dict[str, Placement]:
        """Where each array of the lists lies, by name."""
        return self.lists.placement

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Node types and edge types, as torch_geometric's models take them."""
        return list(self.node_types), list(self.edge_types)

    def rows(self, edge_type: EdgeType) -> slice:
        """The rows of `lists` that a relation has: one for each node of its destination type.

        Raises:
            ValueError: the graph has no such relation.
        """
        if edge_type not in self.edge_types:
            raise ValueError(
                f"edge type {shown(edge_type)} is no relation of the graph; its relations are {list(self.edge_types)}"
            )
        into = self.relations_into[edge_type[2]]
        first = self.first_row[edge_type[2]]
        slot = into.index(self.edge_types.index(edge_type))
        return slice(first + slot, first + len(self.node_types[edge_type[2]]) * len(into), len(into))

    def in_degrees(self, edge_type: EdgeType) -> Tensor:
        """`[nodes of the destination type]`, the lengths of a relation's lists; dtype of `lists.indptr`."""
        return self.lists.in_degrees()[self.rows(edge_type)]

    def relation(self, edge_type: EdgeType) -> Graph:
        """A copy of one relation, with nodes numbered within their types.

        Returns:
            A bipartite graph of the destination type's nodes and the source type's; a square one if they are the same
            type. It lies on the device of `lists.indices`. Lists keep their order. Edges keep their ids, which are
            places in `lists.indices` if the lists have none, and their weights and times.

        Raises:
            ValueError: the graph has no such relation.
        """
        lists, device = self.lists, self.lists.device
        rows, of = self.rows(edge_type), self.node_types[edge_type[0]]
        indptr = lists.indptr.to(device)
        places = _places(indptr, rows)

        def taken(array: Tensor | None) -> Tensor | None:
            return None if array is None else array[places.to(array.device)].to(device)

        lengths = (indptr[1:] - indptr[:-1])[rows]
        made = Graph(
            torch.cat([lengths.new_zeros(1), lengths.cumsum(0, dtype=indptr.dtype)]),
            lists.indices[places] - of.start,
            num_src=len(of),
            edge_ids=places.to(indptr.dtype) if lists.edge_ids is None else taken(lists.edge_ids),
            edge_weights=taken(lists.edge_weights),
            edge_times=taken(lists.edge_times) if edge_type in self.timed_relations else None,
            node_times=self._node_times(edge_type[0]),
            validate=False,
        )
        made._of_two_types = edge_type[0] != edge_type[2]
        return made

    def _node_times(self, node_type: str) -> Tensor | None:
        if node_type not in self.timed_types:
            return None
        assert self.lists.node_times is not None
        of = self.node_types[node_type]
        return self.lists.node_times[of.start : of.stop].to(self.device)

    def entries(self, edge_type: EdgeType) -> tuple[Tensor, Tensor]:
        """The places of a relation's entries in the arrays by edge, and their destinations' ids within the type.

        Returns:
            Two tensors `[num_edges]` int64, list after list, on the device of `lists.indices`.

        Raises:
            ValueError: the graph has no such relation.
        """
        rows, indptr = self.rows(edge_type), self.lists.indptr.to(self.device)
        lengths = (indptr[1:] - indptr[:-1])[rows].long()
        return _places(indptr, rows), torch.arange(lengths.numel(), device=self.device).repeat_interleave(lengths)

    def by_time(self, times: str = "both", missing_times: str = "error") -> TimedLists:
        """The lists in the order of time, as samplers by time read them. They are made once and kept.

        Args:
            times: whose times count, "node", "edge" or "both". An entry of a list is visible from the later of the
                times that count on.
            missing_times: what a missing time means: "error" refuses it, "always" makes it earlier than all others,
                "never" hides the entry.

        Raises:
            ValueError: there are no such options; the graph has no such times; a time is missing.
        """
        found = self._by_time.get((times, missing_times))
        if found is None or found[0] != self.state():
            found = self.state(), lists_by_time(self, times, missing_times)
            self._by_time[times, missing_times] = found
        return found[1]

    def place_by_time(self, times: str, missing_times: str, **arrays: Placement | torch.device | str) -> HeteroGraph:
        """The same graph, with arrays of its lists in the order of time at other places, see `Graph.place`.

        The lists themselves stay where they are: samplers by these times do not read them.

        Args:
            times, missing_times: see `by_time`.
        """
        timed = self.by_time(times, missing_times)
        other = self._with(self.lists)
        placed = dataclasses.replace(timed, lists=timed.lists.place(**arrays))
        other._by_time[times, missing_times] = other.state(), placed
        return other

    def reverse(self) -> HeteroGraph:
        """The graph with every edge turned round: relation `(s, n, d)` becomes `(d, "rev_" + n, s)`.

        The reverse of a relation whose name begins with `rev_` loses that. Types and relations keep their order, edges
        their ids, weights and times. Lists are sorted.

        Raises:
            ValueError: two relations would get the same name.
        """
        edge_types = [reversed_type(key) for key in self.edge_types]
        if len({*edge_types}) < len(edge_types):
            same = next(key for key in edge_types if edge_types.count(key) > 1)
            twice = [key for key in self.edge_types if reversed_type(key) == same]
            raise ValueError(
                f"the reverses of {twice[0]!r} and {twice[1]!r} would both be {same!r}; rename one of them"
            )
        turned = [self.relation(key).reverse() for key in self.edge_types]
        lists = self.lists
        ids = lists.indptr if lists.edge_ids is None else lists.edge_ids
        arrays = {"edge_ids": ids, "edge_weights": lists.edge_weights, "edge_times": lists.edge_times}
        dtypes = {name: array.dtype for name, array in arrays.items() if array is not None}

        def contents(r: int) -> dict[str, Tensor]:
            of = turned[r]
            arrays = {name: getattr(of, name) for name in ("indices", *dtypes)}
            if "edge_times" in arrays and arrays["edge_times"] is None:
                arrays["edge_times"] = torch.full_like(of.indices, MISSING_TIME, dtype=torch.int64)
            return arrays

        return self._made(
            {name: len(ids) for name, ids in self.node_types.items()},
            edge_types,
            [one.in_degrees() for one in turned],
            dtypes,
            contents,
            self.device,
            None if lists.node_times is None else lists.node_times.to(self.device),
            self.timed_types,
            [reversed_type(key) for key in self.timed_relations],
        )

    def place(
        self, where: Placement | torch.device | str | None = None, /, **arrays: Placement | torch.device | str
    ) -> HeteroGraph:
        """The same graph with the arrays of its lists at other places, see `Graph.place`."""
        return self._with(self.lists.place(where, **arrays))

    def to(self, device: torch.device | str) -> HeteroGraph:
        """The same graph on `device`, or this one if all of it lies there, see `Graph.to`."""
        lists = self.lists.to(device)
        return self if lists is self.lists else self._with(lists)

    def pin_memory(self) -> HeteroGraph:
        """The same graph in page-locked host memory, see `Graph.pin_memory`."""
        return self._with(self.lists.pin_memory())

    def require_sound(self) -> None:
        """Checks the lists again if they were written to or replaced, see `Graph.require_sound`.

        Raises:
            ValueError: they are no lists of these nodes any more, or have a source of another type than the relation's.
        """
        self.lists.require_sound()
        if self._sound != (state := self.lists._state()):
            blocks = [
                (self.first_row[name], len(ids), [self.edge_types[r] for r in self.relations_into[name]])
                for name, ids in self.node_types.items()
            ]
            check_sources(self.lists, self.node_types, blocks)
            self._sound = state

    def state(self) -> tuple[int, ...]:
        """Numbers that change when an array of the lists does, see `Graph.state`."""
        return self.lists.state()

    def _sizes(self) -> tuple[int, int]:
        """Number of nodes and of rows."""
        rows = sum(len(ids) * len(self.relations_into[name]) for name, ids in self.node_types.items())
        return sum(map(len, self.node_types.values())), rows

    def _with(self, lists: Graph) -> HeteroGraph:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, lists=lists, _by_time={})
        other._sound = lists._state() if self._sound == self.lists._state() else None
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sound": self._sound == self.lists._state(), "_by_time": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sound = self.lists._state() if state["_sound"] else None

    def __copy__(self) -> HeteroGraph:
        return self._with(copy.copy(self.lists))

    def __repr__(self) -> str:
        sizes = {name: len(ids) for name, ids in self.node_types.items()}
        return (
            f"HeteroGraph(num_nodes={sizes}, edge_types={list(self.edge_types)}, num_edges={self.num_edges}, "
            f"device='{self.device}')"
        )


def _places(indptr: Tensor, rows: slice) -> Tensor:
    """`[num_edges]` int64: the places, in the arrays by edge, of the entries of these rows, row by row."""
    begins, lengths = indptr[:-1][rows].long(), (indptr[1:] - indptr[:-1])[rows].long()
    shifts = begins - (lengths.cumsum(0) - lengths)
    places = shifts.repeat_interleave(lengths)
    return places.add_(torch.arange(places.numel(), device=places.device))
