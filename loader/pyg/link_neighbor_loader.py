"""torch_geometric's `LinkNeighborLoader` on our pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader.graph.checks import check_integers
from loader.items import EdgeItems
from loader.loaders.links import check_pairs
from loader.loaders.torch_options import as_ids, read_options, refuse
from loader.machine.arguments import as_flag, as_number, shown
from loader.pyg.attributes import Attributes, MakeStore
from loader.pyg.neighbor_loader import THEIRS, DataLoader, place_of, subgraph_sampler
from loader.samplers import LinkSampler, Negatives

if TYPE_CHECKING:
    from torch_geometric.data import Data


class LinkNeighborLoader(DataLoader):
    """Mini-batches of a `Data` around links: `torch_geometric.loader.LinkNeighborLoader`, with two more options.

    A mini-batch is a `Data` as `NeighborLoader` gives it. Its `input_id` `[P]` holds positions in `edge_label_index`.
    It also has the links, by local ids, the positive ones in the order in which they were given.

    With "binary" negatives, or without negatives: `edge_label_index` `[2, P + N]`, positive links first, and
    `edge_label` `[P + N]`. The label of a positive link is the given one, or 1. The label of a negative is 0; if the
    given labels begin at 0, they are raised by 1.

    With "triplet" negatives: `src_index` `[P]`, `dst_pos_index` `[P]`, and `dst_neg_index` `[P]` or, with several per
    link, `[P, amount]`.

    Args:
        edge_label_index: `[2, n]`, the links; None for all edges. A link may come several times.
        edge_label: `[n, ...]`, the labels of the links.
        neg_sampling: a `torch_geometric.sampler.NegativeSampling`, or its arguments: "binary", "triplet", or
            `dict(mode="binary", amount=0.5)`. Weights are not possible.
        neg_sampling_ratio: the same as `neg_sampling=dict(mode="binary", amount=neg_sampling_ratio)`.
        exclude: "none", as in torch_geometric; "self": leave the edges of the mini-batch's own positive links out of
            the sample, so that a model cannot see the answer; "reverse": and those in the opposite direction.
        strict: negatives are no edges of `data` and no loops. False: they may be, as in torch_geometric.
        edge_label_time: an option of torch_geometric; must be None.
        data, num_neighbors, replace, weight_attr, transform, device, batch_size, features, graph, options: see
            `NeighborLoader`, also for the other options of torch_geometric.

    Raises:
        NotImplementedError: an option of torch_geometric is not supported.
        TypeError, ValueError: an argument is not as said above.
        NoGpuError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        data: Data,
        num_neighbors: Sequence[int],
        edge_label_index: Tensor | None = None,
        edge_label: Tensor | None = None,
        edge_label_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        device: torch.device | str | None = None,
        batch_size: int = 1,
        features: MakeStore | None = None,
        graph: str = "device",
        exclude: str = "none",
        strict: bool = False,
        **options: Any,
    ) -> None:
        refuse(
            type(self).__name__,
            THEIRS,
            {
                "edge_label_time": (edge_label_time, None),
                "subgraph_type": (subgraph_type, "directional"),
                "disjoint": (disjoint, False),
                "temporal_strategy": (temporal_strategy, "uniform"),
                "time_attr": (time_attr, None),
                "transform_sampler_output": (transform_sampler_output, None),
                "neighbor_sampler": (neighbor_sampler, None),
                "directed": (directed, True),
            },
        )
        place = place_of(data, device)
        meaning = read_options(type(self).__name__, place, **options)
        negatives = _negatives(neg_sampling, neg_sampling_ratio, strict)
        links = data.edge_index if edge_label_index is None else edge_label_index
        links = links.as_tensor() if hasattr(links, "as_tensor") else links
        if not isinstance(links, Tensor) or links.dim() != 2 or links.shape[0] != 2:
            shape = f"shape {list(links.shape)}" if isinstance(links, Tensor) else f"type {type(links).__name__}"
            raise ValueError(f"edge_label_index has {shape}; it must be a tensor [2, n] (edge_index.t())")
        check_integers("edge_label_index", links, ": .long()")
        if links.shape[1] == 0:
            raise ValueError("edge_label_index is empty; a loader needs at least one link")
        items = EdgeItems(links.t().contiguous().cpu())
        check_pairs(items.ids, int(data.num_nodes or 0), "edge_label_index")
        self._labels = _labels(edge_label, len(items), negatives)
        if self._labels is not None:
            self._labels = self._labels.to(place)
        self._negatives = negatives
        around = subgraph_sampler(num_neighbors, replace, weight_attr, place, meaning)
        super().__init__(
            data,
            items,
            LinkSampler(around, negatives, exclude=exclude),
            batch_size,
            weight_attr=weight_attr,
            features=features,
            graph=graph,
            device=place,
            transform=transform,
            options=meaning,
        )

    def _finish(self, attributes: Attributes, sample: Any) -> Data:
        data = attributes.data_of(sample.around)
        data.input_id = sample.places
        if self._negatives is not None and self._negatives.mode == "triplet":
            data.src_index, data.dst_pos_index = sample.sources, sample.targets
            drawn = sample.negative_targets
            data.dst_neg_index = drawn.view(-1) if drawn.shape[1] == 1 else drawn
            for name in ("edge_label_index", "edge_label"):  # of the whole graph
                if name in data:
                    del data[name]
            return data
        data.edge_label_index, truth = sample.pairs()
        given = None if self._labels is None else self._labels[sample.places]
        if self._negatives is not None:
            given = truth if given is None else torch.cat([given, given.new_zeros(_negative_shape(truth, given))])
        data.edge_label = given
        return data


