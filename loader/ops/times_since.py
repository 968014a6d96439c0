"""Encodes what lies between the times of seeds and those of the nodes of their trees."""

from __future__ import annotations

import torch
from torch import Tensor

from loader import _core
from loader.machine.gpu import launch_place

DAY = 86_400  # seconds


def encode_since(seed_times: Tensor, tree: Tensor, row: Tensor, known: Tensor, frequency: Tensor) -> Tensor:
    """`[nodes, 2 * F]` sines, then cosines, of the days between each seed's time and a node's own, times `frequency`.

    On a GPU with `known` in float32 it is one launch. It has no gradient.

    Args:
        seed_times: `[seeds]` int64, seconds.
        tree: `[nodes]` int64, the seed of each node.
        row: `[nodes]` int64, the place of each node in `known`.
        known: `[rows, 2]` the day of each row's own time, and the second of that day: both are exact.
        frequency: `[F]`, as in torch_geometric's `PositionalEncoding`.
    """
    known, frequency = known.detach(), frequency.detach()
    if known.is_cuda and known.dtype == frequency.dtype == torch.float32:
        return _by_kernel(seed_times, tree, row, known, frequency)
    own, seeds = known[row], seed_times[tree]
    days = seeds.div(DAY, rounding_mode="floor").to(known.dtype) - own[:, 0]
    days = days + (seeds.remainder(DAY).to(known.dtype) - own[:, 1]) / DAY
    angles = days.view(-1, 1) * frequency.view(1, -1)
    return torch.cat([angles.sin(), angles.cos()], 1)


def _by_kernel(seed_times: Tensor, tree: Tensor, row: Tensor, known: Tensor, frequency: Tensor) -> Tensor:
    out = known.new_empty(len(tree), 2 * len(frequency))
    seed_times, tree, row, known, frequency = (of.contiguous() for of in (seed_times, tree, row, known, frequency))
    _core.cuda_encode_times(launch_place(known), (seed_times, tree, row), known, frequency, out)
    return out
