"""Samplers with the signatures of `dgl.dataloading`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from loader.dgl.negative_sampler import negatives_of
from loader.loaders.torch_options import as_fanouts, refuse
from loader.machine.arguments import as_flag, as_size, kind_of, shown
from loader.samplers.base import MAX_HOPS, resolve_fanouts

DGLS = "dgl.dataloading, which has it on the CPU"


class BlockSampler:
    """What the samplers around vertices have in common; `dgl.dataloading.BlockSampler` has the same name.

    Args:
        fanouts: neighbours of a vertex, from the input layer to the seeds.
        picking: how they are picked, as options of `loader.FusedSampler`.
        prob: name in `g.edata` of the weights by which they are picked, or None.
        prefetch_node_feats, prefetch_labels, prefetch_edge_feats: see `NeighborSampler`.
    """

    def __init__(
        self,
        fanouts: Sequence[int],
        picking: Mapping[str, Any],
        prob: str | None = None,
        prefetch_node_feats: Sequence[str] | None = None,
        prefetch_labels: Sequence[str] | None = None,
        prefetch_edge_feats: Sequence[str] | None = None,
    ) -> None:
        self.fanouts = as_fanouts("fanouts", fanouts)
        if any(isinstance(fanout, dict) for fanout in self.fanouts):
            raise NotImplementedError(f"fanouts by type are not possible; take {DGLS}")
        self.fanouts = list(resolve_fanouts(self.fanouts))
        self.picking, self.prob = dict(picking), prob
        self.prefetch_node_feats = _names("prefetch_node_feats", prefetch_node_feats)
        self.prefetch_labels = _names("prefetch_labels", prefetch_labels)
        self.prefetch_edge_feats = _names("prefetch_edge_feats", prefetch_edge_feats)

    def sample(self, g: Any, seed_nodes: Tensor, exclude_eids: Any = None) -> tuple[Tensor, Tensor, list[Any]]:
        """One mini-batch around `seed_nodes`, `[n]` distinct vertices: `(input_nodes, output_nodes, blocks)`.

        It is that of a `DataLoader` with one mini-batch. For many mini-batches a `DataLoader` is faster.

        Args:
            exclude_eids: an option of DGL; must be None. `as_edge_prediction_sampler` leaves out edges.
        """
        from loader.dgl.dataloader import DataLoader

        refuse("sample", DGLS, {"exclude_eids": (exclude_eids, None)})
        loader = DataLoader(g, seed_nodes, self, batch_size=max(1, len(seed_nodes)))
        try:
            (mini_batch,) = loader
        finally:
            loader.close()
        return mini_batch

    sample_blocks = sample


class NeighborSampler(BlockSampler):
    """`dgl.dataloading.NeighborSampler`: picks neighbours of each vertex, layer by layer.

    Args:
        fanouts: neighbours of a vertex, **from the input layer to the seeds**, as DGL counts: 1 to 1024, or -1 for all.
        prob: name in `g.edata` of the weights, float32 or float64, by which neighbours are picked; None picks
            uniformly. Edges of weight 0 are never picked.
        replace: pick with replacement.
        prefetch_node_feats: names in `g.ndata`, gathered for the input vertices: `blocks[0].srcdata[name]`.
        prefetch_labels: names in `g.ndata`, gathered for the seeds: `blocks[-1].dstdata[name]`.
        prefetch_edge_feats: names in `g.edata`, gathered for the edges of all blocks: `block.edata[name]`.
        fused: an option of DGL without effect here: all hops are always sampled in one call.
        edge_dir, mask, output_device: options of DGL; must have their defaults.

    Raises:
        NotImplementedError: an option of DGL is not supported.
    """

    def __init__(
        self,
        fanouts: Sequence[int],
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
        refuse(
            "NeighborSampler",
            DGLS,
            {
                "edge_dir": (edge_dir, "in"),
                "mask": (mask, None),
                "output_device": (output_device, None),
            },
        )
        if prob is not None and not isinstance(prob, str):
            raise TypeError(f"prob is {shown(prob)}; it must be the name of the weights in g.edata, or None")
        picking = {"replace": as_flag("replace", replace), "weights": None if prob is None else "edge_weights"}
        super().__init__(fanouts, picking, prob, prefetch_node_feats, prefetch_labels, prefetch_edge_feats)


MultiLayerNeighborSampler = NeighborSampler


class MultiLayerFullNeighborSampler(NeighborSampler):
    """Takes all neighbours, layer by layer.

    Args:
        num_layers: number of layers.
        options: see `NeighborSampler`.
    """

    def __init__(self, num_layers: int, **options: Any) -> None:
        super().__init__([-1] * as_size("num_layers", num_layers, most=MAX_HOPS), **options)


class LaborSampler(BlockSampler):
    """`dgl.dataloading.LaborSampler`: LABOR-0, whose mini-batches have fewer vertices.

    A vertex gets `fanout` neighbours on average. Each neighbour has one random number for all vertices that may pick
    it, so they pick common neighbours together (Balin and Catalyurek, "Layer-Neighbor Sampling", NeurIPS 2023).

    Args:
        fanouts: neighbours of a vertex, **from the input layer to the seeds**: 1 to 1024, or -1 for all.
        importance_sampling, prob: options of DGL; must have their defaults, 0 and None: neighbours are picked with
            equal probability, and blocks have no `edge_weights`.
        layer_dependency: all layers use the same random numbers, which gives still fewer vertices.
        batch_dependency: a neighbour gets a new random number only once in this many consecutive mini-batches, so they
            have more vertices in common. With 1, all numbers are new in each mini-batch.
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
        refuse(
            "LaborSampler",
            DGLS,
            {
                "edge_dir": (edge_dir, "in"),
                "prob": (prob, None),
                "importance_sampling": (importance_sampling, 0),
                "output_device": (output_device, None),
            },
        )
        picking = {
            "labor": True,
            "layer_dependency": as_flag("layer_dependency", layer_dependency),
            "batch_dependency": as_size("batch_dependency", batch_dependency, least=1),
        }
        super().__init__(fanouts, picking, None, prefetch_node_feats, prefetch_labels, prefetch_edge_feats)


