"""Predictions: a file that is complete or not there, and the best new links."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from loader.graph import Graph
from models.predictions import PredictionFile, best_new_targets, class_columns, embedding_columns
from models.training.scores import RunningScores

parquet = pytest.importorskip("pyarrow.parquet")


def test_parts_lie_in_the_order_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "p.parquet"
    with PredictionFile(path) as file:
        file.write({"id": torch.arange(2), "prediction": ["a", "b"]})
        assert not path.exists()
        file.write({"id": torch.arange(2, 5), "prediction": ["a", "a", "b"]})
    assert file.rows == 5
    table = parquet.read_table(path)
    assert table.to_pydict() == {"id": [0, 1, 2, 3, 4], "prediction": ["a", "b", "a", "a", "b"]}
    assert [entry.name for entry in path.parent.iterdir()] == ["p.parquet"]


def test_an_error_leaves_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    path.write_text("before")
    file = PredictionFile(path)

    def interrupted() -> None:
        with file:
            file.write({"id": torch.arange(2)})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_without_its_end_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.parquet"
    path.write_text("before")

    end = parquet.ParquetWriter.close

    def close(self: Any) -> None:
        end(self)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parquet.ParquetWriter, "close", close)
    file = PredictionFile(path)

    def filled() -> None:
        with file:
            file.write({"id": torch.arange(2)})

    with pytest.raises(OSError, match="No space left"):
        filled()
    monkeypatch.undo()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_likeliest_class_is_the_prediction() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    columns = class_columns(logits, ["x", "y", "z"], multilabel=False)
    assert columns["prediction"] == ["y", "x"]
    shares = torch.stack([columns[f"p_{name}"] for name in "xyz"], 1)
    torch.testing.assert_close(shares, logits.softmax(-1))


def test_of_several_labels_the_likely_are_predicted() -> None:
    logits = torch.tensor([[1e-9, -1.0], [-2.0, 0.0], [1.0, 1.0], [-1e-9, 1.0]])
    columns = class_columns(logits, [7, 9], multilabel=True)
    assert columns["prediction"].to_pylist() == [[7], [], [7, 9], [9]]
    assert columns["p_7"].tolist() == logits[:, 0].sigmoid().tolist()
    said = sum(map(len, columns["prediction"].to_pylist()))
    assert RunningScores(True).find(logits, torch.ones(4, 2)).tolist() == [said, said + 8]  # as scores count them


@pytest.mark.parametrize("classes", [range(2), ["a", "b"]])
def test_parts_without_any_label_are_written(tmp_path: Path, classes: Any) -> None:
    with PredictionFile(tmp_path / "p.parquet") as file:
        for logits in ([[-1.0, -1.0]], [[1.0, -1.0]], [[-2.0, -1.0]]):
            file.write(class_columns(torch.tensor(logits), classes, multilabel=True))
    found = parquet.read_table(tmp_path / "p.parquet").to_pydict()["prediction"]
    assert found == [[], [classes[0]], []]


def test_embeddings_have_a_column_for_each_dimension() -> None:
    rows = torch.rand(4, 3, dtype=torch.float64)
    assert {name: column.tolist() for name, column in embedding_columns(rows).items()} == {
        f"emb_{i}": rows[:, i].float().tolist() for i in range(3)
    }


@pytest.mark.parametrize("count", [1, 3, 50])
def test_new_targets_are_the_best_ones(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    nodes = 12
    embedded = torch.randn(nodes, 4, generator=generator)
    links = torch.randint(nodes, (2, 40), generator=generator)
    onward = Graph.from_edges(links[0], links[1], nodes).reverse()
    known = set(map(tuple, links.t().tolist()))
    expected = []
    for source in range(nodes):
        scores = (embedded @ embedded[source]).tolist()
        new = [t for t in range(nodes) if t != source and (source, t) not in known]
        expected += [(source, t) for t in sorted(new, key=lambda t: -scores[t])[:count]]
    found = []
    for first, last in ((0, 5), (5, 12)):
        sources, targets, scores = best_new_targets(embedded, onward, first, last, count)
        found += list(zip(sources.tolist(), targets.tolist(), strict=True))
        torch.testing.assert_close(scores, (embedded[sources] * embedded[targets]).sum(-1))
    assert found == expected


def test_scores_of_links_ignore_autocast() -> None:
    embedded = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    onward = Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 20).reverse()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = best_new_targets(embedded, onward, 0, 20, 5)
    for of, wanted in zip(found, best_new_targets(embedded, onward, 0, 20, 5), strict=True):
        assert torch.equal(of, wanted)
