"""The arguments of torch's DataLoader, as our pipeline understands them: for loaders with a peer's signature."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader.loaders.workers import WorkerInit
from loader.machine.arguments import as_flag, as_size, instead_of, shown
from loader.machine.devices import as_device
from loader.machine.gpu import NoGpuError, cuda_device

_log = logging.getLogger("loader")

_NOTE = (
    "mini-batches are made by threads of this process: num_workers is how many sample (0: one per processor), "
    "prefetch_factor how many mini-batches are held ready; threads stay, so persistent_workers only says how often "
    "worker_init_fn is called"
)
_warned = False

# What `read_options` takes beside the options of a loader.
_OURS = (
    *("batch_size", "seed", "generator", "num_workers", "prefetch_factor", "pin_memory", "persistent_workers"),
    "worker_init_fn",
)
# Arguments of torch's DataLoader that say how it makes mini-batches, which is ours to say.
_ELSEWHERE = ("sampler", "batch_sampler", "collate_fn", "multiprocessing_context", "timeout")
# Those that must have their defaults.
_DEFAULTS = {"in_order": True, "pin_memory_device": ""}


class DataLoaderOptions(NamedTuple):
    """What the arguments of a DataLoader mean here.

    Attributes:
        num_threads: that sample on the CPU, or None for all processors.
        pin: whether mini-batches on the CPU are page-locked.
        seed: of the order and of the picks.
        loader: options of `loader.loaders.Loader`.
        begin: is called when an epoch begins, with the dataset of the workers.
    """

    num_threads: int | None
    pin: bool
    seed: int
    loader: dict[str, Any]
    begin: WorkerInit


def read_options(who: str, device: torch.device, **given: Any) -> DataLoaderOptions:
    """The arguments of a DataLoader, and those of `loader.loaders.Loader` beside them, of the loader `who`.

    Raises:
        TypeError: an argument that has no meaning here; the message says the way out.
        ValueError: a number out of its range.
    """
    for name in _ELSEWHERE:
        value = given.pop(name, None)
        if value is not None and not (isinstance(value, (int, float)) and value == 0):  # as `timeout` is by default
            raise TypeError(
                f"{who} takes no {name}: it makes mini-batches itself; shuffle, seed, rank and world_size decide "
                "their order and the part of each process"
            )
    for name, default in _DEFAULTS.items():
        value = given.pop(name, default)
        if value != default:
            raise TypeError(f"{who} does not know {name}={shown(value)}; leave it out")
    worker_init = given.pop("worker_init_fn", None)
    if worker_init is not None and not callable(worker_init):
        raise TypeError(f"worker_init_fn is {shown(worker_init)}; it must be a function of a worker's number, or None")
    num_workers = as_size("num_workers", given.pop("num_workers", 0), least=0)
    prefetch_factor = given.pop("prefetch_factor", None)
    persistent = _flag("persistent_workers", given)
    if num_workers or persistent or prefetch_factor is not None:
        _tell_once()
    if prefetch_factor is not None:
        if "prefetch" in given:
            raise TypeError(f"{who} was given both prefetch and prefetch_factor, which mean the same; give one")
        given["prefetch"] = as_size("prefetch_factor", prefetch_factor)
    generator, seed = given.pop("generator", None), given.pop("seed", None)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator is {shown(generator)}; it must be a torch.Generator, or None")
    world_size = given.get("world_size", 1)
    if seed is None and generator is None and isinstance(world_size, int) and world_size > 1:
        raise ValueError(
            f"{who} takes turns with {world_size} processes, which all need the same order, but seed is not given; "
            "give the same one to all of them"
        )
    if seed is None:
        place = "cpu" if generator is None else generator.device
        seed = int(torch.empty((), dtype=torch.int64, device=place).random_(generator=generator))
    begin = WorkerInit(worker_init, num_workers, persistent, seed)
    pin = _flag("pin_memory", given) and device.type == "cpu"
    known = {"shuffle", "drop_last", "prefetch", "rank", "world_size", "prioritize_loading"}
    if unknown := sorted(given.keys() - known):
        way = instead_of(unknown[0], sorted([*known, *_OURS]), "takes")
        raise TypeError(f"{who} takes no argument {unknown[0]!r}; {way}")
    return DataLoaderOptions(num_workers or None, pin and torch.cuda.is_available(), seed, given, begin)


def as_fanouts(name: str, fanouts: Any) -> list[Any]:
    """The list of picks per hop of a peer's signature, whose numbers the sampler looks at.

    Raises:
        TypeError: it is no list.
    """
    if (
        isinstance(fanouts, (str, bytes, Set, Mapping))
        or not isinstance(fanouts, Iterable)
        or not getattr(fanouts, "ndim", True)
    ):
        raise TypeError(f"{name} is {shown(fanouts)}; it must be a list of integers, one per hop, e.g. [15, 10, 5]")
    return list(fanouts)


def as_ids(name: str, ids: Any) -> Tensor:
    """A tensor of what a peer takes as ids: a tensor, an array or a list.

    Raises:
        TypeError: it is none of them.
    """
    try:
        made = ids if isinstance(ids, Tensor) else torch.as_tensor(ids)
        return made if made.numel() or isinstance(ids, Tensor) else made.long()  # torch makes an empty list float32
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} is {shown(ids)}; it must be a tensor or a list of ids, [n]") from None


def device_of(device: torch.device | str | None) -> torch.device:
    """Where mini-batches arrive; None is the CPU. A GPU comes with its index.

    Raises:
        NoGpuError: a GPU was asked for and there is none.
    """
    device = as_device("cpu" if device is None else device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise NoGpuError(f"device is '{device}', but torch finds no NVIDIA GPU here; give device='cpu'")
    return cuda_device(device) if device.type == "cuda" else device


def _flag(name: str, given: dict[str, Any]) -> bool:
    value = given.pop(name, None)
    return value is not None and as_flag(name, value)


def refuse(who: str, instead: str, given: dict[str, Any]) -> None:
    """Raises NotImplementedError for an option of the peer's that is not at its default.

    Args:
        instead: what can do it.
        given: name -> (value, default).
    """
    for name, (value, default) in given.items():
        if value is default or (isinstance(default, (str, bool)) and getattr(value, "value", value) == default):
            continue
        raise NotImplementedError(f"{who} does not know {name}={shown(value)}; leave it out, or take {instead}")


def _tell_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        _log.warning(_NOTE)
