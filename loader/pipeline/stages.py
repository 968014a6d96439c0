"""What all ways of running a pipeline share: the stage, its statistics, one step of it, and the iterator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loader.pipeline.streams import Consumer, Flight, StageStreams
from loader.pipeline.timeline import TRAIN

if TYPE_CHECKING:
    from loader.pipeline.pipeline import Pipeline


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline: `function(item)` returns what the next stage gets.

    Attributes:
        name: what statistics, threads and errors call it.
        function: called by one thread at a time, in the order of the items.
        start: the same in two halves: `start(item)()` is `function(item)`. The first half only puts work on the
            current stream; several items may be begun before the first of them is finished.
        together: so many items are best begun one right after the other: the last `start` puts the work of all of them
            on the stream.
    """

    name: str
    function: Callable[[Any], Any]
    start: Callable[[Any], Callable[[], Any]] | None = None
    together: int = 1


class PipelineStats:
    """Where the time went, summed over all iterations that share this object.

    Attributes:
        busy: host seconds spent in each stage's function, by the stage's name.
        waiting: host seconds that the consumer spent waiting for items; with `depth=0` all of the stages' time.
        items: items that reached the consumer.
        throttled: host seconds that the consumer was held back, lest it run too far ahead of the GPU; no loss.
        gpu_busy: seconds that each stage's stream was at work, and "train", the consumer's stream. Empty without
            streams.
        gpu_waiting: seconds that the consumer's stream stood still between two items: what loading costs.
        gpu_items: items that the two above count: a sample of those that the GPU is done with.
        moved: bytes by what was done with them, as the stages report it through `add_bytes`.
        largest_item: bytes of the largest item, as far as the stages report it.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._lock = threading.Lock()
        self.largest_item = 0
        self.reset()

    def add_busy(self, name: str, seconds: float) -> None:
        with self._lock:
            self.busy[name] += seconds

    def add_item(self, waited: float) -> None:
        with self._lock:
            self.waiting += waited
            self.items += 1

    def add_gpu_times(self, stages: Iterable[float], waiting: float, train: float) -> None:
        """Seconds of one item on the streams of the stages, in their order, and on the consumer's."""
        with self._lock:
            for name, seconds in zip((*self._names, TRAIN), (*stages, train), strict=True):
                self.gpu_busy[name] = self.gpu_busy.get(name, 0.0) + seconds
            self.gpu_waiting += waiting
            self.gpu_items += 1

    def add_bytes(self, name: str, count: int) -> None:
        with self._lock:
            self.moved[name] = self.moved.get(name, 0) + count

    def see_item(self, nbytes: int) -> None:
        """An item of that size was made."""
        if nbytes > self.largest_item:
            self.largest_item = nbytes

    def as_dict(self) -> dict[str, float]:
        """`{stage: seconds, ..., "waiting": seconds, "items": count}`, host times."""
        with self._lock:
            return {**self.busy, "waiting": self.waiting, "items": self.items}

    def reset(self) -> None:
        with self._lock:
            self.busy = dict.fromkeys(self._names, 0.0)
            self.waiting = self.throttled = self.gpu_waiting = 0.0
            self.items = self.gpu_items = self.largest_item = 0
            self.gpu_busy: dict[str, float] = {}
            self.moved: dict[str, int] = {}

    def __repr__(self) -> str:
        times = ", ".join(f"{name}={seconds:.3f} s" for name, seconds in self.busy.items())
        return f"PipelineStats(items={self.items}, {times}, waiting={self.waiting:.3f} s)"


