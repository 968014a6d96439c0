"""Options of torch_geometric's loaders: those that are read here, and those that are refused with a way out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch.utils.data
from torch_geometric.sampler import NumNeighbors

from loader.graph import EdgeType, Graph, HeteroGraph
from loader.loaders.torch_options import DataLoaderOptions, as_fanouts, read_options
from loader.machine.arguments import as_flag, as_index, shown
from loader.samplers import SubgraphSampler
from loader.samplers.base import MAX_FANOUT
from loader.samplers.tree_subgraph import TreeSubgraphSampler

_WAY = "torch_geometric's own loader knows it: `import loader.pyg` lets it sample on our core, on the CPU"


class TimeOptions(NamedTuple):
    """What a loader was told of times and trees.

    Attributes:
        time_attr: name of the times in the data, or None.
        strategy: "uniform" or "last".
        disjoint: each seed has a tree of its own.
        window: show only what is later than the seed's time minus this, or None.
    """

    time_attr: str | None
    strategy: str
    disjoint: bool
    window: int | None

    @classmethod
    def of(
        cls,
        time_attr: str | None,
        seed_time: Any,
        strategy: str,
        disjoint: bool,
        window: int | None,
        *,
        name: str = "input_time",
        needed: bool = False,
    ) -> TimeOptions:
        """The options; raises ValueError if they do not go together.

        Args:
            seed_time: times of the seeds, the option `name`.
            needed: with `time_attr` they must be given.
        """
        if strategy not in ("uniform", "last"):
            raise ValueError(f"temporal_strategy is {shown(strategy)}; it must be 'uniform' or 'last'")
        if time_attr is None:
            for option, given in ((name, seed_time is not None), ("window", window is not None)):
                if given:
                    raise ValueError(
                        f"{option} is given, but time_attr is None; name the times of data, or leave it out"
                    )
            if strategy == "last":
                raise ValueError("temporal_strategy is 'last', but time_attr is None; name the times of data")
        elif needed and seed_time is None:
            raise ValueError(f"time_attr is {shown(time_attr)}, but '{name}' is not set; give each link its time")
        return cls(time_attr, strategy, as_flag("disjoint", disjoint) or time_attr is not None, window)


def subgraph_type_of(subgraph_type: Any, directed: bool) -> str:
    """The name of the type of subgraphs; `directed=False` is an older way to ask for induced ones.

    Raises:
        ValueError: there is no such type, or the two contradict each other.
    """
    name = getattr(subgraph_type, "value", subgraph_type)
    if not directed and name == "bidirectional":
        raise ValueError("directed is False, which means subgraph_type='induced', and subgraph_type is 'bidirectional'")
    return "induced" if not directed else name


def hops_of(num_neighbors: Any) -> list[Any]:
    """Picks per hop, of a list or of a `NumNeighbors` of torch_geometric.

    Raises:
        TypeError: it is neither.
    """
    return as_fanouts(
        "num_neighbors", num_neighbors.values if isinstance(num_neighbors, NumNeighbors) else num_neighbors
    )


def hops_by_type(num_neighbors: Any, edge_types: Sequence[EdgeType]) -> dict[EdgeType, list[Any]]:
    """Picks per hop of each edge type, of a list for all of them, a dict, or a `NumNeighbors` of torch_geometric.

    No hops are one hop without picks, which a sampler of several types has.

    Raises:
        TypeError: it is none of them.
        ValueError: an edge type is missing, or unknown.
    """
    if not edge_types:
        raise ValueError("data has no edge types; NeighborLoader samples along edges: add some")
    default = None
    if isinstance(num_neighbors, NumNeighbors):
        num_neighbors, default = num_neighbors.values, num_neighbors.default
    if not isinstance(num_neighbors, Mapping):
        hops = as_fanouts("num_neighbors", num_neighbors)
        return {edge_type: list(hops) or [0] for edge_type in edge_types}
    names = {"__".join(edge_type): edge_type for edge_type in edge_types}
    given: dict[EdgeType, list[Any]] = {}
    for key, hops in num_neighbors.items():
        edge_type = names.get(key if isinstance(key, str) else "__".join(map(str, key)))
        if edge_type is None:
            raise ValueError(f"num_neighbors names the edge type {shown(key)}; data has {list(edge_types)}")
        given[edge_type] = as_fanouts(f"num_neighbors[{key!r}]", hops)
    for edge_type in edge_types:
        if edge_type not in given and default is None:
            raise ValueError(f"num_neighbors has nothing for the edge type {edge_type}; give it, 0 for no neighbors")
    by_type = {edge_type: given[edge_type] if edge_type in given else list(default or []) for edge_type in edge_types}
    counts = sorted({len(hops) for hops in by_type.values()})
    if len(counts) > 1:
        raise ValueError(
            f"num_neighbors has {' and '.join(map(str, counts))} hops; the number of hops must be the same across all "
            "edge types: give 0 where no neighbors are picked"
        )
    return {edge_type: hops or [0] for edge_type, hops in by_type.items()}


def large_as_all(edge_type: Any, fanouts: Sequence[Any], degree: Callable[[], int], replace: bool) -> list[Any]:
    """Picks per hop of an edge type; those above 1024 become -1, as they are all neighbors.

    Args:
        degree: the most neighbors of a node.

    Raises:
        ValueError: a node has more than 1024 neighbors and than are picked, or they are picked with replacement.
    """
    large = [k for k in map(as_index, fanouts) if k is not None and k > MAX_FANOUT]
    if not large:
        return list(fanouts)
    if replace or degree() > min(large):
        raise ValueError(
            f"fanout {min(large)} of {edge_type} is not possible, as a node has {degree()} neighbors: give up to "
            f"{MAX_FANOUT}, or -1 for all"
        )
    return [-1 if as_index(k) in large else k for k in fanouts]


def large_as_all_of(graph: Graph | HeteroGraph, hops: Any, replace: bool) -> Any:
    """`large_as_all` of a graph; of several types `hops` are by edge type, and so is the result."""

    def degree(*edge_type: EdgeType) -> int:
        degrees = graph.in_degrees(*edge_type)
        return int(degrees.max()) if degrees.numel() else 0

    if not isinstance(graph, HeteroGraph):
        return large_as_all("the graph", hops, degree, replace)
    return {key: large_as_all(key, of, partial(degree, key), replace) for key, of in hops.items()}


def picks_by(weight_attr: str | None, hops: Sequence[Any] | Mapping[Any, Sequence[Any]]) -> str | None:
    """The name of a graph's weights if neighbors are picked by them: whoever takes all neighbors picks none."""
    every = [k for of_type in hops.values() for k in of_type] if isinstance(hops, Mapping) else hops
    return None if weight_attr is None or all(k == -1 for k in every) else "edge_weights"


