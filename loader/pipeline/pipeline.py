"""A pipeline: stages prefetch items for a consumer, in order and within a bound, with streams or with threads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import count
from typing import Any
from weakref import WeakSet, finalize

from loader.machine.arguments import as_size, kind_of
from loader.pipeline.stage import Stage
from loader.pipeline.streams import StagedItem, StageStreams
from loader.pipeline.threads import StageThread, Threads
from loader.pipeline.work import Setting, Work
from loader.timing import TRAIN, PipelineStats


class Pipeline(Setting):
    """Passes the items of a source through stages, ahead of the consumer.

    Items keep the order of the source. An exception in a stage, or in the source, comes after the items before it. A
    stage begins an item only if fewer than `depth` of its results are under way or wait to be taken, or fewer than the
    next stage takes together. A run's first item is begun by itself, because the consumer waits for it.

    If all stages are asynchronous, with no depth of their own, and only the first one takes several items together, the
    consumer's thread prefetches. When `next()` returns, `depth` more items are on the last stages' streams, and the
    first stage has begun `depth` more; the first `next()` finishes only its own item. Otherwise each stage has a thread
    until the source ends, a stage fails, or the run is closed, collected or interrupted, and the call ends.

    A collective stage (`Stage.collective`) works in lockstep with those of other processes, which have the same stages
    and depth. If a run is closed early, its thread still takes part in as many groups as the other processes begin
    before they need one more item to be taken. So no process waits for ever, if all close the run after the same item.

    With `streams`, each stage works on its own stream, which waits for the stage before, and the consumer's current
    stream waits for the last stage. Every item is recorded (`item.record_stream`) on each stream that reads it, so its
    memory stays until that stream is done. When a run begins, the stages wait for the consumer's stream. When it ends,
    the consumer's stream waits for the stages. The host may be `depth` items ahead. Only one run is possible at a time.

    Args:
        stages: at least one, with distinct names.
        depth: results that a stage may have ready; 0 runs all stages in the consumer's thread, on its stream.
        stats: where to count, in place of an object of the pipeline's own.
        streams: one per stage.

    Attributes: `timeline`, which records the times of the stages from the next run on, or None. Raises: ValueError: no
    stages, two of one name, a negative depth, streams of other stages, or a collective stage that is the first one or
    asynchronous.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        depth: int,
        stats: PipelineStats | None = None,
        streams: StageStreams | None = None,
    ) -> None:
        names = [stage.name for stage in stages]
        if not names:
            raise ValueError("a pipeline needs at least one stage")
        if len(set(names)) != len(names):
            raise ValueError(f"stages {names} must have distinct names")
        if streams is not None and streams.names != tuple(names):
            raise ValueError(f"the streams are for stages {list(streams.names)}, the stages are {names}")
        for stage in stages:
            if stage.collective and (stage is stages[0] or stage.asynchronous):
                raise ValueError(f"stage '{stage.name}' is collective; such a stage is neither first nor asynchronous")
        self.stages, self.depth, self.streams = tuple(stages), as_size("depth", depth, least=0), streams
        self.stats = PipelineStats(names) if stats is None else stats
        self.threads: WeakSet[StageThread] = WeakSet()
        self.numbers = count()
        taken = [stage.together for stage in stages[1:]] + [1]
        self.rooms = [s.depth if s.depth < depth else max(depth, t) for s, t in zip(stages, taken, strict=True)]
        plain = streams is not None and max(taken) == 1 and all(s.asynchronous and s.depth >= depth for s in stages)
        self.threaded = depth > 0 and not plain

    @property
    def max_items(self) -> int:
        """The most items that may exist at one time, beside those of the consumer."""
        return sum(self.rooms) + sum(stage.together - 1 for stage in self.stages) if self.depth else 1

    @property
    def max_consumed(self) -> int:
        """The most items that the consumer may have at one time and not be done with."""
        return 1 if self.streams is None else 1 + self.depth

    def run(self, source: Iterable[Any]) -> PipelineRun:
        """Iterates over the items of `source` after all stages.

        Raises:
            TypeError: a stage is collective, and `source` has no length.
        """
        if self.depth and any(stage.collective for stage in self.stages) and not isinstance(source, Sized):
            raise TypeError(f"a collective stage needs a source with a length, not {kind_of(source)}: list(...)")
        return PipelineRun(self, source)


