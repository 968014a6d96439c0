"""The sampler of all hops in one call, for the device that is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from loader.machine.devices import as_device
from loader.machine.renamed_arguments import renamed_arguments
from loader.samplers.base import NeighborSampler
from loader.samplers.cpu import FusedSampler
from loader.samplers.gpu.sizes import TOGETHER


@renamed_arguments({"vertex_set": "node_set"})
def fused(
    fanouts: int | Sequence[int] | Mapping[Any, Any] = (),
    num_hops: int | None = None,
    *,
    device: str | torch.device = "auto",
    num_threads: int | None = None,
    **options: Any,
) -> NeighborSampler:
    """A `FusedSampler` on the CPU, or a `CudaSampler` on a GPU. Both give the same mini-batches.

    Args:
        device: "cpu", a GPU, or "auto" for a GPU if build and machine have one.
        num_threads: on the CPU, see `CoreSampler`. On a GPU it has no effect, so one configuration serves both.
        options: those of `NeighborSampler`, and on a GPU those of `CudaSampler`. None takes the default. The
            default of `batches_per_launch` is 8: a loader that prefetches samples eight mini-batches per launch. From
            the first such launch on, the workspace takes the memory of eight mini-batches.
        fanouts, num_hops: see `NeighborSampler`.

    Raises:
        TypeError: an unknown option.
        ValueError: an option that does not apply on that device; the message says which.
        RuntimeError: a GPU was asked for, and there is none.
    """
    from loader.samplers.gpu.sampler import CudaSampler

    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(device, str) and device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = as_device(device)
    if device.type == "cpu":
        of_both, of_gpu = (inspect.signature(cls).parameters for cls in (NeighborSampler, CudaSampler))
        for name, value in given.items():
            if name in of_gpu and name not in of_both:
                raise ValueError(f"{name} is {value!r}, but the sampler runs on the CPU; leave it null, or device=cuda")
        return FusedSampler(fanouts, num_hops, num_threads=num_threads, **given)
    given.setdefault("batches_per_launch", TOGETHER)
    return CudaSampler(fanouts, num_hops, device=device, **given)
