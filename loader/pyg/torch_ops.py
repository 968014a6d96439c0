"""The operators that torch_geometric's samplers call, on our core: `torch.ops.pyg`, `torch.ops.torch_sparse`.

They are registered from Python, so the core needs no torch header. The kernels are C++ (csrc/bindings/pyg.cpp). They
read rowptr and col without a copy, as int32 or int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from loader import _core
from loader.graph import Graph
from loader.machine.mapped import whole
from loader.machine.memo import Memo
from loader.pyg.calls import drawn, on_gpu, refuse_induced
from loader.pyg.checked_graphs import engine_of, num_threads
from loader.pyg.hetero_ops import hetero_neighbor_sample, sparse_hetero_neighbor_sample
from loader.samplers.walk_call import random_walk as walk

_SAMPLE = (
    "neighbor_sample(Tensor rowptr, Tensor col, Tensor seed, int[] num_neighbors, Tensor? node_time=None, "
    "Tensor? edge_time=None, Tensor? seed_time=None, Tensor? edge_weight=None, bool csc=False, bool replace=False, "
    "bool directed=True, bool disjoint=False, str temporal_strategy='uniform', bool return_edge_id=True) "
    "-> (Tensor, Tensor, Tensor, Tensor?, int[], int[])"
)
_SAMPLE_HETERO = (
    "hetero_neighbor_sample(str[] node_types, (str, str, str)[] edge_types, Dict(str, Tensor) rowptr_dict, "
    "Dict(str, Tensor) col_dict, Dict(str, Tensor) seed_dict, Dict(str, int[]) num_neighbors_dict, "
    "Dict(str, Tensor)? node_time_dict=None, Dict(str, Tensor)? edge_time_dict=None, "
    "Dict(str, Tensor)? seed_time_dict=None, Dict(str, Tensor)? edge_weight_dict=None, bool csc=False, "
    "bool replace=False, bool directed=True, bool disjoint=False, str temporal_strategy='uniform', "
    "bool return_edge_id=True) -> (Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor)?, "
    "Dict(str, int[]), Dict(str, int[]))"
)
_SPARSE_SAMPLE = (
    "neighbor_sample(Tensor colptr, Tensor row, Tensor input_node, int[] num_neighbors, bool replace, bool directed) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
_SPARSE_SAMPLE_HETERO = (
    "hetero_neighbor_sample(str[] node_types, (str, str, str)[] edge_types, Dict(str, Tensor) colptr_dict, "
    "Dict(str, Tensor) row_dict, Dict(str, Tensor) input_node_dict, Dict(str, int[]) num_neighbors_dict, int num_hops, "
    "bool replace, bool directed) -> (Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor))"
)

_WALK = "random_walk(Tensor rowptr, Tensor col, Tensor seed, int walk_length, float p=1.0, float q=1.0) -> Tensor"

_RELATION = ("node", "to", "node")  # of a graph with one type
_walked = Memo()  # graphs to walk on
_libraries: list[Any] = []  # a library's registrations end with the object


def register() -> None:
    """Registers the operators, once for a process.

    Fragments leave the namespaces open for other registrations.
    """
    if _libraries:
        return
    pyg, sparse = torch.library.Library("pyg", "FRAGMENT"), torch.library.Library("torch_sparse", "FRAGMENT")
    for library, schema, kernel in ((pyg, _SAMPLE, neighbor_sample), (sparse, _SPARSE_SAMPLE, sparse_neighbor_sample)):
        library.define(schema)
        library.impl("neighbor_sample", kernel, "CPU")
        library.impl("neighbor_sample", on_gpu, "CUDA")
    hetero: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (pyg, _SAMPLE_HETERO, hetero_neighbor_sample),
        (sparse, _SPARSE_SAMPLE_HETERO, sparse_hetero_neighbor_sample),
    )
    for library, schema, kernel in hetero:
        library.define(schema)
        # Dictionaries have no device to choose a kernel by.
        library.impl("hetero_neighbor_sample", kernel, "CompositeExplicitAutograd")
    pyg.define(_WALK)
    pyg.impl("random_walk", random_walk, "CPU")
    pyg.impl("random_walk", random_walk, "CUDA")
    _libraries.extend((pyg, sparse))


def neighbor_sample(
    rowptr: Tensor,
    col: Tensor,
    seed: Tensor,
    num_neighbors: Sequence[int],
    node_time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    edge_weight: Tensor | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, list[int], list[int]]:
    """`torch.ops.pyg.neighbor_sample`, as pyg-lib 0.4 to 0.8 declares it.

    The picks are those of `loader.FusedSampler`: uniform, a function of one number drawn from torch's generator of the
    CPU, the hop and the node. A seed that is given several times picks each time by itself; the first one has the
    picks of a seed that is given once.

    Args:
        rowptr: `[num_nodes + 1]`, int32 or int64. It and `col` are checked when a pair is first seen, and not copied.
        col: `[num_edges]`, of the same type.
        seed: `[n]` nodes, of the same type, any of them several times.
        num_neighbors: picks per node and hop, 0 to 1024, or a negative number for all; up to 32 hops.
        csc: the lists are those of incoming edges; `row` and `col` of the result change places.
        replace: pick independently, always as many neighbors as asked for.
        return_edge_id: return the places in `col` of the edges.
        edge_weight: `[num_edges]` float32 or float64, finite and at least 0: neighbors are picked by weight, one after
            the other from those that are left, as `weights` of `loader.FusedSampler` says; edges of weight 0 never are.
            Tables of 16 bytes an edge are made when the tensor is first seen.
        node_time, edge_time, seed_time, disjoint, temporal_strategy: see `hetero_neighbor_sample`.
        directed: must be True.

    Returns:
        row `[E]`, col `[E]`, local ids; nodes `[N]`, global ids: the seeds, then hop by hop, with `disjoint` `[N, 2]`,
        trees and ids; edge ids `[E]` or None;
        numbers of new nodes, of the seeds and of each hop; numbers of edges of each hop. Tensors have the type of
        `rowptr`.

    Raises:
        NotImplementedError: an option without its default; the message says the way out.
        TypeError, ValueError: an array is not as said above.
    """
    refuse_induced(directed)
    if disjoint or any(times is not None for times in (node_time, edge_time, seed_time)):
        key = "__".join(_RELATION)
        of_nodes, of_edges, of_seeds, weights = (
            None if array is None else {name: array}
            for array, name in ((node_time, "node"), (edge_time, key), (seed_time, "node"), (edge_weight, key))
        )
        found = hetero_neighbor_sample(
            ["node"],
            [_RELATION],
            {key: rowptr},
            {key: col},
            {"node": seed},
            {key: num_neighbors},
            of_nodes,
            of_edges,
            of_seeds,
            weights,
            csc,
            replace,
            directed,
            disjoint,
            temporal_strategy,
            return_edge_id,
        )
        rows, columns, ids_by_type, ids_by_relation, num_nodes, num_edges = found
        edge_ids = None if ids_by_relation is None else ids_by_relation[key]
        return rows[key], columns[key], ids_by_type["node"], edge_ids, num_nodes["node"], num_edges[key]
    counts, edges, (nodes, sources, targets, *ids) = _sample(
        rowptr, col, seed, num_neighbors, replace, return_edge_id, induced=False, weights=edge_weight
    )
    row, column = (sources, targets) if csc else (targets, sources)
    return row, column, nodes, ids[0] if ids else None, counts, edges


def sparse_neighbor_sample(
    colptr: Tensor, row: Tensor, input_node: Tensor, num_neighbors: Sequence[int], replace: bool, directed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`torch.ops.torch_sparse.neighbor_sample`, as torch-sparse 0.6 declares it: nodes, rows, columns, edge ids.

    torch_geometric calls it for `subgraph_type="induced"`: with `directed=False` the edges are all those among the
    sampled nodes, those of each node in the order of its list. For all else see `neighbor_sample`.
    """
    _, _, (nodes, sources, targets, ids) = _sample(
        colptr, row, input_node, num_neighbors, replace, edge_ids=True, induced=not directed
    )
    return nodes, sources, targets, ids


