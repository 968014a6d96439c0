"""Samplers: seeds in, `MiniBatch` out, behind one protocol."""

from loader.samplers.base import Sampler, resolve_fanouts
from loader.samplers.core import CoreSampler, FullSampler, FusedSampler, HopwiseSampler
from loader.samplers.dgl import DGLSampler

__all__ = [
    "CoreSampler",
    "DGLSampler",
    "FullSampler",
    "FusedSampler",
    "HopwiseSampler",
    "Sampler",
    "resolve_fanouts",
]
