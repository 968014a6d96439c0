"""The items of a task: which row is asked about, at which time, and the label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.datasets.column_values import as_numbers, as_text, is_number, pyarrow, refuse_spaces
from loader.datasets.errors import DatasetError
from loader.datasets.node_dataset import SPLITS
from loader.datasets.relational.schema import Schema, TaskSchema
from loader.datasets.relational.tables import Tables, key_texts, key_values, require_column, times_of_column
from loader.datasets.table_columns import MOST_ROUNDED, TableFile
from loader.graph.checks import MISSING_TIME
from loader.machine.arguments import shown

_MOST = float(np.finfo(np.float32).max)  # of a label


@dataclass(frozen=True)
class ItemColumns:
    """The items of one split.

    Attributes:
        rows: `[n]` int64, numbers of the entities' rows in the file of their table.
        times: `[n]` int64, seconds since 1970.
        labels: `[n]`, an array of pyarrow; None of items to predict.
        path: of their file.
    """

    rows: NDArray[np.int64]
    times: NDArray[np.int64]
    labels: Any
    path: Path


def read_items(schema: Schema, task: TaskSchema, folder: Path, tables: Tables) -> dict[str, ItemColumns]:
    """The items of each split, in the order of the files.

    Raises:
        DatasetError: a file or column is missing, a value is, or it names no row; a split has no items.
    """
    read = {name: _read(schema, task, folder / file, tables, labelled=True) for name, file in task.files.items()}
    if "all" in read:
        assert task.split is not None  # the schema was checked
        val, test = task.split
        at, items = read["all"].times, read["all"]
        parts = {"train": at < val, "val": (at >= val) & (at < test), "test": at >= test}
        read = {
            split: replace(
                items,
                rows=items.rows[part],
                times=at[part],
                labels=items.labels.filter(pyarrow().array(part)),
            )
            for split, part in parts.items()
        }
    for split, items in read.items():
        if not items.rows.size:
            raise DatasetError(
                f"{schema.path}: task {task.name} has no items for {split} ({items.path}); it needs some of train, val "
                "and test: change its split, or its file"
            )
    _check_order(schema, task, read)
    return read


def _check_order(schema: Schema, task: TaskSchema, items: Mapping[str, ItemColumns]) -> None:
    """Raises DatasetError if a split has an item of the next one's time: a model would learn from what came later."""
    for before, split in pairwise(SPLITS):
        first, times = int(items[split].times.min()), items[before].times
        if task.split is not None:
            first = min(first, task.split[SPLITS.index(split) - 1])
        if late := int((times >= first).sum()):
            raise DatasetError(
                f"{schema.path}: task {task.name} has {late:,} of {times.size:,} items of {before} at or after "
                f"{np.datetime64(first, 's')}, where {split} begins; a split ends before the next one: "
                "change its split, or its files"
            )


def check_label(schema: Schema, task: TaskSchema, tables: Tables) -> list[str]:
    """Warnings of tables in which an item meets its own label.

    Raises:
        DatasetError: it is in the row that the item asks about.
    """
    files, own = {Path(file) for file in task.files.values()}, []
    for name, rows in tables.rows.items():
        keys = {*rows.schema.key, *(column for one in rows.schema.foreign for column in one.columns)}
        if Path(rows.schema.file) in files and task.label in {*rows.features, *keys}:
            own.append(name)
    if task.table in own:
        raise DatasetError(
            f"{schema.path}: the label of task {task.name} is the column {task.label} of {task.table}, whose rows its "
            f"items ask about, so a model would read the answer; leave it out of tables.{task.table}, whose 'columns' "
            "name those that are features"
        )
    return [
        f"rows of {name} are the items of task {task.name} with their label, the column {task.label}, and an item sees "
        f"its own row; give sampler.rule='<', or leave it out of tables.{name}, whose 'columns' name the features"
        for name in own
    ]


def read_new_items(schema: Schema, task: TaskSchema, path: Path, tables: Tables) -> ItemColumns:
    """Items to predict: the label is not read."""
    return _read(schema, task, path, tables, labelled=False)


def bounds_of(task: TaskSchema, items: Mapping[str, ItemColumns]) -> tuple[int, int]:
    """The first times of val and test: those that the schema says, else the first ones of the items."""
    return task.split or (int(items["val"].times.min()), int(items["test"].times.min()))


def _read(schema: Schema, task: TaskSchema, path: Path, tables: Tables, *, labelled: bool) -> ItemColumns:
    place = f"{schema.path}: tasks.{task.name}"
    if not path.is_file():
        raise DatasetError(f"{place} has items in {path}; there is no such file")
    file = TableFile(path)
    wanted = {task.entity: "entity", task.time.column: "time"} | ({task.label: "label"} if labelled else {})
    for column, option in wanted.items():
        require_column(file, column, f"{place}.{option}")
    read = file.read([*wanted])
    for column in wanted:
        values = read.column(column)
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy())[0])
            raise DatasetError(
                f"{path}: column {column} is empty in row {row + 1}, and in {values.null_count - 1} more; "
                "an item has all of these, and NA and None count as empty: leave these rows out"
            )
    values, zones = read.column(task.time.column), dict(tables.zones)
    times = times_of_column(values, task.time, path, f"{place}.time", zones, up=False)
    assert not (times == MISSING_TIME).any()
    if labelled and task.split_zone and False in zones:
        raise DatasetError(
            f"{schema.path}: the split of task {task.name} has a time zone, and {zones[False]} has none; they are "
            "compared, so give all times a zone, or none"
        )
    rows = _rows(task, file, read.column(task.entity), tables)
    known = tables.rows[task.table].times
    if known is not None and (early := known[rows] > times).any():
        at = int(early.argmax())
        raise DatasetError(
            f"{path}: {int(early.sum()):,} of {rows.size:,} items ask about a row of {task.table} before it is known, "
            f"the first at {np.datetime64(int(times[at]), 's')} in row {at + 1}, about one of "
            f"{np.datetime64(int(known[rows[at]]), 's')}; leave these items out, or correct the times"
        )
    labels = read.column(task.label) if labelled else None
    if labelled and task.kind == "multiclass":
        labels = file.as_written(task.label, labels)
        refuse_spaces(labels, f"{path}: label {task.label}", "class")
    return ItemColumns(rows, times, labels, path)


