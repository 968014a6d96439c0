"""What a source has and nobody reads is named in one line."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from loader.datasets import MatDataset, NpzDataset
from loader.datasets.unread_parts import tell_data, tell_unread


@pytest.fixture(autouse=True)
def warnings_only(caplog):
    caplog.set_level(logging.WARNING)


def test_arrays_that_nobody_reads_are_named(npz_file, tmp_path, caplog):
    path = npz_file(edge_attr=np.ones((7, 2)), adj=np.eye(6), num_nodes=np.array(6), src=np.arange(7))
    NpzDataset(path, data_dir=tmp_path).load()
    assert caplog.messages == [
        f"mine: {path} has adj, edge_attr, src, which nothing reads; what is read: edge_index, features, labels, "
        "num_nodes, test, train, val"
    ]


def test_a_file_read_whole_says_nothing(npz_file, tmp_path, caplog):
    NpzDataset(npz_file(edge_times=np.arange(7), num_classes=np.array(3)), data_dir=tmp_path).load()
    assert caplog.messages == []


def test_matrices_of_a_matlab_file_are_named(tmp_path, caplog):
    scipy_io = pytest.importorskip("scipy.io")
    folder = tmp_path / "ppi"
    folder.mkdir()
    content = {"network": np.roll(np.eye(10), 1, 0), "group": np.eye(10)[:, :3], "attributes": np.ones((10, 4))}
    scipy_io.savemat(folder / "Homo_sapiens.mat", content)
    MatDataset("ppi", data_dir=tmp_path).load()
    (line,) = caplog.messages
    assert "has attributes, which nothing reads; what is read: group, network" in line


def test_attributes_of_data_are_named(caplog):
    tell_data("cora", SimpleNamespace(keys=lambda: ["x", "y", "edge_index", "edge_attr", "pos"]))
    tell_unread("arxiv", "the graph of ogb", ["edge_index"], ["edge_index", "node_year"])
    assert caplog.messages == [
        "cora: the Data of torch_geometric has edge_attr, pos, which nothing reads; what is read: edge_index, x, y"
    ]
