"""Running ahead without threads, where every stage only puts work on a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from loader.stages import PipelineIterator, StageRunner
from loader.streams import Flight

if TYPE_CHECKING:
    from loader.pipeline import Pipeline


_END = object()


class LookaheadIterator(PipelineIterator):
    """The consumer's thread itself begins the items to come, each time it asks for one.

    When it returns, `depth` more items are on the streams of the last stages and `depth` more begun by the first.
    No thread has to be woken and none takes the interpreter from the consumer, whose own launches are what the GPU
    waits for next.
    """

    def __init__(self, pipeline: Pipeline, source: Iterable[object]) -> None:
        super().__init__(pipeline, source)
        self._pipeline = pipeline
        self._depth = pipeline.depth
        self._runners = [StageRunner(pipeline, i) for i in range(len(pipeline.stages))]
        self._started: deque[Flight] = deque()
        self._ready: deque[Flight] = deque()
        self._items = iter(source)
        self._ended = False  # the source, or by an error, which then is the last flight

    def _take(self) -> Flight:
        streams = self._streams
        assert streams is not None
        stream, device = streams.current(), streams.cuda.current_device()
        try:
            self._finish(1)
            if not self._ready:
                raise StopIteration
            flight = self._ready.popleft()
            if flight.error is None:
                # What is finished first does not wait, on the stream of the first stage, for what is begun next.
                self._finish(self._depth)
                self._start(self._depth)
        finally:
            streams.leave(stream, device)
        if flight.error is not None:
            try:
                raise flight.error
            finally:
                flight.error = None
                del flight  # else error, traceback and this frame would hold each other
        return flight

    def _start(self, most: int) -> None:
        """Begins items until `most` are begun."""
        first = self._runners[0]
        entered = False
        while not self._ended and len(self._started) < most:
            if not entered:
                first.enter()
                entered = True
            flight = None
            try:
                item = next(self._items, _END)
                if item is _END:
                    self._ended = True
                    return
                flight = self._pipeline.new_flight(item)
                del item
                first.start(flight)
            except Exception as error:
                self._fail(self._started, flight, error)
            else:
                self._started.append(flight)

    def _finish(self, most: int) -> None:
        """Takes items through all stages until `most` are ready; begins them if they are not."""
        while len(self._ready) < most:
            self._start(1)
            if not self._started:
                return
            flight = self._started.popleft()
            if flight.error is None:
                try:
                    first, *others = self._runners
                    first.enter()
                    first.finish(flight)
                    for runner in others:
                        runner.enter()
                        runner.run(flight)
                except Exception as error:
                    self._started.clear()
                    self._fail(self._ready, flight, error)
                    return
            self._ready.append(flight)

    def _fail(self, queue: deque[Flight], flight: Flight | None, error: BaseException) -> None:
        self._ended = True
        flight = Flight() if flight is None else flight
        flight.item, flight.error = None, error
        queue.append(flight)

    def close(self) -> None:
        super().close()
        self._ended = True
        self._started.clear()
        self._ready.clear()
        self._items = iter(())
