from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loader.datasets import (
    CacheError,
    DatasetError,
    EdgeList,
    EdgeListDataset,
    NpzDataset,
    TableDataset,
    base,
    cache_writer,
    local_ranks,
)
from loader.datasets.local_ranks import this_process
from models.synthetic import SyntheticDataset


class Toy(EdgeListDataset):
    """Two components, 0-1-2 and 3-4; counts how often it is read."""

    def __init__(self, **options: Any) -> None:
        super().__init__("toy", **options)
        self.reads = 0
        self.state = 1
        self.found: dict[str, Any] = {}

    def source(self) -> list[int]:
        return [self.state]

    def read(self, writer: object) -> EdgeList:
        self.reads += 1
        parts: dict[str, Any] = {
            "src": np.array([0, 1, 3, 3]),
            "dst": np.array([1, 2, 4, 3]),
            "features": np.arange(10.0).reshape(5, 2),
            "labels": np.array([0.0, 1.0, np.nan, 1.0, 0.0]),
            "splits": {"train": torch.tensor([0, 4]), "val": torch.tensor([1]), "test": torch.tensor([3])},
        }
        return EdgeList(**{**parts, **self.found})


@pytest.fixture
def toy(tmp_path):
    return lambda **options: Toy(data_dir=tmp_path, **options)


def test_a_second_load_does_not_read_the_source(toy, caplog):
    caplog.set_level(logging.INFO)
    toy().load()
    again = toy()
    data = again.load()
    assert again.reads == 0
    assert data.graph.in_degrees().tolist() == [1, 2, 1, 1, 1]
    assert data.labels.tolist() == [0, 1, -1, 1, 0]
    lines = [record.message for record in caplog.records]
    assert "converting into" in lines[0]
    assert "converted in" in lines[1]
    assert "opened from" in lines[2]


@pytest.mark.parametrize("change", [{"undirected": False}, {"self_loops": "add"}, {"check_features": False}])
def test_every_option_has_its_own_conversion(toy, change):
    toy().load()
    other = toy(**change)
    other.load()
    assert other.reads == 1


def test_a_changed_source_is_converted_again(toy):
    toy().load()
    changed = toy()
    changed.state = 2
    changed.load()
    assert changed.reads == 1


def test_rebuild_converts_once_more_and_only_once(toy):
    toy().load()
    rebuilt = toy(rebuild=True)
    rebuilt.load()
    rebuilt.load()
    assert rebuilt.reads == 1


def test_a_second_request_for_a_rebuild_rebuilds_again(toy):
    dataset = toy()
    dataset.load()
    dataset.rebuild = True
    dataset.load()
    assert dataset.reads == 2


def test_a_rebuild_serves_all_who_asked_before_it(toy):
    toy().load()
    first, second = toy(rebuild=True), pickle.loads(pickle.dumps(toy(rebuild=True)))
    first.load()
    second.load()
    assert (first.reads, second.reads) == (1, 0)


@pytest.mark.parametrize(("local_rank", "reads"), [("1", 0), (None, 1)])
def test_one_rank_of_a_run_rebuilds(toy, monkeypatch, local_rank, reads):
    toy().load()
    described = this_process()
    monkeypatch.setattr(local_ranks, "this_process", lambda: {**described, "self": described["parent"], "parent": None})
    monkeypatch.setattr(cache_writer, "this_process", local_ranks.this_process)
    toy(rebuild=True).load()  # as the process that started this one
    monkeypatch.setattr(local_ranks, "this_process", lambda: described)
    monkeypatch.delenv("SLURM_LOCALID", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    rank = toy(rebuild=True)
    rank.load()
    assert rank.reads == reads


def test_verify_finds_a_flipped_bit_of_features(toy, tmp_path):
    toy().load()
    (features,) = tmp_path.glob("cache/*/version-*/features.npy")
    data = bytearray(features.read_bytes())
    data[-1] ^= 64
    features.write_bytes(data)
    toy().load()
    with pytest.raises(CacheError, match=r"features\.npy cannot be used: bytes 128 to .*; .*rebuild=true"):
        toy(verify=True).load()
    toy(verify=True, rebuild=True).load()


@pytest.mark.parametrize("name", ["../../x", "a/b", "", " ", ".hidden", "a\nb", "a\0b", 7])
def test_a_name_that_leaves_the_cache_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"name is .*; it becomes that of a folder, so it must be"):
        SyntheticDataset(name, data_dir=tmp_path)
    with pytest.raises(ValueError, match="name has 300 bytes"):
        SyntheticDataset("ä" * 150, data_dir=tmp_path)
    assert SyntheticDataset("Müllers Graph (2)", data_dir=tmp_path).name == "Müllers Graph (2)"


