"""Order, bound, errors and shutdown of the pipeline."""

from __future__ import annotations

import _thread
import gc
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from function_stage import FunctionStage

import loader
from loader.pipeline import Pipeline, Stage
from loader.timing import PipelineStats

DEPTHS = [0, 1, 3]


def loader_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("loader-")]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    wait_until(lambda: not loader_threads())


def double(x: int) -> int:
    return 2 * x


def increment(x: int) -> int:
    return x + 1


STAGES = [FunctionStage("double", double), FunctionStage("increment", increment)]


@pytest.mark.parametrize("depth", DEPTHS)
def test_stages_are_applied_in_order(depth: int) -> None:
    assert list(Pipeline(STAGES, depth).run(range(50))) == [2 * i + 1 for i in range(50)]


@pytest.mark.parametrize("depth", DEPTHS)
def test_an_empty_source_gives_nothing(depth: int) -> None:
    assert list(Pipeline(STAGES, depth).run([])) == []


@pytest.mark.parametrize("depth", DEPTHS)
def test_random_delays_change_nothing(depth: int) -> None:
    rng = random.Random(0)
    delays = [rng.random() * 0.002 for _ in range(120)]

    def late(x: int) -> int:
        time.sleep(delays[x % len(delays)])
        return x

    stages = [FunctionStage("a", late), FunctionStage("b", lambda x: late(x) + 7), FunctionStage("c", late)]
    seen = []
    for x in Pipeline(stages, depth).run(range(60)):
        time.sleep(delays[-x % len(delays)])
        seen.append(x)
    assert seen == list(range(7, 67))


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("own", [1, 3, 9])
def test_at_most_max_items_exist(depth: int, own: int) -> None:
    drawn = 0

    def source() -> Iterator[int]:
        nonlocal drawn
        for i in itertools.count():
            drawn += 1
            yield i

    stages = [FunctionStage("one", lambda x: x), FunctionStage("two", lambda x: x)]
    stages[0].depth = own
    pipeline = Pipeline(stages, depth)
    assert pipeline.max_items == depth + min(own, depth)
    items = pipeline.run(source())
    for taken in range(1, 4):
        next(items)
        wait_until(lambda taken=taken: drawn >= taken + pipeline.max_items)  # it does run ahead
        time.sleep(0.02)
        assert drawn == taken + pipeline.max_items  # and no further
    items.close()


def test_depth_0_starts_no_threads_and_draws_lazily() -> None:
    drawn: list[int] = []
    items = Pipeline(STAGES, 0).run(drawn.append(i) or i for i in range(10))
    assert next(items) == 1
    assert not loader_threads()
    assert len(drawn) == 1


def test_no_thread_starts_before_the_first_next() -> None:
    items = Pipeline(STAGES, 2).run(range(10))
    assert not loader_threads()
    next(items)
    assert {t.name for t in loader_threads()} <= {"loader-double", "loader-increment"}


def fails_at_3(x: int) -> int:
    if x == 3:
        raise LookupError("three")
    return x


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("place", [0, 1, 2, "source"])
def test_an_error_surfaces_in_order_with_its_traceback(depth: int, place: int | str) -> None:
    stages = [FunctionStage(f"stage{i}", fails_at_3 if i == place else lambda x: x) for i in range(3)]
    source = (fails_at_3(i) for i in range(10)) if place == "source" else iter(range(10))
    items = Pipeline(stages, depth).run(source)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(LookupError, match="three") as caught:
        next(items)
    assert "fails_at_3" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert not loader_threads()
    assert list(items) == []


@pytest.mark.parametrize("depth", DEPTHS)
def test_stop_iteration_in_a_stage_is_an_error(depth: int) -> None:
    items = Pipeline([FunctionStage("pull", lambda x: next(iter([])))], depth).run(range(3))
    with pytest.raises(RuntimeError, match="stage 'pull' raised StopIteration"):
        next(items)


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("place", ["source", "begin", "finish", "second"])
def test_an_error_keeps_nothing_alive(place: str, depth: int) -> None:
    class Item:
        pass

    def fail(item: Item) -> Item:
        raise LookupError

    def start(group: Sequence[Item]) -> Sequence[Callable[[], Item]]:
        if place == "begin":
            raise LookupError
        return [partial(fail if place == "finish" else lambda item: item, item) for item in group]

    alive: list[weakref.ref[Item]] = []

    def source() -> Iterator[Item]:
        item = Item()
        alive.append(weakref.ref(item))
        if place == "source":
            raise LookupError
        yield item

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(LookupError):
            next(Pipeline([FunctionStage("a", fail, start), FunctionStage("b", fail)], depth).run(source()))
        wait_until(lambda: alive[0]() is None)  # by reference counts alone: there is no cycle
    finally:
        gc.enable()


@pytest.mark.parametrize("depth", DEPTHS)
def test_closing_in_the_middle_ends_threads(depth: int) -> None:
    items = Pipeline(STAGES, depth).run(itertools.count())
    next(items)
    items.close()
    items.close()
    assert items.closed
    assert not loader_threads()
    assert list(items) == []


