"""DGL's samplers of induced subgraphs on our core: `ShaDowKHopSampler`, `SAINTSampler`, `ClusterGCNSampler`."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loader.datasets.digests import digest_of
from loader.dgl.graphs import DGLS, graph_of
from loader.dgl.hetero import by_edge_type, by_node_type, fill_hetero
from loader.dgl.original_dgl import dataloading, drawn
from loader.dgl.samplers import NeighborSampler
from loader.dgl.sampling.frontier import refusing_as_dgl, require_graph
from loader.dgl.sampling.walks import random_walk
from loader.graph import HeteroGraph, induced_edges, induced_subgraph
from loader.graph.metis import metis_parts
from loader.loaders.torch_options import as_ids, refuse
from loader.machine.arguments import as_flag, as_size, shown
from loader.machine.optional import import_dgl
from loader.machine.whole_files import check_folder, replaced
from loader.samplers.drawn_numbers import drawn_below, drawn_by

_MODES = ("node", "edge", "walk")
_MOST_SUM = 2**60  # of weights as integers


class SubgraphSampler:
    """Base of the samplers whose mini-batches are subgraphs. A `DataLoader` calls their `sample`."""

    output_device: Any = None

    def sample(self, g: Any, indices: Any) -> Any:
        """The mini-batch of the items `indices`."""
        raise NotImplementedError(f"{type(self).__name__} has no sample; implement it")

    def _finish(self, made: Any, node_names: Any, edge_names: Any) -> Any:
        """Marks features to prefetch, and brings the subgraph to `output_device`."""
        base = dataloading("base")
        if self.output_device is not None and torch.device(self.output_device) != made.device:
            made = made.to(self.output_device)
        base.set_node_lazy_features(made, node_names)
        base.set_edge_lazy_features(made, edge_names)
        return made


class ShaDowKHopSampler(SubgraphSampler):
    """`dgl.dataloading.ShaDowKHopSampler`: the subgraph that the sampled neighborhood of the seeds induces.

    A mini-batch is `(input_nodes, output_nodes, subgraph)`: the nodes of the subgraph, seeds first, the seeds, and the
    nodes with all edges among them, with `dgl.NID`, `dgl.EID` and the features of the graph. The picks are those of
    `NeighborSampler`, so equal seeds give equal mini-batches on the CPU and on a GPU.

    Args:
        fanouts: neighbors of a node, **from the input layer to the seeds**: 1 to 1024, or -1 for all; or dicts by edge
            type.
        replace: pick with replacement.
        prob: name in `g.edata` of the weights by which neighbors are picked, or None.
        prefetch_node_feats, prefetch_edge_feats: names of features that a `DataLoader` gathers; of several types dicts.
        output_device: device of the subgraph; None: that of the graph.
    """

    def __init__(
        self,
        fanouts: Sequence[Any],
        replace: bool = False,
        prob: str | None = None,
        prefetch_node_feats: Any = None,
        prefetch_edge_feats: Any = None,
        output_device: Any = None,
    ) -> None:
        self.fanouts, self.replace, self.prob = fanouts, replace, prob
        self.prefetch_node_feats, self.prefetch_edge_feats = prefetch_node_feats, prefetch_edge_feats
        self.output_device = output_device
        self._around: tuple[Any, NeighborSampler] | None = None
        self._neighbors()  # looks at the options

    def _neighbors(self) -> NeighborSampler:
        """The sampler of the neighborhood, by the attributes of now."""
        now = copy.deepcopy((self.fanouts, self.replace, self.prob))  # a list may be written to
        if self._around is None or self._around[0] != now:
            self._around = now, NeighborSampler(self.fanouts, replace=self.replace, prob=self.prob)
        return self._around[1]

    def sample(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, Any]:
        """`(input_nodes, output_nodes, subgraph)` around `seed_nodes`, sampled where the graph lies.

        Args:
            seed_nodes: `[n]` distinct nodes, by type if there are several.
            exclude_eids: ids of edges to leave out of the neighborhood, after they were picked, and of the subgraph, by
                type if there are several; or None.

        Raises:
            TypeError, ValueError: an argument is not as said above; a node is given twice.
        """
        around = self._neighbors()
        if exclude_eids is not None:
            nodes = around.sample_blocks(g, seed_nodes, exclude_eids)[0]
        else:
            nodes = around.input_nodes(g, seed_nodes)
        made = induced(g, nodes)
        if exclude_eids is not None:
            made = _without(g, made, exclude_eids)
        return nodes, seed_nodes, self._finish(made, self.prefetch_node_feats, self.prefetch_edge_feats)


def _without(g: Any, made: Any, exclude_eids: Any) -> Any:
    """A subgraph of `g` without the edges of these ids in `g`. DGL's `EidExcluder` takes no int32 ids by type."""
    dgl = import_dgl("loader.dgl")
    for key, ids in by_edge_type("exclude_eids", g, exclude_eids).items():
        found = made.edges[key].data[dgl.EID]
        gone = torch.isin(found, as_ids("exclude_eids", ids).to(found)).nonzero().view(-1)
        made = dgl.remove_edges(made, gone.to(g.idtype), etype=key)
    return made


