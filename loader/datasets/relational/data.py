"""What a folder of tables becomes: a typed graph with times, the columns of its rows, and the items of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from torch import Tensor

from loader.datasets.digests import digest_of
from loader.datasets.errors import DatasetError
from loader.datasets.hetero import HeteroDataset
from loader.datasets.node_dataset import SPLITS
from loader.datasets.node_ids import NodeIds
from loader.datasets.relational.row_columns import RowColumn


@dataclass(frozen=True)
class TaskItems:
    """Items of a task.

    Attributes:
        ids: `[n]` int64, the entities, numbered within their type.
        times: `[n]` int64, seconds since 1970.
        labels: `[n]` float32 (0 or 1, or a number), of "multiclass" int64; None of items to predict.
    """

    ids: Tensor
    times: Tensor
    labels: Tensor | None


@dataclass(frozen=True)
class RelationalData(HeteroDataset):
    """A `HeteroDataset` of tables: a node per row, two relations per foreign key, and the items of a task.

    The rows have no labels. `features` are the rows as numbers, whose places `columns` explains.

    Attributes:
        columns: table -> its columns, in the order of the places in `features`.
        task: name of the task.
        task_kind: "binary", "multiclass" or "regression".
        items: split -> items; "new": those to predict, if a file of these was given.
        classes: the labels of "multiclass", by class.
        entity: the column of the items that names a row of `target`.
        entity_ids: what the user calls the rows of `target`, by their numbers in the file: keys, or these numbers.
        entity_rows: `[nodes of target]` int64, these numbers.
        report: what was done with the tables, a line each, warnings first.

    Raises:
        DatasetError: rows have more or fewer numbers than their columns; or see `HeteroDataset`.
    """

    columns: Mapping[str, tuple[RowColumn, ...]] = field(default_factory=dict)
    task: str = ""
    task_kind: str = "binary"
    items: Mapping[str, TaskItems] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    entity: str = ""
    entity_ids: NodeIds | None = None
    entity_rows: Tensor | None = None
    report: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        widths = {name: sum(column.width for column in self.columns.get(name, ())) for name in self.graph.node_types}
        for name, width in widths.items():
            if (have := self.num_features.get(name, 0)) != width:
                raise DatasetError(
                    f"{self.name}: rows of {name} have {have} numbers, and their columns {width}; models read those of "
                    "columns: change both, or neither"
                )

    def identity(self) -> dict[str, Any]:
        """What a model depends on, see `NodeDataset.identity`: types, relations, columns, and the task.

        The rows are no part of it, so that a checkpoint can predict for rows that came later; see `rows_identity`.
        """
        columns = {name: [column.to_json() for column in of] for name, of in self.columns.items()}
        return {
            "name": self.name,
            "task": self.task,
            "kind": self.task_kind,
            "node_types": list(self.graph.node_types),
            "edge_types": ["__".join(key) for key in self.graph.edge_types],
            "target": self.target,
            "classes": list(self.classes),
            "columns": sha256(repr(columns).encode()).hexdigest()[:16],
        }

    def rows_identity(self) -> dict[str, Any]:
        """What a training that goes on depends on besides: edges, times and items."""
        given = [self.items[split] for split in SPLITS]
        items = digest_of(*(array for one in given for array in (one.ids, one.times, one.labels)))
        return {**super().identity(), "items": items}

    def require(self, identity: Mapping[str, Any], what: str) -> None:
        """Raises ValueError unless a model of that `identity` serves here, whatever the folder's name is."""
        super().require({**identity, "name": self.name}, what)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split}={items.ids.numel()}" for split, items in self.items.items())
        return f"RelationalData('{self.name}', {self.graph!r}, task='{self.task}' ({self.task_kind}), {sizes})"
