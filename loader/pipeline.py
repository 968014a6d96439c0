"""A pipeline of background threads: stages run ahead of the consumer, in order and within a bound."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline: `function(item)` returns what the next stage gets.

    Attributes:
        name: what statistics, threads and errors call it.
        function: called by one thread at a time, in the order of the items.
    """

    name: str
    function: Callable[[Any], Any]


class PipelineStats:
    """Where the time went, summed over all iterations that share this object.

    Attributes:
        busy: seconds spent in each stage's function, by the stage's name.
        waiting: seconds that the consumer spent waiting for items; with `depth=0` all of the stages' time.
        items: items that reached the consumer.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.busy = dict.fromkeys(names, 0.0)
        self.waiting = 0.0
        self.items = 0
        self._lock = threading.Lock()

    def add_busy(self, name: str, seconds: float) -> None:
        with self._lock:
            self.busy[name] += seconds

    def add_item(self, waited: float) -> None:
        with self._lock:
            self.waiting += waited
            self.items += 1

    def as_dict(self) -> dict[str, float]:
        """`{stage: seconds, ..., "waiting": seconds, "items": count}`."""
        with self._lock:
            return {**self.busy, "waiting": self.waiting, "items": self.items}

    def reset(self) -> None:
        with self._lock:
            self.busy = dict.fromkeys(self.busy, 0.0)
            self.waiting = 0.0
            self.items = 0

    def __repr__(self) -> str:
        times = ", ".join(f"{name}={seconds:.3f} s" for name, seconds in self.busy.items())
        return f"PipelineStats(items={self.items}, {times}, waiting={self.waiting:.3f} s)"


class Pipeline:
    """Pulls the items of a source through stages, each of which runs ahead in a thread of its own.

    Items reach the consumer in the order of the source. A stage begins with an item only when fewer than `depth`
    of its results are under way or waiting to be taken, so at most `max_items = depth * len(stages)` items exist
    beside the one that the consumer holds: that is the bound on memory.

    An exception in a stage, or in the source, is raised in the consumer with its own traceback, after the items
    before it were delivered.

    Threads begin with the first `next()`. They end when the source ends, when a stage fails, and, after the calls
    they are in, when the iterator is closed, garbage-collected or interrupted.

    Args:
        stages: at least one, with distinct names.
        depth: results that a stage may have ready; 0 runs all stages in the consumer's thread, without threads.
        stats: counts here instead of in an object of the pipeline's own.

    Raises:
        ValueError: no stages, two of one name, or a negative depth.
    """

    def __init__(self, stages: Sequence[Stage], depth: int, stats: PipelineStats | None = None) -> None:
        names = [stage.name for stage in stages]
        if not names:
            raise ValueError("a pipeline needs at least one stage")
        if len(set(names)) != len(names):
            raise ValueError(f"stages {names} must have distinct names")
        if depth < 0:
            raise ValueError(f"depth is {depth}; give 0 (no threads) or more")
        self.stages = tuple(stages)
        self.depth = depth
        self.stats = PipelineStats(names) if stats is None else stats

    @property
    def max_items(self) -> int:
        """Items that may exist at one time, beside the one that the consumer holds."""
        return max(self.depth * len(self.stages), 1)

    def run(self, source: Iterable[Any]) -> PipelineIterator:
        """Iterates over the items of `source` after all stages."""
        if self.depth == 0:
            return _InlineIterator(self.stages, source, self.stats)
        return _ThreadedIterator(self.stages, source, self.stats, self.depth)


class PipelineIterator(Iterator[Any]):
    """One run of a pipeline. `close()` ends it early; so does dropping the last reference."""

    def __init__(self, stages: Sequence[Stage], source: Iterable[Any], stats: PipelineStats) -> None:
        self._stages = stages
        self._source = source
        self._stats = stats
        self._done = False

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        begin = time.perf_counter()
        try:
            item = self._take()
        except BaseException:  # StopIteration, a stage's error, KeyboardInterrupt: nothing follows any of them
            self.close()
            raise
        self._stats.add_item(time.perf_counter() - begin)
        return item

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self._done

    def _take(self) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Ends the iteration and waits for its threads. Closing twice does nothing."""
        self._done = True


