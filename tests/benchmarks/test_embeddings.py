"""The table beside Grover and Leskovec 2016."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import embeddings
import pytest
import torch

from loader import Graph
from loader.datasets import NodeDataset

Job = Callable[..., dict[str, Any]]


@pytest.fixture
def data() -> NodeDataset:
    """Nodes whose first label depends on their number, and whose second label is of all of them."""
    ring = torch.arange(40)
    labels = torch.stack([ring % 2, torch.ones(40), torch.zeros(40)], 1).float()
    splits = {"train": ring[:20], "val": ring[:0], "test": ring[20:]}
    return NodeDataset(
        "ppi", Graph.from_edges(ring, ring.roll(1), 40), torch.empty(40, 0), labels, splits, 3, multilabel=True
    )


def config(name: str, p: float, q: float) -> dict[str, Any]:
    sampler = {"p": p, "q": q, "weights": None, "walk_length": 79, "num_negatives": 1, "negative_exponent": 0.75}
    model = {"dim": 1, "objective": "word2vec", "context_size": 11, "lr": 0.025, "lr_decay": True}
    model["probe_c"] = [10.0, 1.0]
    more = {"walks_per_node": 10, "batch_size": 128}
    return {
        "dataset": {"name": name},
        "sampler": sampler,
        "model": model,
        "datamodule": more,
        "trainer": {"max_epochs": 5},
    }


def test_an_embedding_that_tells_labels_scores_high(data: NodeDataset) -> None:
    found = embeddings.score(data.labels[:, :1], data, [0, 1], 100.0)
    assert found["micro"] == [100.0, 100.0]
    assert found["c"] == [100.0, 100.0]
    assert found["macro"] == pytest.approx([200 / 3] * 2, abs=1e-2)  # the third label is never said and never true


def test_rows_stand_beside_the_published_figures(
    data: NodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "load_dataset", lambda *_: data)
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {"net.embedding.weight": data.labels[:, :1]}}, path)
    jobs = [({"config": config("ppi", p, 1)}, path) for p in (4, 1)]
    first, second = embeddings.in_order(embeddings.summarise(jobs, "data", None, 2))
    assert (first["method"], second["method"]) == ("DeepWalk", "node2vec")
    assert (first["published_macro"], second["published_macro"]) == (17.68, 17.91)
    assert (first["micro_mean"], first["micro_std"], len(first["macro"])) == (100.0, 0.0, 2)
    assert first["c"] == [10.0] * 2  # the first of those that are as good
    with pytest.raises(ValueError, match="ppi, DeepWalk: this job is there twice"):
        embeddings.summarise(jobs[1:] * 2, "data", None, 1)


def test_rows_of_other_jobs_are_kept(tmp_path: Path) -> None:
    def row(dataset: str, method: str, macro: float) -> dict[str, Any]:
        return {"dataset": dataset, "method": method, "macro_mean": macro}

    path = tmp_path / "embeddings.json"
    before = [row("blogcatalog", "DeepWalk", 1), row("wikipedia", "node2vec", 2)]
    path.write_text(json.dumps({"splits": 3, "rows": before}))
    made = [row("ppi", "DeepWalk", 3), row("blogcatalog", "DeepWalk", 4)]
    found = embeddings.merge(made, path, 3)
    assert [found_row["macro_mean"] for found_row in found] == [4, 3, 2]
    with pytest.raises(ValueError, match="has 3 splits, this run 10; give --splits 3"):
        embeddings.merge(made, path, 10)


def test_another_setting_is_refused(job: Job) -> None:
    with pytest.raises(ValueError, match=r"p, q are \(2\.0, 1\.0\); the paper has \(4\.0, 1\.0\), or 1, 1"):
        embeddings.method_of(config("ppi", 2, 1))
    with pytest.raises(ValueError, match="graph is not of the paper"):
        embeddings.method_of(job("WalkSampler", 0, 0.5)["config"])


def test_jobs_need_their_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no result\.json below"):
        embeddings.read_jobs([tmp_path])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "result.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="run the job again with experiment=embeddings"):
        embeddings.read_jobs([tmp_path])
    (tmp_path / "a" / "checkpoints").mkdir()
    (tmp_path / "a" / "checkpoints" / "last.ckpt").touch()
    assert embeddings.read_jobs([tmp_path]) == [({}, tmp_path / "a" / "checkpoints" / "last.ckpt")]
