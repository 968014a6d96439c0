"""Where arrays lie: files and copies here, page-locked and GPU memory on a machine that has them."""

from __future__ import annotations

import copy
import gc
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from loader.graph import Graph, Placement
from loader.graph import placement as placement_module
from loader.machine.gpu import NoGpuError

LINUX = Path("/proc/self/maps").exists()


def make(num_nodes: int = 3000) -> Graph:
    generator = torch.Generator().manual_seed(1)
    src, dst = (torch.randint(num_nodes, (8 * num_nodes,), generator=generator) for _ in range(2))
    weights = torch.rand(8 * num_nodes, generator=generator)
    return Graph.from_edges(src, dst, num_nodes, keep_edge_ids=True, edge_weights=weights)


def equal(a: Graph, b: Graph) -> bool:
    return all(torch.equal(x.cpu(), b._arrays()[name].cpu()) for name, x in a._arrays().items())


def where(graph: Graph) -> dict[str, str]:
    return {name: placement.kind for name, placement in graph.placement.items()}


@pytest.mark.parametrize("text", ["", "gpu", "cpu:0", "pinned:1", "cuda:x", "meta", "Disk"])
def test_unknown_placements_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"a placement is '{text}'; it must be 'cpu', 'pinned'"):
        Placement.parse(text)
    with pytest.raises(TypeError, match="a placement is 3"):
        Placement.parse(3)  # type: ignore[arg-type]


def test_placement_repeats_the_words_of_the_request(tmp_path: Path) -> None:
    for text in ("cpu", "disk", f"disk:{tmp_path}/a.npy"):
        assert str(Placement.parse(text)) == text
    assert Placement.parse(torch.device("cpu")) == Placement("cpu")
    assert str(Placement("cuda", 1)) == "cuda:1"
    with pytest.raises(ValueError, match="lies on meta"):
        Placement.of(torch.empty(1, device="meta"))


def test_one_array_goes_to_a_file_and_back(tmp_path: Path) -> None:
    graph = make()
    there = graph.place(indices=f"disk:{tmp_path}/indices.npy")
    assert equal(there, graph)
    assert there.indptr is graph.indptr
    assert [path.name for path in tmp_path.iterdir()] == ["indices.npy"]
    if LINUX:
        assert where(there) == {"indptr": "cpu", "indices": "disk", "edge_ids": "cpu", "edge_weights": "cpu"}
        assert there.placement["indices"].file == tmp_path / "indices.npy"
        assert there.place(indices="disk").indices is there.indices
        assert where(there.place("cpu"))["indices"] == "cpu"
    (tmp_path / "indices.npy").unlink()  # the mapping stays
    assert equal(there, graph)
    assert equal(pickle.loads(pickle.dumps(there)), graph)


@pytest.mark.skipif(not LINUX, reason="only on Linux the library knows the file of a mapping")
@pytest.mark.parametrize("there_is_another", [True, False])
def test_a_file_that_was_replaced_is_written_again(tmp_path: Path, there_is_another: bool) -> None:
    place = f"disk:{tmp_path}/indices.npy"
    graph = make()
    first = graph.place(indices=place)
    if there_is_another:
        Graph(graph.indptr, (graph.indices + 1) % graph.num_nodes).place(indices=place)
    else:
        (tmp_path / "indices.npy").unlink()
    again = first.place(indices=place)
    assert torch.equal(again.indices, graph.indices)
    assert torch.equal(torch.from_numpy(np.load(tmp_path / "indices.npy")), graph.indices)
    assert again.place(indices=place).indices is again.indices


@pytest.mark.skipif(not LINUX, reason="only on Linux the library knows the file of a mapping")
def test_what_was_written_goes_to_the_file(tmp_path: Path) -> None:
    place = f"disk:{tmp_path}/indices.npy"
    graph = make()
    there = graph.place(indices=place)
    there.indices.copy_(there.indices.flip(0))  # of this process alone: the mapping is private
    again = there.place(indices=place)
    for indices in (again.indices, torch.from_numpy(np.load(tmp_path / "indices.npy"))):
        assert torch.equal(indices, graph.indices.flip(0))
    assert again.place(indices=place).indices is again.indices


