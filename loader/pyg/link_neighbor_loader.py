"""torch_geometric's `LinkNeighborLoader` on our pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.sampler import NegativeSampling

from loader.graph import EdgeType, Graph, HeteroGraph
from loader.graph.checks import check_integers, check_range
from loader.graph.times import as_times, seed_times
from loader.items import EdgeItems
from loader.loaders.torch_options import as_ids
from loader.machine.arguments import as_flag, as_number, shown
from loader.pyg.attributes import Attributes, MakeStore
from loader.pyg.data_loader import DataLoader, Sampled
from loader.pyg.hetero import (
    counted_times,
    edge_types_of,
    hetero_graph_of,
    hetero_place_of,
    is_pinned,
    placed,
    shape_of_types,
    tell_untimed,
)
from loader.pyg.hetero_links import LinksBetween, check_ends, graph_without_edges, links_of
from loader.pyg.neighbor_loader import graph_of, place_of
from loader.pyg.options import (
    TimeOptions,
    hops_by_type,
    hops_of,
    large_as_all_of,
    picks_by,
    read_torchs,
    sampler_of,
    subgraph_type_of,
    tree_sampler_of,
)
from loader.pyg.output_sampler import LinksInput, batch_of, labels_of, per_link, times_of
from loader.samplers import Negatives
from loader.samplers.tree_subgraph import EDGES

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData


class LinkNeighborLoader(DataLoader, torch_geometric.loader.LinkNeighborLoader):
    """Mini-batches of a `Data` or `HeteroData` around links: `torch_geometric.loader.LinkNeighborLoader`, with more
    options.

    A mini-batch is a `Data` as `NeighborLoader` gives it. Its `input_id` `[P]` holds positions in `edge_label_index`.
    It also has the links, by local ids, the positive ones in the order in which they were given. Of a `HeteroData` it
    is a `HeteroData`. Links are of one edge type, and all of this is in `batch[edge_type]`; but the indices of triplets
    are in `batch[source type]` and `batch[destination type]`. Ids are local within their types.

    `P` is the number of positive links of the mini-batch, `N` that of its negatives. With "binary" negatives, it has
    `edge_label_index` `[2, P + N]`, positive links first, and `edge_label` `[P + N]`. A negative has the label 0. A
    positive link has the label that you gave it, plus 1 if the smallest of all labels that you gave is 0.
    Without given labels, `edge_label` is float32, and 1 for a positive link. Without negatives, the mini-batch has
    `edge_label_index` `[2, P]`, and `edge_label` only if you gave labels, which are then unchanged.

    With "triplet" negatives: `src_index` `[P]`, `dst_pos_index` `[P]`, and `dst_neg_index` `[P]` or, with several per
    link, `[P, amount]`.

    Args:
        edge_label_index: `[2, n]`, the links; None for all edges. A link may come several times. Of several types the
            edge type, for all its edges, or `(edge type, [2, n] ids)`; then `data` need not have edges of this type.
        edge_label: `[n, ...]`, the labels of the links.
        neg_sampling: a `torch_geometric.sampler.NegativeSampling`, or its arguments: "binary", "triplet", or
            `dict(mode="binary", amount=0.5)`. Its weights are rounded, see `loader.samplers.node_weights`.
        neg_sampling_ratio: the same as `neg_sampling=dict(mode="binary", amount=neg_sampling_ratio)`.
        exclude: "none", as in torch_geometric; "self": leave the edges of the mini-batch's own positive links out of
            the sample, so that a model cannot see the answer; "reverse": and those in the opposite direction. Of
            several types these are edges of the links' type, and of the type `reverse` in the opposite direction.
            "bidirectional" subgraphs, of one type or of several with reverses, need "reverse".
        reverse: of several types, with `exclude="reverse"`: the edge type of the links' reverses.
        strict: negatives are no edges of `data` and no loops; of several types no edges of the links' type. False: they
            may be, as in torch_geometric.
        edge_label_time: `[n]`, times of the links, needed with `time_attr`: integers, or floats that are whole numbers.
            Both ends of a link, and of its negatives, have a tree in which nothing is later. Negatives exist at the
            time of their link: with "binary" ones negative `i` has the time of link `i % P`. A mini-batch has the times
            as `edge_label_time` `[P + N]`, or with triplets as `seed_time` `[P]`.
        disjoint: each end of each link has a tree of its own. `batch` of a mini-batch has the number of the link that
            the tree of a node belongs to. `exclude` then leaves edges out of the trees of their own link only; if the
            links are all edges of their type, each leaves out only itself, and not edges beside it.
        input_id: `[n]`, numbers of the links, for `input_id` of a mini-batch; by default their positions.
        data, num_neighbors, replace, weight_attr, time_attr, temporal_strategy, window: see `NeighborLoader`.
        transform, device, batch_size, features, graph, options: see `NeighborLoader`, also for the other options of
            torch_geometric.

    Raises:
        NotImplementedError: an option of torch_geometric is not supported.
        TypeError, ValueError: an argument is not as said above.
        NoGpuError: a GPU was asked for and build or machine have none.
    """

    _hooks = torch_geometric.loader.LinkNeighborLoader
    _role, _method = "link_sampler", "sample_from_edges"

    def __init__(
        self,
        data: Data | HeteroData,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        edge_label_index: Any = None,
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
        reverse: EdgeType | None = None,
        strict: bool = False,
        input_id: Tensor | None = None,
        seed: int | None = None,
        window: int | None = None,
        **options: Any,
    ) -> None:
        who = type(self).__name__
        of_times = TimeOptions.of(
            time_attr, edge_label_time, temporal_strategy, disjoint, window, name="edge_label_time", needed=True
        )
        edge_types = edge_types_of(data)
        place = place_of(data, device) if edge_types is None else hetero_place_of(data, device)
        drawn, meaning = read_torchs(who, place, {**options, "seed": seed})
        negatives = _negatives(neg_sampling, neg_sampling_ratio, strict)
        shape = subgraph_type_of(subgraph_type, directed)
        hops: Any
        made: Graph | HeteroGraph
        self._type: EdgeType | None = None
        if edge_types is not None:
            self._type, links = links_of(data, edge_label_index)
            hops = hops_by_type(num_neighbors, edge_types or [self._type])
            comes_back = any((key[2], key[0]) == (self._type[0], self._type[2]) for key in edge_types)
        else:
            hops, comes_back = hops_of(num_neighbors), True
            if isinstance(data, tuple):
                raise TypeError(
                    f"data is a feature store and a graph store; {who} takes a Data or HeteroData: make one of them"
                )
            links = data.edge_index if edge_label_index is None else edge_label_index
        if exclude == "self" and shape == "bidirectional" and comes_back:
            raise ValueError(
                "exclude is 'self', and subgraph_type 'bidirectional' adds the reverses of all edges, so a link is "
                "seen in the opposite direction: give exclude='reverse', or subgraph_type='directional'"
            )
        links = links.as_tensor() if hasattr(links, "as_tensor") else links
        if not isinstance(links, Tensor) or links.dim() != 2 or links.shape[0] != 2:
            shape_of = f"shape {list(links.shape)}" if isinstance(links, Tensor) else f"type {type(links).__name__}"
            raise ValueError(f"edge_label_index has {shape_of}; it must be a tensor [2, n] (edge_index.t())")
        count = links.shape[1]
        if self._type is None:
            if count:
                check_integers("edge_label_index", links, ": .long()")
                check_range("edge_label_index", links, int(data.num_nodes or 0))
            made = graph_of(data, hops, weight_attr, place, graph, time_attr)
        else:
            pinned = is_pinned(graph, place)
            if edge_types:
                hetero = hetero_graph_of(data, weight_attr, time_attr, place, pinned)
            else:
                hetero = placed(graph_without_edges(data, self._type, time_attr), place, pinned)
            check_ends(self._type, links, hetero)
            made = hetero
        around: Any
        if self._type is not None or of_times.disjoint:
            hops = large_as_all_of(made, hops, replace)
        if of_times.disjoint:
            if shape == "induced":
                raise ValueError("subgraph_type is 'induced', which has no trees; take 'directional'")
            fanouts, picks = hops if self._type is not None else {EDGES: hops or [0]}, picks_by(weight_attr, hops)
            counted = counted_times(made, time_attr)
            if temporal_strategy == "last":
                tell_untimed(made, fanouts, counted)
            around = tree_sampler_of(fanouts, shape, place, meaning, picks, replace, of_times, counted)
        else:
            around = sampler_of(
                hops, shape if self._type is None else shape_of_types(shape), place, meaning, weight_attr, replace
            )
            if self._type is None:
                around.check_graph(made)
        sampler = LinksBetween(around, negatives, exclude=exclude, edge_type=self._type, reverse=reverse)
        sampler.ends(made)  # says at once what is wrong
        times = None if edge_label_time is None else _times(edge_label_time, count)
        self._labels = _labels(edge_label, count, negatives)
        self._ids = _ids(input_id, count)
        ends = links.cpu()
        own = None  # which edges the links are, if that is known
        if of_times.disjoint and exclude != "none" and _are_all_edges(edge_label_index):
            own = torch.arange(count)
        self.input_data = LinksInput(self._ids, ends[0], ends[1], self._labels, times, self._type, edge_ids=own)
        if self._labels is not None:
            self._labels = self._labels.to(place)
        self._negatives = negatives
        self.replace, self.subgraph_type, self.weight_attr, self.graph = replace, shape, weight_attr, graph
        self.edge_label, self.input_id, self.seed = edge_label, input_id, meaning.seed
        self.edge_label_index = links if self._type is None else edge_label_index
        self.features, self.is_sorted, self.exclude, self.strict = features, is_sorted, exclude, strict
        self.neg_sampling = None
        if negatives is not None:
            per_link = int(negatives.num_negatives) if negatives.mode == "triplet" else negatives.num_negatives
            given = NegativeSampling.cast(neg_sampling)
            weights = (None, None) if given is None else (given.src_weight, given.dst_weight)
            self.neg_sampling = NegativeSampling(negatives.mode, per_link, *weights)
        self.edge_label_time, self.time_attr, self.window = edge_label_time, time_attr, window
        self.temporal_strategy, self.disjoint = temporal_strategy, of_times.disjoint
        items = EdgeItems(links.t().contiguous().cpu(), times=times, edge_ids=own) if count else None
        super().__init__(
            data,
            Sampled(items, sampler, made, hops, shape == "directional", weight_attr, time_attr),
            batch_size,
            features=features,
            device=place,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=neighbor_sampler,
            drawn=drawn,
            options=meaning,
        )

    def _why_plain(self) -> str | None:
        why = super()._why_plain()
        if why is None and self._type is not None and self.subgraph_type == "bidirectional":
            return "subgraph_type='bidirectional' of several types"
        return why

    def _finish(self, attributes: Attributes, sample: Any) -> Any:
        around = sample.around
        if sample.link_of_tree is not None:
            around = around.replace(tree=batch_of(sample))
        data = attributes.data_of(around, by_hop=self._sampled.by_hop)
        of = data if self._type is None else data[self._type]
        of.input_id = sample.places if self._ids is None else self._ids.to(self.device)[sample.places]
        if self._negatives is not None and self._negatives.mode == "triplet":
            source, target = (data, data) if self._type is None else (data[self._type[0]], data[self._type[2]])
            source.src_index, target.dst_pos_index = sample.sources, sample.targets
            target.dst_neg_index = per_link(sample.negative_targets)
            if sample.times is not None:
                source.seed_time = target.seed_time = sample.times
            for name in ("edge_label_index", "edge_label", "edge_label_time"):  # of the whole graph
                if name in of:
                    del of[name]
            return data
        of.edge_label_index, truth = sample.pairs()
        given = None if self._labels is None else self._labels[sample.places]
        of.edge_label = labels_of(truth, given, self._negatives is not None)
        if sample.times is not None:
            of.edge_label_time = times_of(sample, truth.numel())
        elif "edge_label_time" in of:  # of the whole graph
            del of["edge_label_time"]
        return data


def _ids(input_id: Any, links: int) -> Tensor | None:
    """Numbers of the links, one for each, or None."""
    if input_id is None:
        return None
    ids = as_ids("input_id", input_id)
    if ids.shape != (links,):
        raise ValueError(f"input_id has shape {list(ids.shape)}, there are {links} links; give a number per link")
    return ids


def _times(edge_label_time: Any, links: int) -> Tensor:
    """`[n]` int64, the times of the links."""
    given = as_times("edge_label_time", edge_label_time)
    if given.shape != (links,):
        raise ValueError(
            f"edge_label_time has shape {list(given.shape)}, there are {links} links; give a time per link"
        )
    return seed_times(given, "edge_label_time").cpu()


def _are_all_edges(edge_label_index: Any) -> bool:
    """Whether the links are all edges of their type, in order."""
    if edge_label_index is None or isinstance(edge_label_index, Tensor):
        return edge_label_index is None
    return isinstance(edge_label_index[0], str) or edge_label_index[1] is None


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
    if negatives is None or not links or bool(edge_label.min() != 0):
        return edge_label
    integers = not edge_label.is_floating_point() and edge_label.dtype != torch.bool  # 1 more than True is int64
    if integers and int(edge_label.max()) == torch.iinfo(edge_label.dtype).max:
        raise ValueError(
            f"edge_label has dtype {edge_label.dtype} and its greatest value, {int(edge_label.max())}, but labels that "
            "begin at 0 are raised by 1, which leaves 0 to negatives: edge_label.long()"
        )
    return edge_label + 1


def _negatives(neg_sampling: Any, ratio: float | None, strict: bool) -> Negatives | None:
    as_flag("strict", strict)
    if ratio is not None and as_number("neg_sampling_ratio", ratio):
        if neg_sampling is not None:
            raise ValueError(
                f"neg_sampling is {shown(neg_sampling)} and neg_sampling_ratio is {ratio}; give one of them"
            )
        if not 0 < ratio < 2**31:
            raise ValueError(f"neg_sampling_ratio is {ratio}; it must be at least 0 and below 2**31")
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
    mode = "triplet" if asked.is_triplet() else "binary"
    # Triplets have the sources of their links: torch_geometric does not read `src_weight` then either.
    source = None if mode == "triplet" else asked.src_weight
    return Negatives(mode, asked.amount, strict, source, asked.dst_weight)
