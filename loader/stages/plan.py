"""Which stages a loader has, in which order, and how they run ahead: decided by where sampler and stores work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from loader.machine.gpu import NoGpuError, cuda_device
from loader.samplers.base import Sampler
from loader.stores import FeatureStore


@dataclass(frozen=True)
class Plan:
    """The stages of a loader.

    Attributes:
        stages: names in order: "sample", "gather", and "move" where something has to cross to the device.
        lookahead: every stage only puts work on its stream, so they run ahead without threads.
    """

    stages: tuple[str, ...]
    lookahead: bool


def choose_device(device: torch.device | str | None, sampler: Sampler, stores: Sequence[FeatureStore]) -> torch.device:
    """Where mini-batches arrive; a GPU comes with its index.

    Args:
        device: what was asked for; None takes the GPU on which sampler or stores work, else the CPU.

    Raises:
        ValueError: sampler or stores work on a GPU that is not `device`, or `device` is no CPU or GPU.
        NoGpuError: a GPU was asked for and torch finds none.
    """
    places = [(f"sampler {type(sampler).__name__} samples", sampler.device)]
    places += [(f"store {type(store).__name__} returns rows", store.device) for store in stores]
    on_gpu = [(what, place) for what, place in places if place.type != "cpu"]
    if device is None:
        device = on_gpu[0][1] if on_gpu else torch.device("cpu")
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device is '{device}'; mini-batches arrive on cpu or cuda")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise NoGpuError(f"device is '{device}', but torch finds no NVIDIA GPU here; give device='cpu'")
        device = cuda_device(device)
    for what, place in on_gpu:
        if place != device:
            raise ValueError(f"the {what} on {place}, but device is {device}; give both the same one")
    return device


def choose_plan(device: torch.device, sampler: Sampler, stores: Sequence[FeatureStore]) -> Plan:
    """The stages for mini-batches on `device`.

    A store that makes the host work gathers before the move, while the ids are in host memory; stores that work on
    the GPU gather after it. What is on the GPU from the start is not moved.
    """
    if device.type == "cpu":
        return Plan(("sample", "gather"), lookahead=False)
    asynchronous = all(store.asynchronous and store.device == device for store in stores)
    if sampler.device == device:
        if all(store.device == device for store in stores):
            return Plan(("sample", "gather"), lookahead=asynchronous and sampler.asynchronous)
        return Plan(("sample", "gather", "move"), lookahead=False)
    return Plan(("sample", "move", "gather") if asynchronous else ("sample", "gather", "move"), lookahead=False)
