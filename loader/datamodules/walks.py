"""The LightningDataModule of random walks: an embedding is trained on walks and evaluated by the labels."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from loader.datamodules.checkpoint_io import use_safe_checkpoints
from loader.datamodules.nodes import GraphDataModule
from loader.datasets import NodeDataset
from loader.items import Walkers, as_size
from loader.loaders.base import Loader
from loader.loaders.whole_graph import WholeGraph
from loader.machine.arguments import shown
from loader.samplers import Sampler, WalkSampler


class WalkDataModule(GraphDataModule):
    """A LightningDataModule with walks from every node for training, and labels for validation and test.

    An epoch has `walks_per_node` walks from each node of every split, because walks use the graph and no labels.
    Validation and test evaluate the embedding of all nodes. So their loaders have one batch, the dataset as a
    `WholeGraph`. A run that is resumed within an epoch continues with exactly the walks that were left, see
    `GraphDataModule`.

    Args:
        dataset, drop_last, seed, prefetch, graph, prioritize_loading: see `GraphDataModule`.
        sampler: a `WalkSampler`.
        batch_size: walks of a mini-batch, per process.
        walks_per_node: walks from each node in an epoch.
        eval_sampler, features, edge_features, eval_batch_size: must be None. Nothing is sampled for validation, and no
            features are read.

    Raises:
        TypeError, ValueError: an argument is not as said above.
    """

    items_kind: ClassVar[str] = "walker"
    unread: ClassVar[tuple[str, ...]] = ("num_features", "features", "columns", "categories")

    trial_sizes: ClassVar[dict[str, Any]] = {"num_nodes": 1, "num_classes": 2}

    def __init__(
        self,
        dataset: Any,
        sampler: WalkSampler,
        eval_sampler: None = None,
        features: None = None,
        *,
        batch_size: int = 1024,
        walks_per_node: int = 10,
        eval_batch_size: None = None,
        edge_features: None = None,
        **options: Any,
    ) -> None:
        given = {
            "eval_sampler": eval_sampler,
            "features": features,
            "edge_features": edge_features,
            "eval_batch_size": eval_batch_size,
        }
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} is {shown(value)}; walks have no such choice: leave it null")
        super().__init__(dataset, sampler, batch_size=batch_size, **options)
        self.walks_per_node = as_size("walks_per_node", walks_per_node, most=2**31 - 1)

    @property
    def sizes(self) -> dict[str, Any]:
        data = self._loaded()
        return {"num_nodes": data.num_nodes, "num_classes": data.num_classes, "multilabel": data.multilabel}

    def _loaded(self) -> NodeDataset:
        data = super()._loaded()
        assert isinstance(data, NodeDataset)  # others were refused
        return data

    def setup(self, stage: str | None = None) -> None:
        """Opens the dataset, unless that was done before."""
        use_safe_checkpoints(self.trainer)
        self._load()
        self.sampler = self.eval_sampler = self.sampler.on(self.device)

    def learned_from(self) -> None:
        """None: walks begin at the nodes of every split, and read no labels."""
        return

    def placement(self) -> dict[str, str]:
        return self._placement(self.train_dataloader())

    def val_dataloader(self) -> WholeGraph | list[WholeGraph]:
        """A loader of the whole graph.

        If there is no validation split, an empty list: Lightning then does not validate.
        """
        return [] if self._split("val").numel() == 0 else self.test_dataloader()

    def test_dataloader(self) -> WholeGraph:  # type: ignore[override]
        """A loader of the whole graph."""
        data = self._loaded()
        return WholeGraph(data.graph, data.features, data.labels, data.splits)

    def predict_dataloader(self) -> Loader:
        raise ValueError("walks have nothing to predict: the embedding of all nodes is the model's own table")

    def _set_later(self) -> tuple[Any, ...]:
        return (self.walks_per_node,)

    def _make_loader(self, split: str, sampler: Sampler, batch_size: int, **options: Any) -> Loader:
        walkers = Walkers(torch.arange(self._loaded().num_nodes), self.walks_per_node)
        return Loader(self._graph(sampler), walkers, sampler, batch_size, **options)
