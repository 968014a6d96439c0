"""The stages at work on one item after the other, each under its stream."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import chain
from typing import Any

from loader.pipeline.stage import Stage
from loader.pipeline.streams import StagedItem, StageStreams
from loader.timing import PipelineStats, Timeline


class Setting:
    """What all runs of a pipeline have in common, see `Pipeline`."""

    stages: tuple[Stage, ...]
    depth: int
    rooms: list[int]  # results that each stage may have ready
    streams: StageStreams | None
    threaded: bool
    stats: PipelineStats
    timeline: Timeline | None = None
    numbers: Iterator[int]  # for the items of all runs


class Work:
    """Takes items of the source through the stages. Each stage is used by one thread at a time.

    An exception of a stage or of the source takes the place of its item, or of the group that could not be begun. The
    end of the source is a StopIteration. No item is drawn after either. In the consumer's own thread an interrupt does
    not wait for its turn. The source is iterated under the stream of the first stage.
    """

    def __init__(self, pipeline: Setting, source: Iterable[Any]) -> None:
        self._stats, self._timeline, self._numbers = pipeline.stats, pipeline.timeline, pipeline.numbers
        self.stages, self.depth, self.streams = pipeline.stages, pipeline.depth, pipeline.streams
        self.rooms = pipeline.rooms
        self._caught = BaseException if pipeline.threaded else Exception
        self._items = chain.from_iterable((source,))  # asks for `iter(source)` at the first item
        self.length = len(source) if isinstance(source, Sized) else 0  # of which a collective stage has to know
        self._begun: deque[StagedItem] = deque()  # by the first stage; an item is what finishes it
        self._together = 1  # the first item is begun by itself: the consumer has nothing to do before it
        self._last: StagedItem | None = None  # an error or the end, after which no more items are begun

    def begin(self, most: int) -> None:
        """The first stage begins groups of items until at least `most` are begun."""
        stage = self.stages[0]
        while self._last is None and len(self._begun) < most:
            begin = time.perf_counter()
            group: list[StagedItem] = []
            try:
                stream = self._enter(self.streams, 0) if self.streams is not None else None
                self._draw(group)
                for staged in group:
                    staged.together = len(group)
                    if staged.timed:
                        staged.begun[0].record(stream)
                if group:
                    _assign(stage, group, stage.begin([staged.item for staged in group]))
                for staged in group:
                    if staged.timed:
                        staged.done[0].record(stream)
                self._begun += group
            except self._caught as error:
                self._last = StagedItem(error=_named(error, stage.name))
            finally:
                self._leave(stage, begin, group)
            if self._last is not None:
                self._begun.append(self._last)

    def first(self) -> StagedItem | None:
        """The next item after the first stage; None if the work was closed. Leaves the stage's stream current."""
        if not self._begun:
            self.begin(1)
        staged = self._begun.popleft() if self._begun else None
        if staged is not None:
            self.through(0, (staged,))  # on the stream on which it was begun: to finish it may put more work there
        return staged

    def through(self, index: int, group: Sequence[StagedItem]) -> None:
        """Takes items through a later stage, as one group, or finishes one in the first stage.

        An error takes the place of the first item that was not finished; those after it in the group are lost.
        """
        if group[0].error is not None:
            return
        stage, staged = self.stages[index], group[0]
        begin = time.perf_counter()
        try:
            stream: Any = self._enter(self.streams, index) if self.streams is not None else None
            if index and staged.done:
                for waited in group:
                    stream.wait_event(waited.ready)
                    waited.item.record_stream(stream)
            for staged in group:
                if index and staged.timed:  # the time that a group takes as a whole counts as its first item's
                    staged.begun[index].record(stream)
                if index and stage.together > 1 and staged is group[0]:
                    _assign(stage, group, stage.begin([staged.item for staged in group]))
                staged.item = stage.run(staged.item) if index and stage.together == 1 else staged.item()
                if staged.done:
                    staged.ready = staged.done[index] if index or not self.depth else staged.finished
                    staged.ready.record(stream)
        except self._caught as error:
            staged.error = _named(error, stage.name)
            for lost in group[group.index(staged) :]:
                lost.item = None
        finally:
            self._leave(stage, begin, group)

    def close(self) -> None:
        """Lets go of everything."""
        self._last = StagedItem()
        self._begun.clear()
        self._items = chain()

    def _draw(self, group: list[StagedItem]) -> None:
        """Adds the next items of the source to the group."""
        most, self._together = self._together, self.stages[0].together if self.depth else 1
        try:
            while len(group) < most:
                item = next(self._items)
                number = next(self._numbers)
                traced = self._timeline is not None and self._timeline.wants(number)
                made = self.streams.staged_item if self.streams is not None and (self.depth or traced) else StagedItem
                group.append(made(number, item, traced))
        except StopIteration:
            self._last = StagedItem(error=StopIteration())  # the other one holds this frame, which holds the last items
        except self._caught as error:
            self._last = StagedItem(error=error)

    def _enter(self, streams: StageStreams, index: int) -> Any:
        """Makes the stage's stream the current one and returns it; with a depth of 0 the consumer's, if traced."""
        streams.cuda.nvtx.range_push(streams.names[index])
        return streams.enter(index) if self.depth else streams.current() if self._timeline is not None else None

    def _leave(self, stage: Stage, begin: float, group: Sequence[StagedItem]) -> None:
        end = time.perf_counter()
        if self.streams is not None:
            self.streams.cuda.nvtx.range_pop()
        self._stats.add_busy(stage.name, end - begin)
        if self._timeline is not None:
            for staged in group:
                if staged.traced:
                    self._timeline.add_host(stage.name, staged.number, begin, end)


def _assign(stage: Stage, group: Sequence[StagedItem], finish: Sequence[Any]) -> None:
    """The items of a group that a stage began become the functions that finish them."""
    if len(finish) != len(group):
        raise ValueError(f"stage '{stage.name}' began {len(group)} items and returned {len(finish)} functions")
    for staged, item in zip(group, finish, strict=True):
        staged.item = item


def _named(error: BaseException, stage: str) -> BaseException:
    """The error of a stage; StopIteration would pass for the end of the items."""
    if not isinstance(error, StopIteration):
        return error
    named = RuntimeError(f"stage '{stage}' raised StopIteration")
    named.__cause__ = error
    return named
