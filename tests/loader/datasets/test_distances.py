"""Distances as features, and transforms of datasets in general."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reference_traverse as reference
import torch

from loader.datasets import DatasetError, DistanceFeatures, NodeDataset, NpzDataset


def load(path: Path, transform: Any = None) -> NodeDataset:
    return NpzDataset(path, cache_dir=path.parent / "cache", transform=transform).load()


def test_columns_are_distances_from_anchors(npz_file: Callable[..., Path]) -> None:
    plain, data = load(npz_file()), load(npz_file(), DistanceFeatures(num_anchors=3))
    assert data.features.shape == (6, 5)
    assert torch.equal(data.features[:, :2], plain.features)
    expected = {}
    for anchor in plain.splits["train"].tolist():
        distances = reference.distances(plain.graph, [anchor])
        expected[tuple(0.0 if d < 0 else 1 / (d + 1) for d in distances)] = anchor
    columns = {tuple(column) for column in data.features[:, 2:].T.tolist()}
    assert columns == {tuple(torch.tensor(column).tolist()) for column in expected}


def test_seeds_draw_other_anchors(npz_file: Callable[..., Path]) -> None:
    drawn = {tuple(load(npz_file(), DistanceFeatures(1, seed)).features[:, 2].tolist()) for seed in range(12)}
    assert len(drawn) == 3
    again = [load(npz_file(), DistanceFeatures(2, 2**40)).features for _ in range(2)]
    assert torch.equal(*again)


def test_too_many_anchors_are_refused(npz_file: Callable[..., Path]) -> None:
    with pytest.raises(DatasetError, match="the training split has 3 nodes; num_anchors is 4"):
        load(npz_file(), DistanceFeatures(num_anchors=4))
    with pytest.raises(ValueError, match="num_anchors is 0"):
        DistanceFeatures(num_anchors=0)


def test_transforms_follow_each_other(npz_file: Callable[..., Path]) -> None:
    data = load(npz_file(), [DistanceFeatures(1), DistanceFeatures(2)])
    assert data.features.shape == (6, 5)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("distances", "transform is 'distances'; it must be a function of a NodeDataset, or a list of them"),
        ([DistanceFeatures(), 3], "transform is 3; it must be a function"),
    ],
)
def test_what_is_no_transform_is_refused(npz_file: Callable[..., Path], transform: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        load(npz_file(), transform)


def test_a_transform_returns_a_dataset(npz_file: Callable[..., Path]) -> None:
    with pytest.raises(TypeError, match="a transform of mine returned a Tensor; it must return a NodeDataset"):
        load(npz_file(), lambda data: data.features)


def test_only_a_dataset_gets_distances() -> None:
    with pytest.raises(TypeError, match=r"data is a Tensor; it must be a loader\.datasets\.NodeDataset"):
        DistanceFeatures(2)(torch.zeros(3, 2))  # type: ignore[arg-type]


def test_torch_default_type_changes_no_distance(npz_file: Callable[..., Path]) -> None:
    wanted = load(npz_file(), DistanceFeatures(2)).features
    torch.set_default_dtype(torch.float64)
    try:
        found = load(npz_file(), DistanceFeatures(2)).features
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, wanted)