class _InlineIterator(PipelineIterator):
    """All stages in the consumer's thread."""

    def __init__(self, stages: Sequence[Stage], source: Iterable[Any], stats: PipelineStats) -> None:
        super().__init__(stages, source, stats)
        self._items = iter(source)

    def _take(self) -> Any:
        item = next(self._items)
        for stage in self._stages:
            item = _timed(stage, item, self._stats)
        return item


class _ThreadedIterator(PipelineIterator):
    """One thread a stage. The threads know the channels but not this object, so that it can be collected."""

    def __init__(self, stages: Sequence[Stage], source: Iterable[Any], stats: PipelineStats, depth: int) -> None:
        super().__init__(stages, source, stats)
        self._channels = [_Channel(depth) for _ in stages]
        self._threads: list[threading.Thread] = []
        # Only signals: the collector may run this in any thread, even in one of ours, which must not be joined.
        self._stop = weakref.finalize(self, _stop_all, self._channels)
        _running.add(self)

    def _take(self) -> Any:
        if not self._threads:
            self._start()
        item = self._channels[-1].get()
        if isinstance(item, _Failure):
            try:
                raise item.error
            finally:
                del item  # else error, traceback and this frame would hold each other
        if item is _END:
            raise StopIteration
        return item

    def _start(self) -> None:
        items: Iterator[Any] | _Channel = iter(self._source)
        del self._source
        for stage, sink in zip(self._stages, self._channels, strict=True):
            thread = threading.Thread(
                target=_work, args=(stage, items, sink, self._stats), name=f"loader-{stage.name}", daemon=True
            )
            self._threads.append(thread)
            items = sink
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        super().close()
        _running.discard(self)
        self._stop()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join()
        for channel in self._channels:
            channel.drain()


_running: weakref.WeakSet[_ThreadedIterator] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Ends the threads while the interpreter still stands: a stage may be deep in the C++ core."""
    for iterator in list(_running):
        iterator.close()


_END = object()  # follows the last item


@dataclass(frozen=True)
class _Failure:
    error: BaseException


class _Channel:
    """A bounded queue between two threads, with room reserved before the work.

    Built on `SimpleQueue`, whose `put` is reentrant: a finalizer may close a channel at any point of any thread,
    even amid a call on the same channel, and takes no lock that could be held.
    """

    def __init__(self, depth: int) -> None:
        self._room: SimpleQueue[None] = SimpleQueue()
        self._items: SimpleQueue[Any] = SimpleQueue()
        self.closed = False
        for _ in range(depth):
            self._room.put(None)

    def reserve(self) -> bool:
        """Waits until one more item may exist; False when the channel was closed."""
        self._room.get()
        return not self.closed

    def put(self, item: Any) -> None:
        """Delivers into the room that was reserved."""
        self._items.put(item)

    def get(self) -> Any:
        """The next item; `_END` when the channel was closed."""
        item = self._items.get()
        if self.closed:
            return _END
        self._room.put(None)
        return item

    def close(self) -> None:
        """Wakes both ends for good: each waits at most once more."""
        self.closed = True
        self._room.put(None)
        self._items.put(_END)

    def drain(self) -> None:
        """Lets go of the items that nobody will take."""
        with suppress(Empty):
            while True:
                self._items.get_nowait()


def _stop_all(channels: Sequence[_Channel]) -> None:
    for channel in channels:
        channel.close()


def _timed(stage: Stage, item: Any, stats: PipelineStats) -> Any:
    begin = time.perf_counter()
    try:
        return stage.function(item)
    except StopIteration as error:  # would pass for the end of the items
        raise RuntimeError(f"stage '{stage.name}' raised StopIteration") from error
    finally:
        stats.add_busy(stage.name, time.perf_counter() - begin)


def _work(stage: Stage, items: Iterator[Any] | _Channel, sink: _Channel, stats: PipelineStats) -> None:
    """A stage's thread. The first stage draws from the source itself, the others from the channel before them."""
    while sink.reserve():
        try:
            item = items.get() if isinstance(items, _Channel) else next(items, _END)
            if item is not _END and not isinstance(item, _Failure):
                item = _timed(stage, item, stats)
        except BaseException as error:
            item = _Failure(error)
        sink.put(item)
        last = item is _END or isinstance(item, _Failure)
        del item  # it belongs to the next stage now; an error would hold this frame, and the frame the error
        if last:
            return
