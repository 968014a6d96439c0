"""Prefetching with a thread per stage, for stages that make the host work or wait."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue

from loader.pipeline.streams import StagedItem
from loader.pipeline.work import Work


class Threads:
    """One thread per stage. The threads know the channels but not this object, so that it can be collected."""

    def __init__(self, work: Work, others: weakref.WeakSet[StageThread]) -> None:
        self._work, self._others = work, others  # of all runs of the pipeline
        self._channels = [Channel(room) for room in work.rooms]
        self._threads: list[StageThread] = []
        self._process = os.getpid()
        # Only signals: the collector may run this in any thread, even in one of ours, which must not be joined.
        self._stop = weakref.finalize(self, _stop_all, self._channels)

    def take(self) -> StagedItem | None:
        """The next item; None if this was closed."""
        channels = self._channels  # none, if another thread closed this in the meantime
        if channels and not self._threads:
            self._start(channels)
        if self._process != os.getpid():
            raise RuntimeError("a forked process has no threads of this iterator; iterate over the loader anew")
        return channels[-1].get() if channels else None

    def close(self) -> None:
        """Ends the threads, which finish their current calls first, and drops the items that nobody will take."""
        self._stop()
        join_stopped(self._threads)
        self._channels, self._threads = [], []
        self._work.close()

    def _start(self, channels: list[Channel]) -> None:
        join_stopped(self._others)
        self._threads = [StageThread(self._work, index, channels) for index in range(len(channels))]
        self._others.update(self._threads)
        for thread in self._threads:
            thread.start()


def join_stopped(threads: Iterable[StageThread]) -> None:
    """Waits for those of runs that were closed or dropped: each may be amid its last call of a stage."""
    for thread in {*threads}.difference([threading.current_thread()]):
        if thread.is_alive() and all(channel.closed for channel in thread.channels):
            thread.join()


@atexit.register
def _end_all() -> None:
    """Ends all threads while the interpreter stands: one that came back from C++ to none would end the process."""
    for thread in threading.enumerate():
        if isinstance(thread, StageThread) and thread.is_alive():
            _stop_all(thread.channels)
            thread.join()


class Channel:
    """A bounded queue between two threads, with room reserved before the work.

    A finalizer may close it: `put` of `SimpleQueue` is reentrant, and takes no lock that could be held.
    """

    def __init__(self, depth: int) -> None:
        self._room: SimpleQueue[None] = SimpleQueue()
        self._items: SimpleQueue[StagedItem | None] = SimpleQueue()
        self.put = self._items.put  # delivers into the room that was reserved
        self.closed = False
        self.taken = 0  # items that `get` returned
        for _ in range(depth):
            self._room.put(None)

    def reserve(self) -> bool:
        """Waits until one more item may exist; False when the channel was closed."""
        self._room.get()
        return not self.closed

    def get(self) -> StagedItem | None:
        """The next item; None if the channel was closed."""
        staged = self._items.get()
        if self.closed:
            return None
        self.taken += 1
        self._room.put(None)
        return staged

    def close(self) -> None:
        """Wakes both ends for good: each waits at most once more."""
        self.closed = True
        self._room.put(None)
        self._items.put(None)


def _stop_all(channels: list[Channel]) -> None:
    for channel in channels:
        channel.close()


class StageThread(threading.Thread):
    """The thread of a stage. An error in its channels may hold it: no object that lasts may hold the channels or it."""

    def __init__(self, work: Work, index: int, channels: list[Channel]) -> None:
        # A daemon: the interpreter waits for others before it runs what ends them, see `_end_all`.
        super().__init__(name=f"loader-{work.stages[index].name}", daemon=True)
        self.channels, self._index = channels, index
        self._work: Work | None = work

    def run(self) -> None:
        """Works, and frees what nobody took while `threading.enumerate` still has the thread: `_end_all` waits for it
        then. The threads of a dropped run are the last to know their items.
        """
        try:
            assert self._work is not None
            self._run(self._work)
        finally:
            self.channels, self._work = [], None

    def _run(self, work: Work) -> None:
        """Takes items of the stage before, or of the source, until one is an error or the end."""
        index, channels = self._index, self.channels
        stage, sink = work.stages[index], channels[index]
        take = channels[index - 1].get if index else work.first
        group: list[StagedItem] = []
        groups, ended, failed = 0, False, False  # groups that a later stage began
        while not failed and sink.reserve():
            if not group:
                group = _group(take, stage.together if groups else 1)
                if not group:
                    break
                if index and group[0].error is None:
                    work.through(index, [staged for staged in group if staged.error is None])
                    groups += 1
            ended, failed = isinstance(group[0].error, StopIteration), group[0].error is not None
            sink.put(group.pop(0))  # it is the next stage's now: an error would hold this frame, and that the error
        if stage.collective and not ended:
            while failed and sink.reserve():  # others go on until the consumer meets the error and closes the run
                pass
            room = channels[-1].taken
            for later, more in list(zip(work.stages, work.rooms, strict=True))[: index - 1 : -1]:  # index > 0
                begun, room = begun_groups(work.length, room + more, later.together)
            with suppress(Exception):  # a process was lost: nobody waits for this one, and the next run will say so
                for _ in range(begun - groups):
                    stage.absent()  # in the groups that other processes begin of a run that was closed here


def _group(take: Callable[[], StagedItem | None], most: int) -> list[StagedItem]:
    """The next items, of which the last one may be an error or the end; none if the run was closed."""
    group: list[StagedItem] = []
    while len(group) < most and (not group or group[-1].error is None):
        staged = take()
        if staged is None:
            return []
        group.append(staged)
    return group


def begun_groups(length: int, room: int, together: int) -> tuple[int, int]:
    """How many groups a stage begins, and their items, if a group may begin before item `room` of a run of `length`."""
    room = min(room, length)
    if room <= 0:
        return 0, 0
    groups = 1 + -(-(room - 1) // together)  # the first item is a group of its own
    return groups, min(length, 1 + (groups - 1) * together)
