"""The CUDA streams of a pipeline's stages, and the events by which they and the consumer wait for each other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from loader.machine.gpu import current_stream
from loader.pipeline.stage import Stage
from loader.timing import PipelineStats

TIMED = 4  # the streams' times of one item in this many are taken: each costs the consumer's host thread ten calls


@dataclass(eq=False, slots=True)
class StagedItem:
    """One item on its way through the stages, with the events that order the streams it crosses, if there are any."""

    number: int = 0  # of the item, counted over all runs of its pipeline
    item: Any = None  # the result of a stage, or what finishes it in the first stage; None once it was taken
    traced: bool = False  # whether a timeline wants its times
    error: BaseException | None = None  # of a stage or of the source, in the item's place; StopIteration is the end
    together: int = 1  # items of the group in which the first stage began it
    timed: bool = False  # whether anyone wants the streams' times; else `begun` and `arrived` are not recorded
    begun: Sequence[Any] = ()  # an event per stage, recorded on the stage's stream before its work
    done: Sequence[Any] = ()  # the same after its work
    finished: Any = None  # recorded on the first stage's stream when an item that was begun there is finished
    ready: Any = None  # one of these events; the item is complete after it
    arrived: Any = None  # recorded on the consumer's stream after it has waited for the item
    consumed: Any = None  # recorded there when the consumer asks for the next item
    since: Any = None  # the event after which the consumer's stream may have waited for the item
    given: float = 0.0  # when the consumer got the item


class StageStreams:
    """One stream per stage, made once: one per epoch would keep memory of its own. Events are used again, too.

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
        # The caller's stream on the device.
        self.current = partial(current_stream if cuda is torch.cuda else cuda.current_stream, device.index)
        self._behind: deque[StagedItem] = deque()  # the consumer has let go of them; the GPU may still work on them
        self._settled: StagedItem | None = None  # the last one that was done; the next one's `since` may be its event
        self._spare: deque[StagedItem] = deque()  # those before it
        self._stream: Any = None  # of the consumer, when it asked for an item
        self._since: Any = None  # when that was done with the last item

    def enter(self, stage: int) -> Any:
        """Makes the stage's stream the calling thread's current one, and returns it."""
        self.cuda.set_stream(self.streams[stage])
        return self.streams[stage]

    def leave(self, stream: Any, device: int) -> None:
        """Makes a stream of this device the current one again, and then perhaps another device."""
        self.cuda.set_stream(stream)
        if device != self.device.index:
            self.cuda.set_device(device)

    def synchronize(self) -> None:
        """The host waits for all work of the stages."""
        for own in self.streams:
            own.synchronize()

    def staged_item(self, number: int, item: Any, traced: bool) -> StagedItem:
        """An item with events, if possible those that were used before."""
        if self._spare:
            staged = self._spare.popleft()
        else:
            event, timing = self.cuda.Event, partial(self.cuda.Event, enable_timing=True)
            begun, done = [timing() for _ in self.names], [timing() for _ in self.names]
            staged = StagedItem(begun=begun, done=done, finished=event(), arrived=timing(), consumed=timing())
        staged.number, staged.item, staged.traced, staged.timed = number, item, traced, traced or number % TIMED == 0
        return staged

    def begin(self) -> None:
        """Begins a run: the stages wait for the current stream, whose work may still write what they read."""
        stream = self.current()
        for own in self.streams:
            own.wait_stream(stream)
        self._since = self.cuda.Event(enable_timing=True)  # nobody waited for an item before
        self._since.record(stream)

    def end(self) -> None:
        """Ends a run: the current stream waits for the stages, so it may free memory that they read."""
        stream = self.current()
        for own in self.streams:
            stream.wait_stream(own)

    def ask(self, last: StagedItem | None, lag: int, stats: PipelineStats) -> None:
        """The consumer asks for an item and is done with its last one, if any: its stream has all work on that.

        Waits until the GPU works on at most `lag` items before the last. The consumer's thread only launches its work,
        so without a bound it could ask for any number of items before the GPU is done with the first.
        """
        self._stream = stream = self.current()
        if last is not None:
            last.consumed.record(stream)
            self._since = last.consumed
            self._behind.append(last)
        if len(self._behind) > lag:
            begin, staged = time.perf_counter(), self._behind.popleft()
            staged.consumed.synchronize()
            stats.throttled += time.perf_counter() - begin
            if staged.timed:
                seconds = [first.elapsed_time(end) * 1e-3 for first, end in zip(staged.begun, staged.done, strict=True)]
                seconds[0] /= staged.together
                waiting = staged.since.elapsed_time(staged.arrived) * 1e-3
                stats.add_gpu_times(seconds, waiting, staged.arrived.elapsed_time(staged.consumed) * 1e-3)
            if self._settled is not None and not self._settled.traced:  # the events are the timeline's
                self._spare.append(self._settled)
            self._settled = staged

    def take(self, staged: StagedItem) -> None:
        """The consumer gets the item. Work that is put on its stream from now on finds it complete."""
        self._stream.wait_event(staged.ready)
        if staged.timed:
            staged.arrived.record(self._stream)
        staged.item.record_stream(self._stream)
        staged.since = self._since