def sampler_of(
    hops: list[Any] | dict[EdgeType, list[Any]],
    shape: str,
    device: torch.device,
    options: DataLoaderOptions,
    weight_attr: str | None,
    replace: bool,
) -> SubgraphSampler:
    """The sampler of a loader's subgraphs.

    Args:
        hops: picks per hop; of several types edge type -> these.
        shape: the type of subgraphs.
        device: that samples.
        options: of torch's DataLoader, which have the seed and the number of threads.
        weight_attr, replace: of the loader.
    """
    return SubgraphSampler(
        hops,
        device=device,
        num_threads=options.num_threads,
        subgraph_type=shape,
        replace=replace,
        edge_ids=True,
        seed=options.seed,
        weights=picks_by(weight_attr, hops),
    )


def tree_sampler_of(
    fanouts: dict[EdgeType, list[Any]],
    shape: str,
    device: torch.device,
    options: DataLoaderOptions,
    weights: str | None,
    replace: bool,
    times: TimeOptions,
    counted: str,
) -> TreeSubgraphSampler:
    """The sampler of a loader's trees, see `sampler_of`.

    Args:
        counted: which times count, "none", "node" or "edge".
    """
    return TreeSubgraphSampler(
        fanouts,
        both=shape == "bidirectional",
        device=device,
        num_threads=options.num_threads or None,
        replace=replace,
        edge_ids=True,
        seed=options.seed,
        weights=weights,
        times=counted,
        last=times.strategy == "last",
        window=times.window,
    )


def read_torchs(who: str, device: torch.device, options: dict[str, Any]) -> tuple[dict[str, Any], DataLoaderOptions]:
    """What draws the items, `sampler` and `batch_sampler`, and the other options of torch's DataLoader.

    Raises:
        TypeError, ValueError: see `read_options`; or a `dataset` or `collate_fn` of the caller's.
    """
    drawn = {name: options.pop(name, None) for name in ("sampler", "batch_sampler")}
    for name, sampler in drawn.items():
        if sampler is not None and not (hasattr(sampler, "__iter__") and hasattr(sampler, "__len__")):
            raise TypeError(f"{name} is {shown(sampler)}; it must be a sampler of torch's, with a length")
    # Lightning makes a loader anew with what it finds there.
    dataset, collate = options.pop("dataset", None), options.pop("collate_fn", None)
    if not (dataset is None or isinstance(dataset, range)):
        raise TypeError(f"{who} takes no dataset: it makes mini-batches of data; leave it out")
    if collate is not None and not isinstance(getattr(collate, "__self__", None), torch.utils.data.DataLoader):
        raise TypeError(
            f"collate_fn is {shown(collate)}, and torch_geometric never calls it: override the method collate_fn in a "
            f"subclass of {who}, or give transform"
        )
    return drawn, read_options(who, device, **options)
