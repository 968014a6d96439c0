"""Samples, which samplers return, and their conversion to DGL and PyG."""

from loader.samples.base import Rows, Sample
from loader.samples.block import Block
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.hetero_block import HeteroBlock
from loader.samples.hetero_subgraph import HeteroSubgraph, hetero_subgraph_of, subgraph_of_one
from loader.samples.lazy_rows import LazyRows
from loader.samples.links import Links
from loader.samples.minibatch import MiniBatch
from loader.samples.subgraph import Subgraph, bidirectional, subgraph_of
from loader.samples.trees import TreeMiniBatch
from loader.samples.walks import Walks

__all__ = [
    "Block",
    "HeteroBlock",
    "HeteroMiniBatch",
    "HeteroSubgraph",
    "LazyRows",
    "Links",
    "MiniBatch",
    "Rows",
    "Sample",
    "Subgraph",
    "TreeMiniBatch",
    "Walks",
    "bidirectional",
    "hetero_subgraph_of",
    "subgraph_of",
    "subgraph_of_one",
]
