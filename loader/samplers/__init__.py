"""Samplers. A `Sampler` takes the seeds of a mini-batch and returns a sample, for neighborhoods a `MiniBatch`."""

from typing import TYPE_CHECKING, Any

from loader.samplers.base import NeighborSampler, PickOptions, Request, Sampler, Session, resolve_fanouts
from loader.samplers.cpu import CoreSampler, FullSampler, FusedSampler, HopwiseSampler
from loader.samplers.dgl import DGLSampler
from loader.samplers.hgt import HGTSampler
from loader.samplers.links import LinkSampler, Negatives
from loader.samplers.list_hotness import list_hotness
from loader.samplers.placement import fused
from loader.samplers.subgraph import SubgraphSampler
from loader.samplers.trees import TreeSampler
from loader.samplers.walk_call import random_walk
from loader.samplers.walk_next import Next, NextError
from loader.samplers.walks import WalkSampler

if TYPE_CHECKING:
    from loader.samplers.gpu.sampler import CudaSampler

__all__ = [
    "CoreSampler",
    "CudaSampler",
    "DGLSampler",
    "FullSampler",
    "FusedSampler",
    "HGTSampler",
    "HopwiseSampler",
    "LinkSampler",
    "Negatives",
    "NeighborSampler",
    "Next",
    "NextError",
    "PickOptions",
    "Request",
    "Sampler",
    "Session",
    "SubgraphSampler",
    "TreeSampler",
    "WalkSampler",
    "fused",
    "list_hotness",
    "random_walk",
    "resolve_fanouts",
]


def __getattr__(name: str) -> Any:
    if name == "CudaSampler":  # on first use: most runs without a GPU never need it
        from loader.samplers.gpu.sampler import CudaSampler

        return CudaSampler
    raise AttributeError(f"module 'loader.samplers' has no attribute {name!r}")
