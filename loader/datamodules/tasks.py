"""The LightningDataModule of tasks on tables: items, each a row, a time and a label, as loaders."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from loader.datamodules.hetero import check_hetero
from loader.datamodules.nodes import GraphDataModule
from loader.datasets.errors import DatasetError
from loader.datasets.node_dataset import require_identity
from loader.datasets.relational import RelationalData, TaskItems
from loader.loaders.base import Loader
from loader.loaders.nodes import NodeLoader
from loader.machine.arguments import kind_of
from loader.memory.hetero import SplitSeeds
from loader.samplers import Sampler
from loader.stores import TensorRows
from loader.stores.rows import as_dtype

_OUTER = (0.02, 0.98)  # quantiles of the train labels between which predictions of a regression stay, as in RelBench


class TaskDataModule(GraphDataModule):
    """A LightningDataModule with the train, validation, test and predict loaders of a task on tables.

    An item asks for the label of a row at a time. The sampler, one by time, gives it a tree of the rows that are known
    then. Prediction is of the items that the dataset has to predict, else of those of test.

    Rows are float32. Narrower types hold no days, years and codes of categories, so `features` keeps and returns none.

    Args:
        dataset: a `RelationalData`, or an object whose `load()` returns one.
        options: see `GraphDataModule`.

    Raises:
        DatasetError: in `setup()`, the dataset has no task, or the sampler ignores times.
        TypeError, ValueError: an argument is not as said above.
    """

    hetero_trial_sizes: ClassVar[dict[str, Any]] = {
        "columns": {"node": [{"name": "x", "kind": "number", "width": 1, "categories": 0, "first_year": 0}]},
        "edge_types": [("node", "to", "node")],
        "target": "node",
        "task_kind": "binary",
        "num_classes": 2,
        "label_range": None,
    }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, dtype in getattr(self._make_features, "keywords", {}).items():  # before the data are read
            if name in ("dtype", "storage_dtype") and dtype is not None:
                _require_exact(f"features.{name}", as_dtype(name, dtype))

    def setup(self, stage: str | None = None) -> None:
        """Opens the dataset and its feature stores, unless that was done before; see `GraphDataModule.setup`."""
        super().setup(stage)
        assert isinstance(self.features, dict)
        for name, store in self.features.items():
            for dtype in (store.dtype, getattr(store, "storage_dtype", store.dtype)):
                _require_exact(f"features of {name}", dtype)

    @property
    def sizes(self) -> dict[str, Any]:
        data = self._loaded()
        return {
            "columns": {name: [column.layout() for column in columns] for name, columns in data.columns.items()},
            "edge_types": list(data.graph.edge_types),
            "target": data.target,
            "task_kind": data.task_kind,
            "num_classes": len(data.classes) or 2,
            "label_range": _label_range(data),
        }

    def state_dict(self) -> dict[str, Any]:
        """Which task a checkpoint is of, on which rows, and how its tables were encoded, so that later rows can be
        encoded alike.
        """
        if self.data is None:
            return {}
        data = self._loaded()
        columns = {name: [one.to_json() for one in of] for name, of in data.columns.items()}
        return {**super().state_dict(), "columns": columns, "rows": data.rows_identity()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError if the checkpoint is of another task, or of other rows, with which no training goes on."""
        super().load_state_dict(state_dict)
        if self.data is not None:
            require_identity(self._loaded().rows_identity(), state_dict.get("rows", {}), "the checkpoint")

    def learned_from(self) -> None:
        """None: `rows_identity` says which items there are."""
        return

    def items(self, split: str) -> TaskItems:
        """The items of "train", "val" or "test"; "predict": those to predict, else those of test."""
        items = self._loaded().items
        return items.get("new", items["test"]) if split == "predict" else items[split]

    def predict_dataloader(self) -> Loader:
        """The items to predict, in their order; those of test if the dataset has none."""
        return self._eval_loader("predict")

    def _load(self) -> None:
        if self.data is None:
            data = self.dataset.load() if hasattr(self.dataset, "load") else self.dataset
            if not isinstance(data, RelationalData):
                raise DatasetError(
                    f"dataset {data.name} is {kind_of(data)}, which has no task on tables; give dataset=relational"
                )
            check_hetero(data.name, self.graph_memory.kind)
            for sampler in (self.sampler, self.eval_sampler):
                _require_timed(data, sampler)
            self.data = data

    def _loaded(self) -> RelationalData:
        data = super()._loaded()
        assert isinstance(data, RelationalData)  # others were refused
        return data

    def _split(self, split: str) -> Tensor:
        return self.items(split).ids

    def _times(self, split: str, sampler: Sampler) -> Tensor | None:
        _require_timed(self._loaded(), sampler)  # it may have been set since
        return self.items(split).times if sampler.timed else None

    def _planned_seeds(self) -> dict[str, SplitSeeds]:
        found = {split: self.items(split) for split in ("train", "val", "test")}
        return {
            split: SplitSeeds(items.ids, self._times(split, self.sampler), items.labels)
            for split, items in found.items()
        }

    def _make_loader(self, split: str, sampler: Sampler, batch_size: int, **options: Any) -> Loader:
        items = self.items(split)
        if items.ids.numel() == 0:
            raise ValueError(f"dataset {self._loaded().name} has no items in {split}; nothing to iterate over")
        batches, processes = -(-items.ids.numel() // batch_size), options.get("world_size", 1)
        if split in ("val", "test") and batches < processes:
            raise ValueError(
                f"{split} has {batches} mini-batches of {batch_size} items for {processes} processes, each of which "
                "must measure one of its own; lower datamodule.eval_batch_size, or take fewer processes"
            )
        labels = None if items.labels is None else TensorRows(items.labels.to(sampler.device), items.labels.dtype)
        return NodeLoader(
            self._graph(sampler),
            self.features,
            labels,
            (self._loaded().target, items.ids),
            sampler,
            batch_size,
            times=self._times(split, sampler),
            edge_features=self.edge_features,
            **options,
        )


def _require_timed(data: RelationalData, sampler: Sampler) -> None:
    """Raises DatasetError if the sampler ignores the times of the items."""
    if not sampler.timed and data.graph.timed_types:
        raise DatasetError(
            f"dataset {data.name} has items with times, and {type(sampler).__name__} ignores them, so that items would "
            "see what came later; give sampler=trees"
        )


def _require_exact(what: str, dtype: torch.dtype) -> None:
    """Raises ValueError for a type that rounds what stands in columns of tables."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"{what} is {str(dtype).removeprefix('torch.')}, and rows of tables hold days, years and codes of "
            "categories, which only float32 has exactly; leave it out"
        )


def _label_range(data: RelationalData) -> tuple[float, float] | None:
    """Between which predictions stay, of a regression."""
    labels = data.items["train"].labels
    if data.task_kind != "regression" or labels is None:
        return None
    low, high = np.quantile(labels.double().numpy(), _OUTER).tolist()  # torch.quantile takes 16 million at most
    return low, high
