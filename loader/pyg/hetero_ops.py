"""The operator that torch_geometric's samplers call for a graph of several types: `torch.ops.pyg`, on our core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.graph import EdgeType, HeteroGraph
from loader.graph.checks import check_csc
from loader.machine.memo import Memo
from loader.pyg.calls import drawn, on_gpu, refuse_induced
from loader.pyg.checked_graphs import num_threads
from loader.pyg.hetero import refuse_missing_times, tell_untimed
from loader.pyg.options import large_as_all
from loader.samplers import SubgraphSampler
from loader.samplers.trees import TreeSampler
from loader.samples import HeteroSubgraph, hetero_subgraph_of

_known = Memo()  # graphs and their samplers

Fanouts = Mapping[str, Sequence[int]]


def hetero_neighbor_sample(
    node_types: Sequence[str],
    edge_types: Sequence[EdgeType],
    rowptr_dict: Mapping[str, Tensor],
    col_dict: Mapping[str, Tensor],
    seed_dict: Mapping[str, Tensor],
    num_neighbors_dict: Fanouts,
    node_time_dict: Mapping[str, Tensor] | None = None,
    edge_time_dict: Mapping[str, Tensor] | None = None,
    seed_time_dict: Mapping[str, Tensor] | None = None,
    edge_weight_dict: Mapping[str, Tensor] | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[Any, ...]:
    """`torch.ops.pyg.hetero_neighbor_sample`, as pyg-lib 0.4 to 0.8 declares it.

    The picks are those of `loader.samplers.SubgraphSampler`, by one number drawn from torch's generator of the
    CPU. All relations are sampled at once, in lists that are made of the arrays when they are first seen; so they are
    there twice. A seed that is given several times picks each time by itself. With `disjoint` they are those of
    `loader.samplers.trees.TreeSampler`, up to 8 hops. For arguments without a word here see
    `loader.pyg.torch_ops.neighbor_sample`; a dictionary has an entry for each relation, by `author__writes__paper`.

    Args:
        num_neighbors_dict: picks per node and hop, of each relation.
        seed_dict: node type -> ids within the type.
        node_time_dict, edge_time_dict: node type -> `[num_nodes]`, relation -> `[num_edges]` in the order of `col`:
            times, integers or whole floats, in any order. An edge is seen from the later of its time and its source's
            on. A type or relation that is not named is always seen. None may be missing. They need `disjoint`.
        seed_time_dict: node type -> `[n]`, times of the seeds; by default those of their nodes.
        disjoint: each seed has a tree of its own.
        temporal_strategy: with times, "uniform", or "last": the latest ones.

    Returns:
        row, col: relation -> places in the nodes of its types; nodes: node type -> ids, with `disjoint` `[N, 2]`, trees
        and ids; edge ids: relation -> places in `col`, or None; numbers of new nodes of each type, and of edges of each
        relation, by hop. Trees count the seeds in the order of `seed_dict`.

    Raises:
        NotImplementedError: an option without its default; the message says the way out.
        TypeError, ValueError: an array is not as said above.
    """
    refuse_induced(directed)
    return _sample(
        node_types,
        edge_types,
        rowptr_dict,
        col_dict,
        seed_dict,
        num_neighbors_dict,
        TimesGiven(node_time_dict or {}, edge_time_dict or {}, seed_time_dict or {}),
        edge_weight_dict or {},
        csc=csc,
        replace=replace,
        disjoint=disjoint,
        temporal_strategy=temporal_strategy,
        return_edge_id=return_edge_id,
    )


def sparse_hetero_neighbor_sample(
    node_types: Sequence[str],
    edge_types: Sequence[EdgeType],
    colptr_dict: Mapping[str, Tensor],
    row_dict: Mapping[str, Tensor],
    input_node_dict: Mapping[str, Tensor],
    num_neighbors_dict: Fanouts,
    num_hops: int,
    replace: bool,
    directed: bool,
) -> tuple[Any, ...]:
    """`torch.ops.torch_sparse.hetero_neighbor_sample`, as torch-sparse 0.6 declares it.

    torch_geometric calls it for `subgraph_type="induced"`: with `directed=False` the edges are all those among the
    sampled nodes, those of each node in the order of its list. For all else see `hetero_neighbor_sample`.

    Args:
        num_hops: entries of each of `num_neighbors_dict`.

    Returns:
        nodes: node type -> ids; row, col: relation -> places in the nodes of its types; edge ids: relation ->
        places in `row_dict`.

    Raises:
        ValueError: `num_hops` is another number. For all else see `hetero_neighbor_sample`.
    """
    for name, fanouts in num_neighbors_dict.items():
        if len(fanouts) != num_hops:
            raise ValueError(
                f"num_hops is {num_hops}, but num_neighbors_dict[{name!r}] has {len(fanouts)} entries, one per hop; "
                f"give num_hops={len(fanouts)}"
            )
    row, column, nodes, ids, *_ = _sample(
        node_types,
        edge_types,
        colptr_dict,
        row_dict,
        input_node_dict,
        num_neighbors_dict,
        TimesGiven({}, {}, {}),
        {},
        csc=True,
        replace=replace,
        subgraph_type="directional" if directed else "induced",
    )
    return nodes, row, column, ids


def _sample(
    node_types: Sequence[str],
    edge_types: Sequence[EdgeType],
    rowptr_dict: Mapping[str, Tensor],
    col_dict: Mapping[str, Tensor],
    seed_dict: Mapping[str, Tensor],
    num_neighbors_dict: Fanouts,
    times: TimesGiven,
    weights: Mapping[str, Tensor],
    *,
    csc: bool,
    replace: bool,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
    subgraph_type: str = "directional",
) -> tuple[Any, ...]:
    times.check(disjoint, temporal_strategy, seed_dict)
    keys = {relation: "__".join(relation) for relation in edge_types}
    for relation, key in keys.items():
        for name, given in (
            ("rowptr_dict", rowptr_dict),
            ("col_dict", col_dict),
            ("num_neighbors_dict", num_neighbors_dict),
        ):
            if key not in given:
                raise ValueError(f"{name} has nothing for the edge type {relation}; give it under {key!r}")
    for name, of_edges in (("edge_weight_dict", weights), ("edge_time_dict", times.of_edges)):
        if unknown := of_edges.keys() - keys.values():
            raise ValueError(
                f"{name} has the key {min(unknown)!r}, which is no edge type; there are {[*keys.values()]}"
            )
    lists = [_Lists.of(key, rowptr_dict[name], col_dict[name], weights.get(name), csc) for key, name in keys.items()]
    fanouts = {one.relation: tuple(_fanouts(one, num_neighbors_dict[keys[one.given]], replace)) for one in lists}
    if subgraph_type == "induced":  # without a hop there are edges among the seeds
        fanouts = {relation: of_hop or (0,) for relation, of_hop in fanouts.items()}
    dtype = lists[0].indptr.dtype if lists else torch.int64
    if not lists or not all(fanouts.values()):  # no hop
        only = _seeds_only(node_types, seed_dict, [one.relation for one in lists], disjoint)
        return _output(only, lists, csc, return_edge_id, dtype)
    tensors = [tensor for one in lists for tensor in (one.indptr, one.indices, one.weights) if tensor is not None]
    tensors += times.tensors()

    def once(key: Any, make: Callable[[], Any]) -> Any:
        return _known.get_of(tensors, key, make)

    whose = tuple(times.of_nodes), tuple(times.of_edges)  # the same tensor may be of another type in the next call
    names = tuple(node_types), tuple(one.relation for one in lists), whose
    sizes = once(("sizes", names), lambda: _sizes(node_types, lists, times.of_nodes))
    counted = {one.relation[2] for one in lists} | times.of_nodes.keys()
    for name, ids in seed_dict.items():  # nobody says how many nodes there are of a type without lists and times
        if name in sizes and name not in counted and ids.numel():
            sizes = {**sizes, name: max(sizes[name], 1 << int(ids.max()).bit_length())}
    graph = once(("graph", names, tuple(sizes.values())), lambda: _graph_of(sizes, lists, times))
    by_weight = bool(weights) and any(k != -1 for of_hop in fanouts.values() for k in of_hop)

    def make() -> SubgraphSampler:
        return SubgraphSampler(
            fanouts,
            edge_ids=True,
            replace=replace,
            weights="edge_weights" if by_weight else None,
            num_threads=num_threads(),
            subgraph_type=subgraph_type,
        )

    what = tuple(fanouts.values()), replace, by_weight, num_threads(), subgraph_type
    if disjoint:

        def make_trees() -> TreeSampler:
            weights = "edge_weights" if by_weight else None
            if times.last(temporal_strategy):
                tell_untimed(graph, fanouts, times.counted)
            options: Any = {"edge_ids": True, "replace": replace, "weights": weights, "num_threads": num_threads()}
            return TreeSampler(fanouts, times=times.counted, last=times.last(temporal_strategy), **options)

        trees = once(("trees", names, *what, temporal_strategy, times.counted), make_trees)
        return _output(_sample_trees(trees, graph, seed_dict, times), lists, csc, return_edge_id, dtype)
    sample = once(("sampler", names, *what), make).sample(graph, seed_dict, epoch=drawn())
    return _output(sample, lists, csc, return_edge_id, dtype)


class TimesGiven(NamedTuple):
    """The times that the operator was given.

    Attributes:
        of_nodes, of_seeds: by node type.
        of_edges: by the name of the relation.
    """

    of_nodes: Mapping[str, Tensor]
    of_edges: Mapping[str, Tensor]
    of_seeds: Mapping[str, Tensor]

    @property
    def counted(self) -> str:
        """Which times count, as a sampler's option."""
        if self.of_nodes and self.of_edges:
            return "both"
        return "node" if self.of_nodes else "edge" if self.of_edges else "none"

    def check(self, disjoint: bool, strategy: str, seeds: Mapping[str, Tensor]) -> None:
        """Raises ValueError if they do not go with the other arguments."""
        if strategy not in ("uniform", "last"):
            raise ValueError(f"temporal_strategy is {strategy!r}; it must be 'uniform' or 'last'")
        if self.counted == "none" and self.of_seeds:
            raise ValueError("seeds have times, and neither nodes nor edges have any; give those, or leave these out")
        if self.counted != "none" and not disjoint:
            raise ValueError("times need disjoint=True: what a node may know depends on the seed")
        for name, of in self.of_seeds.items():
            if name not in seeds:
                raise ValueError(f"seed_time_dict names {name!r}, which has no seeds; seed_dict has {list(seeds)}")
            if of.shape != seeds[name].shape:
                raise ValueError(
                    f"seed_time_dict[{name!r}] has shape {list(of.shape)}, the seeds {list(seeds[name].shape)}; they "
                    "must be equal"
                )

    def last(self, strategy: str) -> bool:
        return strategy == "last" and self.counted != "none"

    def tensors(self) -> list[Tensor]:
        """Those that belong to the graph."""
        return [*self.of_nodes.values(), *self.of_edges.values()]

    def of(self, name: str, ids: Tensor) -> Tensor:
        """The times of these seeds."""
        if name in self.of_seeds:
            return self.of_seeds[name]
        if name not in self.of_nodes:
            raise ValueError(f"seed_time_dict has nothing for the seeds of {name!r}, which have no times; give some")
        return self.of_nodes[name][ids.long()]


