"""Prefetching with a thread per stage, for stages that make the host work or wait."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from queue import SimpleQueue

from loader.pipeline.streams import Flight
from loader.pipeline.work import Work


class Threads:
    """One thread per stage. The threads know the channels but not this object, so that it can be collected."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._channels = [Channel(work.depth) for _ in work.stages]
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()
        # Only signals: the collector may run this in any thread, even in one of ours, which must not be joined.
        self._stop = weakref.finalize(self, _stop_all, self._channels)

    def take(self) -> Flight | None:
        """The next flight; None at the end."""
        if not self._threads:
            self._start()
        if self._process != os.getpid():
            raise RuntimeError("a forked process has no threads of this iterator; iterate over the loader anew")
        return self._channels[-1].get()

    def close(self) -> None:
        """Ends the threads, which finish their current calls first, and drops the items that nobody will take."""
        self._stop()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join()
        self._channels.clear()
        self._work.close()

    def _start(self) -> None:
        pipeline = self._work.pipeline
        for thread in list(pipeline.threads):  # of a run that was dropped: it may be amid its last call of a stage
            if all(channel.closed for channel in _threads.get(thread, ())):
                thread.join()
        sources = [None, *self._channels]
        for index, (stage, sink) in enumerate(zip(self._work.stages, self._channels, strict=True)):
            # A daemon: the interpreter waits for others before it runs what ends them, see `_end_all`.
            thread = threading.Thread(
                target=_serve, args=(self._work, index, sources[index], sink), name=f"loader-{stage.name}", daemon=True
            )
            self._threads.append(thread)
            _threads[thread] = self._channels
            pipeline.threads.add(thread)
        for thread in self._threads:
            thread.start()


_threads: weakref.WeakKeyDictionary[threading.Thread, list[Channel]] = weakref.WeakKeyDictionary()


@atexit.register
def _end_all() -> None:
    """Ends all threads while the interpreter stands: one that came back from C++ to none would end the process."""
    for thread, channels in list(_threads.items()):
        _stop_all(channels)
        if thread.is_alive():
            thread.join()


class Channel:
    """A bounded queue between two threads, with room reserved before the work; a finalizer may close it."""

    # `put` of `SimpleQueue` is reentrant, and takes no lock that could be held.

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


def _stop_all(channels: list[Channel]) -> None:
    for channel in channels:
        channel.close()


def _serve(work: Work, index: int, source: Channel | None, sink: Channel) -> None:
    """A stage's thread: takes items of the stage before, or of the source, until one is the last or an error."""
    while sink.reserve():
        flight = work.first() if source is None else source.get()
        if source is not None and flight is not None:
            work.through(index, flight)
        sink.put(flight)
        last = flight is None or flight.error is not None
        del flight  # it belongs to the next stage now; an error would hold this frame, and the frame the error
        if last:
            return
