"""The order of a loader's stages, and the moves between their devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from loader.machine.devices import as_device
from loader.machine.gpu import NoGpuError, cuda_device
from loader.pipeline import Stage
from loader.samplers.base import Sampler
from loader.stages.move import MoveStage
from loader.stores import FeatureStore
from loader.timing import PipelineStats


def choose_device(
    device: torch.device | str | None, sampler: Sampler, stores: Mapping[str, FeatureStore]
) -> torch.device:
    """The device on which mini-batches arrive; a GPU has its index.

    Args:
        device: the device that was asked for. None takes the GPU on which sampler or stores work, else the CPU.

    Raises:
        ValueError: sampler or stores work on a GPU that is not `device`, or `device` is no CPU or GPU.
        NoGpuError: a GPU was asked for and torch finds none.
    """
    places = [(f"sampler {type(sampler).__name__} samples", sampler.device)]
    places += [(f"store {type(store).__name__} returns rows", store.device) for store in stores.values()]
    on_gpu = [(what, place) for what, place in places if place.type != "cpu"]
    if device is None:
        device = on_gpu[0][1] if on_gpu else torch.device("cpu")
    device = as_device(device)
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


def arrange(
    first: Stage,
    gather: Stage,
    more: Sequence[Stage],
    device: torch.device,
    rows: Sequence[torch.device],
    stats: PipelineStats,
) -> list[Stage]:
    """The stages in order, with moves to `device` if they are needed.

    A stage that works on `device` expects its items there, so a move is put before it if a part of them may lie
    elsewhere. A stage on the CPU itself copies the parts of an item that it reads from the GPU; the parts that it adds
    may lie on the CPU. If a part may lie elsewhere after the last stage, the pipeline ends with a move.

    Args:
        first: the stage that makes the items.
        gather: the stage that adds rows to them.
        more: the stages after that, in order.
        device: where items have to arrive.
        rows: where the stores return rows.
        stats: where the moves count their bytes.
    """
    stages, moves = [first], 0
    elsewhere = first.device not in (None, device)
    added = [rows, *([stage.device or device] for stage in more)]

    def move() -> MoveStage:
        return MoveStage(device, stats, "move" if not moves else f"move {moves + 1}")

    for stage, places in zip((gather, *more), added, strict=True):
        if elsewhere and stage.device == device:
            stages.append(move())
            moves, elsewhere = moves + 1, False
        stages.append(stage)
        elsewhere = elsewhere or any(place != device for place in places)
    return [*stages, move()] if elsewhere else stages
