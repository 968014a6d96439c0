"""The loader of mini-batches around links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from loader.graph import Graph, HeteroGraph, require_graph, require_square
from loader.items import EdgeItems
from loader.loaders.base import Loader
from loader.loaders.hetero import check_links_not_later, node_stores
from loader.loaders.options import check_labels, check_options, check_timed
from loader.loaders.own_edges import check_own_edges, check_unseen
from loader.machine.arguments import kind_of
from loader.samplers.links import LinkSampler
from loader.samplers.tree_links import require_use_of_ids
from loader.stores import FeatureStore, TensorRows, as_store


class LinkLoader(Loader):
    """A `Loader` of mini-batches around links, with features of nodes and labels of links. It gives `Links` objects.

    Of a `HeteroGraph` the links are of one relation, which the sampler names. Both ends are numbered within their
    types. Features are given by type: `features={"user": x, "item": store}`. A type may have none. See `NodeLoader` for
    the stores that are possible.

    Args:
        graph: the graph to sample; it lies where the sampler wants it.
        features: a `FeatureStore`; a tensor `[num_nodes, F]`, which `HostFeatures` then gathers; or None.
        pairs: `[n, 2]`, integer, the positive links as (source, destination). A link may come several times, and need
            not be an edge of the graph.
        sampler: samples around the ends of the links of a mini-batch, and draws negative links.
        batch_size: positive links of a mini-batch, at least 1.
        labels: `[n, ...]` of the links, or None. They are kept on the sampler's device.
        times: `[n]` integers or whole floats, the time of each link, for a sampler around a `TreeSampler` that goes by
            times. Neither end may be later.
        edge_ids: `[n]` integer, with a sampler of trees that excludes edges: the edge of the graph that each link is,
            or -1 if it is none, numbered as in the graph's relation. Only this edge is then left out of the link's
            trees, and with "reverse" the edges the other way, at its time if edges of both relations have times. None:
            all edges between the two ends are left out.
        options: see `Loader`.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
        RuntimeError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        graph: Graph | HeteroGraph,
        features: FeatureStore | Tensor | Mapping[str, FeatureStore | Tensor | None] | None,
        pairs: Tensor,
        sampler: LinkSampler,
        batch_size: int,
        *,
        labels: Tensor | None = None,
        times: Tensor | None = None,
        edge_ids: Tensor | None = None,
        **options: Any,
    ) -> None:
        check_options(options, type(self).__name__)
        items = EdgeItems(pairs, times=times, edge_ids=edge_ids)
        require_graph(graph)
        if isinstance(graph, Graph):
            require_square(graph, type(self).__name__)
        if not isinstance(sampler, LinkSampler):
            raise TypeError(
                f"sampler is {kind_of(sampler)}; it must be a loader.samplers.LinkSampler, e.g. "
                "LinkSampler(FusedSampler([10, 5]))"
            )
        sampler.ends(graph).check("pairs", items.ids)
        check_timed(sampler, times)
        if edge_ids is not None:
            require_use_of_ids(sampler)
        if sampler.in_trees:
            _check_trees(sampler, graph, items)
        stores: dict[str, FeatureStore] = {}
        if isinstance(graph, HeteroGraph):
            stores = {f"node/{name}": store for name, store in node_stores(graph, features).items()}
        elif (store := as_store("features", features)) is not None:
            stores["node"] = store
            if store.num_rows != graph.num_nodes:
                raise ValueError(
                    f"features has {store.num_rows} rows, the graph {graph.num_nodes} nodes; give a row per node"
                )
        if labels is not None:
            check_labels(labels, len(items), f"there are {len(items)} pairs; give a label per pair")
            stores["pair"] = TensorRows(labels.to(sampler.device))
        super().__init__(graph, items, sampler, batch_size, stores=stores, **options)


def _check_trees(sampler: LinkSampler, graph: Graph | HeteroGraph, items: EdgeItems) -> None:
    """Raises ValueError if the trees of the links would see what they must not."""
    around: Any = sampler.around
    hetero = around.as_hetero(graph)
    edge_type = hetero.edge_types[0] if sampler.edge_type is None else sampler.edge_type
    check_links_not_later(hetero, edge_type, items, around.times)
    if items.edge_ids is not None:
        check_own_edges(hetero, edge_type, items)
    if items.times is not None:
        check_unseen(sampler, hetero, edge_type, items)
