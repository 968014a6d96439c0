"""dblp and imdb as torch_geometric reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from loader.datasets import HeteroPyGDataset


def test_imdb_has_the_published_sizes(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    root = shared_data("hetero/imdb") / "hetero"
    data = HeteroPyGDataset("imdb", data_dir=root, cache_dir=tmp_path).load()
    sizes = {name: len(ids) for name, ids in data.graph.node_types.items()}
    assert sizes == {"movie": 4278, "director": 2081, "actor": 5257}
    assert data.num_features == dict.fromkeys(sizes, 3066)
    assert (data.target, data.num_classes, data.graph.num_edges) == ("movie", 3, 34_212)
    assert [ids.numel() for ids in data.splits.values()] == [400, 400, 3478]


def test_dblp_has_the_published_sizes(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    root = shared_data("hetero/dblp") / "hetero"
    data = HeteroPyGDataset("dblp", data_dir=root, cache_dir=tmp_path).load()
    sizes = {name: len(ids) for name, ids in data.graph.node_types.items()}
    assert sizes == {"author": 4057, "paper": 14328, "term": 7723, "conference": 20}
    assert data.graph.lists.num_dst == 54_784
    assert data.num_features == {"author": 334, "paper": 4231, "term": 50, "conference": 20}
    assert torch.equal(data.features["conference"], torch.eye(20))  # torch_geometric's has none
    assert (data.target, data.num_classes, data.graph.num_edges) == ("author", 4, 239_566)
    assert torch.equal(data.labels, torch.from_numpy(np.load(root / "dblp" / "raw" / "labels.npy")).long())


def test_a_small_imdb_is_read_as_written(tmp_path: Path) -> None:
    raw = tmp_path / "imdb" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    sizes = (5, 2, 3)  # movies, directors, actors
    for i, size in enumerate(sizes):
        sp.save_npz(raw / f"features_{i}.npz", sp.csr_matrix(rng.random((size, 4))))
    matrix = np.zeros((10, 10))
    for movie in range(5):
        for other in (5 + movie % 2, 7 + movie % 3):
            matrix[movie, other] = matrix[other, movie] = 1
    sp.save_npz(raw / "adjM.npz", sp.csr_matrix(matrix))
    np.save(raw / "labels.npy", np.array([0, 1, 2, 0, 1]))
    np.savez(raw / "train_val_test_idx.npz", train_idx=[0, 1], val_idx=[2], test_idx=[3, 4])
    data = HeteroPyGDataset("imdb", data_dir=tmp_path, cache_dir=tmp_path / "cache").load()
    assert data.graph.edge_types == (
        ("movie", "to", "director"),
        ("movie", "to", "actor"),
        ("director", "to", "movie"),
        ("actor", "to", "movie"),
    )
    assert data.graph.relation(("movie", "to", "director")).indices.tolist() == [0, 2, 4, 1, 3]
    assert data.labels.tolist() == [0, 1, 2, 0, 1]
    assert [ids.tolist() for ids in data.splits.values()] == [[0, 1], [2], [3, 4]]
    assert {name: list(table.shape) for name, table in data.features.items()} == {
        "movie": [5, 4], "director": [2, 4], "actor": [3, 4],
    }  # fmt: skip


def test_conferences_of_a_small_dblp_are_one_hot(tmp_path: Path) -> None:
    raw = tmp_path / "dblp" / "raw"
    raw.mkdir(parents=True)
    sizes = (3, 4, 2, 3)  # authors, papers, terms, conferences
    for i, size in enumerate(sizes[:2]):
        sp.save_npz(raw / f"features_{i}.npz", sp.csr_matrix(np.ones((size, 5))))
    np.save(raw / "features_2.npy", np.ones((2, 5)))
    np.save(raw / "node_types.npy", np.repeat(np.arange(4), sizes))
    matrix = np.zeros((12, 12))
    for paper in range(4):
        for other in (paper % 3, 7 + paper % 2, 9 + paper % 3):
            matrix[3 + paper, other] = matrix[other, 3 + paper] = 1
    sp.save_npz(raw / "adjM.npz", sp.csr_matrix(matrix))
    np.save(raw / "labels.npy", np.array([0, 1, 2]))
    np.savez(raw / "train_val_test_idx.npz", train_idx=[0], val_idx=[1], test_idx=[2])
    dataset = HeteroPyGDataset("dblp", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    for data in (dataset.load(), dataset.load()):  # converted, and read again
        assert data.num_features == {"author": 5, "paper": 5, "term": 5, "conference": 3}
        assert torch.equal(data.features["conference"], torch.eye(3))


def test_other_names_are_refused() -> None:
    with pytest.raises(ValueError, match="name is 'mag'; it must be one of dblp, imdb"):
        HeteroPyGDataset("mag")
