"""The dataset with types: what it refuses, and what tells it from others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from loader.datasets import DatasetError, HeteroDataset
from loader.graph import Graph, HeteroGraph

WRITES = ("author", "writes", "paper")


def dataset(**changes: Any) -> HeteroDataset:
    graph = HeteroGraph.from_edges({WRITES: torch.tensor([[0, 1, 1], [2, 0, 3]])}, {"author": 2, "paper": 4})
    none = torch.empty(0, dtype=torch.int64)
    parts = {
        "name": "mine",
        "graph": graph,
        "features": {"paper": torch.arange(12.0).view(4, 3)},
        "target": "paper",
        "labels": torch.tensor([0, 1, -1, 1]),
        "splits": {"train": torch.tensor([0, 1]), "val": none, "test": torch.tensor([3])},
        "num_classes": 2,
    }
    return HeteroDataset(**{**parts, **changes})


def test_it_tells_its_sizes() -> None:
    data = dataset()
    assert data.num_features == {"paper": 3}
    assert "target='paper', num_classes=2, train=2, val=0, test=1" in repr(data)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"graph": Graph(torch.tensor([0]), torch.tensor([]).long())},
            TypeError,
            r"a Graph; .*HeteroGraph\.of\(graph\)",
        ),
        ({"target": "papers"}, DatasetError, "target is 'papers', .* must be one of author, paper"),
        ({"features": torch.rand(4, 3)}, DatasetError, "features is .* it must be a dict: node type"),
        ({"features": {"papers": torch.rand(4, 3)}}, DatasetError, "no node type of the graph; did you mean paper?"),
        (
            {"features": {"paper": torch.rand(3, 3)}},
            DatasetError,
            r"features of paper are .*\[3, 3\]; .*float32 \[4, num",
        ),
        (
            {"features": {"paper": torch.rand(4)}},
            DatasetError,
            r"of shape \[4\]; they must be float32 \[4, num_features\]",
        ),
        ({"features": {"paper": torch.rand(4, 3).double()}}, DatasetError, r"torch\.float64 .*features\.float\(\)"),
        ({"features": {"paper": [1.0]}}, DatasetError, "features of paper is a list; it must be a torch tensor"),
        (
            {"labels": torch.tensor([0, 1])},
            DatasetError,
            r"labels are .*\[2\]; .*torch\.int64 \[4\], one for each node",
        ),
        ({"labels": torch.rand(4)}, DatasetError, r"labels are torch\.float32"),
        ({"num_classes": 1}, DatasetError, "node 1 of split train has label 1; valid labels are 0 to 0"),
        ({"splits": {}}, DatasetError, "the splits are"),
        (
            {"splits": {**dict.fromkeys(("train", "val", "test"), torch.tensor([2]))}},
            DatasetError,
            "node 2 is in the splits train and val",
        ),
        (
            {"splits": {"train": torch.tensor([4]), "val": torch.tensor([0]), "test": torch.tensor([1])}},
            DatasetError,
            "split train holds node 4; valid ids are 0 to 3",
        ),
    ],
)
def test_contradictions_are_refused(changes: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        dataset(**changes)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_knows_its_dataset() -> None:
    data = dataset()
    identity = data.identity()
    data.require(identity, "the checkpoint")
    dataset().require(identity, "the checkpoint")
    other = HeteroGraph.from_edges(
        {("author", "reads", "paper"): torch.tensor([[0, 1, 1], [2, 0, 3]])}, {"author": 2, "paper": 4}
    )
    turned = HeteroGraph.from_edges({WRITES: torch.tensor([[0, 1, 0], [2, 0, 3]])}, {"author": 2, "paper": 4})
    for changed, what in ((other, "edge_types"), (turned, "digest")):
        with pytest.raises(ValueError, match=f"the checkpoint is of dataset mine whose {what} is"):
            replace(data, graph=changed).require(identity, "the checkpoint")
    rows, more = data.features["paper"], {"author": torch.ones(2, 1)}
    one, other = (replace(data, features=of) for of in ({"paper": rows, **more}, {**more, "paper": rows}))
    one.require(other.identity(), "the checkpoint")
    for changed_rows in (rows / 2, rows.flip(1)):
        with pytest.raises(ValueError, match="the checkpoint is of other features than dataset mine has now; give the"):
            replace(data, features={"paper": changed_rows}).require(identity, "the checkpoint")
