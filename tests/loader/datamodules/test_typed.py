"""A data module of a dataset with types: loaders by split, stores by type, what it cannot have."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from typed_datasets import make_typed

from loader.datamodules.nodes import GraphDataModule
from loader.datamodules.typed import check_typed
from loader.datasets import DatasetError
from loader.samplers import FusedSampler
from loader.samples.hetero import HeteroMiniBatch
from loader.stores import HostFeatures, ShardedFeatures


def test_loaders_give_batches_around_the_target() -> None:
    data = make_typed()
    module = GraphDataModule(data, FusedSampler([3, 3]), features=partial(HostFeatures, num_threads=1), batch_size=8)
    module.setup()
    assert module.sizes == {
        "num_features": {"author": 5, "paper": 0, "term": 3},
        "num_classes": 2,
        "edge_types": list(data.graph.edge_types),
        "target": "author",
    }
    assert module.placement()["gather"] == "HostFeatures, rows on cpu"
    loaders = {
        "train": module.train_dataloader(),
        "val": module.val_dataloader(),
        "test": module.test_dataloader(),
        "predict": module.predict_dataloader(),
    }
    for split, loader in loaders.items():
        seeds = []
        for batch in loader:
            assert isinstance(batch, HeteroMiniBatch)
            ids = batch.ids("seed").long()
            seeds.append(ids)
            assert batch.y is not None
            assert batch.x is not None
            assert torch.equal(batch.y, data.labels[ids])
            assert list(batch.x) == ["author", "term"]
            for name, rows in batch.x.items():
                assert torch.equal(rows, data.features[name][batch.n_id[name].long()])
        every = torch.arange(60) if split == "predict" else data.splits[split]
        assert torch.equal(torch.cat(seeds).sort().values, every)
    module.close()


def test_stores_that_cannot_be_several_are_refused() -> None:
    module = GraphDataModule(make_typed(), FusedSampler([3]), features=partial(ShardedFeatures, num_threads=1))
    with pytest.raises(
        TypeError, match="features is a ShardedFeatures, which cannot be one of several stores; take Ho"
    ):
        module.setup()


def test_options_of_one_type_are_refused() -> None:
    with pytest.raises(
        DatasetError, match=r"dataset mine has types of nodes and edges, for which memory=... plans noth"
    ):
        check_typed("mine", True, "auto")
    with pytest.raises(
        DatasetError, match=r"for which no lists are cached; give datamodule.graph=device or pinned in pl"
    ):
        check_typed("mine", False, "cached")
    check_typed("mine", False, "pinned")