def _negative_shape(truth: Tensor, given: Tensor) -> tuple[int, ...]:
    return truth.numel() - given.shape[0], *given.shape[1:]


def _labels(edge_label: Tensor | None, links: int, negatives: Negatives | None) -> Tensor | None:
    """Labels of the links, such that 0 is left for negatives."""
    if edge_label is None:
        return None
    edge_label = as_ids("edge_label", edge_label)
    if edge_label.dim() == 0 or edge_label.shape[0] != links:
        raise ValueError(
            f"edge_label has shape {list(edge_label.shape)}, there are {links} links; give a label per link"
        )
    if negatives is not None and negatives.mode == "triplet":
        raise ValueError("edge_label is given, but triplets have no labels: leave it out, or take binary negatives")
    return edge_label + 1 if negatives is not None and bool(edge_label.min() == 0) else edge_label


def _negatives(neg_sampling: Any, ratio: float | None, strict: bool) -> Negatives | None:
    from torch_geometric.sampler import NegativeSampling

    as_flag("strict", strict)
    if ratio is not None and as_number("neg_sampling_ratio", ratio):
        if neg_sampling is not None:
            raise ValueError(
                f"neg_sampling is {shown(neg_sampling)} and neg_sampling_ratio is {ratio}; give one of them"
            )
        return Negatives("binary", ratio, strict)
    try:
        asked = NegativeSampling.cast(neg_sampling)
    except (TypeError, ValueError):
        raise ValueError(
            f"neg_sampling is {shown(neg_sampling)}; it must be a NegativeSampling, 'binary', 'triplet', or "
            "dict(mode='binary', amount=0.5)"
        ) from None
    if asked is None:
        if strict:
            raise ValueError("strict is of use with negatives only; give neg_sampling, or leave strict out")
        return None
    if asked.src_weight is not None or asked.dst_weight is not None:
        raise NotImplementedError(
            f"LinkNeighborLoader draws negatives uniformly; leave src_weight and dst_weight out, or take {THEIRS}"
        )
    return Negatives("triplet" if asked.is_triplet() else "binary", asked.amount, strict)
