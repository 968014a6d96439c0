"""Running ahead where every stage only puts work on a stream: by the consumer's thread, or by one thread for all."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from loader.pipeline.stages import PipelineIterator, StageRunner
from loader.pipeline.streams import Flight
from loader.pipeline.threads import Channel, close_at_exit, make_thread, stop_all

if TYPE_CHECKING:
    from loader.pipeline.pipeline import Pipeline

_END = object()


class Lookahead:
    """Takes items through the stages, the first of which has begun with `depth` later ones by then."""

    def __init__(self, pipeline: Pipeline, source: Iterable[object]) -> None:
        self._new_flight = pipeline.new_flight
        self._runners = [StageRunner(pipeline, i) for i in range(len(pipeline.stages))]
        self._started: deque[Flight] = deque()
        self._items = iter(source)
        self._ended = False  # the source, or by an error, which then is the last flight

    def begin(self, most: int) -> None:
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
                flight = self._new_flight(item)
                del item
                first.start(flight)
            except Exception as error:
                flight = self._failed(flight, error)
            self._started.append(flight)

    def finish(self) -> Flight | None:
        """The next item after all stages, or the error in its place; None at the end."""
        self.begin(1)
        if not self._started:
            return None
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
                flight = self._failed(flight, error)
        return flight

    def fail(self, error: BaseException) -> None:
        """Puts an error behind the items that were begun."""
        self._started.append(self._failed(None, error))

    def close(self) -> None:
        """Lets go of everything."""
        self._ended = True
        self._started.clear()
        self._items = iter(())

    def _failed(self, flight: Flight | None, error: BaseException) -> Flight:
        self._ended = True
        flight = Flight() if flight is None else flight
        flight.item, flight.error = None, error
        return flight


class LookaheadIterator(PipelineIterator):
    """The consumer's thread itself works ahead, each time it asks for an item.

    When it returns, `depth` more items are on the streams of the last stages and `depth` more begun by the first.
    """

    def __init__(self, pipeline: Pipeline, source: Iterable[object]) -> None:
        super().__init__(pipeline, source)
        self._depth = pipeline.depth
        self._ahead = Lookahead(pipeline, source)
        self._ready: deque[Flight] = deque()
        self._ended = False

    def _take(self) -> Flight:
        streams = self._streams
        assert streams is not None
        stream, device = streams.current(), streams.cuda.current_device()
        try:
            self._fill(1)
            if not self._ready:
                raise StopIteration
            flight = self._ready.popleft()
            if flight.error is None:
                # What is finished first does not wait, on the stream of the first stage, for what is begun next.
                self._fill(self._depth)
                self._ahead.begin(self._depth)
        finally:
            streams.leave(stream, device)
        if flight.error is not None:
            raise_error(flight)
        return flight

    def _fill(self, most: int) -> None:
        while len(self._ready) < most and not self._ended:
            flight = self._ahead.finish()
            if flight is None:
                self._ended = True
                return
            self._ended = flight.error is not None
            self._ready.append(flight)

    def close(self) -> None:
        super().close()
        self._ended = True
        self._ahead.close()
        self._ready.clear()


class DrivenIterator(PipelineIterator):
    """A thread works ahead for all stages: `depth` items ready, `depth` more begun.

    Where the consumer's host thread is what limits the pace, launching the work of training, this takes the
    launches of the stages off it; most of a launch needs no interpreter lock.
    """

    def __init__(self, pipeline: Pipeline, source: Iterable[object]) -> None:
        super().__init__(pipeline, source)
        self._pipeline = pipeline
        self._channel = Channel(pipeline.depth)
        self._thread: threading.Thread | None = None
        # Only signals: the collector may run this in any thread, even in ours, which must not be joined.
        self._stop = weakref.finalize(self, stop_all, [self._channel])
        close_at_exit(self)

    def _take(self) -> Flight:
        if self._thread is None:
            ahead = Lookahead(self._pipeline, self._source)
            del self._source
            self._thread = make_thread(_drive, (ahead, self._channel, self._pipeline.depth), "loader-ahead")
            self._thread.start()
        flight = self._channel.get()
        if flight is None:
            raise StopIteration
        if flight.error is not None:
            raise_error(flight)
        return flight

    def close(self) -> None:
        close_at_exit(self, forget=True)
        self._stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread() and thread.ident is not None:
            thread.join()
        self._channel.drain()
        super().close()


def raise_error(flight: Flight) -> None:
    """Raises what came in place of the item; leaves no cycle of error, traceback and frames."""
    error, flight.error = flight.error, None
    assert error is not None
    try:
        raise error
    finally:
        del error, flight


def _drive(ahead: Lookahead, sink: Channel, depth: int) -> None:
    """The thread of a `DrivenIterator`."""
    while sink.reserve():
        try:
            flight = ahead.finish()
        except BaseException as error:
            flight = Flight()
            flight.error = error
        sink.put(flight)
        last = flight is None or flight.error is not None
        del flight  # it belongs to the consumer now; an error would hold this frame, and the frame the error
        if last:
            break
        try:
            ahead.begin(depth)
        except BaseException as error:
            ahead.fail(error)
    ahead.close()
