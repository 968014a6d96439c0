"""Copies of loaders and samplers in mid-epoch, here and in other processes: each goes on with the same mini-batches."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing
from fake_gpu_sampler import FakeGPU
from small_loader import NUM_NODES, digests, no_threads, small_loader

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import CudaSampler, DGLSampler, FullSampler, FusedSampler, HopwiseSampler, Sampler
from loader.stores import HostFeatures, MemmapFeatures, TensorRows

COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda found: pickle.loads(pickle.dumps(found)),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """DGL draws from a random state per thread, so its samples are fixed only where the number of threads is."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph(NUM_NODES, 1500)


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(NUM_NODES, 6, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("store", ["none", "host", "tensor", "file", "raw file"])
def test_a_copy_in_mid_epoch_goes_on(
    graph: Graph, rows: torch.Tensor, tmp_path: Path, store: str, copied: str, prefetch: int
) -> None:
    np.save(tmp_path / "rows.npy", rows.numpy())
    (tmp_path / "rows.bin").write_bytes(rows.numpy().tobytes())
    features = {
        "none": lambda: None,
        "host": lambda: HostFeatures(rows, 1, dtype="float16"),
        "tensor": lambda: TensorRows(rows),
        "file": lambda: MemmapFeatures(tmp_path / "rows.npy", num_threads=1),
        "raw file": lambda: MemmapFeatures(
            tmp_path / "rows.bin", shape=[NUM_NODES, 6], storage_dtype="float32", dtype="float16", num_threads=1
        ),
    }[store]()
    expected = [digests(epoch) for epoch in itertools.repeat(small_loader(graph, features=features), 2)]
    loader = small_loader(graph, features=features, prefetch=prefetch)
    batches = iter(loader)
    begun = digests(next(batches) for _ in range(3))
    other = COPIES[copied](loader)
    assert other.state_dict() == loader.state_dict()
    assert begun + digests(other) == expected[0]
    assert begun + digests(batches) == expected[0]  # and so does what was copied
    assert digests(other) == digests(loader) == expected[1]
    assert no_threads()


def test_a_copy_has_its_own_statistics_and_callbacks(graph: Graph) -> None:
    loader = small_loader(graph)
    loader.finished = lambda: 0
    next(iter(loader))
    other = copy.deepcopy(loader)
    assert (other.finished, other.timeline) == (None, None)
    items = loader.stats.items
    list(other)
    assert loader.stats.items == items


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: HopwiseSampler([3, 2], num_threads=1),
        lambda: FusedSampler([3, 2], num_threads=2, replace=True, seed=2**63),
        lambda: FullSampler(2, num_threads=1),
        lambda: DGLSampler([3, 2]),
    ],
    ids=["hopwise", "fused", "full", "dgl"],
)
def test_a_copy_of_a_sampler_samples_the_same(graph: Graph, make: Callable[[], Sampler], copied: str) -> None:
    try:
        sampler = make()
    except ImportError as error:
        pytest.skip(str(error))
    for _ in range(2):
        wanted = sampler.sample(graph, torch.arange(20), epoch=1, batch=2).digest()  # now it has a session
        other = COPIES[copied](sampler)
        assert other.spec() == sampler.spec()
        assert other.sample(graph, torch.arange(20), epoch=1, batch=2).digest() == wanted
        sampler = other


@pytest.mark.parametrize("copied", COPIES)
def test_a_copied_gpu_sampler_samples_the_same(graph: Graph, monkeypatch: pytest.MonkeyPatch, copied: str) -> None:
    FakeGPU(monkeypatch)
    sampler = CudaSampler([3, 2], batches_per_launch=4, seed=5)
    wanted = sampler.sample(graph, torch.arange(20), epoch=1).digest()
    other = COPIES[copied](sampler)
    assert (other.spec(), other.batches_per_launch, other.device) == (sampler.spec(), 4, sampler.device)
    assert other.sample(graph, torch.arange(20), epoch=1).digest() == wanted


def test_copies_of_a_closed_sampler_work(graph: Graph) -> None:
    sampler = HopwiseSampler([3, 2], num_threads=1)
    wanted = sampler.sample(graph, torch.arange(20)).digest()
    sampler.close()
    assert copy.copy(sampler).sample(graph, torch.arange(20)).digest() == wanted


def test_a_closed_store_stays_closed(rows: torch.Tensor) -> None:
    store = HostFeatures(rows, 1)
    store.close()
    with pytest.raises(RuntimeError, match="this HostFeatures was closed"):
        copy.copy(store).gather(torch.arange(3))


def _rank(rank: int, loader: NodeLoader, results: Any) -> None:
    """A spawned process of two, which takes its turns of what is left."""
    state = loader.state_dict()
    own = NodeLoader(
        loader.graph, loader.features, loader.labels, loader.seeds, loader.neighbor_sampler, loader.batch_size,
        shuffle=True, rank=rank, world_size=2,
    )  # fmt: skip
    own.load_state_dict(state)
    for copied in (loader, own):
        results.put((rank, [(batch.index, batch.repeats, batch.digest()) for batch in copied]))


@pytest.fixture
def spawned() -> Iterator[Any]:
    context = torch.multiprocessing.get_context("spawn")
    yield context
    for process in torch.multiprocessing.active_children():
        process.join()


def test_spawned_processes_go_on_as_ranks(graph: Graph, rows: torch.Tensor, spawned: Any) -> None:
    expected = digests(small_loader(graph))
    loader = small_loader(graph)
    batches = iter(loader)
    assert digests(next(batches) for _ in range(2)) == expected[:2]
    loader.close()  # torch moves the arrays to shared memory, also under a thread that reads them
    results = spawned.SimpleQueue()
    processes = [spawned.Process(target=_rank, args=(rank, loader, results)) for rank in range(2)]
    for process in processes:
        process.start()
    found: dict[int, list[list[tuple[int, bool, str]]]] = {0: [], 1: []}
    for _ in range(4):
        rank, part = results.get()
        found[rank].append(part)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    for rank in range(2):
        assert [digest for _, _, digest in found[rank][0]] == expected[2:]
    together = {index: digest for rank in range(2) for index, repeats, digest in found[rank][1] if not repeats}
    assert together == dict(enumerate(expected[2:], 2))
