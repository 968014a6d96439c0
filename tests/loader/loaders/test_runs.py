"""An iterator that was dropped or closed does not disturb the next one."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from graphs import messy_graph

from loader import FusedSampler, HopwiseSampler, NodeLoader, WalkSampler, _core
from loader.items import NodeItems, Order
from loader.loaders.base import Loader
from loader.pipeline import Stage
from loader.samples import MiniBatch

GRAPH = messy_graph(200, 1500, seed=1)
WAIT = 60  # seconds; a test that needs them has failed


class Like(FusedSampler):
    def spec(self) -> dict[str, Any]:
        return super().spec() | {"of another law": True}


class Held(Stage):
    """Passes mini-batches on; from the `stop`-th on it waits until it is let go of. Counts the threads within."""

    name = "held"

    def __init__(self, stop: int) -> None:
        self.stop, self.seen = stop, 0
        self.within = self.most = 0
        self.waits, self.go = threading.Event(), threading.Event()
        self.closed = False

    def run(self, batch: MiniBatch) -> MiniBatch:
        self.within += 1
        self.most = max(self.most, self.within)
        self.seen += 1
        if self.seen >= self.stop:
            self.waits.set()
            assert self.go.wait(WAIT)
        self.within -= 1
        return batch

    def close(self) -> None:
        self.closed = True


def loader_with(stage: Stage, **options: Any) -> NodeLoader:
    sampler = HopwiseSampler([2], num_threads=1)
    seeds = torch.arange(100)
    return NodeLoader(GRAPH, None, None, seeds, sampler, 10, shuffle=True, prefetch=2, stages=(stage,), **options)


def in_thread(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def call() -> None:
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, found


def asked_and_held() -> tuple[Held, NodeLoader, Any, threading.Thread, list[Any]]:
    """A stage that holds the first mini-batch, its loader, an iterator, the thread that asks it, and what that gets."""
    stage = Held(stop=1)
    loader = loader_with(stage)
    batches = iter(loader)
    thread, found = in_thread(lambda: next(batches))
    assert stage.waits.wait(WAIT)
    return stage, loader, batches, thread, found


def held_and_dropped() -> tuple[Held, NodeLoader]:
    """A stage that holds the second mini-batch, and its loader, whose iterator was dropped meanwhile."""
    stage = Held(stop=2)
    loader = loader_with(stage)
    batches = iter(loader)
    next(batches)
    assert stage.waits.wait(WAIT)
    return stage, loader


def test_a_new_iterator_waits_for_dropped_threads() -> None:
    stage, loader = held_and_dropped()
    thread, found = in_thread(lambda: next(iter(loader)))
    stage.go.set()
    thread.join(WAIT)
    assert (found[0].epoch, found[0].index) == (1, 0)
    assert stage.most == 1
    loader.close()


def test_a_session_of_something_else_is_refused() -> None:
    sampler, seeds = FusedSampler([2, 2], seed=1, num_threads=1), torch.arange(20)
    others = [FusedSampler([2], seed=1), FusedSampler([2, 2], seed=2), WalkSampler(3), Like([2, 2], seed=1)]
    for other in others:
        session = other.open(GRAPH)
        with pytest.raises(ValueError, match="session was opened for another sampler; give what FusedSampler"):
            NodeLoader(GRAPH, None, None, seeds, sampler, 10, session=session)
        session.close()
    session = sampler.open(messy_graph(200, 1500, seed=1))
    with pytest.raises(ValueError, match="session was opened for another graph"):
        NodeLoader(GRAPH, None, None, seeds, sampler, 10, session=session)
    session.close()
    session = FusedSampler([2, 2], seed=1).open(GRAPH)  # one of the same spec
    assert len(list(NodeLoader(GRAPH, None, None, seeds, sampler, 10, session=session))) == 2
    session.close()


@pytest.mark.parametrize("end", ["close", "release"])
def test_closing_waits_for_dropped_threads(end: str) -> None:
    stage, loader = held_and_dropped()
    assert loader._pipeline is not None
    threads = list(loader._pipeline.threads)
    closing, _ = in_thread(getattr(loader, end))
    closing.join(0.1)
    assert closing.is_alive()
    stage.go.set()
    closing.join(WAIT)
    assert not any(thread.is_alive() for thread in [closing, *threads])


def test_closing_amid_a_next_ends_no_epoch() -> None:
    stage, loader, batches, thread, found = asked_and_held()
    closing, _ = in_thread(loader.close)
    while not batches._run.closed:
        pass
    stage.go.set()
    thread.join(WAIT)
    closing.join(WAIT)
    assert isinstance(found[0], RuntimeError)
    assert "was closed" in str(found[0])
    assert (loader.state_dict()["epoch"], loader.state_dict()["next"]) == (0, 0)


def test_a_second_thread_is_refused_an_iterator() -> None:
    stage, _, batches, thread, found = asked_and_held()
    with pytest.raises(RuntimeError, match="two threads ask this iterator for a mini-batch at once; ask in one thread"):
        next(batches)
    stage.go.set()
    thread.join(WAIT)
    assert [found[0].index, *(batch.index for batch in batches)] == list(range(10))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_iterator_is_not_copied(copied: Callable[[Any], Any]) -> None:
    loader = loader_with(Held(stop=10**9))
    batches = iter(loader)
    next(batches)
    with pytest.raises(TypeError, match="the iterator of a loader cannot be copied or pickled; copy the loader"):
        copied(batches)
    loader.close()


def test_stores_are_a_dict_of_rows() -> None:
    given = {"items": NodeItems(torch.arange(50)), "sampler": FusedSampler([2], num_threads=1), "batch_size": 10}
    with pytest.raises(TypeError, match=r"stores is .*; it must be a dict from a kind of rows to their store"):
        Loader(GRAPH, stores=[torch.zeros(200, 3)], **given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"stores\['node'\] is a list; it must be a torch tensor"):
        Loader(GRAPH, stores={"node": [0.0]}, **given)  # type: ignore[dict-item]
    batch = next(iter(Loader(GRAPH, stores={"node": torch.zeros(200, 3)}, **given)))  # type: ignore[dict-item]
    assert batch.x.shape == (batch.nodes.numel(), 3)


def test_two_epochs_at_once_keep_their_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    order, cpu = Order(100, shuffle=True, seed=3), torch.device("cpu")
    expected = Order(100, shuffle=True, seed=3).at(1, 0, 100, cpu, length=100)
    key_of = _core.order_key

    def disturbed(seed: int, epoch: int) -> int:
        key = key_of(seed, epoch)
        if epoch == 1:
            order._key = (0, key_of(seed, 0))  # as another thread may, at any moment
        return key

    monkeypatch.setattr(_core, "order_key", disturbed)
    assert torch.equal(order.at(1, 0, 100, cpu, length=100), expected)


def test_released_stages_are_made_anew() -> None:
    stage = Held(stop=10**9)
    loader = loader_with(stage)
    expected = [batch.digest() for batch in loader]
    session = loader.stages[0]._session  # type: ignore[attr-defined]
    loader.release()
    assert stage.closed
    with pytest.raises(RuntimeError, match="closed"):
        session.begin([])
    loader.set_epoch(0)
    assert [batch.digest() for batch in loader] == expected


def test_a_shared_session_outlives_its_loaders() -> None:
    sampler = FusedSampler([3, 2], num_threads=1)
    session = sampler.open(GRAPH)
    own = NodeLoader(GRAPH, None, None, torch.arange(50), sampler, 10)
    shared = [NodeLoader(GRAPH, None, None, torch.arange(50), sampler, 10, session=session) for _ in range(2)]
    expected = [batch.digest() for batch in own]
    for loader in (*shared, copy.deepcopy(shared[0])):
        assert [batch.digest() for batch in loader] == expected
        loader.release()
    session.close()


def test_ids_beyond_the_graphs_type_are_refused() -> None:
    loader = Loader(GRAPH, NodeItems(torch.tensor([2**32 + 5])), FusedSampler([2], num_threads=1), 1, prefetch=0)
    with pytest.raises(ValueError, match="seeds holds node 4294967301"):
        next(iter(loader))
