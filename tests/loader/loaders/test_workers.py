"""`worker_init_fn` is called as torch's DataLoader calls it, in the thread that iterates."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info
from torch_geometric.data import Data

from loader.loaders.workers import WorkerInit
from loader.pyg import NeighborLoader

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
calls: list[tuple[Any, ...]] = []


def draw() -> tuple[float, ...]:
    """A number of each generator."""
    return float(torch.rand(())), random.random(), float(np.random.rand())  # noqa: NPY002


def seed_all() -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002


def told(number: int) -> None:
    """What a function of the user's can see."""
    info = get_worker_info()
    assert info is not None
    calls.append((number, info.id, info.num_workers, info.seed, info.dataset, threading.current_thread(), draw()))


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


def test_each_worker_is_begun_with_every_epoch() -> None:
    init = WorkerInit(told, 3, once=False, seed=5)
    init("items")
    assert [call[:5] for call in calls] == [(i, i, 3, 5 + i, "items") for i in range(3)]
    assert {call[5] for call in calls} == {threading.current_thread()}
    assert len({call[6] for call in calls}) == 3
    init("items")
    assert len(calls) == 6
    assert calls[:3] == calls[3:]
    assert get_worker_info() is None


def test_persistent_workers_are_begun_once() -> None:
    init = WorkerInit(told, 2, once=True, seed=0)
    init(None)
    init(None)
    assert len(calls) == 2
    for other in (copy.copy(init), pickle.loads(pickle.dumps(init))):
        other(None)
    assert len(calls) == 6


def test_without_workers_nothing_is_called() -> None:
    WorkerInit(told, 0, once=False, seed=0)(None)
    list(DataLoader([1, 2], worker_init_fn=told))  # as torch has it
    assert calls == []


def test_generators_go_on_afterwards() -> None:
    def fails(number: int) -> None:
        told(number)
        raise KeyError(number)

    seed_all()
    expected = [draw() for _ in range(3)]
    seed_all()
    found = [draw()]
    WorkerInit(told, 2, once=False, seed=2**63 - 1)(None)
    found.append(draw())
    with pytest.raises(KeyError):
        WorkerInit(fails, 2, once=False, seed=3)(None)
    assert [call[0] for call in calls] == [0, 1, 0]
    assert get_worker_info() is None
    assert [*found, draw()] == expected


def test_a_loader_of_pyg_calls_it() -> None:
    options = {"batch_size": 2, "shuffle": True, "num_workers": 2, "worker_init_fn": told}
    made = NeighborLoader(Data(edge_index=EDGES, num_nodes=4), [2], seed=7, **options)
    plain = NeighborLoader(Data(edge_index=EDGES, num_nodes=4), [2], seed=7, batch_size=2, shuffle=True)
    batches = iter(made)
    assert calls == []  # nothing happens until the first mini-batch is asked for
    nodes = [batch.n_id.tolist() for batch in batches]
    assert [call[:4] for call in calls] == [(0, 0, 2, 7), (1, 1, 2, 8)]
    assert nodes == [batch.n_id.tolist() for batch in plain]
    list(pickle.loads(pickle.dumps(made)))
    assert len(calls) == 4
    list(NeighborLoader(Data(edge_index=EDGES, num_nodes=4), [2], worker_init_fn=told))
    assert len(calls) == 4
    twice = NeighborLoader(Data(edge_index=EDGES, num_nodes=4), [2], **options, persistent_workers=True)
    assert [len(list(twice)) for _ in range(2)] == [2, 2]
    assert len(calls) == 6


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="worker_init_fn is 3; it must be a function of a worker's number"):
        NeighborLoader(Data(edge_index=EDGES, num_nodes=4), [2], worker_init_fn=3)


def test_what_it_raises_is_raised_again() -> None:
    def fails(number: int) -> None:
        raise KeyError(number)

    made = NeighborLoader(Data(edge_index=EDGES, num_nodes=4), [2], num_workers=1, worker_init_fn=fails)
    for _ in range(2):
        with pytest.raises(KeyError):
            next(iter(made))