def test_an_abandoned_iterator_frees_its_threads_and_items() -> None:
    class Item:
        pass

    alive: list[weakref.ref[Item]] = []

    def make(_: int) -> Item:
        item = Item()
        alive.append(weakref.ref(item))
        return item

    items = Pipeline([FunctionStage("make", make), FunctionStage("pass", lambda item: item)], 2).run(itertools.count())
    next(items)
    wait_until(lambda: len(alive) == 5)
    threads = loader_threads()
    assert len(threads) == 2
    del items
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive()
    del thread, threads
    wait_until(lambda: all(ref() is None for ref in alive))


def test_an_iterator_in_a_reference_cycle_is_collected() -> None:
    class Owner:
        pass

    owner = Owner()
    owner.items = Pipeline(STAGES, 2).run(itertools.count())
    owner.itself = owner
    next(owner.items)
    assert loader_threads()
    del owner
    gc.collect()
    wait_until(lambda: not loader_threads())


def test_many_abandoned_iterators_leave_nothing() -> None:
    pipeline = Pipeline(STAGES, 2)
    for _ in range(200):
        assert next(pipeline.run(itertools.count())) == 1
    wait_until(lambda: not loader_threads())


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts jobs in the background with SIGINT ignored, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_reaches_the_waiting_consumer() -> None:
    begun = threading.Event()

    def slow(x: int) -> int:
        begun.set()
        time.sleep(0.3)
        return x

    def interrupt() -> None:
        begun.wait()
        _thread.interrupt_main()

    items = Pipeline([FunctionStage("slow", slow)], 2).run(itertools.count())
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        next(items)
    thread.join()
    assert items.closed
    assert not loader_threads()


def run_script(script: str) -> tuple[int, str, str]:
    """Status, output and errors of a Python program of its own."""
    paths = [str(Path(loader.__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_interpreter_exits_with_an_open_iterator() -> None:
    script = """
import itertools, time
from loader.pipeline import Pipeline, Stage

class A(Stage):
    name = "a"
    def run(self, item):
        time.sleep(0.01)
        return item

class B(A):
    name = "b"

items = Pipeline([A(), B()], 2).run(itertools.count())
print(next(items))
"""
    assert run_script(script) == (0, "0\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_says_it_has_no_threads() -> None:
    script = """
import itertools, os, warnings
warnings.simplefilter("ignore")  # that a process with threads is forked
from loader.pipeline import Pipeline, Stage

class Same(Stage):
    name = "same"
    def run(self, item):
        return item

pipeline = Pipeline([Same()], 2)
items = pipeline.run(itertools.count())
print(next(items), flush=True)
if os.fork() == 0:
    try:
        next(items)
    except RuntimeError as error:
        print(error, next(pipeline.run([7])), flush=True)
else:
    assert os.wait()[1] == 0
    print(next(items))
"""
    expected = "0\na forked process has no threads of this iterator; iterate over the loader anew 7\n1\n"
    assert run_script(script) == (0, expected, "")


def test_the_interpreter_exits_amid_a_dropped_iterators_call() -> None:
    script = """
import torch
from loader import FusedSampler, Graph, NodeLoader
n = 60_000
graph = Graph.from_edges(torch.randint(n, (1_500_000,)), torch.randint(n, (1_500_000,)), n)
sampler = FusedSampler([20, 20, 20], num_threads=1)  # far longer in C++ than the interpreter takes to exit
batches = iter(NodeLoader(graph, None, None, torch.arange(n), sampler, 8192))
next(batches)
del batches
print("dropped")
"""
    assert run_script(script) == (0, "dropped\n", "")


@pytest.mark.parametrize("depth", DEPTHS)
def test_stats_tell_stages_and_waiting_apart(depth: int) -> None:
    def nap(x: int) -> int:
        time.sleep(0.002)
        return x

    stats = PipelineStats(["nap", "pass"])
    pipeline = Pipeline([FunctionStage("nap", nap), FunctionStage("pass", lambda x: x)], depth, stats)
    assert len(list(pipeline.run(range(5)))) == 5
    assert stats.items == 5
    assert stats.busy["nap"] >= 5 * 0.002 > stats.busy["pass"]
    if depth == 0:
        assert stats.waiting >= stats.busy["nap"] + stats.busy["pass"]
    assert stats.as_dict() == {**stats.busy, "waiting": stats.waiting, "items": 5}
    stats.reset()
    assert stats.as_dict() == {"nap": 0.0, "pass": 0.0, "waiting": 0.0, "items": 0}


@pytest.mark.parametrize(
    ("stages", "depth", "message"),
    [
        ([], 1, "at least one stage"),
        ([STAGES[0], STAGES[0]], 1, "distinct names"),
        (STAGES, -1, "depth is -1"),
    ],
)
def test_bad_arguments_are_refused(stages: list[Stage], depth: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pipeline(stages, depth)
