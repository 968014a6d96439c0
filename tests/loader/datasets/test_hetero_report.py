"""Facts of a graph with types, counted by hand."""

from __future__ import annotations

import json
from io import StringIO

import pytest
import torch
from rich.console import Console

from loader.datasets import HeteroDataset
from loader.datasets.hetero_report import hetero_card, show_hetero_card
from loader.graph import HeteroGraph

GRAPH = HeteroGraph.from_edges(
    {
        ("author", "writes", "paper"): torch.tensor([[0, 1, 1], [2, 0, 2]]),
        ("venue", "of", "paper"): torch.empty(2, 0, dtype=torch.int64),
        ("paper", "in", "venue"): torch.empty(2, 0, dtype=torch.int64),
    },
    {"author": 2, "paper": 4, "venue": 0},
)


def dataset() -> HeteroDataset:
    ids = torch.arange(4)
    splits = {"train": ids[:2], "val": ids[2:3], "test": ids[3:]}
    return HeteroDataset("mine", GRAPH, {"author": torch.rand(2, 5)}, "paper", ids % 2, splits, num_classes=2)


def test_sizes_and_degrees_are_counted() -> None:
    card = hetero_card(dataset())
    json.dumps(card)
    assert card["nodes"] == [
        {"type": "author", "num_nodes": 2, "num_features": 5},
        {"type": "paper", "num_nodes": 4, "num_features": None},
        {"type": "venue", "num_nodes": 0, "num_features": None},
    ]
    writes, of, into = card["relations"]
    assert writes == {
        "edge_type": ["author", "writes", "paper"],
        "num_edges": 3,
        "mean_degree": 0.75,
        "max_degree": 2,
        "share_without": 0.5,
    }
    assert (of["num_edges"], of["max_degree"], of["share_without"]) == (0, 0, 1)
    assert (into["num_edges"], into["mean_degree"], into["share_without"]) == (0, 0, 0)
    assert card["splits"] == {"train": 2, "val": 1, "test": 1}
    assert card["feature_bytes"] == 40
    assert card["topology_bytes"] == 4 * (9 + 3)  # of paper's two lists each


def test_they_are_printed_in_eighty_columns() -> None:
    for data, name in ((dataset(), "mine"), (GRAPH, "graph")):
        out = StringIO()
        show_hetero_card(hetero_card(data), Console(width=80, highlight=False, file=out))
        text = out.getvalue()
        assert f"{name}: 6 nodes of 3 types, 3 edges of 3 relations" in text
        assert ("2 classes of paper: train 2, val 1, test 1" in text) == (name == "mine")
        rows = [line.split() for line in text.splitlines()]
        assert ["author", "2", "5" if name == "mine" else "none"] in rows
        assert ["author", "writes", "paper", "3", "0.8", "2", "50%"] in rows


def test_other_things_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"data is a Graph; it must be a loader\.datasets\.HeteroDataset, or a loader\.Hetero"
    ):
        hetero_card(GRAPH.lists)  # type: ignore[arg-type]