def _sample_trees(
    sampler: TreeSampler, graph: HeteroGraph, seeds: Mapping[str, Tensor], times: TimesGiven
) -> HeteroSubgraph:
    """The trees of these seeds, numbered in the order of the dictionary."""
    known = None if times.counted == "none" else {name: times.of(name, ids) for name, ids in seeds.items()}
    found = hetero_subgraph_of(sampler.sample(graph, seeds, known, epoch=drawn()))
    first, firsts = 0, {}
    for name, ids in seeds.items():
        firsts[name] = first
        first += ids.numel()
    numbers = [torch.arange(seeds[name].numel()) + firsts[name] for name in graph.node_types if name in seeds]
    number = torch.cat(numbers)
    assert found.tree is not None
    return found.replace(tree={name: number[tree] for name, tree in found.tree.items()})


class _Lists(NamedTuple):
    """The lists of one relation. They lead to the nodes of `relation[2]`, if that is the given one or its reverse."""

    given: EdgeType
    relation: EdgeType
    indptr: Tensor
    indices: Tensor
    weights: Tensor | None

    @classmethod
    def of(cls, given: EdgeType, indptr: Tensor, indices: Tensor, weights: Tensor | None, csc: bool) -> _Lists:
        for name, array in (("rowptr_dict", indptr), ("col_dict", indices)):
            if array.dim() != 1 or array.dtype not in (torch.int32, torch.int64):
                raise TypeError(
                    f"{name}[{'__'.join(given)!r}] has shape {list(array.shape)} and dtype {array.dtype}; it must have "
                    "1 dimension and be int32 or int64"
                )
        if array.device.type != "cpu":
            on_gpu()
        return cls(given, given if csc else (given[2], given[1], given[0]), indptr, indices, weights)


