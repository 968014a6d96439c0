"""From a list of edges to CSC arrays: symmetrising, self loops, parallel edges, components."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from loader.machine.optional import import_optional

SELF_LOOPS = ("keep", "remove", "add")
PARALLEL_EDGES = ("keep", "remove")
_CHUNK = 1 << 24  # edges handled at once: bounds the temporary arrays


def check_edge_options(self_loops: str, parallel_edges: str) -> None:
    """Raises ValueError unless both are one of `SELF_LOOPS` and `PARALLEL_EDGES`."""
    for name, value, choices in (
        ("self_loops", self_loops, SELF_LOOPS),
        ("parallel_edges", parallel_edges, PARALLEL_EDGES),
    ):
        if value not in choices:
            raise ValueError(f"{name} is '{value}'; it must be one of {', '.join(choices)}")


def edges_to_csc(
    src: NDArray[np.integer],
    dst: NDArray[np.integer],
    num_nodes: int,
    *,
    undirected: bool = False,
    self_loops: str = "keep",
    parallel_edges: str = "keep",
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The CSC arrays of the edges `src[i] -> dst[i]`, neighbor lists ascending.

    Args:
        src, dst: `[num_edges]`, integer, in `[0, num_nodes)`.
        num_nodes: number of nodes.
        undirected: add the reverse of every edge (of self loops none). An edge that was listed both ways is
            there twice then, unless `parallel_edges="remove"`.
        self_loops: "keep" them as they are, "remove" them, or "add": exactly one for every node.
        parallel_edges: "keep", or "remove" all but one between the same two nodes in the same direction.

    Returns:
        `indptr [num_nodes + 1]` and `indices [edges]`, int32 where they fit and int64 elsewhere.

    Raises:
        ValueError: an unknown option, arrays of unequal length, an id out of range, or too many nodes for
            an edge to be one 64-bit key.
    """
    indptr, indices, _ = edges_to_csc_with(
        src, dst, num_nodes, {}, undirected=undirected, self_loops=self_loops, parallel_edges=parallel_edges
    )
    return indptr, indices


def edges_to_csc_with(
    src: NDArray[np.integer],
    dst: NDArray[np.integer],
    num_nodes: int,
    by_edge: Mapping[str, NDArray[np.generic]],
    *,
    undirected: bool = False,
    self_loops: str = "keep",
    parallel_edges: str = "keep",
) -> tuple[NDArray[np.integer], NDArray[np.integer], dict[str, NDArray[np.generic]]]:
    """`edges_to_csc`, and arrays `[num_edges]` in the order of its edges: the reverse of an edge has the edge's values,
    and parallel edges keep their order.

    Raises:
        ValueError: as there; or self loops are to be added, which have no values; or of parallel edges all but one are
            to be removed, and their values differ.
    """
    check_edge_options(self_loops, parallel_edges)
    if src.shape != dst.shape or src.ndim != 1:
        raise ValueError(f"src has shape {src.shape}, dst {dst.shape}; both must be [num_edges]")
    if num_nodes > 3_037_000_499:
        raise ValueError(
            f"the graph has {num_nodes} nodes; at most 3037000499 are possible, because edges are sorted as 64-bit keys"
        )
    for name, ids in (("src", src), ("dst", dst)):
        if ids.size and (ids.min() < 0 or ids.max() >= num_nodes):
            bad = ids.min() if ids.min() < 0 else ids.max()
            raise ValueError(f"{name} holds node {bad}; valid ids are 0 to {num_nodes - 1}")
    if by_edge and self_loops == "add":
        raise ValueError(f"self_loops is 'add', but such edges have no {' '.join(by_edge)}; give 'keep' or 'remove'")
    origin = np.arange(src.size) if by_edge else None  # of each edge, its place in by_edge
    if self_loops != "keep":
        proper = src != dst
        if not proper.all():
            src, dst = src[proper], dst[proper]
            origin = None if origin is None else origin[proper]
    n = np.int64(max(num_nodes, 1))
    reverse = np.flatnonzero(src != dst) if undirected and self_loops == "keep" else None
    mirrored = 0 if not undirected else (src.size if reverse is None else reverse.size)
    loops = num_nodes if self_loops == "add" else 0
    keys = np.empty(src.size + mirrored + loops, dtype=np.int64)
    _edge_keys(dst, src, n, out=keys[: src.size])
    if undirected:
        a, b = (src, dst) if reverse is None else (src[reverse], dst[reverse])
        _edge_keys(a, b, n, out=keys[src.size : src.size + mirrored])
    if loops:
        keys[src.size + mirrored :] = np.arange(num_nodes, dtype=np.int64) * (n + 1)
    if origin is None:
        keys.sort()
        if parallel_edges == "remove":
            keys = drop_repeats(keys)
        return *csc_from_keys(keys, num_nodes), {}
    if undirected:
        origin = np.concatenate((origin, origin if reverse is None else origin[reverse]))
    order = np.argsort(keys, kind="stable")
    keys, origin = keys[order], origin[order]
    if parallel_edges == "remove":
        fresh = np.concatenate((np.ones(min(keys.size, 1), dtype=bool), keys[1:] != keys[:-1]))
        _check_twins(by_edge, keys, origin, fresh, n)
        keys, origin = keys[fresh], origin[fresh]
    return *csc_from_keys(keys, num_nodes), {name: array[origin] for name, array in by_edge.items()}