def random_walk(rowptr: Tensor, col: Tensor, seed: Tensor, walk_length: int, p: float = 1.0, q: float = 1.0) -> Tensor:
    """`torch.ops.pyg.random_walk`, as pyg-lib 0.6 declares it, with all `p` and `q` of node2vec.

    The walks are those of `loader.random_walk`, with one number drawn from torch's generator of the CPU as its seed. At
    a node without neighbors a walk stays.

    Args:
        rowptr: `[num_nodes + 1]`, int32 or int64.
        col: `[num_edges]`, of the same type: the nodes to go to.
        seed: `[n]` nodes, of the same type, where walks start; any of them several times.
        walk_length: steps.
        p, q: see `loader.samplers.WalkSampler`.

    Returns:
        `[n, walk_length + 1]` nodes, of the type of `rowptr`.

    Raises:
        TypeError, ValueError: an array is not as said above.
    """
    # Of tensors of its own that share the memory: what is kept must not keep these two alive.
    graph = _walked.get_of((rowptr, col), "graph", lambda: Graph(rowptr.detach(), col.detach()))
    walks = walk(graph, seed, walk_length, p=p, q=q, seed=drawn(), num_threads=num_threads())
    assert isinstance(walks, Tensor)
    places = torch.arange(walk_length + 1, device=walks.device) * (walks >= 0)
    return walks.gather(1, places.cummax(1).values).to(rowptr.dtype)


def _sample(
    indptr: Tensor,
    indices: Tensor,
    seed: Tensor,
    fanouts: Sequence[int],
    replace: bool,
    edge_ids: bool,
    induced: bool,
    weights: Tensor | None = None,
) -> tuple[list[int], list[int], list[Tensor]]:
    with whole(indptr, indices, weights):
        engine, places = engine_of(indptr, indices, weights)
        if seed.dim() != 1 or seed.dtype != indptr.dtype:
            raise ValueError(
                f"seed has shape {list(seed.shape)} and dtype {seed.dtype}; it must have 1 dimension and "
                f"{indptr.dtype}, as rowptr"
            )
        key = _core.batch_key(drawn(), 0, 0)
        counts, edges, offsets, buffer = engine.sample(seed.contiguous(), fanouts, key, replace, edge_ids, induced)
    num_nodes, num_edges, dtype = sum(counts), sum(edges), indptr.dtype
    lengths = [num_nodes, *[num_edges] * (len(offsets) - 1)]
    arrays = [
        torch.frombuffer(buffer, dtype=dtype, count=length, offset=offset) if length else torch.empty(0, dtype=dtype)
        for length, offset in zip(lengths, offsets, strict=True)
    ]
    if places is not None and edge_ids:
        arrays[3] = places[arrays[3].long()].to(dtype)
    return counts, edges, arrays
