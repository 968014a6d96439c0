"""Fanouts per relation, and seeds by node type, of graphs with several types of nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from loader.graph import EdgeType, HeteroGraph
from loader.graph.checks import signed
from loader.machine.arguments import as_index, as_size, kind_of, shown

MAX_FANOUT = 1024
MAX_HOPS = 8
EXPANDS = ("all", "new")


def edge_type_of(name: str, key: Any) -> EdgeType:
    """A relation from a triple of names, or from `source__name__destination`.

    Args:
        name: what the message calls it.

    Raises:
        TypeError: it is neither.
    """
    parts: Any = key.split("__") if isinstance(key, str) else key
    parts = tuple(parts) if isinstance(parts, Sequence) else None
    if isinstance(parts, tuple) and len(parts) == 3 and all(isinstance(part, str) and part for part in parts):
        return parts
    raise TypeError(f"{name} {shown(key)}; give the edge type, ('author', 'writes', 'paper') or author__writes__paper")


def resolve_relation_fanouts(fanouts: Mapping[Any, Any], num_hops: int | None) -> dict[EdgeType, tuple[int, ...]]:
    """Fanouts in hop order per relation, each with an entry per hop.

    Args:
        fanouts: relation -> neighbors picked per node at each hop; 0 picks none, -1 takes all of them. One number holds
            for every hop.
        num_hops: number of hops, by default the length of the lists.

    Raises:
        TypeError: a key is no relation, or a fanout no integer.
        ValueError: a fanout is neither -1 nor in 0 to 1024, or numbers of hops differ.
    """
    if not fanouts:
        raise ValueError("fanouts is an empty dict; give the fanouts of each edge type, or one list for all of them")
    given: dict[EdgeType, int | tuple[int, ...]] = {}
    for key, value in fanouts.items():
        relation = edge_type_of("fanouts has the key", key)
        if relation in given:
            raise ValueError(f"fanouts names the edge type {relation} twice; give it once")
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            given[relation] = tuple(as_fanout(relation, k) for k in value)
        else:
            given[relation] = as_fanout(relation, value)
    lengths = {len(value): relation for relation, value in given.items() if isinstance(value, tuple)}
    if num_hops is not None:
        num_hops = as_size("num_hops", num_hops, least=0)
        lengths.setdefault(num_hops, ("", "num_hops", ""))
    if len(lengths) != 1:
        if not lengths:
            raise ValueError("fanouts has one number per edge type: say num_hops too, or give lists")
        raise ValueError(
            f"fanouts has {' and '.join(map(str, sorted(lengths)))} hops; give each edge type as many, "
            "0 where nothing is picked"
        )
    (hops,) = lengths
    if not 1 <= hops <= MAX_HOPS:
        raise ValueError(f"{hops} hops are given; 1 to {MAX_HOPS} are possible, e.g. [15, 10]")
    return {relation: value if isinstance(value, tuple) else (value,) * hops for relation, value in given.items()}


def widest(fanouts: Mapping[EdgeType, tuple[int, ...]]) -> tuple[int, ...]:
    """Of each hop -1 if a relation takes all neighbors, else the most that any picks, and at least 1."""
    return tuple(-1 if -1 in hop else max(1, *hop) for hop in zip(*fanouts.values(), strict=True))


def fanouts_by_relation(
    graph: HeteroGraph, fanouts: Sequence[int], relation_fanouts: Mapping[EdgeType, Sequence[int]] | None
) -> list[list[int]]:
    """`[hops][relations]` fanouts, relations in the order of the node types that they lead to.

    Raises:
        ValueError: fanouts name a relation that the graph does not have, or leave one out.
    """
    order = [graph.edge_types[r] for into in graph.relations_into.values() for r in into]
    if relation_fanouts is None:
        return [[k] * len(order) for k in fanouts]
    if unknown := [relation for relation in relation_fanouts if relation not in graph.edge_types]:
        raise ValueError(f"fanouts names the edge type {unknown[0]}; the graph has {list(graph.edge_types)}")
    if missing := [relation for relation in graph.edge_types if relation not in relation_fanouts]:
        raise ValueError(f"fanouts has none for the edge type {missing[0]}; give it, 0 where nothing is picked")
    return [[relation_fanouts[relation][hop] for relation in order] for hop in range(len(fanouts))]


def seeds_by_type(graph: HeteroGraph, seeds: Mapping[str, Tensor]) -> Tensor:
    """Ids of the graph's one range, type after type, from ids within the types.

    Raises:
        TypeError: ids are no tensor of integers.
        ValueError: there is no such type, or no such node of it.
    """
    if unknown := [name for name in seeds if name not in graph.node_types]:
        raise ValueError(f"seeds names the node type {unknown[0]!r}; the graph has {list(graph.node_types)}")
    found = []
    for name, ids in graph.node_types.items():
        if name not in seeds:
            continue
        own = seeds[name]
        if not isinstance(own, Tensor) or own.is_floating_point() or own.is_complex() or own.dtype == torch.bool:
            raise TypeError(f"seeds[{name!r}] is {kind_of(own)}; it must be a tensor of integer ids")
        if own.dim() != 1:
            raise ValueError(f"seeds[{name!r}] has shape {list(own.shape)}; it must have 1 dimension")
        own = signed(f"seeds[{name!r}]", own)
        if own.numel():
            low, high = (int(x) for x in torch.aminmax(own))
            if low < 0 or high >= len(ids):
                bad = low if low < 0 else high
                raise ValueError(f"seeds[{name!r}] holds node {bad}; valid ids are 0 to {len(ids) - 1}")
        found.append(own.to(torch.int64) + ids.start)
    if not found:
        raise ValueError("seeds is an empty dict; give ids of at least one node type")
    return torch.cat(found).to(graph.lists.indices.dtype)


def check_distinct_by_type(seeds: Mapping[str, Tensor]) -> None:
    """Raises ValueError if a node is there twice; the message names it by its id within its type.

    Args:
        seeds: as `seeds_by_type` takes them.
    """
    for name, ids in seeds.items():
        values, counts = torch.unique(signed(f"seeds[{name!r}]", ids), return_counts=True)
        if (repeated := values[counts > 1]).numel():
            raise ValueError(
                f"seeds[{name!r}] holds node {int(repeated[0])} more than once; seeds must be distinct (torch.unique)"
            )


def node_types_of(graph: HeteroGraph) -> list[tuple[int, int]]:
    """Of each node type how many nodes there are, and how many relations lead to them."""
    return [(len(ids), len(graph.relations_into[name])) for name, ids in graph.node_types.items()]


def require_type_order(starts: Tensor, seeds: Tensor) -> None:
    """Raises ValueError unless the seeds, ids of a graph's one range, come type after type.

    Args:
        starts: the first id of each type.
    """
    if starts.numel() > 1 and seeds.numel() > 1:
        types = torch.bucketize(seeds, starts, right=True)
        if bool((types[1:] < types[:-1]).any()):
            raise ValueError("seeds of several node types are mixed; give those of each type together, in their order")


def as_fanout(relation: Any, k: Any) -> int:
    """`k` as a number of picks; raises TypeError or ValueError, which name the relation, unless it is one."""
    number = as_index(k)
    if number is None:
        raise TypeError(f"the fanout {shown(k)} of {relation} is not an integer; give 0 to {MAX_FANOUT}, or -1 for all")
    if number != -1 and not 0 <= number <= MAX_FANOUT:
        raise ValueError(f"the fanout {number} of {relation} is not possible: give 0 to {MAX_FANOUT}, or -1 for all")
    return number
