"""The gather stage: rows of features for the input nodes and the edges of a mini-batch."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from loader.features import FeatureStore, HostFeatures
from loader.graph import Graph
from loader.minibatch import MiniBatch
from loader.pipeline import PipelineStats
from loader.samplers.base import Sampler


def check_edge_features(features: FeatureStore | Tensor | None, graph: Graph, sampler: Sampler) -> FeatureStore | None:
    """The store of the edges' features.

    Raises:
        ValueError: the sampler returns no edge ids, or there are fewer rows than edges.
    """
    if features is None:
        return None
    store = HostFeatures(features) if isinstance(features, Tensor) else features
    if not sampler.edge_ids:
        raise ValueError("edge_features are gathered by edge id, and the sampler returns none; give it edge_ids=True")
    if store.num_nodes < graph.num_edges:
        raise ValueError(f"edge_features has {store.num_nodes} rows, the graph {graph.num_edges} edges")
    return store


class Gather:
    """Fills `x`, and `edge_features` of the blocks.

    Args:
        features: rows by vertex, or None.
        edge_features: rows by edge id, or None.
    """

    def __init__(self, features: FeatureStore | None, edge_features: FeatureStore | None) -> None:
        self.features = features
        self.edge_features = edge_features

    def __call__(self, batch: MiniBatch, stats: PipelineStats) -> MiniBatch:
        x, blocks = batch.x, batch.blocks
        if self.features is not None:
            x = self.features.gather(_near(batch.nodes, self.features))
            stats.add_bytes("gather", x.nbytes)
        if self.edge_features is not None:
            # One gather for all hops: few large ones cost less than many small ones.
            ids = [block.edge_ids for block in blocks if block.edge_ids is not None]
            rows = self.edge_features.gather(_near(torch.cat(ids), self.edge_features))
            stats.add_bytes("gather", rows.nbytes)
            parts = rows.split([t.numel() for t in ids])
            blocks = tuple(
                dataclasses.replace(block, edge_features=part) for block, part in zip(blocks, parts, strict=True)
            )
        return MiniBatch(batch.nodes, batch.frontier_sizes, blocks, batch.epoch, batch.index, x, batch.y)

    def check(self) -> None:
        """Raises what the stores' gathers so far had to say."""
        for store in (self.features, self.edge_features):
            if store is not None:
                store.check()


def _near(ids: Tensor, store: FeatureStore) -> Tensor:
    """Ids that a store takes: on its device, or on the CPU."""
    return ids.cpu() if store.device.type == "cpu" else ids