class SAINTSampler(SubgraphSampler):
    """`dgl.dataloading.SAINTSampler`: the subgraph that random nodes induce (Zeng et al., "GraphSAINT", ICLR 2020).

    What is drawn follows from one number of DGL's generator for each mini-batch, in a `DataLoader` from its seed, the
    epoch and the mini-batch. It is the same on the CPU and on a GPU.

    Args:
        mode: "node" draws nodes with probabilities proportional to max(out-degree, 1). "edge" draws edges with
            probabilities proportional to 1 / in-degree(target) + 1 / out-degree(source), and takes both ends. "walk"
            takes the nodes of random walks along the edges, from uniform starts. All are drawn with replacement.
        budget: number of nodes or of edges; with "walk" (walks, steps).
        cache: keep what drawing needs with the graph that was sampled last.
        prefetch_ndata, prefetch_edata: names of features that a `DataLoader` gathers.
        output_device: device of the subgraph; None: that of the graph.

    Raises:
        TypeError, ValueError: an argument is not as said above. The latter is a `dgl.DGLError`, too.
    """

    @refusing_as_dgl
    def __init__(
        self,
        mode: str,
        budget: Any,
        cache: bool = True,
        prefetch_ndata: Any = None,
        prefetch_edata: Any = None,
        output_device: Any = "cpu",
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode is {shown(mode)}; it must be one of {', '.join(_MODES)}")
        self.mode, self.cache = mode, as_flag("cache", cache)
        if mode == "walk":
            if not isinstance(budget, Sequence) or isinstance(budget, str) or len(budget) != 2:
                raise TypeError(f"budget is {shown(budget)}; with mode 'walk' it must be (walks, steps)")
            self.budget: Any = as_size("budget[0]", budget[0]), as_size("budget[1]", budget[1], least=0)
        else:
            self.budget = as_size("budget", budget)
        self.prefetch_ndata, self.prefetch_edata = prefetch_ndata or [], prefetch_edata or []
        self.output_device = output_device
        self._sums: tuple[Any, Tensor] | None = None

    @refusing_as_dgl
    def sample(self, g: Any, indices: Any) -> Any:
        """A random subgraph of `g`, a graph of one type; `indices` has no effect, as in DGL."""
        require_graph(g)
        if not g.is_homogeneous:
            raise ValueError(f"g has the edge types {g.canonical_etypes}; SAINTSampler takes a graph of one type")
        seed = drawn()
        if self.mode == "walk":
            walks, steps = self.budget
            start = drawn_below(g.num_nodes(), walks, seed=seed, epoch=0, batch=0).to(g.device, g.idtype)
            traces, _ = random_walk(g, start, length=steps)
            nodes = traces[traces >= 0]
        else:
            nodes = drawn_by(self._summed(g), self.budget, seed=seed, epoch=0, batch=0).to(g.device, g.idtype)
            if self.mode == "edge":
                nodes = torch.cat(g.find_edges(nodes))
        made = induced(g, nodes.unique().to(g.idtype))
        return self._finish(made, self.prefetch_ndata, self.prefetch_edata)

    def _summed(self, g: Any) -> Tensor:
        """Weights of nodes or edges as integers, summed up; made on the CPU, so that they are the same everywhere."""
        if self.cache and self._sums is not None and self._sums[0] is g._graph:
            return self._sums[1]
        out_degrees = g.out_degrees().cpu().long().clamp(min=1)
        weights = out_degrees
        if self.mode == "edge":
            source, target = (ends.cpu().long() for ends in g.edges())
            in_degrees = g.in_degrees().cpu().long().clamp(min=1)
            real = 1.0 / in_degrees[target].double() + 1.0 / out_degrees[source].double()
            # Their sum is at most twice the number of nodes.
            scale = 2 ** (math.frexp(_MOST_SUM / (2 * max(g.num_nodes(), 1)))[1] - 1)
            weights = (real * scale).round().long()
        made = weights.cumsum(0).to(g.device)
        self._sums = (g._graph, made) if self.cache else None
        return made


class ClusterGCNSampler(SubgraphSampler):
    """`dgl.dataloading.ClusterGCNSampler`: the subgraph that the nodes of some parts of the graph induce.

    METIS makes the parts, by the package pymetis (`pip install 'gnn-loader[metis]'`). The items of a `DataLoader` are
    numbers of parts.

    Args:
        g: the graph, of one type.
        k: number of parts.
        cache_path: a file that keeps the parts, and from which they are read if it is there. It is written by
            `torch.save`: a file of DGL's, which unpickling would run, is refused.
        balance_ntypes: an option of DGL; must be None.
        balance_edges: parts have about equal numbers of edges, in place of nodes.
        mode: "k-way", or "recursive": divide by two again and again.
        prefetch_ndata, prefetch_edata: names of features that a `DataLoader` gathers.
        output_device: device of the subgraph; None: that of the graph.

    Raises:
        ImportError: pymetis is missing, and so is the file.
        NotImplementedError: an option of DGL is not supported.
        ValueError: an argument is not as said above, or the file is of another graph or other options. It is a
            `dgl.DGLError`, too.
    """

    @refusing_as_dgl
    def __init__(
        self,
        g: Any,
        k: int,
        cache_path: str = "cluster_gcn.pkl",
        balance_ntypes: Any = None,
        balance_edges: bool = False,
        mode: str = "k-way",
        prefetch_ndata: Any = None,
        prefetch_edata: Any = None,
        output_device: Any = None,
    ) -> None:
        refuse(type(self).__name__, DGLS, {"balance_ntypes": (balance_ntypes, None)})
        require_graph(g)
        if not g.is_homogeneous:
            raise ValueError(f"g has the edge types {g.canonical_etypes}; ClusterGCNSampler takes a graph of one type")
        if mode not in ("k-way", "recursive"):
            raise ValueError(f"mode is {shown(mode)}; it must be 'k-way' or 'recursive'")
        k, path, balanced = as_size("k", k), Path(cache_path), as_flag("balance_edges", balance_edges)
        graph = graph_of(g, None, torch.device("cpu"))
        assert not isinstance(graph, HeteroGraph)
        made_of = {"edges": digest_of(graph.indptr, graph.indices), "mode": mode, "balance_edges": balanced}
        if path.exists():
            self.partition_offset, self.partition_node_ids = _read_parts(path, k, g.num_nodes(), made_of)
        else:
            check_folder("cache_path", path)
            weights = graph.in_degrees().long() if balanced else None
            parts = metis_parts(
                graph, k, recursive=mode == "recursive", node_weights=weights, wanted_by=type(self).__name__
            )
            sizes = torch.bincount(parts, minlength=k)
            self.partition_offset = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
            self.partition_node_ids = torch.argsort(parts, stable=True)
            with replaced(path) as file:  # of several ranks, none reads half of it
                torch.save((self.partition_offset, self.partition_node_ids, made_of), file)
        self.prefetch_ndata, self.prefetch_edata = prefetch_ndata or [], prefetch_edata or []
        self.output_device = output_device

    @refusing_as_dgl
    def sample(self, g: Any, partition_ids: Any) -> Any:
        """The subgraph of the parts `partition_ids`, `[n]` distinct numbers."""
        offset = self.partition_offset.tolist()
        ids = as_ids("partition_ids", partition_ids).tolist()
        if wrong := [i for i in ids if not 0 <= i < len(offset) - 1]:
            raise ValueError(f"partition_ids holds {wrong[0]}; valid ids are 0 to {len(offset) - 2}")
        nodes = torch.cat([self.partition_node_ids[offset[i] : offset[i + 1]] for i in ids])
        made = induced(g, nodes.to(g.device, g.idtype))
        return self._finish(made, self.prefetch_ndata, self.prefetch_edata)


def _read_parts(path: Path, k: int, num_nodes: int, made_of: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Offsets of parts, and the nodes part after part, from a file; ValueError if it is no such file, or made of
    something else. A file of an earlier release does not say of what it was made.
    """
    way = f"remove {path}, or give another cache_path"
    try:
        offset, nodes, *known = torch.load(path, weights_only=True)
        found = len(offset) - 1, len(nodes)
    except Exception as error:  # of whatever the file holds
        raise ValueError(f"{path} holds no parts that ClusterGCNSampler has written ({error}); {way}") from error
    if found != (k, num_nodes):
        raise ValueError(f"{path} holds {found[0]} parts of {found[1]} nodes, not {k} of {num_nodes}; {way}")
    for name, value in known[0].items() if known else ():
        if value != made_of.get(name):
            what = "of other edges" if name == "edges" else f"made with {name}={value!r}"
            raise ValueError(f"{path} holds parts that are {what}; {way}")
    return offset, nodes


def induced(g: Any, nodes: Any) -> Any:
    """The subgraph of `g` with all edges among `nodes`, with `dgl.NID`, `dgl.EID` and the features of `g`.

    Edges come by target in the order of the nodes, and each list by source and id. Features are gathered when they are
    read, as in DGL.

    Args:
        nodes: `[n]` distinct ids, by type if there are several.

    Raises:
        TypeError, ValueError: these are no nodes, or one is given twice.
    """
    dgl = import_dgl("loader.dgl")
    graph = graph_of(g, None, g.device)
    given = nodes if isinstance(nodes, Mapping) or isinstance(graph, HeteroGraph) else {g.ntypes[0]: nodes}
    given = {name: as_ids("nodes", ids).to(g.device) for name, ids in by_node_type("nodes", g, given).items()}
    none = torch.empty(0, dtype=g.idtype, device=g.device)
    ids = {name: given.get(name, none) for name in g.ntypes}
    edges: dict[Any, tuple[Tensor, Tensor]] = {}
    edge_ids: dict[Any, Tensor] = {}
    if isinstance(graph, HeteroGraph):
        part = induced_subgraph(graph, ids)
        assert part.lists.edge_ids is not None
        for key in g.canonical_etypes:
            places, target = part.entries(key)
            source = part.lists.indices[places].long() - part.node_types[key[0]].start
            edges[key], edge_ids[key] = (source.to(g.idtype), target.to(g.idtype)), part.lists.edge_ids[places]
    else:
        found = induced_edges(graph, ids[g.ntypes[0]])
        (key,) = g.canonical_etypes
        assert graph.edge_ids is not None
        edges[key] = found.sources.to(g.idtype), found.targets.to(g.idtype)
        edge_ids[key] = graph.edge_ids[found.places]
    made = dgl.heterograph(edges, {name: len(of) for name, of in ids.items()}, idtype=g.idtype, device=g.device)
    for name, of in ids.items():
        made.nodes[name].data[dgl.NID] = of.to(g.idtype)
    for key, of in edge_ids.items():
        made.edges[key].data[dgl.EID] = of.to(g.idtype)
    fill_hetero(g, made)
    return made
