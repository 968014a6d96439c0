"""Streams and events on a virtual clock: what `torch.cuda` offers to `loader.pipeline.streams`, without a GPU.

Work takes time on its stream without being done; who reads before it is written, or frees what is still read, is
found by comparing times. `FakeCuda` stands for the module, `FakeBatch` for a mini-batch.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace


class FakeEvent:
    def __init__(self, cuda: FakeCuda, enable_timing: bool = False) -> None:
        self.cuda, self.timing, self.at = cuda, enable_timing, None

    def record(self, stream: FakeStream | None = None) -> None:
        stream = self.cuda.current_stream() if stream is None else stream
        with self.cuda.lock:
            stream.now = max(stream.now, self.cuda.host)  # work reaches an idle stream when the host puts it there
            self.at = stream.now

    def query(self) -> bool:
        return self.at is None or self.at <= self.cuda.host

    def synchronize(self) -> None:
        with self.cuda.lock:
            self.cuda.synchronizations += 1
            self.cuda.host = max(self.cuda.host, self.at or 0.0)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.timing
        assert end.timing
        assert self.at is not None
        assert end.at is not None
        assert end.at <= self.cuda.host, "an event was asked for its time before the host knew that it happened"
        return (end.at - self.at) * 1e3


class FakeStream:
    cuda_stream = 0  # its handle

    def __init__(self, cuda: FakeCuda, device: object = None, priority: int = 0) -> None:
        self.cuda, self.device, self.priority, self.now = cuda, device, priority, 0.0
        cuda.streams.append(self)

    def wait_event(self, event: FakeEvent) -> None:
        assert event.at is not None, "waiting for an event that was never recorded waits for nothing"
        with self.cuda.lock:
            self.now = max(self.now, event.at)

    def wait_stream(self, stream: FakeStream) -> None:
        with self.cuda.lock:
            self.now = max(self.now, stream.now)

    def synchronize(self) -> None:
        with self.cuda.lock:
            self.cuda.host = max(self.cuda.host, self.now)


class FakeCuda:
    """A module like `torch.cuda`, and the clock."""

    def __init__(self, seed: int = 0) -> None:
        self.lock = threading.RLock()
        self.host = 0.0
        self.synchronizations = 0
        self.streams: list[FakeStream] = []
        self.events = 0
        self.ranges: list[str] = []
        self.rng = random.Random(seed)
        self.default = FakeStream(self)
        self._local = threading.local()
        self.nvtx = SimpleNamespace(range_push=self.ranges.append, range_pop=lambda: None)

    def Stream(self, device: object = None, priority: int = 0) -> FakeStream:
        return FakeStream(self, device, priority)

    def Event(self, enable_timing: bool = False) -> FakeEvent:
        self.events += 1
        return FakeEvent(self, enable_timing)

    def current_stream(self, device: object = None) -> FakeStream:
        return getattr(self._local, "stream", self.default)

    def set_stream(self, stream: FakeStream) -> None:
        self._local.stream = stream

    def current_device(self) -> int:
        return 0

    def set_device(self, device: int) -> None:
        raise AssertionError("there is one device")

    def launch(self, seconds: float) -> tuple[float, float]:
        """Puts work on the current stream; when it begins and ends."""
        stream = self.current_stream()
        with self.lock:
            self.host += 1e-6
            begin = max(stream.now, self.host)
            stream.now = begin + seconds
            return begin, stream.now


class FakeBatch:
    """Data that is complete at `ready`, made on `stream`; counts those alive, until the streams using it are done."""

    def __init__(self, cuda: FakeCuda, value: int, ready: float) -> None:
        self.cuda, self.value, self.ready = cuda, value, ready
        self.users = {cuda.current_stream()}

    def record_stream(self, stream: FakeStream) -> None:
        self.users.add(stream)

    def read(self, seconds: float) -> float:
        """Work of the current stream that reads the data; when it ends."""
        begin, end = self.cuda.launch(seconds)
        assert begin >= self.ready, f"item {self.value} is read at {begin}, and complete at {self.ready}"
        assert self.cuda.current_stream() in self.users, "the allocator does not know that this stream reads it"
        return end


class StageOf:
    """A stage of random length: `FakeBatch` (or a number) -> `FakeBatch`, on the current stream."""

    def __init__(self, cuda: FakeCuda, fail_at: int | None = None) -> None:
        self.cuda, self.fail_at, self.calls = cuda, fail_at, 0
        self.streams: set[FakeStream] = set()

    def __call__(self, item: FakeBatch | int) -> FakeBatch:
        self.calls += 1
        self.streams.add(self.cuda.current_stream())
        value = item if isinstance(item, int) else item.value
        if value == self.fail_at:
            raise LookupError(f"item {value}")
        seconds = self.cuda.rng.random()
        end = self.cuda.launch(seconds)[1] if isinstance(item, int) else item.read(seconds)
        return FakeBatch(self.cuda, value, end)

    def start(self, group: Sequence[int]) -> list[Callable[[], FakeBatch]]:
        return [partial(self.finish, self(item)) for item in group]

    def finish(self, batch: FakeBatch) -> FakeBatch:
        with self.cuda.lock:  # the host waits for the sizes
            self.cuda.host = max(self.cuda.host, batch.ready)
        return batch


class StageOfSeveral(StageOf):
    """A first stage that puts the work of a whole group on the stream at once."""

    def __init__(self, cuda: FakeCuda, fail_at: int | None = None) -> None:
        super().__init__(cuda, fail_at)
        self.launches: list[list[int]] = []
        self.made: list[weakref.ref[FakeBatch]] = []

    def __call__(self, item: FakeBatch | int) -> FakeBatch:
        raise AssertionError("nothing was to be done alone")

    def start(self, group: Sequence[int]) -> list[Callable[[], FakeBatch]]:
        self.calls += len(group)
        self.streams.add(self.cuda.current_stream())
        self.launches.append(list(group))
        end = self.cuda.launch(self.cuda.rng.random())[1]
        return [self._begun(item, end) for item in group]

    def _begun(self, item: int, end: float) -> Callable[[], FakeBatch]:
        batch = FakeBatch(self.cuda, item, end)
        self.made.append(weakref.ref(batch))
        return partial(self.finish, batch)

    def finish(self, batch: FakeBatch) -> FakeBatch:
        if batch.value == self.fail_at:
            raise LookupError(f"item {batch.value}")
        return super().finish(batch)
