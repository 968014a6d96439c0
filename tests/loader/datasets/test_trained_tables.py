"""Tables to which rows were appended after a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loader.datasets import DatasetError, NodeDataset, TableDataset

pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")

NODES = ["id,age,city,joined,code,segment"]
NODES += [
    f"{i},{i if i % 4 else ''},{'XY'[i % 2]},2020-01-{i + 1:02},{i % 3},{'' if i > 7 else 'pq'[i % 2]}"
    for i in range(10)
]
EDGES = ["a,b", *(f"{i},{(i * 3 + 1) % 10}" for i in range(10))]


class Tables:
    """Writes tables, and loads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options: dict[str, Any] = {"label": "segment", "split": [0.5, 0.25, 0.25]}

    def dataset(self, nodes: list[str], edges: list[str] = EDGES, **options: Any) -> TableDataset:
        for name, rows in (("nodes", nodes), ("edges", edges)):
            (self.folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
        options = {"cache_dir": self.folder / "cache", **self.options, **options}
        return TableDataset(self.folder / "edges.csv", nodes=self.folder / "nodes.csv", **options)

    def extended(self, nodes: list[str], edges: list[str] = EDGES, **options: Any) -> NodeDataset:
        """Loads NODES and EDGES, and these as tables of that training."""
        trained = self.dataset(NODES).load().tables
        assert trained is not None
        dataset = self.dataset(nodes, edges, **options)
        assert dataset.extend(trained.rows.to_json())
        return dataset.load()


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def test_appended_rows_have_features_of_the_training(tables: Tables) -> None:
    before = tables.dataset(NODES).load()
    after = tables.extended([*NODES, "x,100,X,2030-01-01,7,", "y,,Z,,,q"], [*EDGES, "x,0", "y,x"])
    ages = np.array([i for i in range(10) if i % 4])
    assert torch.equal(after.features[:10], before.features)
    assert after.features[10, 0] == pytest.approx((100 - ages.mean()) / ages.std())
    assert after.features[11, :4].tolist() == [0, 1, 0, 0]  # age is missing and flagged; city Z is neither X nor Y
    assert after.labels.tolist() == [*before.labels.tolist(), -1, 1]
    assert after.num_nodes == 12
    assert after.graph.num_edges == before.graph.num_edges + 4


def test_appended_nodes_are_in_no_split(tables: Tables) -> None:
    before = tables.dataset(NODES).load()
    after = tables.extended([*NODES, *(f"n{i},1,X,,1,p" for i in range(20))])
    assert {name: ids.tolist() for name, ids in after.splits.items()} == {
        name: ids.tolist() for name, ids in before.splits.items()
    }


def test_what_was_not_there_in_training_is_told(tables: Tables) -> None:
    assert tables.extended([*NODES, "x,1,Z,,1,", "y,1,Z,,1,"]).tables.report[-2:] == (
        "city: 2 values were not there in training, and have no feature",
        "segment: 2 classes, p, q; 4 nodes have none: those to predict",
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("x,old,X,,1,", "column age is 'old' in row 11, but in the checkpoint's training it was a number; correct it"),
        (
            "x,1,X,soon,1,",
            "column joined is 'soon' in row 11, but in the checkpoint's training it was a time; correct it, or train",
        ),
        ("x,1,X,,1,r", "label segment is 'r' in row 11, which is none of the 2 classes of the checkpoint's training"),
    ],
)
def test_values_that_training_had_not_are_refused(tables: Tables, row: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        tables.extended([*NODES, row])


def test_rows_that_are_gone_are_refused(tables: Tables) -> None:
    with pytest.raises(DatasetError, match=r"edges.csv has 9 rows, but the checkpoint's training had 10; rows may be"):
        tables.extended(NODES, EDGES[:-1])


def test_another_choice_of_features_is_refused(tables: Tables) -> None:
    with pytest.raises(DatasetError, match=r"features is \['age'\], but the checkpoint's training read age, city, joi"):
        tables.extended([*NODES, "x,1,X,,1,"], features=["age"])


def test_tables_as_they_were_are_not_converted_again(tables: Tables) -> None:
    dataset = tables.dataset(NODES)
    state = dataset.load().tables.rows.to_json()
    assert not dataset.extend(state)
    assert not tables.dataset([*NODES, "x,1,X,,1,"], transform=lambda data: data).extend(state)


def test_a_column_without_values_takes_any(tables: Tables) -> None:
    empty = [f"{row},{'note' if i == 0 else ''}" for i, row in enumerate(NODES)]
    state = tables.dataset(empty).load().tables.rows.to_json()
    dataset = tables.dataset([*empty, "x,1,X,,1,,text"])
    dataset.extend(state)
    assert dataset.load().num_features == 7 - 1
