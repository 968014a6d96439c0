"""Names of `dgl.dataloading`, and in `sampling` of `dgl.sampling`, with DGL's signatures, on our pipeline.

Fanouts are counted from the input layer, as in DGL: in `NeighborSampler([15, 10, 5])` the seeds get at most 5
neighbors each. `loader.FusedSampler` and the rest of this package count them from the seeds.
"""

from loader.dgl import negative_sampler, sampling
from loader.dgl.dataloader import DataLoader
from loader.dgl.edges import EdgePredictionSampler, as_edge_prediction_sampler
from loader.dgl.installing import install
from loader.dgl.samplers import (
    BlockSampler,
    LaborSampler,
    MultiLayerFullNeighborSampler,
    MultiLayerNeighborSampler,
    NeighborSampler,
)
from loader.dgl.subgraphs import ClusterGCNSampler, SAINTSampler, ShaDowKHopSampler

__all__ = [
    "BlockSampler",
    "ClusterGCNSampler",
    "DataLoader",
    "EdgePredictionSampler",
    "LaborSampler",
    "MultiLayerFullNeighborSampler",
    "MultiLayerNeighborSampler",
    "NeighborSampler",
    "SAINTSampler",
    "ShaDowKHopSampler",
    "as_edge_prediction_sampler",
    "install",
    "negative_sampler",
    "sampling",
]
