"""Samplers with the signatures of `dgl.dataloading`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.dgl import original_dgl
from loader.dgl.graphs import (
    DGLS,
    blocks_of,
    edge_types,
    graph_of,
    node_types,
    of_one_type,
    weights_of,
    with_copies,
    without_edges,
)
from loader.dgl.hetero import (
    by_node_type,
    by_type,
    fanouts_by_edge_type,
    hetero_blocks,
    numbered,
    without_hetero_edges,
)
from loader.dgl.original_dgl import dataloading, drawn
from loader.dgl.sampling.neighbors import labor_frontier, labor_weights
from loader.graph import HeteroGraph
from loader.items.items import as_nodes
from loader.loaders.torch_options import as_fanouts, as_ids, refuse
from loader.machine.arguments import as_flag, as_index, as_size, shown
from loader.samplers import NeighborSampler as Neighbors
from loader.samplers import fused
from loader.samplers.base import MAX_HOPS, resolve_fanouts
from loader.samplers.relations import as_fanout
from loader.samples import HeteroMiniBatch, MiniBatch


class Picking(NamedTuple):
    """What a sampler around nodes picks in a graph.

    Attributes:
        fanouts: neighbors of a node, counted from the seeds, as the rest of this package counts; or by edge type.
        prob: name in `g.edata` of the weights, or None.
        options: of `loader.FusedSampler`.
    """

    fanouts: tuple[int, ...] | dict[tuple[str, str, str], tuple[int, ...]]
    prob: str | None
    options: dict[str, Any]

    def sampler(self, device: torch.device, **options: Any) -> Neighbors:
        """Our sampler that does it."""
        return fused(self.fanouts, device=device, edge_ids=True, **self.options, **options)


class BlockSampler:
    """`dgl.dataloading.BlockSampler`: base of samplers around nodes. A subclass of yours implements `sample_blocks`.

    Args:
        prefetch_node_feats, prefetch_labels, prefetch_edge_feats: see `NeighborSampler`.
        output_device: an option of DGL; must be None.

    Raises:
        NotImplementedError: an option of DGL is not supported.
    """

    def __init__(
        self,
        prefetch_node_feats: Any = None,
        prefetch_labels: Any = None,
        prefetch_edge_feats: Any = None,
        output_device: Any = None,
    ) -> None:
        refuse(type(self).__name__, DGLS, {"output_device": (output_device, None)})
        self.prefetch_node_feats = names_of("prefetch_node_feats", prefetch_node_feats)
        self.prefetch_labels = names_of("prefetch_labels", prefetch_labels)
        self.prefetch_edge_feats = names_of("prefetch_edge_feats", prefetch_edge_feats)
        self.output_device = output_device

    def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, list[Any]]:
        """`(input_nodes, output_nodes, blocks)` around `seed_nodes`, `[n]` nodes, by type if there are several.

        Args:
            exclude_eids: `[n]` ids of edges to leave out, by type if there are several; or None.
        """
        raise NotImplementedError(f"{type(self).__name__} has no sample_blocks; implement it")

    def assign_lazy_features(self, result: tuple[Any, ...]) -> tuple[Any, ...]:
        """Marks the features to prefetch in the blocks of a mini-batch, which a `DataLoader` then fetches."""
        made: tuple[Any, ...] = dataloading("base").BlockSampler.assign_lazy_features(self, result)
        return made

    def sample(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, ...]:
        """`sample_blocks`, then `assign_lazy_features`, as in DGL."""
        return self.assign_lazy_features(self.sample_blocks(g, seed_nodes, exclude_eids=exclude_eids))

    def to_prefetch(self, g: Any) -> dict[str, list[str]]:
        """The names of features to prefetch, by the kind of their rows in a mini-batch; of several types, by
        "node/TYPE", "seed/TYPE" and "edge/SOURCE__NAME__TARGET".
        """
        asked = {
            "node": ("prefetch_node_feats", self.prefetch_node_feats),
            "seed": ("prefetch_labels", self.prefetch_labels),
            "edge": ("prefetch_edge_feats", self.prefetch_edge_feats),
        }
        if g.is_homogeneous:
            return {
                kind: of_one_type(option, names, edge_types(g) if kind == "edge" else node_types(g))
                for kind, (option, names) in asked.items()
            }
        found = {}
        for kind, (option, names) in asked.items():
            for key, of_type in by_type(option, g, names, edges=kind == "edge").items() if names else ():
                found[f"{kind}/{'__'.join(key) if kind == 'edge' else key}"] = of_type
        return found


class FanoutSampler(BlockSampler):
    """Base of the samplers with fanouts.

    Args:
        fanouts: neighbors of a node, from the input layer to the seeds; or a dict by edge type.
        options: of `BlockSampler`.
    """

    prob: str | None = None

    def __init__(self, fanouts: Sequence[Any], **options: Any) -> None:
        super().__init__(**options)
        self.fanouts = as_fanouts("fanouts", fanouts)
        self.picking(None)  # looks at the options
        self._opened: tuple[Any, Neighbors] | None = None

    def _options(self) -> dict[str, Any]:
        """How neighbors are picked, as options of `loader.FusedSampler`."""
        raise NotImplementedError

    def picking(self, g: Any) -> Picking:
        """What is picked in `g`, by the attributes of now.

        Args:
            g: None if it is not known yet.

        Raises:
            TypeError, ValueError, NotImplementedError: an attribute is not possible.
        """
        refuse(type(self).__name__, DGLS, {"output_device": (self.output_device, None)})
        return Picking(self._fanouts(g), self.prob, self._options())

    def by_hop(self) -> str | None:
        """The option with which only the plain path samples, hop by hop; None without one."""
        return None

    def _blocks_by_hop(self, g: Any, seed_nodes: Any, exclude_eids: Any) -> tuple[Any, Any, list[Any]]:
        raise NotImplementedError

    def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, list[Any]]:
        """`(input_nodes, output_nodes, blocks)` around `seed_nodes`, sampled where the graph lies.

        DGL's generator decides the picks. A `DataLoader` seeds it for each mini-batch, if it calls this.

        Args:
            seed_nodes: `[n]` nodes; copies of one get the same picks. A dict by type, of distinct nodes, if the
                graph has several types.
            exclude_eids: `[n]` ids of edges to leave out after they were picked, by type if there are several; or None.

        Raises:
            TypeError, ValueError, NotImplementedError: an argument is not as said above.
        """
        if self.by_hop() is not None:
            return self._blocks_by_hop(g, seed_nodes, exclude_eids)
        batch, places = self._sampled(g, seed_nodes)
        if isinstance(batch, HeteroMiniBatch):
            inputs, _, blocks = hetero_blocks(g, batch, near=True)
            if exclude_eids is not None:
                inputs, blocks = without_hetero_edges(g, seed_nodes, blocks, exclude_eids)
            return inputs, seed_nodes, blocks
        if exclude_eids is not None:
            ids = as_ids("exclude_eids", of_one_type("exclude_eids", exclude_eids, edge_types(g)))
            batch = without_edges(batch, ids)
        if places is not None:
            batch = with_copies(batch, places)
        return batch.input_nodes.to(g.idtype), seed_nodes, blocks_of(g, batch, near=True)

    def input_nodes(self, g: Any, seed_nodes: Any) -> Any:
        """The first of what `sample_blocks` gives, without blocks: all nodes, the seeds first.

        Raises:
            TypeError, ValueError, NotImplementedError: as `sample_blocks`; a node is given twice.
        """
        batch, places = self._sampled(g, seed_nodes)
        if places is not None:
            raise ValueError(f"seed_nodes has {places.numel()} nodes, and some of them twice; give each once")
        if not isinstance(batch, HeteroMiniBatch):
            return batch.input_nodes.to(g.idtype)
        found = {name: ids.to(g.idtype) for name, ids in batch.n_id.items()}
        return found if len(g.ntypes) > 1 else found[g.ntypes[0]]

    def _sampled(self, g: Any, seed_nodes: Any) -> tuple[MiniBatch | HeteroMiniBatch, Tensor | None]:
        """The mini-batch around the distinct nodes of one type, and the places of the given ones among these if some
        come twice.
        """
        picking = self.picking(g)
        graph = graph_of(g, picking.prob, g.device)
        hetero = isinstance(graph, HeteroGraph)
        if hetero:
            nodes = by_node_type("seed_nodes", g, seed_nodes)
            in_order = {name: nodes[name] for name in g.ntypes if name in nodes}
            seeds = numbered("seed_nodes", g, in_order, edges=False)
        else:
            seeds = as_ids("seed_nodes", of_one_type("seed_nodes", seed_nodes, node_types(g)))
        if (dependency := picking.options.get("batch_dependency", 1)) > 1:
            raise NotImplementedError(
                f"batch_dependency is {dependency}, but a mini-batch by itself follows no other; give 1, or pass the "
                "sampler to a DataLoader without methods of your own"
            )
        if self._opened is None or self._opened[0] != (picking, g.device):
            self._opened = (picking, g.device), picking.sampler(g.device)
        places = None
        if not hetero and seeds.numel():
            distinct, inverse = torch.unique(as_nodes("seed_nodes", seeds), return_inverse=True)
            if distinct.numel() < seeds.numel():  # others stay in the order that they were given in
                seeds, places = distinct, inverse
        return self._opened[1].sample(graph, seeds, epoch=drawn()), places

    def _fanouts(self, g: Any) -> Any:
        given = as_fanouts("fanouts", self.fanouts)
        hetero = [layer for layer in given if isinstance(layer, Mapping)]
        for key, number in (pair for layer in hetero for pair in layer.items()):
            as_fanout(key, number)
        if g is None:  # only the graph says which types there are
            given = [1 if isinstance(layer, Mapping) else layer for layer in given]
        elif g.is_homogeneous:
            given = [of_one_type("fanouts", layer, edge_types(g)) for layer in given]
        elif hetero:
            return fanouts_by_edge_type(g, given)
        return resolve_fanouts(given)[::-1]


class NeighborSampler(FanoutSampler):
    """`dgl.dataloading.NeighborSampler`: picks neighbors of each node, layer by layer.

    If the graph has several types, a node gets that many neighbors by each edge type that leads to it.

    Args:
        fanouts: neighbors of a node, **from the input layer to the seeds**, as DGL counts: 1 to 1024, or -1 for all.
            A layer may have a dict, edge type -> number, with each edge type of the graph; then 0 picks none.
        prob: name in `g.edata` of the weights, float32 or float64, by which neighbors are picked; None picks
            uniformly. Edges of weight 0 are never picked. Edge types without such weights are picked uniformly.
        mask: in place of `prob`, name in `g.edata` of a mask: only edges inside are picked, uniformly.
        replace: pick with replacement.
        prefetch_node_feats: names in `g.ndata`, gathered for the input nodes: `blocks[0].srcdata[name]`. If the
            graph has several types, this and the next two are dicts, type -> names.
        prefetch_labels: names in `g.ndata`, gathered for the seeds: `blocks[-1].dstdata[name]`.
        prefetch_edge_feats: names in `g.edata`, gathered for the edges of all blocks: `block.edata[name]`.
        fused: an option of DGL without effect here: all hops are always sampled in one call.
        edge_dir, output_device: options of DGL; must have their defaults.

    Raises:
        NotImplementedError: an option of DGL is not supported.
        TypeError: when it samples: the mask is not boolean.
    """

    mask: str | None = None

    def __init__(
        self,
        fanouts: Sequence[Any],
        edge_dir: str = "in",
        prob: str | None = None,
        mask: str | None = None,
        replace: bool = False,
        prefetch_node_feats: Sequence[str] | None = None,
        prefetch_labels: Sequence[str] | None = None,
        prefetch_edge_feats: Sequence[str] | None = None,
        output_device: Any = None,
        fused: bool = True,
    ) -> None:
        if prob is not None and mask is not None:
            raise ValueError(
                f"prob is {shown(prob)} and mask {shown(mask)}; give one of them: as prob, the weights times the mask"
            )
        self.edge_dir, self.prob, self.replace = edge_dir, prob if mask is None else mask, replace
        self.mask = mask
        super().__init__(
            fanouts,
            prefetch_node_feats=prefetch_node_feats,
            prefetch_labels=prefetch_labels,
            prefetch_edge_feats=prefetch_edge_feats,
            output_device=output_device,
        )

    def picking(self, g: Any) -> Picking:
        if g is not None and self.mask is not None and self.mask == self.prob:
            for key, values in weights_of(g, self.mask, "mask"):
                if values.dtype != torch.bool:  # as weights they would be, and picks not uniform
                    raise TypeError(
                        f"mask is {self.mask!r}, which has dtype {values.dtype} for {key}; a mask must be boolean "
                        f"(.bool()), and weights are given as prob={self.mask!r}"
                    )
        return super().picking(g)

    def _options(self) -> dict[str, Any]:
        refuse("NeighborSampler", DGLS, {"edge_dir": (self.edge_dir, "in")})
        if self.prob is not None and not isinstance(self.prob, str):
            raise TypeError(
                f"prob is {shown(self.prob)}; it must be the name of the weights, or of the mask, in g.edata, or None"
            )
        weights = None if self.prob is None else "edge_weights"
        return {"replace": as_flag("replace", self.replace), "weights": weights}


MultiLayerNeighborSampler = NeighborSampler


class MultiLayerFullNeighborSampler(NeighborSampler):
    """Takes all neighbors, layer by layer.

    Args:
        num_layers: number of layers.
        options: see `NeighborSampler`.
    """

    def __init__(self, num_layers: int, **options: Any) -> None:
        super().__init__([-1] * as_size("num_layers", num_layers, most=MAX_HOPS), **options)


class LaborSampler(FanoutSampler):
    """`dgl.dataloading.LaborSampler`: LABOR, whose mini-batches have fewer nodes.

    A node gets `fanout` neighbors on average. Each neighbor has one random number for all nodes that may pick
    it, so they pick common neighbors together (Balin and Catalyurek, "Layer-Neighbor Sampling", NeurIPS 2023).

    With `prob` or `importance_sampling` its `sample_blocks` is called for each mini-batch, in the thread that asks for
    it, and the graph lies on the CPU. The law is that of `loader.samplers.labor.labor_picks`. Blocks then have
    `edge_weights`, whose mean is 1 for each node, and new nodes come in the order of arrival, as in DGL.

    Args:
        fanouts: neighbors of a node, **from the input layer to the seeds**: 1 to 1024, or -1 for all.
        prob: name in `g.edata` of the weights, float32 or float64, by which neighbors are picked; None: with equal
            probability. Edges of weight 0 are as if they were not there.
        importance_sampling: iterations after which neighbors that several nodes may pick are picked more often
            (LABOR-i); a negative number goes on until that converges.
        layer_dependency: all layers use the same random numbers, which gives still fewer nodes.
        batch_dependency: a neighbor gets a new random number only once in this many consecutive mini-batches, so they
            have more nodes in common. With 1, all numbers are new in each mini-batch, which `prob` and
            `importance_sampling` need.
        prefetch_node_feats, prefetch_labels, prefetch_edge_feats: see `NeighborSampler`.
        edge_dir, output_device: options of DGL; must have their defaults.

    Raises:
        NotImplementedError: an option of DGL is not supported.
    """

    def __init__(
        self,
        fanouts: Sequence[int],
        edge_dir: str = "in",
        prob: str | None = None,
        importance_sampling: int = 0,
        layer_dependency: bool = False,
        batch_dependency: int = 1,
        prefetch_node_feats: Sequence[str] | None = None,
        prefetch_labels: Sequence[str] | None = None,
        prefetch_edge_feats: Sequence[str] | None = None,
        output_device: Any = None,
    ) -> None:
        self.edge_dir, self.prob, self.importance_sampling = edge_dir, prob, importance_sampling
        self.layer_dependency, self.batch_dependency = layer_dependency, batch_dependency
        super().__init__(
            fanouts,
            prefetch_node_feats=prefetch_node_feats,
            prefetch_labels=prefetch_labels,
            prefetch_edge_feats=prefetch_edge_feats,
            output_device=output_device,
        )

    def _options(self) -> dict[str, Any]:
        refuse("LaborSampler", DGLS, {"edge_dir": (self.edge_dir, "in")})
        if self.prob is not None and not isinstance(self.prob, str):
            raise TypeError(f"prob is {shown(self.prob)}; it must be the name of the weights in g.edata, or None")
        if as_index(self.importance_sampling) is None:
            raise TypeError(f"importance_sampling is {shown(self.importance_sampling)}; it must be an integer")
        dependency = as_size("batch_dependency", self.batch_dependency, least=1)
        if dependency > 1 and self.by_hop() is not None:
            raise NotImplementedError(
                f"batch_dependency is {dependency}, which does not go with {self.by_hop()}; give 1, or leave "
                f"{self.by_hop()} out"
            )
        if hasattr(self, "set_seed"):
            raise TypeError(
                f"{type(self).__name__} has a set_seed, which nobody would call; give seed to the DataLoader"
            )
        return {
            "labor": True,
            "layer_dependency": as_flag("layer_dependency", self.layer_dependency),
            "batch_dependency": dependency,
        }

    def by_hop(self) -> str | None:
        if self.prob is not None:
            return "prob"
        return "importance_sampling" if self.importance_sampling else None

    def check_graph(self, g: Any) -> None:
        """Raises an error if `g` cannot be sampled by `prob` and `importance_sampling`, see `sample_labors`."""
        if self.by_hop() is not None:
            labor_weights(g, self.prob, self.importance_sampling)

    def _blocks_by_hop(self, g: Any, seed_nodes: Any, exclude_eids: Any) -> tuple[Any, Any, list[Any]]:
        self.picking(None)  # looks at the options
        dgl, epoch, nodes = original_dgl.dgl(), drawn(), seed_nodes
        blocks: list[Any] = []
        how = {"prob": self.prob, "importance_sampling": self.importance_sampling, "exclude_edges": exclude_eids}
        for hop, fanout in enumerate(reversed(as_fanouts("fanouts", self.fanouts))):
            batch = 0 if self.layer_dependency else hop
            edges, importances = labor_frontier(g, nodes, fanout, epoch, batch, **how)
            block = dgl.to_block(edges, nodes)
            for key in g.canonical_etypes:
                of = block.edges[key].data
                picked = of[dgl.EID]
                of[dgl.EID] = edges.edges[key].data[dgl.EID][picked]
                if key in importances:
                    of["edge_weights"] = importances[key][picked]
                elif picked.numel() == 0:
                    of["edge_weights"] = torch.empty(0, dtype=torch.float32)
            blocks.insert(0, block)
            nodes = {name: block.srcnodes[name].data[dgl.NID] for name in g.ntypes}
        return nodes if len(g.ntypes) > 1 else nodes[g.ntypes[0]], seed_nodes, blocks


def names_of(option: str, names: Any) -> Any:
    """A list of names, or a dict of them by type."""
    if isinstance(names, Mapping) and names:
        return {kind: names_of(option, of_type) for kind, of_type in names.items()}
    if isinstance(names, str) or (names is not None and not isinstance(names, Iterable)):
        raise TypeError(f"{option} is {shown(names)}; it must be a list of names")
    return list(names or [])