WEIGHTED = {
    "edge_weights": np.array([1, 2, 3, 4], np.float32),
    "edge_times": np.array([10, 20, 30, 40], np.uint64),
    "node_times": np.array([5, 6, 7, 8, 9], np.int16),
    "node_types": {"user": 1, "item": 4},
}


def test_weights_times_and_types_come_through_the_cache(toy):
    for reads in (1, 0):
        dataset = toy(parallel_edges="keep", self_loops="keep")
        dataset.found = WEIGHTED
        graph = dataset.load().graph
        assert dataset.reads == reads
        assert graph.indices.tolist() == [1, 0, 2, 1, 3, 4, 3]
        assert graph.edge_weights.tolist() == [1, 1, 2, 2, 4, 3, 3]
        assert graph.edge_times.tolist() == [10, 10, 20, 20, 40, 30, 30]
        assert graph.node_times.tolist() == [5, 6, 7, 8, 9]
        assert graph.node_types == {"user": range(1), "item": range(1, 5)}
        assert graph.edge_types is None


def test_types_of_edges_are_kept_one_way(toy):
    dataset = toy(undirected=False)
    dataset.found = {"edge_types": np.array([2, 0, 1, 1])}
    assert dataset.load().graph.edge_types.tolist() == [2, 0, 1]
    dataset = toy(rebuild=True)
    dataset.found = {"edge_types": np.array([2, 0, 1, 1])}
    with pytest.raises(DatasetError, match=r"reverse of an edge has no type of its own; set dataset\.undirected=false"):
        dataset.load()


def test_the_largest_component_keeps_weights_times_and_types(toy):
    dataset = toy(largest_component=True)
    dataset.found = WEIGHTED
    graph = dataset.load().graph
    assert graph.edge_weights.tolist() == [1, 1, 2, 2]
    assert graph.node_times.tolist() == [5, 6, 7]
    assert graph.node_types == {"user": range(1), "item": range(1, 3)}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"edge_weights": np.array([1, 2, 3, 4])}, "edge_weights has dtype int64; it must be float32 or float64"),
        ({"edge_weights": np.ones(3)}, r"edge_weights has shape \[3\]; it must be \[4\]: one of each edge"),
        ({"edge_weights": np.array([1, 2, -1, 4.0])}, r"weight of edge 2, 3 -> 4, is -1\.0; it must be finite"),
        ({"edge_weights": np.array([1, np.nan, 1, 4.0])}, "weight of edge 1, 1 -> 2, is nan"),
        ({"edge_times": np.ones(4)}, "edge_times has dtype float64; it must be integers"),
        ({"edge_types": np.array([0, 0, -1, 0])}, "edge_types holds -1; a type is a number from 0"),
        ({"node_times": np.ones(5)}, "node_times has dtype float64"),
        ({"node_times": np.arange(4)}, r"node_times has shape \[4\]; it must be \[5\]"),
        ({"node_types": {"a": 4}}, "the types of nodes have 4 nodes together; features have 5 rows"),
        ({"features": np.array([["a"] * 2] * 5)}, "features have dtype <U1; they must be real numbers"),
        ({"features": np.ones((5, 2), complex)}, "features have dtype complex128; they must be real numbers"),
        ({"features": np.float32(3)}, r"features have shape \[\]; they must be \[num_nodes, num_features\]"),
        ({"features": np.full((5, 2), 1e300)}, r"10 too large for float32 \(feature 0 of node 0 is 1e\+300\)"),
        ({"labels": np.array(list("01010"))}, "labels have dtype <U1; they must be real numbers"),
        ({"labels": np.array([[1j]] * 5)}, "labels have dtype complex128"),
        ({"labels": np.array([0, 1, 2**64 - 1, 0, 0], np.uint64)}, f"labels holds {2**64 - 1}; the largest number"),
        ({"labels": np.array([0, np.inf, 0, 0, 0])}, "are not whole numbers: node 1 has inf; round them"),
    ],
)
def test_values_of_the_wrong_kind_give_one_line(toy, tmp_path, found, message):
    dataset = toy(undirected=False)
    dataset.found = found
    with pytest.raises(DatasetError, match=message) as caught:
        dataset.load()
    assert "\n" not in str(caught.value)
    assert not any((tmp_path / "cache").iterdir())


