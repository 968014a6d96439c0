"""Synthetic datasets with types: their sizes, what is planted in them, and a model that learns it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from loader.datamodules.nodes import GraphDataModule
from loader.datasets import HeteroDataset
from loader.samplers import FusedSampler
from models.synthetic import HeteroSyntheticDataset, hetero
from models.training.rgat_classifier import RGATClassifier

OPTIONS = {"shape": "mag", "scale": 0.001, "num_classes": 8, "num_features": 12, "num_paper_features": 16}


def load(folder: Path, **options: Any) -> HeteroDataset:
    return HeteroSyntheticDataset("typed", data_dir=folder, **{**OPTIONS, **options}).load()


def test_sizes_are_those_of_the_shape(tmp_path: Path) -> None:
    data = load(tmp_path)
    assert {name: len(ids) for name, ids in data.graph.node_types.items()} == {
        "paper": 736, "author": 1134, "institution": 16, "field": 59,
    }  # fmt: skip
    assert data.num_features == {"paper": 16, "author": 12, "institution": 12, "field": 12}
    for (source, name, sink), drawn in hetero.SHAPES["mag"].relations.items():
        both = data.graph.relation((source, name, sink))
        if source == sink:  # the reverse is in the same relation
            assert 1.2 * drawn.edges < 1000 * both.num_edges <= 2 * drawn.edges
            continue
        assert 0.5 * drawn.edges < 1000 * both.num_edges <= drawn.edges
        assert data.graph.relation((sink, f"rev_{name}", source)).num_edges == both.num_edges


def test_classes_are_planted_in_edges_and_features(tmp_path: Path) -> None:
    data = load(tmp_path, label_noise=0.0, feature_noise=0.3)
    cites = data.graph.relation(("paper", "cites", "paper"))
    target = torch.arange(cites.num_dst).repeat_interleave(cites.in_degrees().long())
    source = cites.indices.long()
    assert not (source == target).any()
    same = (data.labels[source] == data.labels[target]).double().mean()
    assert same > 0.5  # more than 0.2 is chance
    x = data.features["paper"]
    centres = torch.stack([x[data.labels == c].mean(0) for c in range(8)])
    assert ((x @ centres.t()).argmax(1) == data.labels).double().mean() > 0.8
    degrees = cites.in_degrees()
    assert int(degrees.max()) > 4 * float(degrees.double().mean())


@pytest.mark.parametrize("begin_at", [0, 3, 70])
def test_features_are_the_same_in_any_parts(tmp_path: Path, begin_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hetero, "_ROWS", 64)
    dataset = HeteroSyntheticDataset("typed", data_dir=tmp_path, **OPTIONS)
    rows = dataset.read(None).features["paper"]
    assert rows[begin_at : begin_at + 100].tolist() == rows[: len(rows)][begin_at : begin_at + 100].tolist()
    monkeypatch.setattr(hetero, "sorting_threads", lambda: 3)
    assert rows[begin_at:].tolist() == rows[: len(rows) + 9][begin_at:].tolist()


def test_the_seed_alone_says_what_is_drawn(tmp_path: Path) -> None:
    first, same, other = (load(tmp_path / str(i), seed=seed) for i, seed in enumerate((3, 3, 4)))
    for data, equal in ((same, True), (other, False)):
        assert torch.equal(data.graph.lists.indices, first.graph.lists.indices) == equal
        assert torch.equal(data.labels, first.labels) == equal
        assert torch.equal(data.features["field"], first.features["field"]) == equal
        assert torch.equal(data.splits["train"], first.splits["train"]) == equal


def test_fewer_nodes_than_classes_share_them(tmp_path: Path) -> None:
    data = load(tmp_path, scale=0.0002, num_classes=40)
    assert len(data.graph.node_types["paper"]) == 147
    assert len(data.graph.node_types["institution"]) == 16
    assert len(data.labels.unique()) > 30


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shape": "dblp"}, "shape is 'dblp'; it must be one of mag, igb"),
        ({"scale": 0}, "scale is 0; it must be above 0 and at most 1"),
        ({"scale": 1.5}, "scale is 1.5; it must be above 0 and at most 1"),
        ({"homophily": 2}, "homophily is 2; it must be in 0 to 1"),
        ({"num_classes": 1}, "num_classes is 1"),
    ],
)
def test_options_out_of_range_are_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load(tmp_path, **given)


def test_a_model_learns_what_is_planted(tmp_path: Path) -> None:
    """An accuracy far above that of the largest class, and above what the papers' own features tell."""
    data = load(tmp_path, scale=0.002, shape="igb")
    module = GraphDataModule(data, FusedSampler([8, 5], expand="new"), batch_size=256)
    module.setup()
    torch.manual_seed(0)
    model = RGATClassifier(**module.sizes, hidden_channels=32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for step, batch in enumerate(module.train_dataloader()):
        if step == 40:
            break
        optimizer.zero_grad()
        model._loss(batch)[0].backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        batches = islice(module.test_dataloader(), 8)
        hits = [float((model(batch).argmax(1) == batch.y).double().mean()) for batch in batches]
    chance = data.labels.bincount().max() / len(data.labels)
    assert float(chance) < 0.3
    assert sum(hits) / len(hits) > 0.7
