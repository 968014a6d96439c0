"""The loader of mini-batches around nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from loader.graph import EdgeType, Graph, HeteroGraph, require_graph, require_square
from loader.items import NodeItems
from loader.loaders.base import Loader
from loader.loaders.hetero import check_edge_rows, check_not_later, edge_stores, hetero_items, node_stores
from loader.loaders.options import check_distinct, check_labels, check_options, check_sampler, check_timed
from loader.samplers.base import Sampler
from loader.stores import FeatureStore, TensorRows, as_store


class NodeLoader(Loader):
    """A `Loader` of mini-batches around nodes, with features and labels. It gives `MiniBatch` objects.

    Of a `HeteroGraph` it gives `HeteroMiniBatch` objects. Then `seeds` are of one type, `("paper", ids)`, numbered
    within it. `labels` are those of this type. Features are given by type: `features={"paper": x, "author": store}`,
    `edge_features={("author", "writes", "paper"): weights}`. A type may have none. Stores are `HostFeatures`,
    `DeviceFeatures`, `CachedFeatures`, `PinnedFeatures`, `MemmapFeatures`, or your own.

    Args:
        graph: the graph to sample; it lies where the sampler wants it.
        features: a `FeatureStore`; a tensor `[num_nodes, F]`, which `HostFeatures` then gathers; or None for
            mini-batches without `x`.
        labels: a tensor `[num_nodes]` or `[num_nodes, C]`, which the loader copies to the sampler's device; or a
            `FeatureStore` with this many rows. The labels of the seeds are gathered as `y`. None: no `y`.
        seeds: `[num_seeds]`, integer, not empty: the nodes of an epoch. For a `HeteroGraph`, `("paper", ids)` or
            `{"paper": ids}`. They must be distinct, unless the sampler is a `TreeSampler`.
        sampler: samples the neighborhood of the seeds of a mini-batch.
        batch_size: seeds of a mini-batch, at least 1.
        times: `[num_seeds]` integers or whole floats, the time of each seed, for a sampler that samples by time, see
            `TreeSampler`. A node may then be a seed at several times, and `labels` are `[num_seeds]` or
            `[num_seeds, C]`, of the seeds.
        edge_features: a store, or a tensor `[rows, D]`, of rows by edge id, gathered for the edges of every block. The
            sampler must return edge ids.
        options: see `Loader`.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
        RuntimeError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        graph: Graph | HeteroGraph,
        features: FeatureStore | Tensor | Mapping[str, FeatureStore | Tensor | None] | None,
        labels: FeatureStore | Tensor | None,
        seeds: Tensor | tuple[str, Tensor] | Mapping[str, Tensor],
        sampler: Sampler,
        batch_size: int,
        *,
        times: Tensor | None = None,
        edge_features: FeatureStore | Tensor | Mapping[EdgeType, FeatureStore | Tensor | None] | None = None,
        **options: Any,
    ) -> None:
        check_options(options, type(self).__name__)
        self.features: FeatureStore | dict[str, FeatureStore] | None
        self.edge_features: FeatureStore | dict[EdgeType, FeatureStore] | None
        if isinstance(graph, HeteroGraph):
            require_graph(graph)
            check_sampler("sampler", sampler, "node")
            check_timed(sampler, times)
            self.node_type, items = hetero_items(graph, seeds, times, distinct=not sampler.in_trees)
            if times is not None:
                check_not_later(graph, self.node_type, items, getattr(sampler, "times", "both"))
            self.features, self.edge_features = node_stores(graph, features), edge_stores(graph, edge_features, sampler)
            count = len(graph.node_types[self.node_type]) if times is None else len(items)
            what = f"the graph {count} nodes of type {self.node_type!r}" if times is None else f"seeds {count} ids"
            self.labels = _label_store(labels, count, f"{what}; give a label each", sampler)
            stores = {f"node/{name}": store for name, store in self.features.items()}
            stores |= {f"edge/{'__'.join(key)}": store for key, store in self.edge_features.items()}
        else:
            items = NodeItems(seeds)  # type: ignore[arg-type]  # it says what is wrong
            require_graph(graph)
            check_sampler("sampler", sampler, "node")
            if times is not None or sampler.timed:
                raise ValueError("seeds have times in a HeteroGraph only: HeteroGraph.of(graph) makes one of the graph")
            require_square(graph, type(self).__name__)
            check_distinct("seeds", items.ids, graph.num_nodes)
            self.features = as_store("features", features)
            if self.features is not None and self.features.num_rows != graph.num_nodes:
                raise ValueError(
                    f"features has {self.features.num_rows} rows, the graph {graph.num_nodes} nodes; give a row per "
                    "node"
                )
            why = f"the graph {graph.num_nodes} nodes; give a label per node"
            self.labels = _label_store(labels, graph.num_nodes, why, sampler)
            self.edge_features = _edge_store(edge_features, graph, sampler)
            rows = {"node": self.features, "edge": self.edge_features}
            stores = {kind: store for kind, store in rows.items() if store is not None}
        if self.labels is not None:
            stores["seed"] = self.labels
        super().__init__(graph, items, sampler, batch_size, stores=stores, **options)

    @property
    def seeds(self) -> Tensor:
        """`[num_seeds]` ids, of a typed graph within their type."""
        assert isinstance(self.items, NodeItems)
        return self.items.ids - self.items.first if self.items.first else self.items.ids


def _label_store(labels: Any, count: int, why: str, sampler: Sampler) -> FeatureStore | None:
    """The store of the labels.

    Args:
        count: how many there must be, as `why` says.

    Raises:
        TypeError, ValueError: they are neither tensor nor store, or not one per node.
    """
    if isinstance(labels, FeatureStore):
        if labels.num_rows != count:
            raise ValueError(f"labels has {labels.num_rows} rows, {why}")
        return labels
    if labels is None:
        return None
    check_labels(labels, count, why)
    return TensorRows(labels.to(sampler.device))


def _edge_store(features: Any, graph: Graph, sampler: Sampler) -> FeatureStore | None:
    """The store of the edges' features.

    Raises:
        ValueError: the sampler returns no edge ids, or an edge id has no row.
    """
    store = as_store("edge_features", features)
    if store is None:
        return None
    if not sampler.edge_ids:
        raise ValueError("edge_features are gathered by edge id, and the sampler returns none; give it edge_ids=True")
    check_edge_rows("edge_features", store, graph.num_edges, "the graph", graph.edge_ids)
    return store
