"""The tables that a model was trained on, as its checkpoints keep them: rows may be appended to them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from loader.datasets.column_values import as_text, pyarrow
from loader.datasets.digests import digest_of
from loader.datasets.errors import DatasetError
from loader.datasets.node_ids import digest_of_ids
from loader.datasets.table_columns import Column, TableFile, column_kind
from loader.machine.arguments import shown


@dataclass(frozen=True)
class TrainedTables:
    """What tables were when a model was trained.

    Attributes:
        source: of the files, see `Dataset.source`.
        num_nodes, num_rows: rows of the table of nodes, and of that of edges.
        ids, ends, labels: digests of the ids of nodes, of the ends of edges, and of the labels.
        classes, columns: see `TableRecord`.
    """

    source: list[Any]
    num_nodes: int
    num_rows: int
    ids: str
    ends: str
    labels: str
    classes: tuple[str, ...]
    columns: tuple[Column, ...]

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> TrainedTables:
        """What `to_json` gave."""
        columns = tuple(Column.from_json(one) for one in saved["columns"])
        return cls(**{**saved, "classes": tuple(saved["classes"]), "columns": columns})

    def to_json(self) -> dict[str, Any]:
        columns = [column.to_json() for column in self.columns]
        return {**asdict(self), "classes": list(self.classes), "columns": columns}

    def check_ids(self, ids: Any, path: Path) -> None:
        """Raises DatasetError unless the nodes of training are the first ones of `path`, with their `ids`."""
        self._check_rows(len(ids), self.num_nodes, path)
        if digest_of_ids(ids.slice(0, self.num_nodes)) != self.ids:
            raise self._other("ids", self.num_nodes, path)

    def check_ends(self, src: NDArray[np.integer], dst: NDArray[np.integer], path: Path) -> None:
        """Raises DatasetError unless the edges of training are the first ones of `path`."""
        self._check_rows(src.size, self.num_rows, path)
        if digest_of_ends(src[: self.num_rows], dst[: self.num_rows]) != self.ends:
            raise self._other("edges", self.num_rows, path)

    def check_labels(self, labels: NDArray[np.int64], path: Path) -> None:
        """Raises DatasetError unless the nodes of training have the labels that they had."""
        if digest_of(torch.from_numpy(labels[: self.num_nodes])) != self.labels:
            raise self._other("labels", self.num_nodes, path)

    def names(self, file: TableFile, taken: Sequence[str], given: Sequence[str] | None) -> list[str]:
        """The columns that features are made of, each of which `file` must have.

        Args:
            taken: the columns of ids, labels and splits.
            given: the user's choice, which must be that of training.

        Raises:
            DatasetError: a column is missing, or the choice is another one.
        """
        names = [column.name for column in self.columns]
        if given is not None and sorted(given) != sorted(names):
            raise DatasetError(
                f"{file.path}: features is {shown(list(given))}, but the checkpoint's training read "
                f"{', '.join(names)}; leave it out (dataset.features)"
            )
        for name in names:
            file.column("features", name, 0)
            if name in taken:
                raise DatasetError(
                    f"{file.path}: column {name} is that of ids, labels or splits, but the checkpoint's training read "
                    "it as a feature; name the columns as then (dataset.id, dataset.label, dataset.split)"
                )
        return names

    def report_of(self, table: Any, file: TableFile) -> list[str]:
        """What is to be said of columns whose features are made as in training.

        Raises:
            DatasetError: the values of a column are of another kind.
        """
        report = [f"{', '.join(column.name for column in self.columns)}: as in the checkpoint's training"]
        for column in self.columns:
            values = table.column(column.name)
            if values.null_count == len(values) or column.width == 0:
                continue
            if column_kind(column.name, values.type, file.path) != column.kind:
                row = next(row for row in range(len(values)) if _is_other(values[row].as_py(), column.kind))
                raise DatasetError(
                    f"{file.path}: column {column.name} is {shown(values[row].as_py())} in row {row + 1}, but in the "
                    f"checkpoint's training it was a {column.kind}; correct it, or train again"
                )
            if column.categories and not column.others:
                compute, texts = pyarrow("pyarrow.compute"), as_text(values).drop_null()
                known = compute.is_in(texts, value_set=pyarrow().array(column.categories, texts.type))
                if new := len(texts) - compute.sum(known).as_py():
                    report.append(f"{column.name}: {new:,} values were not there in training, and have no feature")
        return report

    def _check_rows(self, rows: int, trained: int, path: Path) -> None:
        if rows < trained:
            raise DatasetError(
                f"{path} has {rows:,} rows, but the checkpoint's training had {trained:,}; rows may be appended, none "
                "taken out: give the dataset that it was trained on"
            )

    def _other(self, what: str, rows: int, path: Path) -> DatasetError:
        return DatasetError(
            f"{path}: the {what} of the first {rows:,} rows are not those that the checkpoint's training had there; "
            "append rows below them, or give the dataset that it was trained on"
        )


def _is_other(value: Any, kind: str) -> bool:
    """Whether a value is there, and is of another kind than `Column.kind` says. If one cell of a column is text, all
    of them come as texts.
    """
    parsers: dict[str, Callable[[str], object]] = {"number": float, "time": datetime.fromisoformat}
    parse = parsers.get(kind)
    if parse is None or not isinstance(value, str):
        return value is not None
    try:
        parse(value)
    except ValueError:
        return True
    return False


def digest_of_ends(src: NDArray[np.integer], dst: NDArray[np.integer]) -> str:
    """A digest of edges, by the numbers of their nodes; of many edges evenly spaced ones are read."""
    return digest_of(torch.from_numpy(src), torch.from_numpy(dst))


def trained_labels(values: Any, found: Any, classes: Sequence[str], name: str, path: Path) -> NDArray[np.int64]:
    """Labels `[rows]` with the numbers that classes had in training, -1 where there is none.

    Args:
        values: the column of labels.
        found: its different values.

    Raises:
        DatasetError: a value is none of the classes.
    """
    number = {text: place for place, text in enumerate(classes)}
    texts = [str(one) for one in found.to_pylist()]
    if strange := [place for place, text in enumerate(texts) if text not in number]:
        row = pyarrow("pyarrow.compute").index(values, found[strange[0]]).as_py() + 1
        raise DatasetError(
            f"{path}: label {name} is {shown(texts[strange[0]])} in row {row}, which is none of the "
            f"{len(classes)} classes of the checkpoint's training; leave the cell empty, or train again"
        )
    place = pyarrow("pyarrow.compute").index_in(values, value_set=found, skip_nulls=True).fill_null(-1).to_numpy()
    return np.array([number[text] for text in texts] + [-1], dtype=np.int64)[place]
