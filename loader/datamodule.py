"""The LightningDataModule: a dataset's splits as loaders."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from loader.features import FeatureStore, HostFeatures
from loader.minibatch import MiniBatch
from loader.node_loader import NodeLoader
from loader.samplers.base import Sampler
from loader.seeds import check_batch_size

if TYPE_CHECKING:
    from loader.datasets import NodeDataset


class GraphDataModule(LightningDataModule):
    """Train, validation, test and predict loaders of one dataset.

    Each split has one `NodeLoader`, kept for the life of the module, so that Lightning's fit loop finds the
    loader whose state it saves in checkpoints: a run resumed with `trainer.fit(..., ckpt_path=...)` sees exactly the
    mini-batches that were left. Only the train loader shuffles. Lightning announces the epoch to the train and
    validation loaders, and what they give follows from it; validating, testing and predicting outside of `fit`
    always is epoch 0, so equal weights give equal numbers. Under several processes each takes its share of every
    split (see `SeedBatches`; evaluation may then count up to `world_size - 1` seeds twice).

    Args:
        dataset: an object whose `load()` returns a `NodeDataset`, or a `NodeDataset`.
        sampler: for training.
        eval_sampler: for validation, test and prediction; by default the train sampler.
        features: makes the feature store of the dataset's feature tensor.
        batch_size: seeds of a training mini-batch, per process.
        eval_batch_size: seeds of the other mini-batches, by default `batch_size`.
        drop_last: leave out a last training mini-batch smaller than the others; evaluation never does.
        seed: of the order of the training seeds.
        prefetch: mini-batches held ready a stage, see `NodeLoader`.

    Attributes:
        data: the `NodeDataset`, from `setup()` on.
        move_seconds: time the host spent in moving mini-batches to the device.

    Raises:
        TypeError, ValueError: a batch size or `prefetch` is out of range, or `dataset` or a sampler is no such thing.
    """

    def __init__(
        self,
        dataset: Any,
        sampler: Sampler,
        eval_sampler: Sampler | None = None,
        features: Callable[[Tensor], FeatureStore] = HostFeatures,
        *,
        batch_size: int = 1024,
        eval_batch_size: int | None = None,
        drop_last: bool = False,
        seed: int = 0,
        prefetch: int = 2,
    ) -> None:
        super().__init__()
        check_batch_size("batch_size", batch_size)
        if eval_batch_size is not None:
            check_batch_size("eval_batch_size", eval_batch_size)
        if prefetch < 0:
            raise ValueError(f"prefetch is {prefetch}; give 0 (no threads) or more")
        for name, value in (("sampler", sampler), ("eval_sampler", eval_sampler)):
            if not isinstance(value, Sampler) and (value is not None or name == "sampler"):
                raise TypeError(f"{name} is a {type(value).__name__}; it must be a loader.samplers.Sampler")
        if not hasattr(dataset, "load") and not hasattr(dataset, "splits"):
            raise TypeError(f"dataset is a {type(dataset).__name__}; give a NodeDataset, or what load()s one")
        self.dataset = dataset
        self.sampler = sampler
        self.eval_sampler = sampler if eval_sampler is None else eval_sampler
        self.batch_size = batch_size
        self.eval_batch_size = batch_size if eval_batch_size is None else eval_batch_size
        self.drop_last = drop_last
        self.seed = seed
        self.prefetch = prefetch
        self.data: NodeDataset | None = None
        self.move_seconds = 0.0
        self._make_features = features
        self._features: FeatureStore | None = None
        self._loaders: dict[str, NodeLoader] = {}

    @property
    def num_features(self) -> int:
        return self._loaded().num_features

    @property
    def num_classes(self) -> int:
        return self._loaded().num_classes

    @property
    def multilabel(self) -> bool:
        return self._loaded().multilabel

    @property
    def features(self) -> FeatureStore:
        """The store that all loaders gather from, from `setup()` on."""
        self._loaded()
        assert self._features is not None
        return self._features

    @property
    def loaders(self) -> dict[str, NodeLoader]:
        """The loaders made so far, by split; their `stats` say where the time went."""
        return dict(self._loaders)

    def prepare_data(self) -> None:
        """Downloads and converts the dataset, once a machine: the other processes find it in the cache."""
        self._load()

    def setup(self, stage: str | None = None) -> None:
        """Opens the dataset and its feature store, unless that was done before."""
        self._load()
        if self._features is None:
            self._features = self._make_features(self._loaded().features)

    def train_dataloader(self) -> NodeLoader:
        """The seeds of the train split, shuffled each epoch (with `overfit_batches`: always in their order)."""
        overfit = getattr(self.trainer, "overfit_batches", 0) > 0
        return self._loader("train", self.sampler, self.batch_size, shuffle=not overfit, drop_last=self.drop_last)

    def val_dataloader(self) -> NodeLoader | list[NodeLoader]:
        """The validation split; an empty list, which Lightning takes as no validation, where there is none."""
        if self._split("val").numel() == 0:
            return []
        return self._eval_loader("val")

    def test_dataloader(self) -> NodeLoader:
        """The test split."""
        return self._eval_loader("test")

    def predict_dataloader(self) -> NodeLoader:
        """Every vertex of the graph, in order."""
        return self._eval_loader("predict")

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Moves what is not there yet; copies from pinned memory run asynchronously."""
        if not isinstance(batch, MiniBatch):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        if all(t.device == device for t in batch.tensors()):
            return batch
        begin = time.perf_counter()
        batch = batch.to(device, non_blocking=True)
        self.move_seconds += time.perf_counter() - begin
        return batch

    def teardown(self, stage: str | None = None) -> None:
        """Ends the loaders' threads. Data, samplers and statistics stay: Lightning calls this after `fit`, too, and
        `test` may follow. `close()` frees the rest."""
        for loader in self._loaders.values():
            loader.close()

    def on_exception(self, exception: BaseException) -> None:
        """Ends the loaders' threads when a run fails or is interrupted; Lightning then calls no `teardown`."""
        self.teardown()

    def close(self) -> None:
        """Frees loaders, feature store and samplers. The module cannot be used afterwards."""
        self.teardown()
        self._loaders.clear()
        if self._features is not None:
            self._features.close()
        self.sampler.close()
        self.eval_sampler.close()

    def _load(self) -> None:
        if self.data is None:
            self.data = self.dataset.load() if hasattr(self.dataset, "load") else self.dataset

    def _loaded(self) -> NodeDataset:
        if self.data is None:
            raise RuntimeError("the dataset is not open yet; call setup() first")
        return self.data

    def _split(self, split: str) -> Tensor:
        data = self._loaded()
        if split == "predict":
            return torch.arange(data.num_nodes)
        return data.splits[split]

    def _eval_loader(self, split: str) -> NodeLoader:
        loader = self._loader(split, self.eval_sampler, self.eval_batch_size)
        loader.set_epoch(0)
        return loader

    def _loader(
        self, split: str, sampler: Sampler, batch_size: int, *, shuffle: bool = False, drop_last: bool = False
    ) -> NodeLoader:
        data = self._loaded()
        if split not in self._loaders:
            seeds = self._split(split)
            if seeds.numel() == 0:
                raise ValueError(f"dataset {data.name} has no vertices in its {split} split; nothing to iterate over")
            self._loaders[split] = NodeLoader(
                data.graph,
                self.features,
                data.labels,
                seeds,
                sampler,
                batch_size,
                shuffle=shuffle,
                drop_last=drop_last,
                seed=self.seed,
                prefetch=self.prefetch,
                rank=self.trainer.global_rank if self.trainer is not None else 0,
                world_size=self.trainer.world_size if self.trainer is not None else 1,
            )
        return self._loaders[split]
