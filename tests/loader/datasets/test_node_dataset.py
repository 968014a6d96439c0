from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from loader.datasets import DatasetError, NodeDataset
from loader.graph import Graph


def make(**changes: Any) -> NodeDataset:
    parts: dict[str, Any] = {
        "name": "toy",
        "graph": Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 2]), 5),
        "features": torch.zeros(5, 3),
        "labels": torch.tensor([0, 1, 0, 1, -1]),
        "splits": {"train": torch.tensor([0, 1]), "val": torch.tensor([2]), "test": torch.tensor([3])},
        "num_classes": 2,
    }
    return NodeDataset(**{**parts, **changes})


def splits(train: list[int], val: list[int], test: list[int]) -> dict[str, torch.Tensor]:
    ids = {"train": train, "val": val, "test": test}
    return {split: torch.tensor(members, dtype=torch.int64) for split, members in ids.items()}


def test_sizes_come_from_the_arrays():
    data = make()
    assert (data.num_nodes, data.num_features, data.multilabel) == (5, 3, False)
    assert "train=2, val=1, test=1" in repr(data)


def test_multilabel_labels_are_rows():
    assert make(labels=torch.zeros(5, 2), multilabel=True).multilabel


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.zeros((5, 3))}, r"features is an ndarray; it must be a torch tensor: torch\.as_tensor"),
        ({"features": torch.zeros(5, 3).to_sparse()}, "features has the layout torch.sparse_coo; it must be dense"),
        ({"labels": torch.zeros(5, 1, dtype=torch.int64)}, r"of shape \[5, 1\].*: labels\.view\(-1\)\.long\(\)"),
        ({"labels": torch.full((5, 2), 3.0), "multilabel": True}, "labels hold 3.0; each must be 0 or 1"),
        ({"labels": torch.full((5, 2), torch.nan), "multilabel": True}, "labels hold nan; each must be 0 or 1"),
        ({"num_classes": 4.7}, r"num_classes is 4\.7; it must be an integer of at least 0"),
        ({"num_classes": 10**30}, "num_classes is 10+; it must be an integer of at least 0 and below"),
        ({"splits": [1, 2]}, r"splits is \[1, 2\]; it must be a dict of train, val, test"),
        ({"num_classes": -2}, "num_classes is -2; it must be an integer of at least 0"),
        ({"splits": {"train": [0], "val": [1], "test": [2]}}, "split train is a list; it must be a torch tensor"),
        ({"features": torch.zeros(4, 3)}, r"must be float32 \[5, num_features\]"),
        ({"features": torch.zeros(5, 3, dtype=torch.float64)}, "features are torch.float64"),
        ({"labels": torch.zeros(5)}, r"labels are torch.float32 of shape \[5\]"),
        ({"labels": torch.zeros(5, dtype=torch.int64), "multilabel": True}, r"must be torch.float32 \[5, 2\]"),
        ({"labels": torch.tensor([0, 1, 7, 1, 0])}, "node 2 of split val has label 7; valid labels are 0 to 1"),
        ({"splits": splits([0, 4], [2], [3])}, r"label -1; .* without a label \(a negative number, or NaN\)"),
        ({"splits": splits([0, 5], [2], [3])}, "split train holds node 5; valid ids are 0 to 4"),
        ({"splits": splits([0], [-1], [3])}, "split val holds node -1"),
        ({"splits": splits([0, 0], [2], [3])}, "split train holds node 0 twice"),
        ({"splits": splits([1, 0], [2], [3])}, "holds node 0 after node 1"),
        ({"splits": splits([0, 1], [2], [1])}, "node 1 is in the splits train and test"),
        ({"splits": splits([], [2], [1])}, "training split is empty"),
        ({"splits": {"train": torch.tensor([0])}}, "the splits are"),
    ],
)
def test_contradictions_are_named(changes, message):
    with pytest.raises(DatasetError, match=message):
        make(**changes)


def test_a_word_is_no_flag():
    with pytest.raises(TypeError, match="multilabel is 'no'; it must be True or False"):
        make(multilabel="no")
