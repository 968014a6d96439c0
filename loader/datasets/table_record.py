"""What a dataset knows of the tables that it was made of."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from loader.datasets.node_ids import NodeIds
from loader.datasets.table_columns import Column
from loader.datasets.trained_tables import TrainedTables


@dataclass(frozen=True)
class TableRecord:
    """What a conversion made of tables.

    Attributes:
        ids: the ids of the tables, by node.
        classes: the values of the label column, by class; empty without labels.
        columns: how columns became features, in their order.
        report: what was done, in words, a line each, warnings first.
        rows: what a checkpoint keeps, so that rows may be appended after a training: see `TableDataset.extend`.
    """

    ids: NodeIds
    classes: tuple[str, ...]
    columns: tuple[Column, ...]
    report: tuple[str, ...]
    rows: TrainedTables

    def identity(self) -> dict[str, Any]:
        """What tells these tables from others, see `NodeDataset.identity`: ids, classes, and what each feature is."""
        return {
            "ids": self.ids.digest,
            "classes": list(self.classes),
            "columns": [f"{column.name} ({column.kind}, {column.width} features)" for column in self.columns],
            "categories": sha256(repr([column.categories for column in self.columns]).encode()).hexdigest()[:16],
        }
