"""Which class samples on which device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from loader import _core
from loader.samplers.base import Sampler
from loader.samplers.cpu import FusedSampler

# A pipeline's mini-batches that a GPU samples together: it takes it 0.4 times as long as one by one, hop by hop, and
# more bring little (benchmarks/results/sampler_gpu.json, benchmarks/pipeline_gpu.py --batches-per-launch).
_TOGETHER = 8


def fused(
    fanouts: int | Sequence[int],
    num_hops: int | None = None,
    *,
    device: str | torch.device = "auto",
    replace: bool = False,
    edge_ids: bool = False,
    seed: int = 0,
    num_threads: int | None = None,
    schedule: str | None = None,
    vertex_set: str | None = None,
    blocks_per_sm: float | None = None,
    batches_per_launch: int | None = None,
    pad_to_capacity: bool | None = None,
) -> Sampler:
    """All hops in one call, on the CPU (`FusedSampler`) or on a GPU (`CudaSampler`); both give the same mini-batches.

    Args:
        device: "cpu", a GPU, or "auto" for a GPU where build and machine have one.
        num_threads: where it samples on the CPU, see `CoreSampler`. A GPU has no use for it, so that one configuration
            serves both.
        schedule, vertex_set, blocks_per_sm, pad_to_capacity: on a GPU only, see `CudaSampler`; None takes its defaults.
        batches_per_launch: the same; None takes 8, with the schedules that can: mini-batches that a loader begins ahead
            are sampled by eights. The memory to sample in is that of eight, too, from the first such launch on.
        fanouts, num_hops, replace, edge_ids, seed: see `Sampler`.

    Raises:
        ValueError: an option that does not apply on that device; the message says which.
        RuntimeError: a GPU was asked for, and build or machine have none.
    """
    if device == "auto":
        device = "cuda" if _core.with_cuda and torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    options = {
        "schedule": schedule,
        "vertex_set": vertex_set,
        "blocks_per_sm": blocks_per_sm,
        "batches_per_launch": batches_per_launch,
        "pad_to_capacity": pad_to_capacity,
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if device.type == "cpu":
        for name, value in given.items():
            raise ValueError(f"{name} is {value!r}, but the sampler runs on the CPU; leave it null, or device=cuda")
        return FusedSampler(fanouts, num_hops, replace=replace, edge_ids=edge_ids, seed=seed, num_threads=num_threads)
    from loader.samplers.gpu.sampler import QUEUES, CudaSampler

    if schedule not in QUEUES:
        given.setdefault("batches_per_launch", _TOGETHER)
    return CudaSampler(fanouts, num_hops, replace=replace, edge_ids=edge_ids, seed=seed, device=device, **given)


def on_device(sampler: Sampler, device: torch.device) -> Sampler:
    """The sampler for a process that trains on `device`: a GPU sampler of another GPU gives way to one of this GPU.

    A configuration says "cuda", which each of several processes understands before it knows its own GPU.
    """
    if sampler.device.type != "cuda" or device.type != "cuda" or sampler.device == device:
        return sampler
    from loader.samplers.gpu.sampler import CudaSampler

    if not isinstance(sampler, CudaSampler):
        raise ValueError(f"{type(sampler).__name__} samples on {sampler.device}, but this process trains on {device}")
    names = (
        *("replace", "edge_ids", "seed", "schedule", "vertex_set", "blocks_per_sm", "batches_per_launch"),
        "pad_to_capacity",
    )
    options: dict[str, Any] = {name: getattr(sampler, name) for name in names if hasattr(sampler, name)}
    moved = CudaSampler(sampler.fanouts, device=device, **options)
    sampler.close()
    return moved
