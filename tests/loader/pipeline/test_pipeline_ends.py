"""How a run ends: by a close amid a step, with the source, and if a thread could not be started."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from function_stage import FunctionStage
from small_loader import no_threads

from loader.pipeline import Pipeline

DEPTHS = [0, 1, 3]
STAGES = [FunctionStage("double", lambda x: 2 * x), FunctionStage("increment", lambda x: x + 1)]


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    assert no_threads()


def fails_at_3(x: int) -> int:
    if x == 3:
        raise LookupError("three")
    return x


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("begun", [False, True])
def test_a_run_closed_amid_next_says_so(depth: int, begun: bool) -> None:
    def close(x: int) -> int:
        if x == begun:
            items.close()
        return x

    items = Pipeline([FunctionStage("close", close)], depth).run(range(3))
    with pytest.raises(RuntimeError, match="was closed amid a next"):
        list(items)
    assert items.closed
    assert list(items) == []


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("begun", [False, True])
def test_another_thread_may_close_at_any_moment(depth: int, begun: bool) -> None:
    items = Pipeline(STAGES, depth).run(range(3))
    if begun:
        next(items)
    items._ahead.close()  # between two lines of `next`
    with pytest.raises(RuntimeError, match="was closed amid a next"):
        next(items)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("end", ["close", "drop", "error"])
def test_an_ended_run_closes_its_source(depth: int, end: str) -> None:
    ended = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            ended.set()

    items = Pipeline([FunctionStage("a", abs), FunctionStage("b", fails_at_3)], depth).run(source())
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    if end == "close":
        items.close()
    if end == "error":
        with pytest.raises(LookupError):
            next(items)
    if end == "drop":
        del items
    assert ended.wait(30)


def test_a_thread_that_cannot_start_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name == "loader-increment":
            raise RuntimeError("can't start new thread")
        start(thread)

    pipeline = Pipeline(STAGES, 2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        items = pipeline.run(range(5))
        with pytest.raises(RuntimeError, match="can't start new thread"):
            next(items)
    assert list(pipeline.run(range(5))) == [1, 3, 5, 7, 9]
    assert items.closed


def test_an_error_nobody_met_is_collected() -> None:
    """The run is dropped while an error waits in a channel; its traceback knows the thread, and that the channels."""

    class Item:
        pass

    alive: list[weakref.ref[Item]] = []
    failed = threading.Event()

    def make(x: int) -> Item:
        if x == 2:
            failed.set()
            raise LookupError
        item = Item()
        alive.append(weakref.ref(item))
        return item

    items = Pipeline([FunctionStage("make", make), FunctionStage("pass", lambda item: item)], 4).run(itertools.count())
    next(items)
    assert failed.wait(30)
    del items
    assert no_threads()
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


DROPPED_AT_THE_END = """
import itertools, time
from function_stage import FunctionStage
from loader.pipeline import Pipeline

class Item:
    made = 0

    def __init__(self):
        Item.made += 1

    def __del__(self):
        time.sleep(0.2)  # without the GIL, as a tensor whose memory is given back
        print("freed", flush=True)

run = Pipeline([FunctionStage("make", lambda _: Item())], 3).run(itertools.count())
next(run)
while Item.made < 4:
    time.sleep(0.01)
del run
time.sleep(0.1)  # until its thread frees items
"""


def test_a_dropped_run_frees_items_before_exit() -> None:
    """A thread that came back from C++ to an interpreter that is gone would end the process by an abort."""
    support = Path(__file__).parents[2] / "support"
    script = f"import sys; sys.path.insert(0, {str(support)!r})\n{DROPPED_AT_THE_END}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["freed"] * 4