def _rows(task: TaskSchema, file: TableFile, values: Any, tables: Tables) -> NDArray[np.int64]:
    path, size = file.path, tables.rows[task.table].size
    if task.by == "row":
        if not pyarrow().types.is_integer(values.type):
            raise DatasetError(
                f"{path}: column {task.entity} has type {values.type}; with by: row it holds the rows' numbers in "
                f"{tables.rows[task.table].path}, from 0: or say by: key"
            )
        rows: NDArray[np.int64] = values.to_numpy().astype(np.int64)
        wrong = (rows < 0) | (rows >= size)
        limit = f"{task.table} has the rows 0 to {size - 1}"
    else:
        places = pyarrow("pyarrow.compute").index_in(
            key_texts([key_values(file, task.entity, values)]), value_set=tables.keys[task.table]
        )
        rows = np.asarray(places.fill_null(-1)).astype(np.int64)
        wrong = rows < 0
        limit = f"no row of {task.table} has this key"
    if wrong.any():
        at = int(wrong.argmax())
        raise DatasetError(
            f"{path}: {int(wrong.sum()):,} of {rows.size:,} items name no row of {task.table}, the first is "
            f"{shown(values[at].as_py())} in row {at + 1} ({limit}); correct them, or leave them out"
        )
    return rows


def labels_of(
    task: TaskSchema, items: Mapping[str, ItemColumns]
) -> tuple[dict[str, NDArray[np.generic]], tuple[str, ...]]:
    """The labels of each split, and the classes of "multiclass": in the order of numbers, else of texts.

    Labels are float32 `[n]`, of "multiclass" int64 classes.

    Raises:
        DatasetError: a label is not as the kind of the task says.
    """
    found: dict[str, NDArray[np.generic]] = {}
    classes: tuple[str, ...] = ()
    if task.kind == "multiclass":
        texts = {split: as_text(one.labels).to_pylist() for split, one in items.items()}
        known = set(texts["train"])
        numbers = all(_is_whole(text) for text in known)
        classes = tuple(sorted(known, key=(lambda text: (int(text), text)) if numbers else None))
        if len(classes) < 2:
            raise DatasetError(
                f"{items['train'].path}: all labels ({task.label}) are {shown(classes[0])}; a task has two classes or "
                "more"
            )
        code = {text: number for number, text in enumerate(classes)}
        for split, labels in texts.items():
            if unknown := sorted(set(labels) - known):
                raise DatasetError(
                    f"{items[split].path}: the label {shown(unknown[0])} ({task.label}), and {len(unknown) - 1} more, "
                    f"are none of the {len(classes)} classes of train; leave these items out"
                )
            found[split] = np.array([code[text] for text in labels], dtype=np.int64)
        return found, classes
    for split, one in items.items():
        if not is_number(one.labels.type):
            raise DatasetError(
                f"{one.path}: column {task.label} has type {one.labels.type}; labels of kind {task.kind} are numbers: "
                "or say kind: multiclass"
            )
        numbers_ = as_numbers(one.labels)
        wrong = ~(np.abs(numbers_) <= _MOST) if task.kind == "regression" else (numbers_ != 0) & (numbers_ != 1)
        if wrong.any():
            at = int(wrong.argmax())
            limit = "finite float32" if task.kind == "regression" else "0 or 1"
            raise DatasetError(
                f"{one.path}: column {task.label} is {numbers_[at]} in row {at + 1}; labels of kind {task.kind} are "
                f"{limit}"
            )
        found[split] = numbers_.astype(np.float32)
        if task.kind == "binary" and (numbers_ == numbers_[0]).all():
            raise DatasetError(
                f"{one.path}: all {numbers_.size:,} labels of {split} ({task.label}) are {numbers_[0]:g}; AUROC needs "
                "both 0 and 1: change the split, or the items"
            )
        if task.kind == "regression" and numbers_.size < 2:
            raise DatasetError(
                f"{one.path}: {split} has one item; R2 needs two or more: change the split, or the items"
            )
    if task.kind == "regression":
        every = np.concatenate([as_numbers(one.labels) for one in items.values()])
        _check_rounding(every, f"{items['train'].path}: column {task.label}")
    return found, classes


def _check_rounding(labels: NDArray[np.float64], what: str) -> None:
    """Raises DatasetError if float32 rounds off more of the labels of a regression than a part of their deviation: a
    model would be right, as far as scores tell, whatever it predicts.
    """
    middle = float(np.mean(labels))
    deviation, error = (
        float(np.sqrt(np.mean(np.square(apart)))) for apart in (labels - middle, labels.astype(np.float32) - labels)
    )
    if labels.min() < labels.max() and error > MOST_ROUNDED * deviation:
        raise DatasetError(
            f"{what} has labels around {middle:.10g} with a deviation of {deviation:.3g}, of which float32 rounds off "
            f"{error:.3g}; save by how much they are above the smallest"
        )


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
