"""The stages at work on one item after the other, each under its stream."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from loader.pipeline.stage import Stage
from loader.pipeline.streams import Consumer, Flight, StageStreams
from loader.timing import PipelineStats, Timeline


class Setting(Protocol):
    """What a pipeline says of its runs."""

    stages: tuple[Stage, ...]
    depth: int
    stats: PipelineStats
    streams: StageStreams | None
    consumer: Consumer | None
    timeline: Timeline | None
    count: int


class Work:
    """Takes items of the source through the stages. Each stage is used by one thread at a time.

    What a stage or the source raises takes the place of the item; nothing is drawn after it.

    Args:
        setting: the pipeline.
        source: of the items; it is iterated under the stream of the first stage.
    """

    def __init__(self, setting: Setting, source: Iterable[Any]) -> None:
        self._setting, self._stats, self._timeline = setting, setting.stats, setting.timeline
        self._stages, self.depth, self.num_stages = setting.stages, setting.depth, len(setting.stages)
        self.streams = setting.streams if setting.depth else None
        self._inline = setting.streams if self.streams is None else None  # work goes to the consumer's stream
        self._nvtx = setting.streams.cuda.nvtx if setting.streams is not None else None
        self._source: Iterable[Any] = source
        self._items: Any = None
        self._begun: deque[Flight] = deque()  # by the first stage; the item is what finishes them
        self._together = 1  # the consumer has nothing to do before the very first item: it comes alone
        self._ended = False  # the source, or by an error, which then is the last flight

    @property
    def names(self) -> list[str]:
        return [stage.name for stage in self._stages]

    def begin(self, most: int) -> None:
        """Begins items by the first stage until `most` are begun, or as many more as it takes together."""
        if self._ended or len(self._begun) >= most:
            return
        self._enter(0)
        while not self._ended and len(self._begun) < most:
            self._begin_group()

    def first(self) -> Flight | None:
        """The next item after the first stage; None at the end. Leaves the stage's stream the current one."""
        self.begin(1)
        if not self._begun:
            return None
        flight = self._begun.popleft()
        if flight.error is None:
            self._enter(0)
            try:
                # On the stream where it was begun: to finish may put more work there.
                flight.item = self._call(0, flight.item, (), (flight,))
                if self.streams is not None:
                    flight.finished.record(self.streams.streams[0])
                    if self.num_stages == 1 or (flight.timed and flight.together < self._stages[0].together):
                        flight.done[0].record(self.streams.streams[0])  # work of those begun alone may come only now
            except BaseException as error:
                self._ended = True
                self._begun.clear()
                flight.item, flight.error = None, error
        return flight

    def through(self, index: int, flight: Flight) -> None:
        """Takes a flight through a later stage. An error takes the place of its item."""
        if flight.error is not None:
            return
        try:
            self._enter(index)
            stream = self.streams.streams[index] if self.streams is not None else None
            if stream is not None:
                stream.wait_event(flight.finished if index == 1 else flight.done[index - 1])
                flight.item.record_stream(stream)
                if flight.timed:
                    flight.begun[index].record(stream)
            first = self._inline.mark() if self._inline is not None and flight.traced else None
            flight.item = self._call(index, self._stages[index].run, (flight.item,), (flight,))
            if stream is not None:
                flight.done[index].record(stream)
            elif first is not None and self._inline is not None and self._timeline is not None:
                self._timeline.add_gpu(self._stages[index].name, flight.number, first, self._inline.mark())
        except BaseException as error:
            flight.item, flight.error = None, error

    def close(self) -> None:
        """Lets go of everything."""
        self._ended = True
        self._begun.clear()
        self._items, self._source = iter(()), ()

    def _enter(self, index: int) -> None:
        if self.streams is not None:
            self.streams.enter(index)

    def _begin_group(self) -> None:
        group: list[Flight] = []
        error: BaseException | None = None
        stage, first = self._stages[0], None
        try:
            if self._items is None:
                self._items, self._source = iter(self._source), ()
            while len(group) < self._together:
                group.append(self._flight(next(self._items)))
        except StopIteration:
            self._ended = True
        except BaseException as raised:
            error = raised
        self._together = stage.together if self.depth else 1
        if group:
            try:
                stream = self.streams.streams[0] if self.streams is not None else None
                for flight in group:
                    flight.together = len(group)
                    if flight.timed and stream is not None:
                        flight.begun[0].record(stream)
                    if flight.traced and self._inline is not None:
                        first = self._inline.mark()
                finish = self._call(0, stage.begin, ([flight.item for flight in group],), group)
                for flight, item in zip(group, finish, strict=True):
                    flight.item = item
                    if flight.timed and stream is not None:
                        flight.done[0].record(stream)
                    elif first is not None and self._inline is not None and self._timeline is not None:
                        self._timeline.add_gpu(stage.name, flight.number, first, self._inline.mark())
                self._begun += group
            except BaseException as raised:
                error = raised
        if error is not None:
            self._ended = True
            flight = Flight()
            flight.error = error
            self._begun.append(flight)

    def _flight(self, item: Any) -> Flight:
        setting = self._setting
        number = setting.count
        setting.count += 1
        flight = self.streams.flight() if self.streams is not None else Flight()
        return flight.begin(number, item, self._timeline is not None and self._timeline.wants(number))

    def _call(self, index: int, function: Callable[..., Any], arguments: Sequence[Any], group: Sequence[Flight]) -> Any:
        """`function(*arguments)`, timed on the host."""
        name = self._stages[index].name
        if self._nvtx is not None:
            self._nvtx.range_push(name)
        begin = time.perf_counter()
        try:
            return function(*arguments)
        except StopIteration as error:  # would pass for the end of the items
            raise RuntimeError(f"stage '{name}' raised StopIteration") from error
        finally:
            end = time.perf_counter()
            if self._nvtx is not None:
                self._nvtx.range_pop()
            self._stats.add_busy(name, end - begin)
            if self._timeline is not None:
                for flight in group:
                    if flight.traced:
                        self._timeline.add_host(name, flight.number, begin, end)