def _check_twins(
    by_edge: Mapping[str, NDArray[np.generic]],
    keys: NDArray[np.int64],
    origin: NDArray[np.int64],
    fresh: NDArray[np.bool_],
    n: np.int64,
) -> None:
    repeats = np.flatnonzero(~fresh)
    for name, array in by_edge.items():
        differ = array[origin[repeats]] != array[origin[repeats - 1]]
        if differ.any():
            at = int(repeats[differ.argmax()])
            dst, src = divmod(int(keys[at]), int(n))
            raise ValueError(
                f"the parallel edges {src} -> {dst} have the {name} {array[origin[at - 1]]} and {array[origin[at]]}, "
                "so it matters which one is removed; set parallel_edges=keep"
            )


def drop_repeats(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct values of an ascending array; the array itself if all are distinct."""
    fresh = np.empty(keys.size, dtype=bool)
    fresh[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    return keys if fresh.all() else keys[fresh]


def csc_from_keys(keys: NDArray[np.int64], num_nodes: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """CSC arrays from ascending keys `dst * num_nodes + src`."""
    edge_dtype = np.int32 if keys.size <= np.iinfo(np.int32).max else np.int64
    if num_nodes > np.iinfo(np.int32).max:
        edge_dtype = np.int64
    rows = np.arange(num_nodes + 1, dtype=np.int64) * max(num_nodes, 1)
    indptr = np.searchsorted(keys, rows).astype(edge_dtype)
    indices = np.empty(keys.size, dtype=np.int32 if num_nodes <= np.iinfo(np.int32).max else np.int64)
    for at in range(0, keys.size, _CHUNK):
        indices[at : at + _CHUNK] = keys[at : at + _CHUNK] % max(num_nodes, 1)
    return indptr, indices


def largest_component(indptr: NDArray[np.integer], indices: NDArray[np.integer]) -> NDArray[np.int64]:
    """The nodes of the largest (weakly) connected component, ascending; of equal ones the first."""
    sparse = import_optional("scipy.sparse", "largest_component", "datasets")
    csgraph = import_optional("scipy.sparse.csgraph", "largest_component", "datasets")
    n = indptr.size - 1
    if n == 0:
        return np.empty(0, dtype=np.int64)
    ones = np.ones(indices.size, dtype=np.int8)
    count, component = csgraph.connected_components(
        sparse.csr_matrix((ones, indices, indptr), shape=(n, n)), directed=False
    )
    return np.flatnonzero(component == np.bincount(component, minlength=count).argmax())


def induced_subgraph(
    indptr: NDArray[np.integer], indices: NDArray[np.integer], nodes: NDArray[np.int64]
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The CSC arrays among `nodes` (ascending ids), which are renumbered from 0 in their order."""
    return induced_subgraph_with(indptr, indices, nodes, {})[:2]


def induced_subgraph_with(
    indptr: NDArray[np.integer],
    indices: NDArray[np.integer],
    nodes: NDArray[np.int64],
    by_edge: Mapping[str, NDArray[np.generic]],
) -> tuple[NDArray[np.integer], NDArray[np.integer], dict[str, NDArray[np.generic]]]:
    """`induced_subgraph`, and what is left of arrays `[num_edges]`."""
    new_id = np.full(indptr.size - 1, -1, dtype=np.int64)
    new_id[nodes] = np.arange(nodes.size)
    dst = new_id[np.repeat(np.arange(indptr.size - 1), np.diff(indptr))]
    src = new_id[indices]
    inside = (src >= 0) & (dst >= 0)
    inside_by_edge = {name: array[inside] for name, array in by_edge.items()}
    return edges_to_csc_with(src[inside], dst[inside], nodes.size, inside_by_edge)


def l1_normalize(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows divided by the sum of their absolute values; a row of zeros stays zero."""
    total = np.abs(rows).sum(axis=1, keepdims=True, dtype=np.float32)
    return rows / np.where(total > 0, total, np.float32(1))


def _edge_keys(row: NDArray[np.integer], col: NDArray[np.integer], n: np.int64, *, out: NDArray[np.int64]) -> None:
    for at in range(0, row.size, _CHUNK):
        part = slice(at, at + _CHUNK)
        # Ids of any integer type; all are below n.
        np.multiply(row[part].astype(np.int64, copy=False), n, out=out[part])
        out[part] += col[part].astype(np.int64, copy=False)