class EdgePredictionSampler:
    """What `as_edge_prediction_sampler` returns."""

    def __init__(
        self,
        sampler: BlockSampler,
        exclude: str | None = None,
        reverse_eids: Tensor | None = None,
        reverse_etypes: Any = None,
        negative_sampler: Any = None,
        prefetch_labels: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(sampler, BlockSampler):
            raise TypeError(
                f"sampler is {kind_of(sampler)}; it must be a NeighborSampler or LaborSampler of loader.dgl"
            )
        refuse("as_edge_prediction_sampler", DGLS, {"reverse_etypes": (reverse_etypes, None)})
        if exclude not in (None, "self", "reverse_id"):
            raise NotImplementedError(
                f"exclude is {exclude!r}; None, 'self' and 'reverse_id' are possible, or take {DGLS}"
            )
        if exclude == "reverse_id" and reverse_eids is None:
            raise ValueError("exclude='reverse_id' needs reverse_eids, the reverse of each edge")
        if reverse_eids is not None and not isinstance(reverse_eids, Tensor):
            raise TypeError(f"reverse_eids is {shown(reverse_eids)}; it must be a tensor of edge ids, [num_edges]")
        self.sampler, self.exclude, self.reverse_eids = sampler, exclude, reverse_eids
        self.negatives = negatives_of(negative_sampler)
        self.prefetch_labels = _names("prefetch_labels", prefetch_labels)


def as_edge_prediction_sampler(
    sampler: BlockSampler,
    exclude: str | None = None,
    reverse_eids: Tensor | None = None,
    reverse_etypes: Any = None,
    negative_sampler: Any = None,
    prefetch_labels: Sequence[str] | None = None,
) -> EdgePredictionSampler:
    """Makes a sampler around edges of a sampler around vertices: `dgl.dataloading.as_edge_prediction_sampler`.

    Args:
        sampler: samples the neighbourhood of the ends of edges.
        exclude: None; "self": leave the mini-batch's own edges out of the blocks; "reverse_id": and their reverses. If
            a pair has parallel edges, all of them are left out, because a parallel edge also shows the answer. DGL
            leaves out only the edges of the given ids.
        reverse_eids: `[num_edges]`, with "reverse_id": the id of the reverse of each edge.
        negative_sampler: one of `loader.dgl.negative_sampler`, or DGL's `Uniform`.
        prefetch_labels: names in `g.edata`, gathered for the positive edges: `pair_graph.edata[name]`.
        reverse_etypes: an option of DGL; must be None.

    Raises:
        NotImplementedError: an option of DGL is not supported.
        TypeError, ValueError: an argument is not as said above.
    """
    return EdgePredictionSampler(sampler, exclude, reverse_eids, reverse_etypes, negative_sampler, prefetch_labels)


def _names(option: str, names: Any) -> list[str]:
    if isinstance(names, dict):
        raise NotImplementedError(f"{option} by type is not possible; give only names, or take {DGLS}")
    if isinstance(names, str) or (names is not None and not isinstance(names, Iterable)):
        raise TypeError(f"{option} is {shown(names)}; it must be a list of names")
    return [] if names is None else list(names)
