from __future__ import annotations

import pytest
import torch

from loader.datasets import NodeDataset
from models.synthetic import SyntheticDataset


@pytest.fixture
def load(tmp_path):
    def run(**options) -> NodeDataset:
        return SyntheticDataset(data_dir=tmp_path, **{"num_nodes": 3000, "seed": 5, **options}).load()

    return run


def edges(data: NodeDataset) -> tuple[torch.Tensor, torch.Tensor]:
    dst = torch.repeat_interleave(torch.arange(data.num_nodes), data.graph.in_degrees().long())
    return data.graph.indices.long(), dst


def test_graphs_are_simple_symmetric_and_of_asked_size(load):
    data = load(mean_degree=12.0, max_degree=150)
    src, dst = edges(data)
    n = data.num_nodes
    assert (n, data.graph.num_edges) == (3000, 36_000)
    keys = dst * n + src
    assert (keys.diff() > 0).all()  # distinct, neighbor lists ascending
    assert torch.equal((src * n + dst).sort()[0], keys)
    assert not (src == dst).any()
    assert int(data.graph.in_degrees().max()) == 150


def test_node_numbers_tell_nothing_of_class_or_degree(load):
    data = load()
    half = data.num_nodes // 2
    degrees = data.graph.in_degrees().float()
    assert abs(degrees[:half].mean() / degrees[half:].mean() - 1) < 0.15
    for c in range(data.num_classes):
        share = (data.labels[:half] == c).sum() / (data.labels == c).sum()
        assert abs(share - 0.5) < 0.12


def test_neighbors_share_their_class_as_often_as_asked(load):
    src, dst = edges(data := load(label_noise=0.0, homophily=0.7))
    assert abs((data.labels[src] == data.labels[dst]).float().mean() - 0.7) < 0.02
    src, dst = edges(noisy := load(label_noise=0.5, homophily=0.7))
    assert (noisy.labels[src] == noisy.labels[dst]).float().mean() < 0.4


def test_the_neighborhoods_mean_predicts_better_than_features(load):
    data = load(feature_noise=0.6, label_noise=0.0, homophily=0.8)
    src, dst = edges(data)
    mean = torch.zeros_like(data.features).index_add_(0, dst, data.features[src])
    mean = (mean + data.features) / (data.graph.in_degrees()[:, None] + 1)

    def accuracy(x: torch.Tensor) -> float:
        train, test = data.splits["train"], data.splits["test"]
        centres = torch.stack([x[train][data.labels[train] == c].mean(0) for c in range(data.num_classes)])
        return float((torch.cdist(x[test], centres).argmin(1) == data.labels[test]).float().mean())

    alone, together = accuracy(data.features), accuracy(mean)
    assert 0.3 < alone < 0.75
    assert together > alone + 0.15


def test_the_seed_decides_the_graph(load, tmp_path):
    first, again, other = load(), load(rebuild=True), load(seed=6)
    for part in ("features", "labels"):
        assert torch.equal(getattr(first, part), getattr(again, part))
    assert torch.equal(first.graph.indices, again.graph.indices)
    assert torch.equal(first.splits["train"], again.splits["train"])
    assert not torch.equal(first.graph.indices[:100], other.graph.indices[:100])


def test_other_features_leave_the_edges_as_they_are(load):
    assert torch.equal(load().graph.indices, load(num_features=7, feature_noise=2.0).graph.indices)


def test_multilabel_gives_several_labels_per_node(load):
    data = load(multilabel=True, num_classes=20)
    assert data.labels.shape == (3000, 20)
    assert set(data.labels.unique().tolist()) == {0.0, 1.0}
    assert 1 < data.labels.sum(1).mean() < 6


def test_splits_have_the_asked_sizes(load):
    sizes = [ids.numel() for ids in load(split=[0.1, 0.2, 0.3]).splits.values()]
    assert sizes == [300, 600, 900]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("num_classes", 1, "num_classes is 1; it must be at least 2"),
        ("num_nodes", 3, "num_nodes is 3; it must be at least 10"),
        ("num_features", 0, "num_features is 0"),
        ("mean_degree", -1.0, "mean_degree is -1.0"),
        ("label_noise", 1.5, "label_noise is 1.5; it must be at most 1"),
        ("feature_noise", -0.1, "feature_noise is -0.1"),
        ("seed", -1, "seed is -1"),
        ("split", [0.9, 0.9, 0.1], "give three"),
        ("skew", 1.5, "skew is 1.5"),
    ],
)
def test_impossible_options_are_refused(load, option, value, message):
    with pytest.raises(ValueError, match=message):
        load(**{option: value})


def test_the_old_place_works_with_a_warning() -> None:
    import loader.datasets

    with pytest.warns(FutureWarning, match=r"^SyntheticDataset is now models\.synthetic\.SyntheticDataset; "):
        assert loader.datasets.SyntheticDataset is SyntheticDataset
    with pytest.raises(AttributeError, match="has no attribute 'Synthetic'"):
        _ = loader.datasets.Synthetic