class PipelineRun(Iterator[Any]):
    """One run of a pipeline. `close()` ends it early; so does dropping the last reference."""

    def __init__(self, pipeline: Pipeline, source: Iterable[Any]) -> None:
        self._stages, self._depth, self._stats = pipeline.stages, pipeline.depth, pipeline.stats
        self._timeline, self._streams = pipeline.timeline, pipeline.streams
        self._own = pipeline.streams if pipeline.depth else None  # under which the stages work
        work = Work(pipeline, source)
        self._ahead = Threads(work, pipeline.threads) if pipeline.threaded else _ByConsumer(work)
        self._held: StagedItem | None = None  # what the consumer has
        self._end: finalize[[], PipelineRun] | None = None  # for the streams, once they were begun
        self.closed = self._begun = False  # closed: nothing more will come

    def __next__(self) -> Any:
        if self.closed:
            raise StopIteration
        staged = None
        try:
            if not self._begun:
                for stage in self._stages:
                    stage.prepare()
                self._begun = True
                if self._own is not None:
                    self._own.begin()
                    self._end = finalize(self, self._own.end)
                    self._end.atexit = False
                if self._timeline is not None and self._streams is not None:
                    self._timeline.align(self._streams)
            self.done()
            begin = time.perf_counter()
            staged = self._ahead.take()
            if staged is None or self.closed:
                raise RuntimeError("this iterator was closed amid a next()")
            if staged.error is not None:
                raise staged.error
            if self._own is not None:
                self._own.take(staged)
            item, staged.item = staged.item, None
        except BaseException:  # StopIteration, a stage's error, KeyboardInterrupt: nothing follows any of them
            self.close()
            if staged is not None:
                staged.error = None  # it holds this frame, and the frame the item
            raise
        self._held, staged.given = staged, time.perf_counter()
        self._stats.add_item(staged.given - begin)
        if staged.traced and self._own is None and self._streams is not None:
            staged.arrived.record(self._streams.current())
        return item

    def done(self) -> None:
        """Tells the run that the consumer is done with its item. A request for the next item tells the same."""
        end, staged = time.perf_counter(), self._held
        self._held = None
        if self.closed:
            return
        if self._own is not None:
            self._own.ask(staged, self._depth, self._stats)
        if self._timeline is not None and staged is not None and staged.traced:
            self._timeline.add_host(TRAIN, staged.number, staged.given, end)
            if self._streams is not None:
                if self._own is None:
                    staged.consumed.record(self._streams.current())
                self._timeline.add_gpu(TRAIN, staged.number, staged.arrived, staged.consumed)
                for name, first, last in zip(self._streams.names, staged.begun, staged.done, strict=True):
                    self._timeline.add_gpu(name, staged.number, first, last)

    def close(self) -> None:
        """Ends the run and waits for its threads. Closing twice does nothing."""
        self.closed = True
        self._ahead.close()
        if self._end is not None:
            self._end()


class _ByConsumer:
    """The consumer's thread prefetches. With a depth of 0 it makes only the item that it asks for."""

    def __init__(self, work: Work) -> None:
        self._work, self._depth = work, work.depth
        self._streams = work.streams if work.depth else None
        self._ready: deque[StagedItem] = deque()
        self._most = 0  # items to have ready: none, until the first one of all was given out

    def take(self) -> StagedItem | None:
        """The next item; None if this was closed."""
        work, ready = self._work, self._ready
        back = (self._streams.current(), self._streams.cuda.current_device()) if self._streams is not None else ()
        try:
            if not ready:
                work.begin(1)
                self._finish(1)
            staged = ready.popleft() if ready else None
            if self._depth and staged is not None and staged.error is None:
                # Items are finished before more are begun. Otherwise they would wait for these on the first stage's
                # stream. The first item of all waits for no other: the consumer has nothing to do before it.
                work.begin(self._most - len(ready))
                self._finish(self._most)
                work.begin(self._depth)
                self._most = self._depth
        finally:
            if self._streams is not None:
                self._streams.leave(*back)
        return staged

    def close(self) -> None:
        self._work.close()
        self._ready.clear()

    def _finish(self, most: int) -> None:
        """Takes items through all stages until `most` are ready."""
        while len(self._ready) < most and (staged := self._work.first()) is not None:
            for index in range(1, len(self._work.stages)):
                self._work.through(index, (staged,))
            if staged.error is not None:
                self._work.close()
            self._ready.append(staged)
