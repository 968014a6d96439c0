"""Cora and CiteSeer: their public splits, and splits drawn by the protocol of Shchur et al."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from loader.datasets import PlanetoidDataset

# name: folder, nodes, classes, sizes of the public split, nodes of the largest component
SIZES = {
    "cora": ("planetoid/Cora", 2708, 7, [140, 500, 1000], 2485),
    "citeseer": ("planetoid/CiteSeer", 3327, 6, [120, 500, 1000], 2120),
}


@pytest.mark.parametrize("name", SIZES)
def test_the_public_split_is_the_default(shared_data: Any, tmp_path: Path, name: str) -> None:
    folder, nodes, classes, sizes, _ = SIZES[name]
    data = PlanetoidDataset(name, data_dir=shared_data(folder), cache_dir=tmp_path).load()
    assert (data.num_nodes, data.num_classes) == (nodes, classes)
    assert [ids.numel() for ids in data.splits.values()] == sizes


@pytest.mark.parametrize("name", SIZES)
def test_a_split_is_drawn_on_the_largest_component(shared_data: Any, tmp_path: Path, name: str) -> None:
    folder, _, classes, _, nodes = SIZES[name]
    options: dict[str, Any] = {"data_dir": shared_data(folder), "cache_dir": tmp_path, "largest_component": True}
    loads = [PlanetoidDataset(name, num_train=20, split_seed=seed, **options).load() for seed in (0, 1)]
    for data in loads:
        assert data.num_nodes == nodes
        assert torch.bincount(data.labels[data.splits["train"]]).tolist() == [20] * classes
        assert torch.bincount(data.labels[data.splits["val"]]).tolist() == [30] * classes
        assert sum(ids.numel() for ids in data.splits.values()) == nodes
    assert not torch.equal(loads[0].splits["train"], loads[1].splits["train"])
    assert len(list(tmp_path.iterdir())) == 1  # another split needs no conversion


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "pubmed"}, "name is 'pubmed'; it must be one of cora, citeseer"),
        ({"num_train": 0}, "num_train is 0; it must be at least 1"),
        ({"num_train": 20, "num_val": -1}, "num_val is -1"),
        ({"num_val": 50}, "num_val is 50, but no split is drawn; give num_train, or leave it out"),
        ({"split_seed": -1}, "split_seed is -1"),
        ({"split_seed": 3}, "split_seed is 3, but no split is drawn; give num_train, or leave it out"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlanetoidDataset(**{"name": "cora", **options})
