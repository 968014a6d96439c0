from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loader.datasets import DatasetError, HeteroNpzDataset, NpzDataset, TableDataset
from loader.datasets.node_dataset import check_splits
from loader.datasets.splits import ids_of, per_class_split, random_split, stratified_split

FRACTIONS = st.tuples(st.floats(0.1, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)).map(
    lambda f: tuple(x / sum(f) for x in f[:3])
)


@given(st.integers(20, 300), FRACTIONS, st.integers(0, 2**32))
def test_random_splits_are_disjoint_with_the_asked_sizes(n, fractions, seed):
    splits = random_split(n, fractions, seed)
    check_splits(splits, n, name="drawn")
    for ids, fraction in zip(splits.values(), fractions, strict=True):
        assert abs(ids.numel() - fraction * n) <= 1
    again = random_split(n, fractions, seed)
    assert all(torch.equal(splits[s], again[s]) for s in splits)


@given(st.integers(1, 400), st.integers(0, 1000))
def test_fractions_that_sum_to_one_lose_no_node(n, seed):
    splits = random_split(n, (0.6, 0.2, 0.2), seed)
    assert sorted(torch.cat(list(splits.values())).tolist()) == list(range(n))


@given(st.lists(st.integers(-1, 4), min_size=30, max_size=200), st.integers(0, 1000))
def test_stratified_split_has_every_class_in_its_share(labels, seed):
    labels = torch.tensor([*labels, 0, 0, 0])
    splits = stratified_split(labels, (0.6, 0.2, 0.2), seed)
    check_splits(splits, labels.numel(), name="drawn")
    assert sum(ids.numel() for ids in splits.values()) == int((labels >= 0).sum())
    for ids, fraction in zip(splits.values(), (0.6, 0.2, 0.2), strict=True):
        assert (labels[ids] >= 0).all()
        for c in range(5):
            assert abs(int((labels[ids] == c).sum()) - fraction * int((labels == c).sum())) <= 1


def test_per_class_split_follows_the_protocol():
    labels = torch.tensor([0] * 60 + [1] * 55 + [-1] * 5 + [2] * 51)
    splits = per_class_split(labels, 20, 30, seed=3)
    check_splits(splits, labels.numel(), name="drawn")
    assert torch.bincount(labels[splits["train"]]).tolist() == [20, 20, 20]
    assert torch.bincount(labels[splits["val"]]).tolist() == [30, 30, 30]
    assert torch.bincount(labels[splits["test"]]).tolist() == [10, 5, 1]
    other = per_class_split(labels, 20, 30, seed=4)
    assert not torch.equal(splits["train"], other["train"])


def test_a_class_smaller_than_its_split_is_named():
    with pytest.raises(DatasetError, match=r"class 1 has 3 nodes, the split takes 2 \+ 2 of every class"):
        per_class_split(torch.tensor([0, 0, 0, 0, 1, 1, 1]), 2, 2, seed=0)


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.5, 0.5, 0.1), (-0.1, 0.5, 0.5)])
def test_impossible_fractions_are_refused(fractions):
    with pytest.raises(ValueError, match="give three"):
        random_split(10, fractions, 0)


def test_ids_may_be_ids_or_a_mask():
    assert ids_of(np.array([3, 1], dtype=np.uint8), 4, "train").tolist() == [1, 3]
    assert ids_of(np.array([False, True, False, True]), 4, "train").tolist() == [1, 3]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([True, False]), "train is a mask of 2 entries; the graph has 4 nodes"),
        (np.array([0.5]), "train has dtype float64"),
        (np.array([[1]]), r"train has shape \[1, 1\]"),
        (np.array([2, 0, 2]), "train holds node 2 twice"),
    ],
)
def test_ids_of_no_node_are_refused(array, message):
    with pytest.raises(DatasetError, match=message):
        ids_of(array, 4, "train")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (NpzDataset, {"path": "g.npz"}),
        (HeteroNpzDataset, {"path": "g.npz", "split_times": [1, 2]}),
        (TableDataset, {"edges": "e.csv", "nodes": "n.csv", "label": "y", "split": "part"}),
    ],
)
def test_seeds_that_draw_nothing_are_refused(kind, options, tmp_path):
    kind(**options, split_seed=0, cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"split_seed is 3, but no split is drawn; give .*split.*, or leave it out"):
        kind(**options, split_seed=3, cache_dir=tmp_path)
