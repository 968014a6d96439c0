"""Running ahead where every stage only puts work on a stream: by the consumer's thread, or by one thread for all."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from loader.pipeline.first_stage import FirstStage
from loader.pipeline.stages import PipelineIterator, StageRunner
from loader.pipeline.streams import Flight
from loader.pipeline.threads import Channel, close_at_exit, make_thread, stop_all

if TYPE_CHECKING:
    from loader.pipeline.pipeline import Pipeline


class Lookahead:
    """Takes items through the stages, the first of which has begun with later ones by then."""

    def __init__(self, pipeline: Pipeline, source: Iterable[object]) -> None:
        self.first = FirstStage(pipeline, source)
        self._others = [StageRunner(pipeline, i) for i in range(1, len(pipeline.stages))]

    def finish(self) -> Flight | None:
        """The next item after all stages, or the error in its place; None at the end."""
        flight = self.first.take()
        if flight is not None and flight.error is None:
            try:
                for runner in self._others:
                    runner.enter()
                    runner.run(flight)
            except Exception as error:
                flight = self.first.failed(flight, error)
        return flight


class LookaheadIterator(PipelineIterator):
    """The consumer's thread itself works ahead, each time it asks for an item.

    When it returns, `depth` more items are on the streams of the last stages and `depth` more begun by the first, or
    some more where the first begins several together. The very first item is given out as soon as it is there: with it,
    `depth` more are begun, but none are finished.
    """

    def __init__(self, pipeline: Pipeline, source: Iterable[object]) -> None:
        super().__init__(pipeline, source)
        self._depth = pipeline.depth
        self._ahead = Lookahead(pipeline, source)
        self._ready: deque[Flight] = deque()
        self._given_out = self._ended = False

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
                # What is finished first does not wait, on the stream of the first stage, for what is begun next. The
                # very first item waits for no other to be finished: the consumer has nothing to do before it.
                if self._given_out:
                    self._fill(self._depth)
                self._ahead.first.begin(self._depth)
                self._given_out = True
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
        self._ahead.first.close()
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
            ahead.first.begin(depth)
        except BaseException as error:
            ahead.first.fail(error)
    ahead.first.close()
