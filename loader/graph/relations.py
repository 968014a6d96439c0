"""Types of nodes and relations: their names and numbers, and what users give for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from loader.graph.checks import (
    MAX_NODES,
    check_integers,
    check_length,
    check_numbers,
    check_range,
    check_weights,
    signed,
    weight_vector,
)
from loader.machine.arguments import as_size, check_dense, kind_of, shown

if TYPE_CHECKING:
    from loader.graph.csc import Graph

EdgeType = tuple[str, str, str]

MAX_TYPES = 64  # of nodes: their bounds are arguments of the kernels
MAX_RELATIONS = 1024
_PART = 1 << 20  # rows that are looked at together


class Labels(NamedTuple):
    """What messages call the arrays of a relation or a type."""

    edges: Callable[[EdgeType], str] = "edges[{!r}]".format
    edge_weights: Callable[[EdgeType], str] = "edge_weights[{!r}]".format
    node_times: Callable[[str], str] = "node_times[{!r}]".format
    edge_times: Callable[[EdgeType], str] = "edge_times[{!r}]".format


def check_node_types(num_nodes: Any) -> dict[str, int]:
    """Node type -> number of nodes; raises TypeError or ValueError if it is none."""
    if not isinstance(num_nodes, Mapping):
        raise TypeError(f"num_nodes is {shown(num_nodes)}; it must be a dict: node type -> number of nodes")
    for name in num_nodes:
        if not isinstance(name, str):
            raise TypeError(f"num_nodes has the key {shown(name)}; the name of a type must be a string")
    if not 1 <= len(num_nodes) <= MAX_TYPES:
        raise ValueError(f"num_nodes has {len(num_nodes)} types; 1 to {MAX_TYPES} are possible: join some of them")
    sizes = {name: as_size(f"num_nodes[{name!r}]", n, 0, MAX_NODES) for name, n in num_nodes.items()}
    if sum(sizes.values()) > MAX_NODES:
        raise ValueError(f"num_nodes has {sum(sizes.values())} nodes; at most {MAX_NODES} are possible")
    return sizes


def check_edge_types(edge_types: Any, sizes: Mapping[str, int]) -> tuple[EdgeType, ...]:
    """The relations; raises TypeError or ValueError if they are none of these types, or one comes twice."""
    found: dict[EdgeType, None] = {}
    by_name: dict[str, EdgeType] = {}  # features of edges, fanouts and states tell relations by these
    for key in edge_types:
        if not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key)):
            raise TypeError(
                f"edge type {shown(key)} is no triple of names; it must be a tuple (source type, name, destination "
                "type), such as ('author', 'writes', 'paper')"
            )
        for name in (key[0], key[2]):
            if name not in sizes:
                raise ValueError(
                    f"edge type {key!r} names the node type {name!r}; the node types are {list(sizes)}: correct the "
                    "name, or add the type to num_nodes"
                )
        if key in found:
            raise ValueError(f"edge type {key!r} comes twice; give each relation once")
        found[key] = None
        other = by_name.setdefault("__".join(key), key)
        if other != key:
            raise ValueError(
                f"edge types {other!r} and {key!r} are both written {'__'.join(key)}; rename one, or leave __ out"
            )
    if len(found) > MAX_RELATIONS:
        raise ValueError(f"there are {len(found)} edge types; at most {MAX_RELATIONS} are possible: join some of them")
    return tuple(found)


def check_edges(
    edges: Any, sizes: Mapping[str, int], label: Callable[[EdgeType], str]
) -> tuple[dict[EdgeType, tuple[Tensor, Tensor]], torch.device]:
    """Sources and destinations of each relation, and the device that they all lie on.

    Args:
        edges: relation -> `[2, num_edges]`.
        sizes: node type -> number of nodes.
        label: what a message calls the edges of a relation.

    Raises:
        TypeError, ValueError: they are no edges of these types, or lie on several devices.
    """
    if not isinstance(edges, Mapping):
        raise TypeError(
            f"edges is {shown(edges)}; it must be a dict: (source type, name, destination type) -> [2, num_edges]"
        )
    found: dict[EdgeType, tuple[Tensor, Tensor]] = {}
    first, device = "", torch.device("cpu")
    for key in check_edge_types(edges, sizes):
        pairs, name = edges[key], label(key)
        if not isinstance(pairs, Tensor):
            raise TypeError(f"{name} is {kind_of(pairs)}; it must be a torch tensor [2, num_edges] (torch.as_tensor)")
        check_dense(name, pairs)
        if pairs.dim() != 2 or pairs.shape[0] != 2:
            way = f": {name}.t()" if pairs.dim() == 2 and pairs.shape[1] == 2 else ""
            raise ValueError(f"{name} has the shape {list(pairs.shape)}; it must be [2, num_edges]{way}")
        check_integers(name, pairs, f": {name}.long()")
        if first and pairs.device != device:
            raise ValueError(
                f"{name} lies on {pairs.device}, {first} on {device}; all edges must lie on one device: "
                f".to({str(device)!r})"
            )
        check_numbers(name, pairs)
        first, device = first or name, pairs.device
        ends = signed(name, pairs)
        for ids, what, of in zip(ends, ("sources", "destinations"), (key[0], key[2]), strict=True):
            way = f" of type {of!r}: correct the edges, or the number of nodes"
            check_range(f"{name} ({what})", ids, sizes[of], way)
        found[key] = (ends[0], ends[1])
    return found, device


def check_edge_weights(
    weights: Any,
    edges: Mapping[EdgeType, tuple[Tensor, Tensor]],
    device: torch.device,
    label: Callable[[EdgeType], str],
) -> torch.dtype:
    """The type of number that holds all of the weights; raises TypeError or ValueError if they are none of `edges`.

    Args:
        weights: relation -> `[num_edges]`.
        edges: relation -> sources and destinations, which lie on `device`.
        label: what a message calls the weights of a relation.
    """
    if not isinstance(weights, Mapping):
        raise TypeError(f"edge_weights is {shown(weights)}; it must be a dict: edge type -> [num_edges]")
    if unknown := [key for key in weights if key not in edges]:
        raise ValueError(f"edge_weights names {shown(unknown[0])}, which is no relation; there are {list(edges)}")
    for key, weight in weights.items():
        src, dst = edges[key]
        weight_vector(weight, device, label(key))
        check_length(label(key), weight, src.numel(), f"the relation has {src.numel()} edges")
        check_weights(weight, src, dst=dst, name=label(key))
    wide = any(weight.dtype == torch.float64 for weight in weights.values())
    return torch.float64 if wide else torch.float32


def check_sources(
    lists: Graph, node_types: Mapping[str, range], blocks: Iterable[tuple[int, int, Sequence[EdgeType]]]
) -> None:
    """Raises ValueError unless each source is of the source type of the relation that its list belongs to.

    Args:
        lists: whose sources are ids of `node_types`.
        blocks: of each destination type its first row, the number of its nodes, and the relations into it.
    """
    indptr, indices = lists.indptr, lists.indices
    for first, num_nodes, into in blocks:
        step = max(1, _PART // max(1, len(into)))  # nodes
        bounds = [(node_types[source].start, node_types[source].stop) for source, _, _ in into]
        for at in range(0, num_nodes if into else 0, step):
            count = min(step, num_nodes - at)
            ends = indptr[first + at * len(into) : first + (at + count) * len(into) + 1].to(indices.device).long()
            begin = int(ends[0])
            some = indices[begin : int(ends[-1])]
            allowed = torch.tensor(bounds, device=indices.device).repeat(count, 1).repeat_interleave(ends.diff(), 0)
            wrong = (some < allowed[:, 0]) | (some >= allowed[:, 1])
            if bool(wrong.any()):
                edge = int(wrong.nonzero()[0])
                low, high = allowed[edge].tolist()
                row = int(torch.searchsorted(ends, begin + edge, right=True)) - 1
                raise ValueError(
                    f"lists.indices[{begin + edge}] is {int(some[edge])}, in a list of the relation "
                    f"{into[row % len(into)]!r}; ids of its source type are {low} to {high - 1}: of edges, "
                    "HeteroGraph.from_edges makes the lists"
                )


def reversed_type(edge_type: EdgeType) -> EdgeType:
    """`(d, "rev_n", s)` of `(s, "n", d)`, and the other way round."""
    source, name, target = edge_type
    return target, name.removeprefix("rev_") if name.startswith("rev_") else f"rev_{name}", source
