"""Mini-batches that are sampled to be counted: their rows, and room for those of any others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch import Tensor

from loader.loaders.nodes import NodeLoader
from loader.samplers import FusedSampler, Sampler, TreeSampler
from loader.samplers.base import AnyGraph, tell_ignored_times
from loader.samplers.gpu.sizes import GpuOptions
from loader.samplers.tree_options import TreeOptions

COUNTED_OF_SPLIT = 10  # mini-batches of each other split, whose largest one counts
_HEADROOM = 1.25  # of rows in flight over the largest mini-batch that was counted, as a sampler's own room
_DEVIATIONS = 8  # over the mean, if that is less, and enough mini-batches were counted to know how they vary
_ENOUGH = 30


def most_rows(counted: Tensor, batches: int) -> int:
    """Room for the rows of any mini-batches, this many together, by the rows of some.

    Mini-batches of training are random draws, and their rows add up from many picks. So eight standard deviations more
    than the mean, of the sum, is more than comes up in any training.
    """
    most = batches * _HEADROOM * int(counted.max())
    if len(counted) >= _ENOUGH:
        rows = counted.double()
        most = min(most, batches * float(rows.mean()) + _DEVIATIONS * math.sqrt(batches) * float(rows.std()))
    return int(most) + batches * 1024


def first_batches(
    graph: AnyGraph, seeds: Any, sampler: GpuOptions, size: int, count: int, **options: Any
) -> Iterator[Any]:
    """The first `count` mini-batches of an epoch, or all of a shorter one, sampled on the CPU: the GPU's memory is not
    planned yet.

    Args:
        graph: on the CPU.
        seeds: see `NodeLoader`.
        sampler: on a GPU.
        size: of the mini-batches, in seeds.
        options: more of `NodeLoader`.
    """
    if not sampler.timed:
        tell_ignored_times(sampler, graph)  # else the sampler of the CPU would be named
    loader = NodeLoader(graph, None, None, seeds, _on_cpu(sampler), size, prefetch=0, **options)
    yield from islice(loader, count)
    loader.release()


def _on_cpu(sampler: GpuOptions) -> Sampler:
    """A sampler of the same mini-batches on the CPU."""
    fanouts: Any = sampler.fanouts if sampler.relation_fanouts is None else sampler.relation_fanouts
    if isinstance(sampler, TreeOptions):
        names = ("trees", "times", "rule", "window", "bound", "last", "missing_times")
        return TreeSampler(
            fanouts, replace=sampler.replace, seed=sampler.seed, **{name: getattr(sampler, name) for name in names}
        )
    return FusedSampler(fanouts, replace=sampler.replace, seed=sampler.seed, expand=sampler.expand)
