"""Graphs in files: the same bytes, whether their pages are in memory or have to be read, and asked for, first."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import WIDTHS, messy_graph, widen

from loader.graph import Graph
from loader.machine.pages import _advise, _bounds, file_behind
from loader.node_loader import NodeLoader
from loader.samplers import FullSampler, FusedSampler, HopwiseSampler
from loader.stores import HostFeatures, MemmapFeatures

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux' /proc")

NUM_NODES = 3000


def drop(tensor: torch.Tensor) -> None:
    """Takes its pages out of the process and, where the file system has such, out of the page cache."""
    begin, end = _bounds(tensor)
    _advise(begin // mmap.PAGESIZE * mmap.PAGESIZE, end, mmap.MADV_DONTNEED)
    path = file_behind(tensor)
    assert path is not None
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def on_disk(graph: Graph, folder: Path) -> Graph:
    arrays: Any = {name: f"disk:{folder / name}.npy" for name in graph.placement}
    return graph.place(**arrays)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_graph_on_disk_gives_equal_bytes(width: str, num_threads: int, tmp_path: Path) -> None:
    graph = widen(messy_graph(NUM_NODES, 60_000, seed=1), width)
    mapped = on_disk(graph, tmp_path)
    options: list[Any] = [{}, {"replace": True, "edge_ids": True}, {"labor": True}]
    for kwargs in options:
        sampler = FusedSampler([7, 5], num_threads=num_threads, **kwargs)
        reference = HopwiseSampler([7, 5], num_threads=1, **kwargs)
        for batch in range(4):
            if batch % 2 == 0:
                for array in (mapped.indptr, mapped.indices):
                    drop(array)
            seeds = torch.arange(batch * 500, batch * 500 + 500)
            expected = reference.sample(graph, seeds, batch=batch)
            assert sampler.sample(mapped, seeds, batch=batch).digest() == expected.digest()
    whole = FullSampler(2, num_threads=num_threads)
    drop(mapped.indices)
    assert whole.sample(mapped, torch.arange(50)).digest() == whole.sample(graph, torch.arange(50)).digest()


@pytest.mark.parametrize("options", [{}, {"weight_tables": False}, {"top_k": True}])
def test_weights_on_disk_give_equal_bytes(options: dict[str, Any], tmp_path: Path) -> None:
    graph = messy_graph(NUM_NODES, 60_000, seed=2)
    graph.edge_weights = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0))
    mapped = on_disk(graph, tmp_path)
    sampler = FusedSampler([7, 5], num_threads=2, weights="edge_weights", **options)
    for batch in range(3):
        drop(mapped.indices)
        seeds = torch.arange(batch * 500, batch * 500 + 500)
        assert sampler.sample(mapped, seeds, batch=batch).digest() == sampler.sample(graph, seeds, batch=batch).digest()


def test_arrays_of_numpy_stay_in_their_files(tmp_path: Path) -> None:
    graph = messy_graph(NUM_NODES, 60_000, seed=3)
    np.save(tmp_path / "indptr.npy", graph.indptr.numpy())
    np.save(tmp_path / "indices.npy", graph.indices.numpy())
    arrays = [torch.from_numpy(np.load(tmp_path / f"{name}.npy", mmap_mode="c")) for name in ("indptr", "indices")]
    mapped = Graph(*arrays)
    assert {str(place) for place in mapped.placement.values()} == {
        f"disk:{tmp_path / name}.npy" for name in ("indptr", "indices")
    }
    assert mapped.indices.data_ptr() == arrays[1].data_ptr()


@pytest.mark.parametrize("store", [HostFeatures, MemmapFeatures])
def test_rows_on_disk_are_equal(store: Any, tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((5000, 129), dtype=np.float32)
    np.save(tmp_path / "rows.npy", values)
    table = torch.from_numpy(np.load(tmp_path / "rows.npy", mmap_mode="c"))
    rows = store(table, num_threads=3)
    for seed in range(4):
        ids = torch.randint(5000, (2000,), generator=torch.Generator().manual_seed(seed))
        if seed % 2 == 0:
            drop(table)
        assert np.array_equal(rows.gather(ids).numpy(), values[ids.numpy()])
    rows.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_mini_batches_from_disk_reach_a_gpu(tmp_path: Path) -> None:
    graph = messy_graph(NUM_NODES, 60_000, seed=4)
    mapped = on_disk(graph, tmp_path)
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).random((NUM_NODES, 65), dtype=np.float32))
    table, labels, seeds = torch.from_numpy(np.load(tmp_path / "rows.npy")), torch.arange(NUM_NODES), torch.arange(900)

    def batches(graph: Graph, store: Any, device: str) -> list[str]:
        sampler = FusedSampler([7, 5], num_threads=2)
        loader = NodeLoader(graph, store, labels, seeds, sampler, 128, shuffle=True, device=device)
        return [batch.to("cpu").digest() for batch in loader]

    expected = batches(graph, HostFeatures(table), "cpu")
    for array in (mapped.indptr, mapped.indices):
        drop(array)
    assert batches(mapped, MemmapFeatures(tmp_path / "rows.npy", device="cuda"), "cuda") == expected
