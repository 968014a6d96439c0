"""Running ahead with a thread a stage, where a stage makes the host work or wait."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from loader.pipeline.first_stage import FirstStage
from loader.pipeline.stages import PipelineIterator, StageRunner
from loader.pipeline.streams import Flight

if TYPE_CHECKING:
    from loader.pipeline.pipeline import Pipeline


class ThreadedIterator(PipelineIterator):
    """One thread a stage. The threads know the channels but not this object, so that it can be collected."""

    def __init__(self, pipeline: Pipeline, source: Iterable[Any]) -> None:
        super().__init__(pipeline, source)
        self._pipeline = pipeline
        self._channels = [Channel(pipeline.depth) for _ in pipeline.stages]
        self._threads: list[threading.Thread] = []
        # Only signals: the collector may run this in any thread, even in one of ours, which must not be joined.
        self._stop = weakref.finalize(self, stop_all, self._channels)
        close_at_exit(self)

    def _take(self) -> Flight:
        if not self._threads:
            self._start()
        flight = self._channels[-1].get()
        if flight is None:
            raise StopIteration
        if flight.error is not None:
            try:
                raise flight.error
            finally:
                flight.error = None
                del flight  # else error, traceback and this frame would hold each other
        return flight

    def _start(self) -> None:
        takers = [FirstStage(self._pipeline, self._source).take]
        del self._source
        for i, channel in enumerate(self._channels[:-1], 1):
            takers.append(partial(_take_from, channel, StageRunner(self._pipeline, i)))
        for stage, take, sink in zip(self._pipeline.stages, takers, self._channels, strict=True):
            self._threads.append(make_thread(_work, (take, sink), f"loader-{stage.name}"))
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        close_at_exit(self, forget=True)
        self._stop()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join()
        for channel in self._channels:
            channel.drain()
        super().close()


_running: weakref.WeakSet[PipelineIterator] = weakref.WeakSet()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def make_thread(target: Callable[..., None], arguments: tuple[Any, ...], name: str) -> threading.Thread:
    """A thread of a pipeline, not started yet, which the interpreter's end waits for.

    A daemon: the interpreter waits for others before it runs what ends them.
    """
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    _threads.add(thread)
    return thread


def close_at_exit(iterator: PipelineIterator, *, forget: bool = False) -> None:
    """Notes that `iterator` has threads to be ended while the interpreter still stands, or that it has no more."""
    if forget:
        _running.discard(iterator)
    else:
        _running.add(iterator)


@atexit.register
def _close_all() -> None:
    """Ends the threads while the interpreter still stands: a stage may be deep in the C++ core.

    Those of iterators that were dropped know already that they have to end, but may still be in a call. A thread that
    came back from C++ to an interpreter that is gone would end the process with an error.
    """
    for iterator in list(_running):
        iterator.close()
    for thread in list(_threads):
        if thread.is_alive():
            thread.join()


class Channel:
    """A bounded queue between two threads, with room reserved before the work.

    Built on `SimpleQueue`, whose `put` is reentrant: a finalizer may close a channel at any point of any thread,
    even amid a call on the same channel, and takes no lock that could be held.
    """

    def __init__(self, depth: int) -> None:
        self._room: SimpleQueue[None] = SimpleQueue()
        self._items: SimpleQueue[Flight | None] = SimpleQueue()
        self.closed = False
        for _ in range(depth):
            self._room.put(None)

    def reserve(self) -> bool:
        """Waits until one more item may exist; False when the channel was closed."""
        self._room.get()
        return not self.closed

    def put(self, flight: Flight | None) -> None:
        """Delivers into the room that was reserved; None follows the last item."""
        self._items.put(flight)

    def get(self) -> Flight | None:
        """The next item; None after the last one and when the channel was closed."""
        flight = self._items.get()
        if self.closed:
            return None
        self._room.put(None)
        return flight

    def close(self) -> None:
        """Wakes both ends for good: each waits at most once more."""
        self.closed = True
        self._room.put(None)
        self._items.put(None)

    def drain(self) -> None:
        """Lets go of the items that nobody will take."""
        with suppress(Empty):
            while True:
                self._items.get_nowait()


def stop_all(channels: Sequence[Channel]) -> None:
    for channel in channels:
        channel.close()


def _take_from(channel: Channel, runner: StageRunner) -> Flight | None:
    """The next item of the stage before, after this one."""
    flight = channel.get()
    if flight is not None and flight.error is None:
        try:
            runner.enter()
            runner.run(flight)
        except BaseException as error:
            flight.item, flight.error = None, error
    return flight


def _work(take: Callable[[], Flight | None], sink: Channel) -> None:
    """A stage's thread. `take`: the next item after the stage, or the error in its place; None at the end."""
    while sink.reserve():
        try:
            flight = take()
        except BaseException as error:
            flight = Flight()
            flight.error = error
        sink.put(flight)
        last = flight is None or flight.error is not None
        del flight  # it belongs to the next stage now; an error would hold this frame, and the frame the error
        if last:
            return
