"""What a loader is given with a graph of several types: seeds of one type, and rows per type and relation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from loader.graph import EdgeType, HeteroGraph
from loader.graph.checks import check_range
from loader.items import EdgeItems, NodeItems
from loader.items.items import as_nodes
from loader.loaders.options import check_distinct
from loader.machine.arguments import shown
from loader.machine.memo import Memo, version_of
from loader.samplers.base import Sampler
from loader.stores import FeatureStore, as_store


def hetero_items(graph: HeteroGraph, seeds: Any, times: Any = None, *, distinct: bool = True) -> tuple[str, NodeItems]:
    """The type of the seeds, and the items: ids of the graph's one range.

    Args:
        seeds: `("paper", ids)` or `{"paper": ids}`, ids within the type.
        times: of the seeds, or None.
        distinct: refuse an id that is there twice.

    Raises:
        TypeError, ValueError: they are not; the message says how to give them.
    """
    pairs = list(seeds.items()) if isinstance(seeds, Mapping) else [seeds]
    types = list(graph.node_types)
    if not (len(pairs) == 1 and isinstance(pairs[0], tuple) and len(pairs[0]) == 2 and isinstance(pairs[0][0], str)):
        raise TypeError(
            f"seeds is {shown(seeds)}; the graph has the node types {types}: give the ids of one of them, as "
            f"({types[0]!r}, ids)"
        )
    ((name, given),) = pairs
    if name not in types:
        raise ValueError(f"seeds names the node type {name!r}; the graph has {types}")
    label, ids = f"seeds[{name!r}]", graph.node_types[name]
    found = as_nodes(label, given)
    if distinct:
        check_distinct(label, found, len(ids))
    else:
        check_range(label, found, len(ids))
    return name, NodeItems(found.long() + ids.start, first=ids.start, times=times)


def check_not_later(graph: HeteroGraph, node_type: str, items: NodeItems, times: Any) -> None:
    """Raises ValueError if a seed's node is later than the seed.

    Args:
        times: whose times count, "node", "edge" or "both".
    """
    if times == "edge" or items.times is None:
        return
    own = _times_of(graph, node_type, items.ids - items.first, items.times)
    if own is not None and (later := (own > items.times).nonzero()).numel():
        first = int(later[0])
        raise ValueError(
            f"{later.numel()} of {len(items)} seeds are nodes that are later than their time, the first at {first} "
            f"({int(own[first])} and {int(items.times[first])}); leave them out, or count times='edge' alone"
        )


def check_links_not_later(graph: HeteroGraph, edge_type: EdgeType, items: EdgeItems, times: Any) -> None:
    """Raises ValueError if an end of a link is a node that is later than the link, see `check_not_later`."""
    if times == "edge" or items.times is None:
        return
    for end, name in ((0, edge_type[0]), (1, edge_type[2])):
        own = _times_of(graph, name, items.ids[:, end].long(), items.times)
        if own is not None and (later := (own > items.times).nonzero()).numel():
            first = int(later[0])
            raise ValueError(
                f"{later.numel()} of {len(items)} links have a {'source' if end == 0 else 'destination'} of type "
                f"{name!r} that is later than their time, the first at {first} ({int(own[first])} and "
                f"{int(items.times[first])}); leave them out, or count times='edge' alone"
            )


def _times_of(graph: HeteroGraph, node_type: str, ids: Tensor, like: Tensor) -> Tensor | None:
    """`[n]` int64 times of nodes of a type on the device of `like`, or None if the type has none."""
    of_nodes = graph.lists.node_times
    if node_type not in graph.timed_types or of_nodes is None:
        return None
    return of_nodes[(ids + graph.node_types[node_type].start).to(of_nodes.device)].to(like.device)


def node_stores(graph: HeteroGraph, features: Any) -> dict[str, FeatureStore]:
    """Node type -> store of the features.

    Raises:
        TypeError: they are no dict, or a store cannot be one of several.
        ValueError: there is no such type, or there is not one row per node.
    """
    stores: dict[str, FeatureStore] = {}
    for name, rows in _by_key("features", features, "node type -> features").items():
        if name not in graph.node_types:
            raise ValueError(f"features names the node type {name!r}; the graph has {list(graph.node_types)}")
        label, count = f"features[{name!r}]", len(graph.node_types[name])
        store = _store(label, rows)
        if store is None:
            continue
        if store.num_rows != count:
            raise ValueError(
                f"{label} has {store.num_rows} rows, the graph {count} nodes of that type; give a row each"
            )
        stores[name] = store
    return stores


def edge_stores(graph: HeteroGraph, features: Any, sampler: Sampler) -> dict[EdgeType, FeatureStore]:
    """Edge type -> store of the features, rows by edge id.

    Raises:
        TypeError: they are no dict, or a store cannot be one of several.
        ValueError: there is no such relation, an edge id has no row, or there are no edge ids.
    """
    stores: dict[EdgeType, FeatureStore] = {}
    known = {name: key for key in graph.edge_types for name in (key, "__".join(key))}
    for name, rows in _by_key("edge_features", features, "edge type -> features").items():
        if name not in known:
            raise ValueError(f"edge_features names the edge type {name!r}; the graph has {list(graph.edge_types)}")
        label = f"edge_features[{name!r}]"
        store = _store(label, rows)
        if store is None:
            continue
        if not getattr(sampler, "edge_ids", False):
            raise ValueError(f"{label} is gathered by edge id, and the sampler returns none; give it edge_ids=True")
        if graph.lists.edge_ids is None:
            raise ValueError(
                f"{label} has rows by edge, and the graph keeps no edge ids; make it with keep_edge_ids=True"
            )
        ids = graph.lists.edge_ids
        low, high = _ends(ids)
        if low < 0 or high >= store.num_rows:  # those of other relations may be
            ids = ids[graph.entries(known[name])[0].to(ids.device)]
        check_edge_rows(label, store, int(graph.in_degrees(known[name]).sum()), "the relation", ids)
        stores[known[name]] = store
    return stores


def check_edge_rows(label: str, store: FeatureStore, count: int, what: str, ids: Tensor | None) -> None:
    """Raises ValueError unless the store has a row for each edge id.

    Args:
        count: of edges, which `what` has.
        ids: `[n]` of the edges; None: they are their places.
    """
    low, high = (0, count - 1) if ids is None else _ends(ids)
    if low < 0:
        raise ValueError(f"{label} has rows by edge id, and {what} has the id {low}; number the edges from 0")
    if store.num_rows <= high:
        way = f"{count} edges; give a row per edge" if high < count else f"edge ids up to {high}; give a row per id"
        raise ValueError(f"{label} has {store.num_rows} rows, {what} {way}")


_ids_seen = Memo()  # by loaders of the same graph, whose ids may be on disk


def _ends(ids: Tensor) -> tuple[int, int]:
    """The lowest and the highest id, -1 if there is none."""

    def look() -> tuple[int, int]:
        low, high = ids.aminmax()
        return int(low), int(high)

    return _ids_seen.get(ids, version_of(ids), "ends", look) if ids.numel() else (0, -1)


def _by_key(name: str, rows: Any, form: str) -> Mapping[Any, Any]:
    if rows is None:
        return {}
    if not isinstance(rows, Mapping):
        raise TypeError(f"{name} is {shown(rows)}; the graph has types, so it must be a dict: {form}")
    return rows


def refuse_store(label: str, kind: Any) -> None:
    """Raises TypeError for a class of stores that cannot be one of several."""
    if getattr(kind, "serves_alone", False):
        raise TypeError(
            f"{label} is a {kind.__name__}, which cannot be one of several stores; take HostFeatures, DeviceFeatures, "
            "CachedFeatures, PinnedFeatures or MemmapFeatures"
        )


def _store(label: str, rows: Any) -> FeatureStore | None:
    refuse_store(label, type(rows))
    return as_store(label, rows)
