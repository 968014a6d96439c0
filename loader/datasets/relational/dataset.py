"""The user's own tables with keys and times, described by a schema."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.datasets.cache import CachedArrays
from loader.datasets.cache_writer import CacheWriter
from loader.datasets.column_values import pyarrow
from loader.datasets.errors import DatasetError
from loader.datasets.hetero import HeteroDataset
from loader.datasets.hetero_edges import HeteroEdges, HeteroEdgesDataset
from loader.datasets.locations import fingerprint, given_file
from loader.datasets.node_ids import read_ids, write_ids
from loader.datasets.progress import ConversionProgress
from loader.datasets.relational.data import RelationalData, TaskItems
from loader.datasets.relational.items import ItemColumns, bounds_of, check_label, labels_of, read_items, read_new_items
from loader.datasets.relational.row_columns import RowColumn, encode_rows, fit_columns, none_early, none_known
from loader.datasets.relational.schema import OWN_SCHEMAS, Schema, TaskSchema, read_schema
from loader.datasets.relational.tables import Tables, read_tables
from loader.graph import EdgeType
from loader.machine.arguments import as_flag, shown
from loader.machine.spelling import nearest

log = logging.getLogger(__name__)

_NEW = "new"


class RelationalDataset(HeteroEdgesDataset):
    """A folder of tables whose rows have keys and times, and a task to learn on them. pyarrow reads the tables.

    A schema, a YAML file, says which columns are keys and times::

        tables:
          drivers: {file: drivers.csv, key: driverId}
          races: {file: races.csv, key: raceId, time: date}
          results: {file: results.csv, key: resultId, time: raceId.date, foreign: {driverId: drivers, raceId: races}}
        split: {val: 2005-01-01, test: 2010-01-01}
        tasks:
          driver-dnf: {file: dnf.csv, table: drivers, entity: driverId, time: date, label: target, kind: binary}

    Each row is a node. Each foreign key is two relations, `(results, f2p_driverId, drivers)` and back,
    `(drivers, rev_f2p_driverId, results)`, named as RelBench names them. An item of the task asks for a label of a row
    at a time; a sampler by time then sees the rows that are known at that time.

    A table has these entries:

    ============ =================================================================================================
    entry        meaning
    ============ =================================================================================================
    `file`       its path in the folder: CSV, TSV or Parquet
    `key`        the column, or the list of columns, that name a row: whole numbers, texts or dates
    `time`       the column that says when a row becomes known; `raceId.date` is the date of the row that the
                 foreign key `raceId` names; without it, the rows were always known. `time: null` says that this is
                 meant of a table with dates, else a warning asks. Dates, or seconds since 1970;
                 `{column: yearID, unit: year}` for years, which begin on January 1. Fractions of a second are
                 rounded up in tables and down in items. Either all times have a time zone, or none has
    `foreign`    column -> table; or a list with `{columns: [a, b], table: name}` for keys of several columns
    `columns`    column -> number, category or time, those that become features. Without it all do that are no
                 keys, by their types; texts that differ in most rows are left out
    `missing`    texts that mean a missing value, beside the empty one, NA, NaN, null and None; in keys,
                 too. In a Parquet file also the numbers and dates that these texts are
    `dangling`   true: keys that name no row are expected, and no warning tells of them
    `short_rows` true: rows of a CSV file may end early, and the cells that they lack are missing
    ============ =================================================================================================

    A task has `files` with train, val and test, whose times follow each other, or one `file` that `split` divides by
    time. `entity` is the column of the items that names a row of `table`: `by: key`, the default, or `by: row`, the
    number of the row from 0. `time` and `label` are columns of the items, too. `kind` is binary, multiclass or
    regression. If a table has the file of the items, its `columns` leave the label out.

    A split begins where `split` says, else with its first item. Rows that are later than the beginning of test are left
    out, as in RelBench, so that scores can be compared. Means, deviations, and categories are of the rows that are
    earlier than the beginning of val, and of all rows of a table without times.

    Args:
        path: of the folder. A relative path is also looked for in `data_dir`.
        task: name of the task.
        schema: path of the schema; None: schema.yaml in the folder. Or the name of one that comes with the package:
            "rel-f1", "lahman".
        later_rows: keep the rows that are later than the beginning of test. Seeds see those up to their time, so
            nothing leaks. But scores are then not those of RelBench, whose tables end there.
        items: path of a table of items to predict, without labels; None: those of test are predicted.
        options: see `CachedDataset`.

    Raises:
        DatasetError: there is no such schema or task, or it is not as said above.
        TypeError, ValueError: an option is not as said above.
    """

    kind = RelationalData

    def __init__(
        self,
        path: str | Path,
        task: str,
        *,
        schema: str | Path | None = None,
        later_rows: bool = False,
        items: str | Path | None = None,
        **options: Any,
    ) -> None:
        for option, value in (("path", path), ("schema", schema), ("items", items)):
            if not isinstance(value, (str, Path)) and (value is not None or option == "path"):
                raise TypeError(f"{option} is {shown(value)}; it must be a path")
        for option in ("undirected", "check_features"):
            if option in options:
                raise ValueError(
                    f"{option} is given; tables have both directions of each key and finite numbers: leave it out"
                )
        if not isinstance(task, str):
            raise TypeError(f"task is {shown(task)}; it must be a name under 'tasks' of the schema")
        super().__init__(Path(path).expanduser().absolute().name, **options)
        self.given_schema, self.task_name = schema, task
        self.folder = given_file(path, self.data_dir)
        self.later_rows = as_flag("later_rows", later_rows)
        self.new_items = None if items is None else given_file(items, self.data_dir)
        self.columns: dict[str, list[RowColumn]] = {}

    @cached_property
    def schema(self) -> Schema:
        """What the schema says.

        Raises:
            DatasetError: there is none, or it is not as said above.
        """
        if not self.folder.is_dir():
            raise DatasetError(f"path: there is no folder {self.folder.absolute()}; give that of the tables")
        return read_schema(_schema_file(self.given_schema, self.folder, self.data_dir))

    @property
    def task(self) -> TaskSchema:
        """What the schema says of the task.

        Raises:
            DatasetError: it has no task of this name.
        """
        return self.schema.task(self.task_name)

    def use_columns(self, columns: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Encodes the tables as another conversion did, whose `RelationalData.columns` these are, as JSON.

        Raises:
            DatasetError: the schema has other tables, or other ones with times.
        """
        if list(columns) != list(self.schema.tables):
            raise DatasetError(
                f"{self.schema.path} has the tables {', '.join(self.schema.tables)}; the model was trained on "
                f"{', '.join(columns)}: give the schema that it had"
            )
        self.columns = {name: [RowColumn.from_json(column) for column in of] for name, of in columns.items()}
        for name, table in self.schema.tables.items():
            had = any(column.kind == "known" for column in self.columns[name])
            if had != (table.time is not None):
                raise DatasetError(
                    f"{self.schema.path}: rows of {name} have {'no' if had else 'a'} time, and had "
                    f"{'one' if had else 'none'} in training; give the schema that it had"
                )

    def source(self) -> list[Any]:
        if self.new_items is not None and not self.new_items.is_file():
            raise DatasetError(
                f"items: there is no file {self.new_items.absolute()}; give that of the items to predict"
            )
        files = [table.file for table in self.schema.tables.values()] + list(self.task.files.values())
        for file in files:
            if not (self.folder / file).is_file():
                raise DatasetError(f"{self.schema.path} names the file {file}; there is no {self.folder / file}")
        new = [] if self.new_items is None else fingerprint(self.new_items.parent, [self.new_items.name])
        return [
            str(self.folder.resolve()),
            self.schema.path.read_text(encoding="utf-8"),
            *fingerprint(self.folder, files),
            *new,
        ]

    def options(self) -> dict[str, Any]:
        new = None if self.new_items is None else str(self.new_items.resolve())
        columns = {name: [column.to_json() for column in of] for name, of in self.columns.items()}
        return {
            **super().options(),
            "task": self.task.name,
            "later_rows": self.later_rows,
            "items": new,
            "columns": sha256(repr(columns).encode()).hexdigest()[:16] if columns else None,
            "missing": "of any type, decimals too, and None",  # an earlier version's conversions knew fewer
            "cells": "as written",  # and had those that differ as one key or label,
            "categories": "as written",  # or as one category
        }

    def convert(self, writer: CacheWriter, progress: ConversionProgress) -> None:
        super().convert(writer, progress)
        # There are no classes of nodes to tell of. What became of each column is in `RelationalData.report`.
        progress.notes[:] = writer.properties["notes"]

    def read(self, writer: CacheWriter) -> HeteroEdges:
        tables = read_tables(self.schema, self.folder)
        warnings = [*tables.warnings, *check_label(self.schema, self.task, tables)]
        items = read_items(self.schema, self.task, self.folder, tables)
        val, test = bounds_of(self.task, items)
        labels, classes = labels_of(self.task, items)
        if self.new_items is not None:
            items[_NEW] = new = read_new_items(self.schema, self.task, self.new_items, tables)
            if not self.later_rows and (late := int((new.times > test).sum())):
                warnings.append(
                    f"{self.new_items}: {late:,} of {new.times.size:,} items are later than "
                    f"{np.datetime64(test, 's')}, and rows after that are left out, so they see none of these; give "
                    "later_rows=True"
                )
        self._write_ids(writer, tables)
        if not self.later_rows:
            tables = tables.until(test)
        self._write_items(writer, items, labels, tables)
        features: dict[str, NDArray[np.generic]] = {}
        columns: dict[str, Any] = {}
        report: list[str] = []
        for name, rows in tables.rows.items():
            of, done = (self.columns[name], []) if self.columns else fit_columns(rows, val)
            warnings += none_known(rows, of) if self.columns else none_early(rows, val)
            features[name] = encode_rows(rows, of)
            columns[name] = [column.to_json() for column in of]
            report += done
        writer.properties.update(columns=columns, classes=classes, splits=[*items], report=report, notes=tables.notes)
        writer.properties["warnings"] = warnings
        edges: dict[EdgeType, NDArray[np.generic]] = {}
        for name, rows in tables.rows.items():
            for key, named in rows.named.items():
                there = np.flatnonzero(named >= 0)
                edges[name, f"f2p_{key.name}", key.table] = np.stack([there, named[there]])
                edges[key.table, f"rev_f2p_{key.name}", name] = np.stack([named[there], there])
        return HeteroEdges(
            edges=edges,
            num_nodes={name: rows.size for name, rows in tables.rows.items()},
            target=self.task.table,
            features={name: rows for name, rows in features.items() if rows.shape[1]},
            node_times={name: rows.times for name, rows in tables.rows.items() if rows.times is not None},
        )

    def _write_ids(self, writer: CacheWriter, tables: Tables) -> None:
        """What the user calls the entities, by their rows in the file."""
        arrow = pyarrow()
        if self.task.by == "row":
            ids = arrow.array(np.arange(tables.rows[self.task.table].size))
        else:
            ids = tables.keys[self.task.table]
            ids = ids.cast(arrow.int64()) if _all_whole(ids) else ids
        writer.properties["ids"] = write_ids(writer, ids)

    def _write_items(
        self,
        writer: CacheWriter,
        items: dict[str, ItemColumns],
        labels: dict[str, NDArray[np.generic]],
        tables: Tables,
    ) -> None:
        rows = tables.rows[self.task.table]
        total = int(max(rows.row_numbers.max(initial=-1), *(one.rows.max(initial=-1) for one in items.values()))) + 1
        place = np.full(total, -1)
        place[rows.row_numbers] = np.arange(rows.size)
        for split, one in items.items():
            ids = place[one.rows]
            if (ids < 0).any():
                raise DatasetError(
                    f"{one.path}: {int((ids < 0).sum()):,} of {ids.size:,} items ask about rows of {self.task.table} "
                    "that are later than the beginning of test, which are left out; leave these items out, or give "
                    "dataset.later_rows=true"
                )
            writer.write(f"items.{split}.ids", ids)
            writer.write(f"items.{split}.times", one.times)
            if split in labels:
                writer.write(f"items.{split}.labels", labels[split])
        writer.write("kept", rows.row_numbers)

    def _assemble(self, cached: CachedArrays) -> HeteroDataset:
        data, arrays, properties = super()._assemble(cached), cached.arrays, cached.properties
        ids = read_ids(arrays, properties["ids"])
        warnings = properties.get("warnings", ())  # a conversion of an earlier version has none
        for line in warnings:
            log.warning("%s: %s", self.name, line)
        return RelationalData(
            **{one.name: getattr(data, one.name) for one in dataclasses.fields(data)},
            columns={name: tuple(map(RowColumn.from_json, columns)) for name, columns in properties["columns"].items()},
            task=self.task.name,
            task_kind=self.task.kind,
            items={
                split: TaskItems(
                    arrays[f"items.{split}.ids"], arrays[f"items.{split}.times"], arrays.get(f"items.{split}.labels")
                )
                for split in properties["splits"]
            },
            classes=tuple(properties["classes"]),
            entity=self.task.entity,
            entity_ids=ids,
            entity_rows=arrays["kept"],
            report=(*warnings, *properties["notes"], *properties["report"]),
        )


def _schema_file(schema: str | Path | None, folder: Path, data_dir: Path) -> Path:
    own = sorted(one.stem for one in OWN_SCHEMAS.glob("*.yaml"))
    if schema is None:
        path = folder / "schema.yaml"
    elif str(schema) in own:
        return OWN_SCHEMAS / f"{schema}.yaml"
    else:
        path = given_file(schema, data_dir)
    if not path.is_file():
        way = "write one, or give schema=PATH" if schema is None else f"or name one of {', '.join(own)}"
        raise DatasetError(f"there is no schema {path.absolute()}; {way}{nearest(str(schema), own)}")
    return path


def _all_whole(texts: Any) -> bool:
    """Whether texts are whole numbers in their plain form."""
    plain = pyarrow("pyarrow.compute").match_substring_regex(texts, r"^(0|-?[1-9]\d{0,17})$")
    return bool(pyarrow("pyarrow.compute").all(plain, min_count=0).as_py())