def _sizes(node_types: Sequence[str], lists: Sequence[_Lists], node_times: Mapping[str, Tensor]) -> dict[str, int]:
    """Node type -> how many there are, or how many are known of."""
    sizes = {name: node_times[name].numel() if name in node_times else 0 for name in node_types}
    for one in lists:
        for name in (one.relation[0], one.relation[2]):
            if name not in sizes:
                raise ValueError(f"edge type {one.given} names the node type {name!r}; node_types has {list(sizes)}")
        sizes[one.relation[2]] = max(sizes[one.relation[2]], one.indptr.numel() - 1)
    of_lists = {one.relation[2] for one in lists}
    for one in lists:
        name = one.relation[0]
        if name not in of_lists and one.indices.numel():
            sizes[name] = max(sizes[name], int(one.indices.max()) + 1)
    return sizes


def _graph_of(sizes: Mapping[str, int], lists: Sequence[_Lists], times: TimesGiven) -> HeteroGraph:
    edges, weights, edge_times = {}, {}, {}
    for one in lists:
        try:
            check_csc(one.indptr, one.indices, sizes[one.relation[0]])
        except ValueError as error:
            raise ValueError(f"rowptr and col of {one.given} are no graph: {error}") from None
        ends = torch.arange(one.indptr.numel() - 1).repeat_interleave(one.indptr.diff().long())
        edges[one.relation] = torch.stack([one.indices.long(), ends])
        if one.weights is not None:
            weights[one.relation] = one.weights
        if (key := "__".join(one.given)) in times.of_edges:
            edge_times[one.relation] = times.of_edges[key]
    graph = HeteroGraph.from_edges(
        edges, sizes, edge_weights=weights or None, node_times=times.of_nodes, edge_times=edge_times
    )
    given = {one.relation: f"edge_time_dict[{'__'.join(one.given)!r}]" for one in lists}
    refuse_missing_times(graph, lambda key: given.get(key) or f"node_time_dict[{key!r}]")
    return graph


