"""Sums of the times of a pipeline's stages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loader.machine.forks import ForkSafeLock
from loader.timing.timeline import TRAIN


class PipelineStats:
    """Times of the stages, summed over all iterations that share this object.

    Attributes:
        busy: host seconds spent in each stage, by its name.
        waiting: host seconds that the consumer waited for items; without prefetching, all time of the stages.
        items: items that reached the consumer.
        throttled: host seconds that the consumer was stopped because it was too far ahead of the GPU. They cost
            nothing.
        gpu_busy: stage -> seconds that its stream worked; "train" is the consumer's stream. Empty without streams.
        gpu_waiting: seconds that the consumer's stream was idle between two items. This is the cost of loading.
        gpu_items: items that `gpu_busy` and `gpu_waiting` count: a sample of the items that the GPU is done with.
        moved: kind of work -> bytes, as the stages report them through `add_bytes`.
        largest_item: bytes of the largest item, if the stages report sizes.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._lock = ForkSafeLock()
        self.largest_item = 0
        self.reset()

    def name(self, names: Iterable[str]) -> None:
        """Sets the names of the stages, if they are not known yet."""
        self._names = tuple(names)
        self.reset()

    def add_busy(self, name: str, seconds: float) -> None:
        with self._lock:
            self.busy[name] += seconds

    def add_item(self, waited: float) -> None:
        with self._lock:
            self.waiting += waited
            self.items += 1

    def add_gpu_times(self, stages: Iterable[float], waiting: float, train: float) -> None:
        """Adds the seconds of one item on the streams of the stages, in their order, and on the consumer's."""
        with self._lock:
            for name, seconds in zip((*self._names, TRAIN), (*stages, train), strict=True):
                self.gpu_busy[name] = self.gpu_busy.get(name, 0.0) + seconds
            self.gpu_waiting += waiting
            self.gpu_items += 1

    def add_bytes(self, name: str, count: int) -> None:
        with self._lock:
            self.moved[name] = self.moved.get(name, 0) + count

    def see_item(self, nbytes: int) -> None:
        """Counts the size of a new item."""
        if nbytes > self.largest_item:
            self.largest_item = nbytes

    def as_dict(self) -> dict[str, float]:
        """`{stage: seconds, ..., "waiting": seconds, "items": count}`, host times."""
        with self._lock:
            return {**self.busy, "waiting": self.waiting, "items": self.items}

    def reset(self) -> None:
        with self._lock:
            self.busy = dict.fromkeys(self._names, 0.0)
            self.waiting = self.throttled = self.gpu_waiting = 0.0
            self.items = self.gpu_items = self.largest_item = 0
            self.gpu_busy: dict[str, float] = {}
            self.moved: dict[str, int] = {}

    def __repr__(self) -> str:
        times = ", ".join(f"{name}={seconds:.3f} s" for name, seconds in self.busy.items())
        return f"PipelineStats(items={self.items}, {times}, waiting={self.waiting:.3f} s)"

    def __getstate__(self) -> dict[str, Any]:
        return {name: held for name, held in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=ForkSafeLock())
