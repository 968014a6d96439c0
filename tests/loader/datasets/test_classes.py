"""One class is nothing to learn, and a conversion says which classes it found."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from small_datamodule import make_datamodule, make_dataset

from loader.datasets import DatasetError, NodeDataset, NpzDataset
from loader.datasets.classes import check_classes, describe_classes


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([-1, 1, 1, -1], "only class 1 occurs among the labels, and 2 of 4 have no label .a negative number, or NaN."),
        ([5, 5], "only class 5 occurs among the labels; at least 2 classes are needed"),
        ([-1, -1], "no class occurs among the labels, and 2 of 2 have no label"),
        ([], "no class occurs among the labels; at least 2"),
    ],
)
def test_fewer_than_two_classes_are_refused(labels, said):
    with pytest.raises(DatasetError, match=said):
        check_classes(torch.tensor(labels, dtype=torch.int64), "mine")
    check_classes(torch.tensor([*labels, 7, 9]), "mine")


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.float32])
def test_plus_and_minus_one_are_no_classes(npz_file, tmp_path, dtype):
    """A split that is drawn has only nodes with a label, so all of them had the one class that was left."""
    labels = np.array([-1, 1, -1, 1, 1, -1], dtype=dtype)
    path = npz_file(labels=labels, train=None, val=None, test=None)
    with pytest.raises(DatasetError, match=r"only class 1 occurs .* 3 of 6 .* so that -1 and 1 become 0 and 1"):
        NpzDataset(path, data_dir=tmp_path, split=[0.6, 0.2, 0.2]).load()


@pytest.mark.parametrize("task", ["setup", "prepare_data"])
def test_tensors_of_one_class_are_refused(task):
    data = make_dataset()
    one = NodeDataset("toy", data.graph, data.features, torch.where(data.labels > 0, 3, -1), OF_THREE, num_classes=4)
    with pytest.raises(DatasetError, match="only class 3 occurs among the labels"):
        getattr(make_datamodule(dataset=one), task)()


OF_THREE = {
    "train": torch.arange(1, 4),
    "val": torch.arange(5, 8),
    "test": torch.arange(9, 12),
}


def test_several_negative_numbers_are_refused(npz_file, tmp_path):
    path = npz_file(
        labels=np.array([-2, -1, 0, 1, 2, 0]), train=np.array([2, 3]), val=np.array([4]), test=np.array([5])
    )
    with pytest.raises(DatasetError, match="labels hold the negative numbers -2, -1; a negative number is no label"):
        NpzDataset(path, data_dir=tmp_path).load()


def test_classes_that_nobody_learns_are_named(caplog):
    data = make_dataset()
    labels = data.labels.clone()
    labels[150] = 5
    rare = NodeDataset("toy", data.graph, data.features, labels, data.splits, num_classes=6)
    with caplog.at_level(logging.WARNING):
        make_datamodule(dataset=data).setup()
        assert caplog.messages == []
        make_datamodule(dataset=rare).setup()
    assert caplog.messages == ["toy: class 5 of split test has no node in the train split, so no model learns it"]


@pytest.mark.parametrize(
    ("labels", "num_classes", "said"),
    [
        ([0, 1, 1], 2, "2 classes"),
        ([0, -1, 3, -1], 4, "4 classes (no node has 1, 2); 2 of 4 nodes have no label"),
        ([-1, -1], 0, "no labels"),
        ([0, 89], 90, "90 classes (no node has 1, 2, 3, 4, 5 and 83 more)"),
        ([[1, 1], [0, 1], [0, 0]], 2, "2 labels, several per node; 1 of 3 nodes have none of them"),
        (
            [[1, 0], [0, 1]],
            2,
            "2 labels, several per node: each has exactly one, so labels.argmax(1) would make them classes",
        ),
    ],
)
def test_what_was_found_is_described(labels, num_classes, said):
    assert describe_classes(np.array(labels), num_classes, counted=False) == said


def test_a_graph_without_labels_gets_no_advice():
    assert describe_classes(np.array([-1, -1]), 0, counted=True) == "no labels"


def test_the_line_of_a_conversion_says_the_classes(npz_file, tmp_path, caplog):
    """Numbers to predict, if they are whole, are not told from classes; the user is."""
    caplog.set_level(logging.INFO)
    path = npz_file(labels=np.array([20.0, 31, 89, 20, 31, 89]))
    NpzDataset(path, data_dir=tmp_path).load()
    (line,) = [line for line in caplog.messages if "converted in" in line]
    assert "; 90 classes (no node has 0, 1, 2, 3, 4 and 82 more); if these are numbers to predict" in line
    assert "give them to NodeLoader as floats, in a loop of your own" in line


def test_a_given_number_of_classes_is_believed(npz_file, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    NpzDataset(npz_file(num_classes=np.array(3)), data_dir=tmp_path).load()
    (line,) = [line for line in caplog.messages if "converted in" in line]
    assert line.endswith("; 3 classes")


@pytest.mark.parametrize("value", [0, 1])
def test_the_same_labels_of_all_are_refused(npz_file, tmp_path, value):
    """Whoever says 1 of everything would be right."""
    labels = np.full((6, 2), value)
    with pytest.raises(DatasetError, match="all 6 nodes have the same labels, so whatever model is right"):
        NpzDataset(npz_file(labels=labels), data_dir=tmp_path).load()
    labels[3, 1] = 1 - value
    assert NpzDataset(npz_file(labels=labels), data_dir=tmp_path).load().multilabel


def test_the_same_labels_of_all_splits_are_refused():
    data = make_dataset()
    labels = torch.zeros(data.num_nodes, 2)
    labels[0] = 1  # of no split
    same = NodeDataset("toy", data.graph, data.features, labels, OF_THREE, num_classes=2, multilabel=True)
    with pytest.raises(DatasetError, match="all 9 nodes have the same labels"):
        make_datamodule(dataset=same).setup()
