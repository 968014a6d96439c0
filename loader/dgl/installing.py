"""`install`: our names in the place of DGL's."""

from __future__ import annotations

from loader.dgl import sampling
from loader.dgl.dataloader import DataLoader
from loader.dgl.edges import EdgePredictionSampler, as_edge_prediction_sampler
from loader.dgl.samplers import (
    BlockSampler,
    LaborSampler,
    MultiLayerFullNeighborSampler,
    MultiLayerNeighborSampler,
    NeighborSampler,
)
from loader.dgl.subgraphs import ClusterGCNSampler, SAINTSampler, ShaDowKHopSampler
from loader.machine.optional import import_dgl

_DATALOADING = {
    "BlockSampler": BlockSampler,
    "ClusterGCNSampler": ClusterGCNSampler,
    "DataLoader": DataLoader,
    "EdgePredictionSampler": EdgePredictionSampler,
    "LaborSampler": LaborSampler,
    "MultiLayerFullNeighborSampler": MultiLayerFullNeighborSampler,
    "MultiLayerNeighborSampler": MultiLayerNeighborSampler,
    "NeighborSampler": NeighborSampler,
    "SAINTSampler": SAINTSampler,
    "ShaDowKHopSampler": ShaDowKHopSampler,
    "as_edge_prediction_sampler": as_edge_prediction_sampler,
}


def install() -> None:
    """Puts the names of `loader.dgl` into `dgl.dataloading`, and those of `loader.dgl.sampling` into `dgl.sampling`.

    A script that writes `dgl.dataloading.DataLoader` then runs on our pipeline. Call it before the script's imports:
    what was imported from DGL before stays DGL's. Names that we do not have stay, as do DGL's negative samplers, which
    our loaders know, and the methods of graphs, as `g.sample_neighbors`. It holds for the whole process.

    Raises:
        ImportError: DGL is missing.
    """
    dgl = import_dgl("loader.dgl.install")
    for name, ours in _DATALOADING.items():
        setattr(dgl.dataloading, name, ours)
    for name in sampling.__all__:
        setattr(dgl.sampling, name, getattr(sampling, name))