def _fanouts(one: _Lists, fanouts: Sequence[int], replace: bool) -> list[int]:
    """The fanouts of a relation, as our samplers have them."""

    def degree() -> int:
        return int(one.indptr.diff().max()) if one.indptr.numel() > 1 else 0

    return [max(k, -1) for k in large_as_all(one.given, fanouts, degree, replace)]


def _seeds_only(
    node_types: Sequence[str], seeds: Mapping[str, Tensor], edge_types: Sequence[EdgeType], disjoint: bool
) -> HeteroSubgraph:
    nodes = {name: seeds[name].long() if name in seeds else torch.empty(0, dtype=torch.int64) for name in node_types}
    none = {relation: torch.empty((2, 0), dtype=torch.int64) for relation in edge_types}
    ids = {relation: pairs[0] for relation, pairs in none.items()}
    counts = {name: (found.numel(),) for name, found in nodes.items()}
    tree, first = {name: torch.arange(ids.numel()) for name, ids in nodes.items()}, 0
    for name in seeds:
        tree[name] += first
        first += tree[name].numel()
    found = HeteroSubgraph(nodes, none, ids, counts, dict.fromkeys(edge_types, ()))
    return found.replace(tree=tree) if disjoint else found


def _output(
    sample: HeteroSubgraph, lists: Sequence[_Lists], csc: bool, edge_ids: bool, dtype: torch.dtype
) -> tuple[Any, ...]:
    row, column, edges, counts = {}, {}, {}, {}
    for one in lists:
        key = "__".join(one.given)
        sources, targets = sample.edges[one.relation].to(dtype)
        row[key], column[key] = (sources, targets) if csc else (targets, sources)
        counts[key] = list(sample.num_edges[one.relation])
        if sample.edge_ids is not None:
            edges[key] = sample.edge_ids[one.relation].to(dtype)
    nodes = {name: ids.to(dtype) for name, ids in sample.nodes.items()}
    if sample.tree is not None:
        nodes = {name: torch.stack([sample.tree[name].to(dtype), ids], 1) for name, ids in nodes.items()}
    num_nodes = {name: list(of_hop) for name, of_hop in sample.num_nodes.items()}
    return row, column, nodes, edges if edge_ids else None, num_nodes, counts
