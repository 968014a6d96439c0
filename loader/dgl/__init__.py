"""DGL's data loading on our pipeline: what `dgl.dataloading` calls these names, with its signatures.

DGL counts fanouts from the input layer and so do the names here: in `NeighborSampler([15, 10, 5])` the seeds have 5
neighbours each. `loader.FusedSampler` and all else of this package count them from the seeds.
"""

from loader.dgl import negative_sampler
from loader.dgl.dataloader import DataLoader
from loader.dgl.samplers import (
    EdgePredictionSampler,
    MultiLayerFullNeighborSampler,
    MultiLayerNeighborSampler,
    NeighborSampler,
    as_edge_prediction_sampler,
)

__all__ = [
    "DataLoader",
    "EdgePredictionSampler",
    "MultiLayerFullNeighborSampler",
    "MultiLayerNeighborSampler",
    "NeighborSampler",
    "as_edge_prediction_sampler",
    "negative_sampler",
]