class StageRunner:
    """One stage at work on one flight after the other, under its stream if the pipeline has streams."""

    def __init__(self, pipeline: Pipeline, index: int) -> None:
        self.stage = pipeline.stages[index]
        self.index = index
        self.streams: StageStreams | None = pipeline.streams if pipeline.depth else None
        self._stream = self.streams.streams[index] if self.streams is not None else None
        self._inline = pipeline.streams if self.streams is None else None  # work goes to the consumer's stream
        self._after_split = index == 1 and pipeline.splits_first
        self._stats = pipeline.stats
        self._timeline = pipeline.timeline
        self._nvtx = pipeline.streams.cuda.nvtx if pipeline.streams is not None else None

    def enter(self) -> None:
        """Makes the stage's stream the calling thread's current one."""
        if self.streams is not None:
            self.streams.enter(self.index)

    def run(self, flight: Flight) -> None:
        """Puts the stage's result in the place of the flight's item.

        The stage's stream waits for the stage before, and the allocator learns that it uses what comes from there.
        """
        if self._stream is not None:
            if self.index:
                self._stream.wait_event(flight.finished if self._after_split else flight.done[self.index - 1])
                flight.item.record_stream(self._stream)
            if flight.timed:
                flight.begun[self.index].record(self._stream)
        first = self._inline.mark() if self._inline is not None and flight.traced else None
        flight.item = self.call(self.stage.function, flight, flight.item)
        if self._stream is not None:
            flight.done[self.index].record(self._stream)
        elif first is not None and self._inline is not None and self._timeline is not None:
            self._timeline.add_gpu(self.stage.name, flight.number, first, self._inline.mark())

    def start(self, flight: Flight) -> None:
        """Begins the stage; the flight's item is what finishes it."""
        assert self.stage.start is not None
        if flight.timed and self._stream is not None:
            flight.begun[self.index].record(self._stream)
        flight.item = self.call(self.stage.start, flight, flight.item)

    def started(self, flights: Sequence[Flight]) -> None:
        """The flights were begun together, and their work is on the stream."""
        for flight in flights:
            flight.together = len(flights)
            if flight.timed and self._stream is not None:
                flight.done[self.index].record(self._stream)

    def finish(self, flight: Flight) -> None:
        """Finishes what `start` began, on the same stream: it may have to put more work there."""
        flight.item = self.call(flight.item, flight)
        if self._stream is not None:
            flight.finished.record(self._stream)
            if flight.timed and flight.together < self.stage.together:  # those finished alone, whose work came only now
                flight.done[self.index].record(self._stream)

    def call(self, function: Callable[..., Any], flight: Flight, *arguments: Any) -> Any:
        """`function(*arguments)`, timed on the host."""
        name = self.stage.name
        nvtx = self._nvtx
        if nvtx is not None:
            nvtx.range_push(name)
        begin = time.perf_counter()
        try:
            return function(*arguments)
        except StopIteration as error:  # would pass for the end of the items
            raise RuntimeError(f"stage '{name}' raised StopIteration") from error
        finally:
            end = time.perf_counter()
            if nvtx is not None:
                nvtx.range_pop()
            self._stats.add_busy(name, end - begin)
            if flight.traced and self._timeline is not None:
                self._timeline.add_host(name, flight.number, begin, end)


class PipelineIterator(Iterator[Any]):
    """One run of a pipeline. `close()` ends it early; so does dropping the last reference."""

    def __init__(self, pipeline: Pipeline, source: Iterable[Any]) -> None:
        self._source = source
        self._stats = pipeline.stats
        self._streams = pipeline.streams if pipeline.depth else None
        self._consumer: Consumer | None = pipeline.consumer if pipeline.depth else None
        self._timeline = pipeline.timeline
        self._inline = pipeline.streams if self._streams is None else None
        # A traced flight that the consumer is at, since when, and the event of it where there is no other.
        self._given: tuple[Flight, float, Any] | None = None
        self._done = False
        self._begun = False

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        begin = time.perf_counter()
        consumer = self._consumer
        try:
            if consumer is None:
                self._trace_end(begin)
                if not self._begun and self._inline is not None and self._timeline is not None:
                    self._timeline.align(self._inline)
                self._begun = True
                flight = self._take()
                item = flight.item
            else:
                throttled = self._stats.throttled
                if not self._begun:
                    self._begin_on(consumer)
                stream = consumer.ask()
                self._trace_end(begin)
                flight = self._take()
                item = consumer.take(flight, stream)
                begin += self._stats.throttled - throttled
        except BaseException:  # StopIteration, a stage's error, KeyboardInterrupt: nothing follows any of them
            self.close()
            raise
        end = time.perf_counter()
        self._stats.add_item(end - begin)
        if flight.traced:
            self._given = (flight, end, self._inline.mark() if self._inline is not None else None)
        return item

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self._done

    def close(self) -> None:
        """Ends the iteration and waits for its threads. Closing twice does nothing."""
        if not self._done and self._begun and self._streams is not None:
            self._streams.lead(self._streams.current())
        self._done = True

    def _take(self) -> Flight:
        """The next item's flight, of which the consumer's stream has still to wait for the last stage's event."""
        raise NotImplementedError

    def _begin_on(self, consumer: Consumer) -> None:
        assert self._streams is not None
        self._begun = True
        consumer.begin()
        self._streams.follow(self._streams.current())
        if self._timeline is not None:
            self._timeline.align(self._streams)

    def _trace_end(self, now: float) -> None:
        """The consumer is done with a traced item."""
        if self._given is None:
            return
        (flight, begin, first), self._given = self._given, None
        assert self._timeline is not None
        self._timeline.add_host(TRAIN, flight.number, begin, now)
        if self._inline is not None:
            self._timeline.add_gpu(TRAIN, flight.number, first, self._inline.mark())
        if self._streams is not None:
            self._timeline.add_gpu(TRAIN, flight.number, flight.arrived, flight.consumed)
            for name, first, last in zip(self._streams.names, flight.begun, flight.done, strict=True):
                self._timeline.add_gpu(name, flight.number, first, last)


class InlineIterator(PipelineIterator):
    """All stages in the consumer's thread, on its stream."""

    def __init__(self, pipeline: Pipeline, source: Iterable[Any]) -> None:
        super().__init__(pipeline, source)
        self._items = iter(source)
        self._pipeline = pipeline
        self._runners = [StageRunner(pipeline, i) for i in range(len(pipeline.stages))]

    def _take(self) -> Flight:
        flight = self._pipeline.new_flight(next(self._items))
        for runner in self._runners:
            runner.run(flight)
        return flight
