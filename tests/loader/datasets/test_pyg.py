from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from loader.datasets import DatasetError, PyGDataset, ShchurDataset

# name: folder, nodes, directed edges, features, classes; then nodes and edges of the largest component
SHCHUR = {
    "coauthor-physics": ("coauthor/Physics", 34_493, 495_924, 8_415, 5, 34_493, 495_924),
    "coauthor-cs": ("coauthor/CS", 18_333, 163_788, 6_805, 15, 18_333, 163_788),
    "amazon-computers": ("amazon/Computers", 13_752, 491_722, 767, 10, 13_381, 491_556),
    "amazon-photo": ("amazon/Photo", 7_650, 238_162, 745, 8, 7_487, 238_086),
}


@pytest.mark.parametrize("name", ["amazon-photo", "amazon-computers", "coauthor-cs", "coauthor-physics"])
def test_the_graphs_of_shchur_are_as_published(shared_data, tmp_path, name):
    folder, _, _, num_features, num_classes, num_nodes, num_edges = SHCHUR[name]
    data = ShchurDataset(name, data_dir=shared_data(folder), cache_dir=tmp_path).load()
    assert (data.num_nodes, data.graph.num_edges) == (num_nodes, num_edges)
    assert (data.num_features, data.num_classes) == (num_features, num_classes)
    assert torch.bincount(data.labels[data.splits["train"]]).tolist() == [20] * num_classes
    assert torch.bincount(data.labels[data.splits["val"]]).tolist() == [30] * num_classes
    assert sum(ids.numel() for ids in data.splits.values()) == num_nodes
    sums = data.features[:500].sum(1)
    assert ((sums - 1).abs() < 1e-4).logical_or(sums == 0).all()


def test_the_whole_graph_is_read_on_request(shared_data, tmp_path):
    folder, num_nodes, num_edges = SHCHUR["amazon-photo"][:3]
    options = {"largest_component": False, "normalize_features": False}
    data = ShchurDataset("amazon-photo", data_dir=shared_data(folder), cache_dir=tmp_path, **options).load()
    assert (data.num_nodes, data.graph.num_edges) == (num_nodes, num_edges)
    assert set(data.features.unique().tolist()) == {0.0, 1.0}


def test_a_seed_of_the_split_needs_no_conversion(shared_data, tmp_path):
    root = shared_data("amazon/Photo")
    loads = [ShchurDataset("amazon-photo", data_dir=root, cache_dir=tmp_path, split_seed=s).load() for s in (0, 1)]
    assert not torch.equal(loads[0].splits["train"], loads[1].splits["train"])
    assert len(list(tmp_path.iterdir())) == 1


def write_saint(root, labels):
    """GraphSAINT's layout with 5 nodes in a ring."""
    raw = root / "raw"
    raw.mkdir(parents=True)
    ring = np.arange(5)
    adj = sp.csr_matrix((np.ones(5), (ring, (ring + 1) % 5)), shape=(5, 5))
    np.savez(raw / "adj_full.npz", data=adj.data, indices=adj.indices, indptr=adj.indptr, shape=adj.shape)
    np.save(raw / "feats.npy", np.arange(10.0).reshape(5, 2))
    (raw / "class_map.json").write_text(json.dumps({str(v): label for v, label in enumerate(labels)}))
    (raw / "role.json").write_text(json.dumps({"tr": [0, 3], "va": [1], "te": [2, 4]}))


def test_flickr_is_read_in_its_layout(tmp_path):
    write_saint(tmp_path / "flickr", [0, 6, 1, 2, 3])
    data = PyGDataset("flickr", data_dir=tmp_path).load()
    assert data.graph.in_degrees().tolist() == [2] * 5
    assert (data.labels.tolist(), data.num_classes) == ([0, 6, 1, 2, 3], 7)
    assert [ids.tolist() for ids in data.splits.values()] == [[0, 3], [1], [2, 4]]
    assert not (tmp_path / "flickr" / "processed").exists()


def test_yelp_has_several_labels_per_node(tmp_path):
    labels = (np.arange(500).reshape(5, 100) % 7 == 0).astype(int)
    write_saint(tmp_path / "yelp", labels.tolist())
    data = PyGDataset("yelp", data_dir=tmp_path).load()
    assert (data.multilabel, data.num_classes) == (True, 100)
    assert torch.equal(data.labels, torch.from_numpy(labels).float())


def test_reddit_is_read_in_its_layout(tmp_path):
    raw = tmp_path / "reddit" / "raw"
    raw.mkdir(parents=True)
    np.savez(
        raw / "reddit_data.npz", feature=np.ones((3, 2)), label=np.array([0, 40, 1]), node_types=np.array([1, 2, 3])
    )
    sp.save_npz(raw / "reddit_graph.npz", sp.coo_matrix((np.ones(2), ([0, 1], [1, 2])), shape=(3, 3)))
    data = PyGDataset("reddit", data_dir=tmp_path).load()
    assert data.graph.in_degrees().tolist() == [1, 2, 1]
    assert [ids.tolist() for ids in data.splits.values()] == [[0], [1], [2]]
    assert data.num_classes == 41


def test_the_shared_flickr_lacks_its_features(shared_data, tmp_path):
    with pytest.raises(DatasetError, match=r"flickr is not complete in .*: raw/feats\.npy missing \(1 of 4 files\)"):
        PyGDataset("flickr", data_dir=shared_data("flickr/raw"), cache_dir=tmp_path).load()


@pytest.mark.parametrize("kind", [PyGDataset, ShchurDataset])
def test_unknown_names_are_refused(kind):
    with pytest.raises(ValueError, match="name is 'cora'; it must be one of "):
        kind("cora")


def test_weights_are_found_by_their_name(tmp_path, monkeypatch):
    from torch_geometric import datasets

    class Weighted(datasets.Flickr):
        def __getitem__(self, at):
            data = super().__getitem__(at)
            data.edge_weight = data.edge_index[0] + 0.5
            return data

    monkeypatch.setattr(datasets, "Flickr", Weighted)
    write_saint(tmp_path / "flickr", [0, 6, 1, 2, 3])
    graph = PyGDataset("flickr", data_dir=tmp_path, undirected=False).load().graph
    assert graph.edge_weights.tolist() == (graph.indices + 0.5).tolist()
