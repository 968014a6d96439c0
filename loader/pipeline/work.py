"""The stages at work on one item after the other, each under its stream."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence, Sized
from itertools import chain
from threading import Thread
from typing import Any
from weakref import WeakSet

from loader.pipeline.stage import Stage
from loader.pipeline.streams import Flight, StageStreams
from loader.timing import PipelineStats, Timeline


class Setting:
    """What all runs of a pipeline have in common, see `Pipeline`."""

    stages: tuple[Stage, ...]
    depth: int
    streams: StageStreams | None
    threaded: bool
    stats: PipelineStats
    timeline: Timeline | None = None
    count: int = 0  # items of all runs
    threads: WeakSet[Thread]  # of all runs


class Work:
    """Takes items of the source through the stages. Each stage is used by one thread at a time.

    An exception of a stage or of the source takes the place of its item, or of the group that could not be begun. No
    item is drawn after it. In the consumer's own thread an interrupt does not wait for its turn. Times are recorded on
    the streams of the stages, or on the consumer's stream with a depth of 0.

    Args:
        pipeline: its stages, streams and statistics.
        source: of the items; it is iterated under the stream of the first stage.
    """

    def __init__(self, pipeline: Setting, source: Iterable[Any]) -> None:
        self.pipeline, self._stats, self._timeline = pipeline, pipeline.stats, pipeline.timeline
        self.stages, self.depth, self.streams = pipeline.stages, pipeline.depth, pipeline.streams
        self._own = pipeline.depth > 0 and pipeline.streams is not None  # each stage works under a stream of its own
        self._nvtx = pipeline.streams.cuda.nvtx if pipeline.streams is not None else None
        self._caught = BaseException if pipeline.threaded else Exception
        self._items = chain.from_iterable((source,))  # asks for `iter(source)` at the first item
        self.length = len(source) if isinstance(source, Sized) else None
        self._begun: deque[Flight] = deque()  # by the first stage; the item is a function that finishes it
        self._failure: BaseException | None = None  # comes after them
        self._together = 1  # the first item is begun by itself: the consumer has nothing to do before it
        self._ended = False  # no more items are begun

    def begin(self, most: int) -> None:
        """The first stage begins groups of items until at least `most` are begun."""
        stage = self.stages[0]
        while not self._ended and len(self._begun) < most:
            begin = self._enter(0)
            group: list[Flight] = []
            try:
                self._draw(group)
                for flight in group:
                    flight.together = len(group)
                    if flight.timed:
                        flight.begun[0].record(self._stream(0))
                finish = stage.begin([flight.item for flight in group]) if group else ()
                _check_answers(stage, group, finish)
                for flight, item in zip(group, finish, strict=True):
                    flight.item = item
                    if flight.timed:
                        flight.done[0].record(self._stream(0))
                self._begun += group
            except self._caught as error:
                self._ended, self._failure = True, _named(error, stage.name)
            finally:
                self._leave(0, begin, group)

    def first(self) -> Flight | None:
        """The next item after the first stage; None at the end. Leaves the stage's stream the current one."""
        self.begin(1)
        if self._begun:
            flight = self._begun.popleft()
            self.through(0, flight)  # on the stream on which it was begun: to finish it may put more work there
            if flight.error is not None:
                self.close()
            return flight
        if self._failure is None:
            return None
        flight = Flight()
        flight.error, self._failure = self._failure, None
        return flight

    def through(self, index: int, flight: Flight) -> None:
        """Takes a flight through a later stage, or finishes it in the first. An error takes the place of its item."""
        if flight.error is not None:
            return
        stage, item = self.stages[index], flight.item
        begin = self._enter(index)
        try:
            stream: Any = self._stream(index) if self._own or flight.timed else None
            if self._own and index:
                stream.wait_event(flight.ready)
                item.record_stream(stream)
            if flight.timed and index:
                flight.begun[index].record(stream)
            flight.item = stage.run(item) if index else item()
            if self._own:
                flight.ready = flight.done[index] if index else flight.finished
                flight.ready.record(stream)
            elif flight.timed:
                flight.done[index].record(stream)
        except self._caught as error:
            flight.item, flight.error = None, _named(error, stage.name)
        finally:
            self._leave(index, begin, (flight,))

    def through_together(self, index: int, group: Sequence[Flight]) -> None:
        """Takes flights without an error through a later stage, as one group. `through` is faster for one.

        An error takes the place of the first item that was not finished; those after it in the group are lost.
        """
        stage, number = self.stages[index], 0
        begin = self._enter(index)
        try:
            stream: Any = self._stream(index) if self._own or any(flight.timed for flight in group) else None
            for flight in group if self._own else ():
                stream.wait_event(flight.ready)
                flight.item.record_stream(stream)
            if group[0].timed:  # the time that a group takes as a whole counts as its first item's
                group[0].begun[index].record(stream)
            finish = stage.begin([flight.item for flight in group])
            _check_answers(stage, group, finish)
            for number, (flight, last) in enumerate(zip(group, finish, strict=True)):
                if number and flight.timed:
                    flight.begun[index].record(stream)
                flight.item = last()
                if self._own:
                    flight.ready = flight.done[index]
                    flight.ready.record(stream)
                elif flight.timed:
                    flight.done[index].record(stream)
        except self._caught as error:
            for flight in group[number:]:
                flight.item = None
            group[number].error = _named(error, stage.name)
        finally:
            self._leave(index, begin, group)

    def close(self) -> None:
        """Lets go of everything."""
        self._ended, self._failure = True, None
        self._begun.clear()
        self._items = chain()

    def _draw(self, group: list[Flight]) -> None:
        """Adds the next items of the source to the group."""
        pipeline, traced = self.pipeline, False
        try:
            while len(group) < self._together:
                item = next(self._items)
                if self._timeline is not None:
                    traced = self._timeline.wants(pipeline.count)
                if self._own and self.streams is not None:
                    flight = self.streams.flight()
                else:
                    flight = Flight(self.streams if traced else None)
                group.append(flight.begin(pipeline.count, item, traced))
                pipeline.count += 1
        except StopIteration:
            self._ended = True
        except self._caught as error:
            self._ended, self._failure = True, error
        self._together = self.stages[0].together if self.depth else 1

    def _stream(self, index: int) -> Any:
        """The stream of a stage's work."""
        assert self.streams is not None
        return self.streams.streams[index] if self._own else self.streams.current()

    def _enter(self, index: int) -> float:
        """Makes the stage's stream the current one, and says when its work began."""
        if self._own and self.streams is not None:
            self.streams.enter(index)
        if self._nvtx is not None:
            self._nvtx.range_push(self.stages[index].name)
        return time.perf_counter()

    def _leave(self, index: int, begin: float, group: Sequence[Flight]) -> None:
        end, name = time.perf_counter(), self.stages[index].name
        if self._nvtx is not None:
            self._nvtx.range_pop()
        self._stats.add_busy(name, end - begin)
        if self._timeline is not None:
            for flight in group:
                if flight.traced:
                    self._timeline.add_host(name, flight.number, begin, end)


def _check_answers(stage: Stage, group: Sequence[Flight], finish: Sequence[Any]) -> None:
    if len(finish) != len(group):
        raise ValueError(f"stage '{stage.name}' began {len(group)} items and returned {len(finish)} functions")


def _named(error: BaseException, stage: str) -> BaseException:
    """The error of a stage; StopIteration would pass for the end of the items."""
    if not isinstance(error, StopIteration):
        return error
    named = RuntimeError(f"stage '{stage}' raised StopIteration")
    named.__cause__ = error
    return named