def test_a_placement_on_disk_needs_a_path(tmp_path: Path) -> None:
    graph = make(10)
    with pytest.raises(ValueError, match=r"indptr lies in no file yet; name one: place\(indptr='disk:/folder/indptr"):
        graph.place(indptr="disk")
    with pytest.raises(ValueError, match="would be the file of every array; name them"):
        graph.place(f"disk:{tmp_path}/a.npy")
    with pytest.raises(ValueError, match=r"a\.npy is the file of two arrays"):
        graph.place(indptr=f"disk:{tmp_path}/a.npy", indices=f"disk:{tmp_path}/a.npy")
    with pytest.raises(FileNotFoundError, match=r"nowhere/a\.npy, but there is no folder .*nowhere; make it first"):
        graph.place(indptr=f"disk:{tmp_path}/nowhere/a.npy")
    with pytest.raises(ValueError, match="the graph has no array 'edge_times' to place; it has indptr, indices"):
        graph.place(edge_times="cpu")


def test_empty_arrays_may_lie_anywhere(tmp_path: Path) -> None:
    graph = Graph(torch.zeros(3, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    assert graph.place(indices=f"disk:{tmp_path}/indices.npy").indices.numel() == 0


def test_shared_memory_is_no_file() -> None:
    graph = make(10)
    graph.indices.share_memory_()
    assert where(graph)["indices"] == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_without_a_gpu_the_way_out_is_named() -> None:
    with pytest.raises(NoGpuError, match="a graph in pinned memory needs"):
        make(10).pin_memory()
    with pytest.raises(ValueError, match="a placement is 'cuda:0'; torch finds no NVIDIA GPU here"):
        make(10).to("cuda:0")


class Lock:
    """Stands for `PinnedTensor` where nothing can be locked."""

    held = 0

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        Lock.held += 1

    def __del__(self) -> None:
        Lock.held -= 1


def test_locked_memory_lives_as_long_as_its_graph(monkeypatch) -> None:
    monkeypatch.setattr(placement_module, "PinnedTensor", Lock)
    monkeypatch.setattr(placement_module, "require_cuda", lambda what: None)
    graph = make(10)
    pinned = graph.pin_memory()
    assert pinned.indices.data_ptr() == graph.indices.data_ptr()  # in place
    assert Lock.held == 4
    partly = copy.copy(pinned).place(edge_weights="cpu", edge_ids="pinned")
    del pinned
    gc.collect()
    assert sorted(partly._locks) == ["edge_ids", "edge_weights", "indices", "indptr"]
    assert pickle.loads(pickle.dumps(partly))._locks == {}
    del partly
    gc.collect()
    assert Lock.held == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
class TestWithAGpu:
    def test_arrays_may_lie_in_different_places(self) -> None:
        graph = make()
        there = graph.place("pinned", indptr="cuda")
        assert where(there) == {"indptr": "cuda", "indices": "pinned", "edge_ids": "pinned", "edge_weights": "pinned"}
        assert str(there.placement["indptr"]) == "cuda:0"
        assert "devices=['cpu', 'cuda:0']" in repr(there)
        assert equal(there, graph)
        assert set(where(there.to("cuda")).values()) == {"cuda"}
        back = there.to("cpu")
        assert where(back) == {**where(there), "indptr": "cpu"}
        assert back.to("cpu") is back
        assert set(where(pickle.loads(pickle.dumps(back))).values()) == {"cpu"}
        assert set(where(back.place("cpu")).values()) == {"cpu"}

    def test_memory_is_locked_in_place_and_unlocked(self) -> None:
        graph = make(1 << 18)
        pinned = graph.pin_memory()
        assert pinned.indices.data_ptr() == graph.indices.data_ptr()
        assert where(graph)["indices"] == "pinned"  # the same memory
        again = graph.pin_memory()
        del pinned
        gc.collect()
        assert again.indices.is_pinned()
        del again
        gc.collect()
        assert where(graph)["indices"] == "cpu"
