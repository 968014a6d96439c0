"""Locks that a thread held when the process forked."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from forks import in_forked_child, needs_fork
from graphs import messy_graph

from loader import FusedSampler, Graph, HopwiseSampler, NodeLoader
from loader.machine.forks import ForkSafeLock
from loader.samplers.base import Session
from loader.timing import PipelineStats


@contextmanager
def another_thread(work: Callable[[threading.Event, threading.Event], None]) -> Iterator[None]:
    """`work(inside, leave)` runs meanwhile: it sets the first and waits for the second."""
    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(inside, leave))
    thread.start()
    try:
        assert inside.wait(20)
        yield
    finally:
        leave.set()
        thread.join()


def holding(lock: Any) -> Callable[[threading.Event, threading.Event], None]:
    def hold(inside: threading.Event, leave: threading.Event) -> None:
        with lock:
            inside.set()
            leave.wait(60)

    return hold


@needs_fork
def test_a_child_finds_another_threads_lock_free() -> None:
    lock, entered = ForkSafeLock(), []

    def use() -> None:
        with lock:
            entered.append(True)
        in_forked_child(lock.__enter__)

    with another_thread(holding(lock)):
        in_forked_child(use)
    use()
    assert entered == [True]


def test_one_thread_at_a_time_holds_it() -> None:
    lock, inside = ForkSafeLock(), []

    def work() -> None:
        for _ in range(500):
            with lock:
                inside.append(1)
                assert inside == [1]
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda lock: pickle.loads(pickle.dumps(lock))])
def test_a_copy_is_a_lock_of_its_own(copied: Callable[[ForkSafeLock], ForkSafeLock]) -> None:
    lock = ForkSafeLock()
    with lock, copied(lock):
        pass


@needs_fork
def test_a_child_counts_despite_a_counting_thread() -> None:
    stats = PipelineStats(["sample"])
    with another_thread(holding(stats._lock)):
        in_forked_child(lambda: stats.add_busy("sample", 1.0))


@needs_fork
def test_a_child_loads_despite_a_counting_stage() -> None:
    graph = messy_graph(200, 2000, 0)
    loader = NodeLoader(graph, None, None, torch.arange(200), HopwiseSampler([2], num_threads=1), 50)
    with another_thread(holding(loader.stats._lock)):
        in_forked_child(lambda: list(loader))


@needs_fork
def test_a_child_samples_despite_a_session_being_opened() -> None:
    graph = messy_graph(200, 2000, 0)
    sampler = HoldingSampler([2], num_threads=1)

    def open_slowly(inside: threading.Event, leave: threading.Event) -> None:
        sampler.hold = lambda: (inside.set(), leave.wait(60))
        sampler.sample(graph, torch.arange(3))

    def sample() -> None:
        sampler.hold = lambda: None
        sampler.sample(graph, torch.arange(3))

    with another_thread(open_slowly):
        in_forked_child(sample)


class HoldingSampler(FusedSampler):
    """Opens a session when it is told."""

    hold: Callable[[], object]

    def open(self, graph: Graph) -> Session:
        self.hold()
        return super().open(graph)
