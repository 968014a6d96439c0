"""A data module of a dataset with types: loaders by split, stores by type, what it cannot have."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from hetero_datasets import make_hetero

from loader.datamodules.hetero import check_hetero
from loader.datamodules.nodes import GraphDataModule
from loader.datasets import DatasetError, HeteroDataset, NodeDataset
from loader.graph import Graph, HeteroGraph
from loader.samplers import FusedSampler, TreeSampler
from loader.samples.hetero import HeteroMiniBatch
from loader.stores import HostFeatures, StagedFeatures


def test_loaders_give_batches_around_the_target() -> None:
    data = make_hetero()
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
    module = GraphDataModule(make_hetero(), FusedSampler([3]), features=partial(StagedFeatures, num_threads=1))
    with pytest.raises(TypeError, match="features is a StagedFeatures, which cannot be one of several stores; take Ho"):
        module.setup()


def test_options_of_one_type_are_refused() -> None:
    with pytest.raises(
        DatasetError, match=r"for which no lists are cached; give datamodule.graph=device or pinned in pl"
    ):
        check_hetero("mine", "cached")
    check_hetero("mine", "pinned")


class TestTimes:
    """Seeds of a sampler by time have the times of their nodes."""

    @staticmethod
    def data(timed: tuple[str, ...] = ("author", "paper")) -> HeteroDataset:
        data = make_hetero()
        counts = {name: len(ids) for name, ids in data.graph.node_types.items()}
        g = torch.Generator().manual_seed(0)
        graph = HeteroGraph.from_edges(
            {key: edges_of(data.graph, key) for key in data.graph.edge_types},
            counts,
            node_times={name: torch.randint(100, (counts[name],), generator=g) for name in timed},
        )
        return dataclasses.replace(data, graph=graph)

    @staticmethod
    def module(data: HeteroDataset, **options: Any) -> GraphDataModule:
        given = {"batch_size": 7, "seed": 1, "prefetch": 2} | options
        return GraphDataModule(data, TreeSampler([3, 3], times="node", seed=2), **given)

    def test_seeds_have_their_nodes_times(self) -> None:
        data = self.data()
        times = data.graph.lists.node_times
        assert times is not None
        own = times[data.graph.node_types["author"].start :]
        module = self.module(data)
        module.setup()
        loaders = [module.train_dataloader(), module.val_dataloader(), module.predict_dataloader()]
        for split, loader in zip(("train", "val", "predict"), loaders, strict=True):
            met = []
            for batch in loader:
                ids = batch.n_id["author"][: batch.batch_size].long()
                assert torch.equal(batch.seed_times, own[ids])
                assert torch.equal(batch.y, data.labels[ids])
                assert torch.equal(batch.x["author"], data.features["author"][batch.n_id["author"].long()])
                later = own[batch.n_id["author"].long()] > batch.seed_times[batch.tree_of("author").long()]
                assert not bool(later.any())
                met.append(ids)
            every = torch.arange(60) if split == "predict" else data.splits[split]
            assert torch.equal(torch.cat(met).sort().values, every)
        module.close()

    @pytest.mark.parametrize("timed", [(), ("paper",)])
    def test_a_target_without_times_is_refused(self, timed: tuple[str, ...]) -> None:
        module = self.module(self.data(timed))
        with pytest.raises(DatasetError, match=r"no times of its seeds \(nodes of type author\), and TreeSampler"):
            module.prepare_data()

    def test_a_graph_without_types_is_refused(self) -> None:
        graph = Graph.from_edges(torch.arange(9), torch.arange(9), 9)
        with pytest.raises(DatasetError, match=r"no times of its seeds \(a graph without types\)"):
            GraphDataModule(one_type(graph), TreeSampler([1], times="node")).prepare_data()

    def test_a_run_goes_on_amid_an_epoch(self, tmp_path: Path) -> None:
        data = self.data()

        def run(steps: int, ckpt: str | None = None) -> list[str]:
            learner, module = Digests(), self.module(data)
            options: dict[str, Any] = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
            trainer = lightning.Trainer(
                max_steps=steps, max_epochs=-1, accelerator="cpu", limit_val_batches=0, default_root_dir=tmp_path,
                enable_checkpointing=False, **options,
            )  # fmt: skip
            trainer.fit(learner, module, ckpt_path=ckpt)
            trainer.save_checkpoint(tmp_path / "at.ckpt")
            module.close()
            return learner.met

        whole, head = run(9), run(3)
        assert len(set(whole)) == 9
        assert head + run(9, str(tmp_path / "at.ckpt")) == whole


class Digests(lightning.LightningModule):
    """Remembers its mini-batches."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.met = torch.nn.Parameter(torch.zeros(())), list[str]()

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        self.met.append(batch.digest())
        return self.weight**2

    def validation_step(self, batch: Any, _: int) -> None:
        raise AssertionError("there is no validation")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def edges_of(graph: HeteroGraph, key: tuple[str, str, str]) -> torch.Tensor:
    lists = graph.relation(key)
    dst = torch.arange(lists.num_dst).repeat_interleave(lists.in_degrees().long())
    return torch.stack([lists.indices.long(), dst])


def one_type(graph: Graph) -> NodeDataset:
    ids = torch.arange(9)
    splits = {"train": ids[:3], "val": ids[3:6], "test": ids[6:]}
    return NodeDataset("plain", graph, torch.zeros(9, 1), ids % 2, splits, num_classes=2)
