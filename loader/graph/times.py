"""Times of a graph's nodes and edges: the lists in the order of time, and what a bound lets see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from loader.graph.checks import MISSING_TIME, check_length, time_vector
from loader.graph.csc import Graph, list_order
from loader.graph.relations import EdgeType
from loader.machine.arguments import as_size, shown

TIMES = ("node", "edge", "both")
RULES = ("<=", "<")
MISSING_TIMES = ("error", "always", "never")
_NEVER = 2**31 - 1  # rank of what no bound lets see
_ALWAYS = -1


class _GraphWithTimes(Protocol):
    """What is read of a `HeteroGraph`, which asks for its lists by time."""

    lists: Graph
    node_types: dict[str, range]
    edge_types: tuple[EdgeType, ...]
    relations_into: dict[str, tuple[int, ...]]
    timed_types: tuple[str, ...]
    timed_relations: tuple[EdgeType, ...]

    @property
    def num_nodes(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    def entries(self, edge_type: EdgeType) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, eq=False)
class TimedLists:
    """The lists of a `HeteroGraph` in the order of time. `HeteroGraph.by_time` makes it.

    The time of an entry of a list is the later of its edge's time and its source's time, of those that count. Entries
    are in the order (time, source, edge id). The lists of a relation whose entries have no times that count keep the
    order of the graph, and all of them is visible at any time.

    Attributes:
        lists: as `HeteroGraph.lists`, in this order, with edge ids. It lies where the graph does; arrays that were in
            files are in ordinary memory.
        ranks: `[num_edges]` int32, the place of each entry's time in `values`. -1: the time is missing, and the entry
            is always visible; 2^31 - 1: it never is. Entries of relations that are always visible have 0.
        values: `[num_values]` int64, the distinct times of all entries, ascending.
        always: `[num_relations]` bool, on the CPU: whether the relation is visible at any time. Relations are in the
            order of their lists: type after type those into it.
        times: whose times count, "node", "edge" or "both".
        missing_times: what a missing time means, "error" (there is none), "always" or "never".
    """

    lists: Graph
    ranks: Tensor
    values: Tensor
    always: Tensor
    times: str
    missing_times: str

    def bounds(
        self, times: Tensor, rule: str = "<=", window: int | None = None, name: str = "times"
    ) -> tuple[Tensor, Tensor]:
        """What trees of these times may see, as ranks: entries with `first <= rank < end`.

        Args:
            times: `[n]`, integers or whole floats, of the seeds.
            rule: "<=" shows what is not later, "<" what is earlier.
            window: show only what is later than `times - window`, or None.
            name: of the times, in messages.

        Returns:
            `first` and `end`, `[n]` int32 on the device of `lists`. Without a window, `first` is not above any rank.

        Raises:
            TypeError: the times are no vector of numbers.
            ValueError: a time is missing or no whole number; there is no such rule; the window is less than 1, or goes
                with `missing_times="always"`.
        """
        check_rule(rule, window, self.missing_times)
        return self.ranks_of(seed_times(times, name).to(self.values.device), rule, window)

    def ranks_of(self, at: Tensor, rule: str, window: int | None) -> tuple[Tensor, Tensor]:
        """`bounds` of times that were checked; so a GPU is not waited for."""
        end = torch.searchsorted(self.values, at, right=rule == "<=", out_int32=True)
        if window is None:
            return torch.full_like(end, _ALWAYS if self.missing_times == "always" else 0), end
        since = torch.where(at < MISSING_TIME + window, MISSING_TIME, at - window)
        return torch.searchsorted(self.values, since, right=True, out_int32=True), end


def check_rule(rule: str, window: int | None, missing_times: str = "error") -> None:
    """Raises TypeError or ValueError unless there is such a rule, and such a window."""
    if rule not in RULES:
        raise ValueError(f"rule is {shown(rule)}; it must be one of {', '.join(map(repr, RULES))}")
    if window is None:
        return
    as_size("window", window, 1, 2**63 - 1)
    if missing_times == "always":
        raise ValueError(
            f"window is {window} and missing_times is 'always'; what has no time lies in no window: "
            "missing_times='never', or no window"
        )


def check_times(times: str, missing_times: str) -> None:
    """Raises ValueError unless there are such options."""
    for name, value, known in (("times", times, TIMES), ("missing_times", missing_times, MISSING_TIMES)):
        if value not in known:
            raise ValueError(f"{name} is {shown(value)}; it must be one of {', '.join(map(repr, known))}")


def as_times(name: str, times: Any) -> Tensor:
    """Times as a tensor, also of a list or an array. Floats of a list stay 64 bits wide: float32 has seconds since 1970
    to a multiple of 128.

    Raises:
        TypeError: they are none of these.
    """
    try:
        return times if isinstance(times, Tensor) else torch.as_tensor(np.asarray(times))
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} is {shown(times)}; it must be a tensor or a list of times, [n]") from None


def seed_times(times: Tensor, name: str = "times") -> Tensor:
    """`[n]` int64: the times of seeds; raises TypeError or ValueError if there are none, or one is missing."""
    found = time_vector(name, times, times.device if isinstance(times, Tensor) else torch.device("cpu"))
    if missing := int((found == MISSING_TIME).sum()):
        first = int((found == MISSING_TIME).nonzero()[0])
        raise ValueError(
            f"{name} has {missing} missing times of {found.numel()}, the first at {first}; a seed needs a time: leave "
            "it out, or give it one"
        )
    return found


def check_node_times(
    times: Any, sizes: Mapping[str, int], device: torch.device, label: Callable[[str], str]
) -> dict[str, Tensor]:
    """Node type -> `[nodes of the type]` int64; raises TypeError or ValueError if they are no times of these types.

    Args:
        label: what a message calls the times of a type.
    """
    if not isinstance(times, Mapping):
        raise TypeError(f"node_times is {shown(times)}; it must be a dict: node type -> [num_nodes]")
    if unknown := [name for name in times if name not in sizes]:
        raise ValueError(f"node_times names {shown(unknown[0])}, which is no node type; there are {list(sizes)}")
    found = {name: time_vector(label(name), of, device) for name, of in times.items()}
    for name, of in found.items():
        check_length(label(name), of, sizes[name], f"the type has {sizes[name]} nodes")
    return found


def check_edge_times(
    times: Any,
    edges: Mapping[EdgeType, tuple[Tensor, Tensor]],
    device: torch.device,
    label: Callable[[EdgeType], str],
) -> dict[EdgeType, Tensor]:
    """Relation -> `[num_edges]` int64; raises TypeError or ValueError if they are no times of these relations.

    Args:
        edges: relation -> sources and destinations.
        label: what a message calls the times of a relation.
    """
    if not isinstance(times, Mapping):
        raise TypeError(f"edge_times is {shown(times)}; it must be a dict: edge type -> [num_edges]")
    if unknown := [key for key in times if key not in edges]:
        raise ValueError(f"edge_times names {shown(unknown[0])}, which is no relation; there are {list(edges)}")
    found = {key: time_vector(label(key), of, device) for key, of in times.items()}
    for key, of in found.items():
        check_length(label(key), of, edges[key][0].numel(), f"the relation has {edges[key][0].numel()} edges")
    return found


class _Relation(NamedTuple):
    """One relation whose entries have times that count.

    Attributes:
        places: `[E]` of its entries in the arrays by edge.
        rows: `[E]` numbers of their lists.
        times: `[E]` int64; `MISSING_TIME` where none is known.
        never: `[E]` bool, or None: entries that are never visible.
    """

    key: EdgeType
    places: Tensor
    rows: Tensor
    times: Tensor
    never: Tensor | None


def lists_by_time(graph: _GraphWithTimes, times: str, missing_times: str) -> TimedLists:
    """See `HeteroGraph.by_time`."""
    check_times(times, missing_times)
    of_nodes = graph.timed_types if times != "edge" else ()
    of_edges = graph.timed_relations if times != "node" else ()
    if not of_nodes and not of_edges:
        had = [what for what, of in (("node", graph.timed_types), ("edge", graph.timed_relations)) if of]
        way = f"times={had[0]!r}" if had else "HeteroGraph.from_edges takes node_times and edge_times"
        raise ValueError(
            f"times is {times!r}; the graph has no times of {'any kind' if times == 'both' else times + 's'}: {way}"
        )
    if missing_times == "error":
        _require_all(graph, of_nodes, of_edges)
    lists, device = graph.lists, graph.device
    slots = [graph.edge_types[r] for name in graph.node_types for r in graph.relations_into[name]]
    counted = [key for key in slots if key[0] in of_nodes or key in of_edges]
    always = torch.tensor([key not in counted for key in slots], dtype=torch.bool)

    def relations() -> Iterator[_Relation]:  # twice, so that only one is in memory
        return (_relation(graph, key, key[0] in of_nodes, key in of_edges, missing_times) for key in counted)

    seen = [_known(relation).unique() for relation in relations()]
    values = torch.cat([torch.empty(0, dtype=torch.int64, device=device), *seen]).unique()
    if values.numel() >= _NEVER:
        raise ValueError(
            f"the graph has {values.numel()} distinct times; at most {_NEVER - 1} are possible: round them"
        )
    ids = lists.edge_ids
    by_edge: dict[str, Tensor] = {
        "indices": lists.indices,
        "edge_ids": torch.arange(lists.num_edges, device=device).to(lists.indptr.dtype) if ids is None else ids,
    }
    for name in ("edge_weights", "edge_times", "edge_types"):
        if (array := getattr(lists, name)) is not None:
            by_edge[name] = array
    by_edge = {name: array.to(device, copy=True) for name, array in by_edge.items()}
    ranks = torch.zeros(lists.num_edges, dtype=torch.int32, device=device)
    for relation in relations():
        rank = torch.searchsorted(values, relation.times, out_int32=True)
        rank[relation.times == MISSING_TIME] = _ALWAYS
        if relation.never is not None:
            rank[relation.never] = _NEVER
        order = _order(graph, relation, rank, values.numel(), by_edge)
        ranks[relation.places] = rank[order]
        for array in by_edge.values():
            array[relation.places] = array[relation.places[order]]
    sorted_lists = Graph(
        lists.indptr.to(device),
        num_src=lists.num_src,
        node_times=None if lists.node_times is None else lists.node_times.to(device),
        node_types=lists.node_types,
        validate=False,
        **by_edge,
    )
    where = {name: at for name, at in lists.placement.items() if at.kind != "disk" and at.kind != device.type}
    if where:
        sorted_lists = sorted_lists.place(**where)
    return TimedLists(sorted_lists, ranks, values, always, times, missing_times)


def _require_all(graph: _GraphWithTimes, types: Sequence[str], relations: Sequence[EdgeType]) -> None:
    """Raises ValueError if a time is missing."""
    lists = graph.lists
    for name in types:
        ids = graph.node_types[name]
        assert lists.node_times is not None
        _refuse_missing(f"node_times[{name!r}]", lists.node_times[ids.start : ids.stop])
    for key in relations:
        assert lists.edge_times is not None
        places, _ = graph.entries(key)
        _refuse_missing(f"edge_times[{key!r}]", lists.edge_times[places.to(lists.edge_times.device)])


def _refuse_missing(name: str, times: Tensor) -> None:
    if missing := int((times == MISSING_TIME).sum()):
        raise ValueError(
            f"{name} has {missing} missing times of {times.numel()}; missing_times='always' shows what has none to "
            "every seed, missing_times='never' to none"
        )


def _relation(graph: _GraphWithTimes, key: EdgeType, by_node: bool, by_edge: bool, missing_times: str) -> _Relation:
    lists, device = graph.lists, graph.device
    places, rows = graph.entries(key)
    parts = []
    if by_node:
        assert lists.node_times is not None
        sources = lists.indices[places].to(lists.node_times.device)
        parts.append(lists.node_times[sources].to(device))
    if by_edge:
        assert lists.edge_times is not None
        parts.append(lists.edge_times[places.to(lists.edge_times.device)].to(device))
    never = None
    if missing_times == "never":
        never = torch.stack([part == MISSING_TIME for part in parts]).any(0)
    times = parts[0] if len(parts) == 1 else torch.maximum(*parts)
    return _Relation(key, places, rows, times, never)


def _known(relation: _Relation) -> Tensor:
    """The times that have a rank."""
    hidden = relation.times == MISSING_TIME
    if relation.never is not None:
        hidden |= relation.never
    return relation.times[~hidden]


def _order(
    graph: _GraphWithTimes, relation: _Relation, rank: Tensor, num_values: int, by_edge: Mapping[str, Tensor]
) -> Tensor:
    """`[E]` an order of a relation's entries by list, rank, source and edge id."""
    rows, num_rows = relation.rows, len(graph.node_types[relation.key[2]])
    key = torch.where(rank == _NEVER, num_values + 1, rank.long() + 1)
    sources, ids = by_edge["indices"][relation.places].long(), by_edge["edge_ids"][relation.places]
    together = rows[1:] == rows[:-1]
    later = (sources[1:] > sources[:-1]) | ((sources[1:] == sources[:-1]) & (ids[1:] >= ids[:-1]))
    if bool((later | ~together).all()):  # they are by source and id already, as from_edges makes them
        return list_order(key, rows, num_values + 2, num_rows)
    order = ids.argsort(stable=True)
    order = order[list_order(sources[order], rows[order], graph.num_nodes, num_rows)]
    return order[list_order(key[order], rows[order], num_values + 2, num_rows)]
