from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from loader.datasets import NodeDataset, edge_sorter
from models.synthetic import LargeSyntheticDataset
from models.synthetic import large as synthetic_large

SHAPE = {"num_nodes": 4000, "num_edges": 30_000, "num_features": 16, "num_classes": 8, "seed": 5}


@pytest.fixture
def load(tmp_path):
    def run(**options) -> NodeDataset:
        return LargeSyntheticDataset(data_dir=tmp_path, **{**SHAPE, **options}).load()

    return run


def edges(data: NodeDataset) -> tuple[torch.Tensor, torch.Tensor]:
    dst = torch.repeat_interleave(torch.arange(data.num_nodes), data.graph.in_degrees().long())
    return data.graph.indices.long(), dst


def digest(data: NodeDataset) -> str:
    arrays = [data.graph.indptr, data.graph.indices, data.features, data.labels, *data.splits.values()]
    return hashlib.sha256(b"".join(array.numpy().tobytes() for array in arrays)).hexdigest()


def test_threads_and_files_change_no_byte(load, monkeypatch):
    monkeypatch.setattr(synthetic_large, "_EDGES", 1 << 10)  # 30 parts
    monkeypatch.setattr(synthetic_large, "_FEATURE_BYTES", 1 << 14)
    found = set()
    for threads, keys in ((1, 1 << 24), (2, 1 << 24), (5, 2000)):
        monkeypatch.setattr(synthetic_large, "sorting_threads", lambda threads=threads: threads)
        monkeypatch.setattr(edge_sorter.EdgeSorter.__init__, "__kwdefaults__", {"file_keys": keys})
        found.add(digest(load(rebuild=True)))
    assert len(found) == 1


def test_undirected_graphs_are_simple_and_symmetric(load):
    data = load()
    src, dst = edges(data)
    keys = dst * data.num_nodes + src
    assert (keys.diff() > 0).all()
    assert torch.equal((src * data.num_nodes + dst).sort()[0], keys)
    assert not (src == dst).any()
    assert 0.9 * 60_000 < data.graph.num_edges <= 60_000


def test_all_drawn_edges_are_there_if_kept(load):
    data = load(undirected=False, self_loops="keep", parallel_edges="keep")
    assert data.graph.num_edges == 30_000
    src, dst = edges(data)
    together = load(self_loops="keep", parallel_edges="keep")
    loops = int((src == dst).sum())
    assert together.graph.num_edges == 60_000 - loops
    # A coin decides the direction, so a node has as many edges in as out, but for chance (5 standard deviations).
    difference = data.graph.in_degrees() - torch.bincount(src, minlength=data.num_nodes)
    assert (difference.abs() <= 5 * together.graph.in_degrees().float().sqrt() + 1).all()


def test_neighbors_share_their_class_as_often_as_asked(load):
    src, dst = edges(data := load(label_noise=0.0, homophily=0.7, parallel_edges="keep"))
    assert abs((data.labels[src] == data.labels[dst]).float().mean() - 0.7) < 0.02


def test_features_lie_around_the_centre_of_their_class(load):
    data = load(label_noise=0.0, feature_noise=0.5)
    centres = torch.stack([data.features[data.labels == c].mean(0) for c in range(8)])
    assert (centres.norm(dim=1) - 1).abs().max() < 0.15
    rest = data.features - centres[data.labels]
    assert abs(rest.std() - 0.5) < 0.01
    assert abs(np.corrcoef(rest[:2000].flatten(), rest[2000:].flatten())[0, 1]) < 0.02  # parts differ


def test_labels_are_noisy_as_asked(load):
    clean, noisy = load(label_noise=0.0).labels, load(label_noise=0.4).labels
    assert 0.3 < (clean != noisy).float().mean() < 0.4


def test_the_seed_decides_the_graph(load):
    assert digest(load()) == digest(load(rebuild=True)) != digest(load(seed=6))


def test_other_features_leave_the_edges_as_they_are(load):
    assert torch.equal(load().graph.indices, load(num_features=7, feature_noise=2.0).graph.indices)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("num_classes", 1, "num_classes is 1; it must be at least 2"),
        ("num_nodes", 2**31, "num_nodes is 2147483648"),
        ("num_edges", -1, "num_edges is -1"),
        ("self_loops", "some", "self_loops is 'some'; it must be one of"),
        ("label_noise", 1.5, "label_noise is 1.5; it must be in 0 to 1"),
        ("homophily", float("nan"), "homophily is nan"),
    ],
)
def test_impossible_options_are_refused(load, option, value, message):
    with pytest.raises(ValueError, match=message):
        load(**{option: value})
