"""The CUDA streams of a pipeline's stages, and the events by which they and the consumer wait for each other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from loader.machine.gpu import current_stream
from loader.pipeline.stage import Stage
from loader.timing import PipelineStats

TIMED = 4  # the streams' times of one item in this many are taken: each costs the consumer's host thread ten calls


class Flight:
    """One item on its way through the stages, with the events that order the streams it crosses.

    Attributes:
        number: of the item, counted over all runs of its pipeline.
        item: the result of a stage, or the function that finishes it in the first stage; None once it was taken.
        error: an exception of a stage or of the source, in its place.
        traced: whether a timeline wants its times.
        timed: whether anyone wants its times. Otherwise `begun` and `arrived` are not recorded.
        begun, done: an event per stage each, recorded on the stage's stream before and after its work.
        finished: recorded on the first stage's stream when an item that was begun there is finished.
        ready: one of these events; the item is complete after it.
        arrived: recorded on the consumer's stream after it has waited for the item.
        consumed: recorded there when the consumer asks for the next item.
        since: the event after which the consumer's stream may have waited for the item.
        together: items of the group in which the first stage began it.
    """

    def __init__(self, streams: StageStreams | None = None) -> None:
        self.number, self.together, self.traced, self.timed = 0, 1, False, False
        self.item: Any = None
        self.error: BaseException | None = None
        self.begun = self.done = ()  # type: Sequence[Any]
        self.finished = self.ready = self.arrived = self.consumed = self.since = None  # type: Any
        if streams is not None:
            event = streams.cuda.Event
            self.begun, self.done = ([event(enable_timing=True) for _ in streams.names] for _ in range(2))
            self.finished, self.arrived, self.consumed = event(), event(enable_timing=True), event(enable_timing=True)

    def begin(self, number: int, item: Any, traced: bool) -> Flight:
        self.number, self.item, self.error, self.traced = number, item, None, traced
        self.timed = bool(self.begun) and (traced or number % TIMED == 0)
        return self

    def raise_error(self) -> None:
        """Raises the exception that came in the item's place, if any. Leaves no cycle of error, traceback, frames."""
        error, self.error = self.error, None
        if error is None:
            return
        try:
            raise error
        finally:
            del error, self


class StageStreams:
    """One stream per stage, made once: one per epoch would keep memory of its own. Flights are used again, too.

    Args:
        device: the GPU, with its index.
        stages: of the pipeline.
        prioritize: whether kernels of a stage have its priority; else they have none.
        cuda: the module that makes streams and events, `torch.cuda`; tests give another.
    """

    def __init__(
        self, device: torch.device, stages: Sequence[Stage], *, prioritize: bool = True, cuda: Any = torch.cuda
    ) -> None:
        self.device, self.names, self.cuda = device, tuple(stage.name for stage in stages), cuda
        priorities = [stage.priority if prioritize else 0 for stage in stages]
        self.streams = tuple(cuda.Stream(device=device, priority=priority) for priority in priorities)
        self._spare: deque[Flight] = deque()
        self._current = current_stream if cuda is torch.cuda else cuda.current_stream

    def current(self) -> Any:
        """The caller's stream on the device."""
        return self._current(self.device.index)

    def here(self) -> tuple[Any, int]:
        """The caller's stream and its current device, to come back to."""
        return self.current(), self.cuda.current_device()

    def enter(self, stage: int) -> None:
        """Makes the stage's stream the calling thread's current one."""
        self.cuda.set_stream(self.streams[stage])

    def leave(self, back: Any) -> None:
        """Makes current what `here` returned."""
        stream, device = back
        self.cuda.set_stream(stream)
        if device != self.device.index:
            self.cuda.set_device(device)

    def synchronize(self) -> None:
        """The host waits for all work of the stages."""
        for own in self.streams:
            own.synchronize()

    def flight(self) -> Flight:
        """A flight with events, if possible one that was used before."""
        return self._spare.popleft() if self._spare else Flight(self)

    def recycle(self, flight: Flight) -> None:
        """Takes back a flight whose events are no longer used."""
        if not flight.traced:  # the timeline's own
            self._spare.append(flight)


class Consumer:
    """The consumer's end: its stream waits for items, and the host waits if it is too far ahead of the stream.

    The consumer's thread only launches its work on an item. Without a bound it could ask for any number of items before
    the GPU is done with the first. `ask` waits until the GPU works on at most `lag` of the items before the last.

    Args:
        streams: of the stages.
        lag: items, at least 1.
        stats: where the times of the streams are added, once the GPU is done with an item.
    """

    def __init__(self, streams: StageStreams, lag: int, stats: PipelineStats) -> None:
        self.streams, self.lag, self.stats = streams, lag, stats
        self._held: Flight | None = None  # the item that the consumer has
        self._behind: deque[Flight] = deque()  # items before it; the GPU may still work on them
        self._settled: Flight | None = None  # the last one that was done; the next one's `since` may be its event
        self._since: Any = None  # when the consumer's stream was done with the last item

    def begin(self) -> None:
        """A run begins: the stages wait for the current stream, whose work may still write what they read."""
        stream, self._held = self.streams.current(), None
        for own in self.streams.streams:
            own.wait_stream(stream)
        self._since = self.streams.cuda.Event(enable_timing=True)  # nobody waited for an item before
        self._since.record(stream)

    def end(self) -> None:
        """A run ends: the current stream waits for the stages, so it may free memory that they read."""
        stream = self.streams.current()
        for own in self.streams.streams:
            stream.wait_stream(own)

    def ask(self) -> Any:
        """The current stream, which has all work on the last item by now. Waits for older items."""
        stream = self.streams.current()
        if self._held is not None:
            self._held.consumed.record(stream)
            self._since = self._held.consumed
            self._behind.append(self._held)
            self._held = None
        if len(self._behind) > self.lag:
            begin = time.perf_counter()
            self._settle(self._behind.popleft())
            self.stats.throttled += time.perf_counter() - begin
        return stream

    def take(self, flight: Flight, stream: Any) -> None:
        """The consumer gets the item. Work that is put on `stream` from now on finds it complete."""
        stream.wait_event(flight.ready)
        if flight.timed:
            flight.arrived.record(stream)
        flight.item.record_stream(stream)
        flight.since = self._since
        self._held = flight

    def _settle(self, flight: Flight) -> None:
        """The GPU is done with the item: adds up its times."""
        flight.consumed.synchronize()
        if flight.timed:
            seconds = [begin.elapsed_time(end) * 1e-3 for begin, end in zip(flight.begun, flight.done, strict=True)]
            seconds[0] /= flight.together
            waiting = flight.since.elapsed_time(flight.arrived) * 1e-3
            self.stats.add_gpu_times(seconds, waiting, flight.arrived.elapsed_time(flight.consumed) * 1e-3)
        flight.since = None
        if self._settled is not None:
            self.streams.recycle(self._settled)
        self._settled = flight
