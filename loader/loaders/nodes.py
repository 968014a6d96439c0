"""The loader of mini-batches around vertices."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from loader.graph import Graph, require_graph, require_square
from loader.items import NodeItems
from loader.loaders.base import Loader
from loader.loaders.options import check_distinct, check_labels, check_options, check_sampler
from loader.samplers.base import Sampler
from loader.stores import FeatureStore, TensorRows, as_store


class NodeLoader(Loader):
    """A `Loader` of mini-batches around vertices, with features and labels. It gives `MiniBatch` objects.

    Args:
        graph: the graph to sample; it lies where the sampler wants it.
        features: a `FeatureStore`; a tensor `[num_nodes, F]`, which `HostFeatures` then gathers; or None for
            mini-batches without `x`.
        labels: `[num_nodes]` or `[num_nodes, C]`, gathered for the seeds, which is kept on the sampler's device; a
            store of them; or None for mini-batches without `y`.
        seeds: `[num_seeds]`, integer, distinct: the vertices of an epoch.
        sampler: samples the neighbourhood of the seeds of a mini-batch.
        batch_size: seeds of a mini-batch, at least 1.
        edge_features: a store, or a tensor `[rows, D]`, of rows by edge id, gathered for the edges of every block. The
            sampler must return edge ids.
        options: see `Loader`.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
        RuntimeError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        graph: Graph,
        features: FeatureStore | Tensor | None,
        labels: FeatureStore | Tensor | None,
        seeds: Tensor,
        sampler: Sampler,
        batch_size: int,
        *,
        edge_features: FeatureStore | Tensor | None = None,
        **options: Any,
    ) -> None:
        check_options(options, type(self).__name__)
        items = NodeItems(seeds)
        require_graph(graph)
        check_sampler("sampler", sampler, "node")
        require_square(graph, type(self).__name__)
        check_distinct("seeds", items.ids, graph.num_nodes)
        self.features = as_store("features", features)
        if self.features is not None and self.features.num_rows != graph.num_nodes:
            raise ValueError(
                f"features has {self.features.num_rows} rows, the graph {graph.num_nodes} vertices; give a row per "
                "vertex"
            )
        self.labels = _label_store(labels, graph, sampler)
        self.edge_features = _edge_store(edge_features, graph, sampler)
        rows = {
            "node": self.features,
            "edge": self.edge_features,
            "seed": self.labels,
        }
        stores = {kind: store for kind, store in rows.items() if store is not None}
        super().__init__(graph, items, sampler, batch_size, stores=stores, **options)

    @property
    def seeds(self) -> Tensor:
        assert isinstance(self.items, NodeItems)
        return self.items.ids


def _label_store(labels: FeatureStore | Tensor | None, graph: Graph, sampler: Sampler) -> FeatureStore | None:
    """The store of the labels.

    Raises:
        TypeError, ValueError: they are neither tensor nor store, or not one per vertex.
    """
    why = f"the graph {graph.num_nodes} vertices; give a label per vertex"
    if isinstance(labels, FeatureStore):
        if labels.num_rows != graph.num_nodes:
            raise ValueError(f"labels has {labels.num_rows} rows, {why}")
        return labels
    if labels is None:
        return None
    check_labels(labels, graph.num_nodes, why)
    return TensorRows(labels.to(sampler.device))


def _edge_store(features: FeatureStore | Tensor | None, graph: Graph, sampler: Sampler) -> FeatureStore | None:
    """The store of the edges' features.

    Raises:
        ValueError: the sampler returns no edge ids, or there are fewer rows than edges.
    """
    store = as_store("edge_features", features)
    if store is None:
        return None
    if not sampler.edge_ids:
        raise ValueError("edge_features are gathered by edge id, and the sampler returns none; give it edge_ids=True")
    if store.num_rows < graph.num_edges:
        raise ValueError(
            f"edge_features has {store.num_rows} rows, the graph {graph.num_edges} edges; give a row per edge"
        )
    return store
