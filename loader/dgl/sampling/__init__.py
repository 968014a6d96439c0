"""Names of `dgl.sampling`, with DGL's signatures, on our core.

The picks follow from one number, which DGL's generator draws for each call. So `dgl.seed` decides them.
"""

from loader.dgl.sampling.negatives import global_uniform_negative_sampling
from loader.dgl.sampling.neighbors import sample_labors, sample_neighbors, sample_neighbors_biased
from loader.dgl.sampling.pinsage import PinSAGESampler, RandomWalkNeighborSampler
from loader.dgl.sampling.topk import select_topk
from loader.dgl.sampling.walks import node2vec_random_walk, pack_traces, random_walk

__all__ = [
    "PinSAGESampler",
    "RandomWalkNeighborSampler",
    "global_uniform_negative_sampling",
    "node2vec_random_walk",
    "pack_traces",
    "random_walk",
    "sample_labors",
    "sample_neighbors",
    "sample_neighbors_biased",
    "select_topk",
]
