"""Stores in host memory across a fork: the child has neither the parent's threads nor those that held its locks."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from forks import in_forked_child, needs_fork
from torch.utils.data import DataLoader, Dataset

from loader.stores import HostFeatures, MemmapFeatures

ROWS, DIM = 4000, 200
NODES = torch.arange(ROWS).flip(0)  # an output of 3.2 MB, from the pool and by several threads


def table() -> torch.Tensor:
    return torch.arange(ROWS * DIM, dtype=torch.float32).view(ROWS, DIM)


@needs_fork
@pytest.mark.parametrize("used_before", [False, True])
def test_a_forked_child_gathers(used_before: bool) -> None:
    x = table()
    store = HostFeatures(x, 3)
    if used_before:
        store.gather(NODES)

    def gather() -> None:
        for _ in range(3):
            assert torch.equal(store.gather(NODES), x.flip(0))
        store.close()

    in_forked_child(gather)
    assert torch.equal(store.gather(NODES), x.flip(0))  # the parent's threads are there still


@needs_fork
def test_a_forked_child_may_drop_an_unused_store() -> None:
    stores = [HostFeatures(table(), 3)]
    in_forked_child(stores.clear)


@needs_fork
def test_a_grandchild_gathers() -> None:
    x = table()
    store = HostFeatures(x, 2)

    def gather() -> None:
        assert torch.equal(store.gather(NODES), x.flip(0))

    def fork_again() -> None:
        gather()
        in_forked_child(gather)
        gather()

    in_forked_child(fork_again)


@needs_fork
def test_inherited_outputs_stay_valid_in_a_child() -> None:
    store = HostFeatures(table(), 2)
    held = [store.gather(NODES) for _ in range(3)]
    expected = held[0].clone()

    def use() -> None:
        assert torch.equal(held[0], expected)
        held.clear()  # they return to the child's own pool
        places = {store.gather(NODES).data_ptr() for _ in range(5)}
        assert len(places) == 1

    in_forked_child(use)
    assert torch.equal(held[0], expected)


@needs_fork
def test_a_closed_store_is_closed_in_a_child() -> None:
    store = HostFeatures(table(), 2)
    store.close()

    def use() -> None:
        with pytest.raises(RuntimeError, match="was closed"):
            store.gather(NODES)

    in_forked_child(use)


@needs_fork
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_fork_amid_a_gather_does_not_hang(num_threads: int) -> None:
    x = table()
    store = HostFeatures(x, num_threads)
    many = torch.randint(ROWS, (100_000,))
    stop = threading.Event()

    def gather() -> None:  # holds the lock of the threads nearly always
        while not stop.is_set():
            store.gather(many)

    def use() -> None:
        assert torch.equal(store.gather(NODES), x.flip(0))

    busy = threading.Thread(target=gather)
    busy.start()
    try:
        for _ in range(5):
            in_forked_child(use)
    finally:
        stop.set()
        busy.join()


@needs_fork
def test_a_memory_mapped_store_gathers_in_forked_children(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", table().numpy())
    store = MemmapFeatures(tmp_path / "x.npy", num_threads=2)

    def gather() -> None:
        assert torch.equal(store.gather(NODES), table().flip(0))

    in_forked_child(gather)


class _Rows(Dataset[torch.Tensor]):
    def __init__(self, store: HostFeatures) -> None:
        self.store = store

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.store.gather(NODES[index:])


@needs_fork
def test_workers_of_a_data_loader_gather() -> None:
    x = table()
    loader = DataLoader(
        _Rows(HostFeatures(x, 2)), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=600
    )
    for _ in range(2):
        for i, rows in enumerate(loader):
            assert torch.equal(rows, x.flip(0)[i:])
