"""Data modules refuse datasets that they cannot train on."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from loader.datamodules.base import check_labelled
from loader.datamodules.links import LinkDataModule
from loader.datamodules.walks import WalkDataModule
from loader.datasets import DatasetError, HeteroDataset
from loader.graph import HeteroGraph
from loader.samplers import FusedSampler, WalkSampler


def typed() -> HeteroDataset:
    edges = torch.tensor([[0, 1, 2], [0, 1, 1]])
    graph = HeteroGraph.from_edges({("author", "writes", "paper"): edges}, {"author": 3, "paper": 2})
    none = torch.empty(0, dtype=torch.int64)
    splits = {"train": torch.tensor([0, 1]), "val": none, "test": none}
    return HeteroDataset("made", graph, {}, "paper", torch.tensor([0, 1]), splits, num_classes=2)


def test_a_dataset_with_types_is_refused() -> None:
    for module, message in (
        (LinkDataModule(typed(), FusedSampler([2, 2])), r"task=link predicts links of one relation; name it, .*writes"),
        (WalkDataModule(typed(), WalkSampler(4)), "which .* does not take; "),
    ):
        with pytest.raises(DatasetError, match=f"dataset made has types of nodes and edges, .*{message}"):
            module.prepare_data()


def test_types_without_a_train_split_are_refused() -> None:
    data = typed()
    none = {split: torch.empty(0, dtype=torch.int64) for split in data.splits}
    with pytest.raises(DatasetError, match=r"made has no training split; draw one \(dataset.split=\[0.6,0.2,0.2\]\)$"):
        check_labelled(replace(data, splits=none))