def test_rebuild_mends_a_damaged_cache(toy, tmp_path):
    toy().load()
    (features,) = tmp_path.glob("cache/*/version-*/features.npy")
    features.write_bytes(features.read_bytes()[:-4])
    with pytest.raises(CacheError, match=r"features\.npy cannot be used.*dataset\.rebuild=true"):
        toy().load()
    assert toy(rebuild=True).load().num_nodes == 5


def test_the_largest_component_keeps_features_labels_and_splits(toy):
    dataset = toy(largest_component=True)
    data = dataset.load()
    assert data.features.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert data.labels.tolist() == [0, 1, -1]
    assert [ids.tolist() for ids in data.splits.values()] == [[0], [1], []]


@pytest.mark.parametrize("component", [False, True])
def test_the_node_with_a_bad_feature_is_named(toy, component):
    dataset = toy(largest_component=component)
    features = np.zeros((5, 2))
    features[4 if not component else 2, 1] = np.inf
    dataset.found = {"features": features}
    with pytest.raises(DatasetError, match=f"feature 1 of node {2 if component else 4} is inf"):
        dataset.load()


def test_splits_are_checked_before_anything_is_written(toy, tmp_path):
    dataset = toy()
    dataset.found = {"splits": {"train": torch.tensor([2]), "val": torch.tensor([1]), "test": torch.tensor([3])}}
    with pytest.raises(DatasetError, match=r"node 2 of split train has label -1; .* leave it out of train"):
        dataset.load()
    assert not any((tmp_path / "cache").iterdir())


def test_a_damaged_label_is_blamed_on_the_cache(toy, tmp_path):
    toy().load()
    (file,) = tmp_path.glob("cache/*/version-*/labels.npy")
    data = bytearray(file.read_bytes())
    data[-40] = 99  # the first of five labels
    file.write_bytes(data)
    with pytest.raises(CacheError, match=r"labels\.npy cannot be used: bytes .* are not those that were written"):
        toy().load()


def test_unknown_options_are_refused(toy):
    with pytest.raises(ValueError, match="self_loops is 'both'"):
        toy(self_loops="both")


def placed(data: Any) -> set[str]:
    """Where the topology lies."""
    return {place.kind for place in data.graph.placement.values()}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux' /proc")
def test_a_topology_stays_on_disk_on_request(toy):
    found = {"edge_weights": np.array([0.5, 1.0, 2.0, 0.25]), "node_times": np.arange(5)}
    first = toy()
    first.found = found
    in_memory = first.load()
    assert placed(in_memory) == {"cpu"}
    on_disk = toy(in_memory=False).load()
    assert placed(on_disk) == {"disk"}
    for name, array in in_memory.graph._arrays().items():
        assert torch.equal(getattr(on_disk.graph, name), array)
    assert placed(toy(in_memory=True).load()) == {"cpu"}
    with pytest.raises(TypeError, match="in_memory is 'yes'"):
        toy(in_memory="yes")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux' /proc")
def test_a_topology_beyond_half_memory_stays_on_disk(toy, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    toy().load()
    size = sum(path.stat().st_size for name in ("indptr", "indices") for path in toy().cache_dir.rglob(f"{name}.npy"))
    monkeypatch.setattr(base, "usable_memory", lambda: 2 * size)
    assert placed(toy().load()) == {"cpu"}
    monkeypatch.setattr(base, "usable_memory", lambda: 2 * size - 1)
    assert placed(toy().load()) == {"disk"}
    assert "GiB of topology stay on disk (dataset.in_memory)" in caplog.text
    assert placed(toy(in_memory=True).load()) == {"cpu"}


def test_a_damaged_topology_on_disk_is_found(toy):
    toy().load()
    (path,) = toy().cache_dir.rglob("indices.npy")
    data = bytearray(path.read_bytes())
    data[-1] = 0x7F  # the last source is no node
    path.write_bytes(data)
    with pytest.raises(CacheError, match=r"indices\.npy cannot be used: bytes .* are not those that were written"):
        toy(in_memory=False).load()
    data[-4:] = bytes(4)  # one that is
    path.write_bytes(data)
    toy(in_memory=False).load()
    with pytest.raises(CacheError, match=r"indices\.npy cannot be used"):
        toy(in_memory=False, verify=True).load()


@pytest.mark.parametrize("kind", [TableDataset, NpzDataset])
def test_an_unknown_option_is_named(kind: Any) -> None:
    with pytest.raises(TypeError, match=rf"undirectd is no option of {kind.__name__}; did you mean undirected\?"):
        kind("file.npz", undirectd=True)
