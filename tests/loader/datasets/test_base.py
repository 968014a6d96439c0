from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch

from loader.datasets import CacheError, DatasetError, EdgeList, EdgeListDataset


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


def test_rebuild_is_the_way_out_of_a_damaged_cache(toy, tmp_path):
    toy().load()
    (features,) = tmp_path.glob("cache/*/features.npy")
    features.write_bytes(features.read_bytes()[:-4])
    with pytest.raises(CacheError, match=r"features\.npy cannot be used.*dataset\.rebuild=true"):
        toy().load()
    assert toy(rebuild=True).load().num_nodes == 5


def test_the_largest_component_keeps_features_labels_and_splits_together(toy):
    dataset = toy(largest_component=True)
    data = dataset.load()
    assert data.features.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert data.labels.tolist() == [0, 1, -1]
    assert [ids.tolist() for ids in data.splits.values()] == [[0], [1], []]


@pytest.mark.parametrize("component", [False, True])
def test_the_vertex_with_a_bad_feature_is_named(toy, component):
    dataset = toy(largest_component=component)
    features = np.zeros((5, 2))
    features[4 if not component else 2, 1] = np.inf
    dataset.found = {"features": features}
    with pytest.raises(DatasetError, match=f"feature 1 of vertex {2 if component else 4} is inf"):
        dataset.load()


def test_splits_are_checked_before_anything_is_written(toy, tmp_path):
    dataset = toy()
    dataset.found = {"splits": {"train": torch.tensor([2]), "val": torch.tensor([1]), "test": torch.tensor([3])}}
    with pytest.raises(DatasetError, match="vertex 2 of split train has label -1"):
        dataset.load()
    assert not any((tmp_path / "cache").iterdir())


def test_unknown_options_are_refused(toy):
    with pytest.raises(ValueError, match="self_loops is 'both'"):
        toy(self_loops="both")
