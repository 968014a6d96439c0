"""Runs of train.py on the user's own tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.errors import InstantiationException
from train_runs import Composer, in_process

from loader.datasets import DatasetError

pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")


@pytest.fixture
def tables(tmp_path: Path) -> list[str]:
    """The options that name a table of edges and one of nodes: text ids, mixed columns, gaps, 30 % labels."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, 200)
    ends = rng.integers(0, 200, (2, 6000))
    rows = [f"u{a},u{b}" for a, b in ends.T if group[a] == group[b]]
    (tmp_path / "e.csv").write_text("\n".join(["source,target", *rows, ""]))
    lines = ["id,age,city,label"]
    for node in range(200):
        age = "" if rng.random() < 0.1 else f"{rng.normal(10 * group[node], 5):.1f}"
        lines.append(f"u{node},{age},{'ABC'[rng.integers(3)]},{'xyz'[group[node]] if rng.random() < 0.3 else ''}")
    (tmp_path / "n.csv").write_text("\n".join([*lines, ""]))
    return [f"dataset.edges={tmp_path / 'e.csv'}", f"dataset.nodes={tmp_path / 'n.csv'}", "dataset.label=label"]


def test_tables_of_edges_and_nodes_train(composed: Composer, tables: list[str]) -> None:
    assert in_process(composed, "dataset=edge_list", *tables, "trainer.max_epochs=10", "datamodule.batch_size=8") > 0.6


def test_links_of_edges_alone_are_learnt(composed: Composer, tables: list[str], capsys) -> None:
    auc = in_process(composed, "dataset=edge_list", tables[0], "task=link", "trainer.max_epochs=8")
    assert auc > 0.75
    assert "links held out for test" in capsys.readouterr().out


def test_edges_alone_are_embedded(composed: Composer, tables: list[str], capsys, tmp_path: Path) -> None:
    small = ["model.dim=8", "sampler.walk_length=10", "datamodule.walks_per_node=2"]
    loss = in_process(composed, "dataset=edge_list", tables[0], "model=node2vec", *small)
    assert 0 < loss < 10
    assert "dataset e has no labels: train/loss is watched in place of val/acc" in capsys.readouterr().out
    best = torch.load(tmp_path / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["state_dict"]["net.embedding.weight"].shape == (200, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            [],
            r"e has no labels; name their column \(dataset.label=COLUMN\), or train what needs none: task=link, or",
        ),
        (["dataset.nodes={n}", "dataset.label=label", "dataset.features=[]"], "dataset e has no features, which the"),
        (["dataset.nodes={n}", "dataset.label=lable"], "has no column 'lable' .* did you mean label"),
        (["dataset.label=label"], "label is 'label', a column of nodes, but there is no table of nodes; give its path"),
    ],
)
def test_what_a_model_of_nodes_lacks_is_named(
    composed: Composer, tables: list[str], tmp_path: Path, options: list[str], message: str
) -> None:
    given = [option.format(n=tmp_path / "n.csv") for option in options]
    with pytest.raises((DatasetError, InstantiationException, ValueError), match=message):
        in_process(composed, "dataset=edge_list", tables[0], *given)
