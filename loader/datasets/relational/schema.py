"""The schema of a folder of tables: their files, keys and times, and the tasks to learn."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loader.datasets.errors import DatasetError
from loader.datasets.node_dataset import SPLITS
from loader.machine.arguments import shown
from loader.machine.optional import import_optional
from loader.machine.spelling import nearest

KINDS = ("binary", "multiclass", "regression")  # of tasks
COLUMN_KINDS = ("number", "category", "time")
UNITS = ("second", "year")
OWN_SCHEMAS = Path(__file__).parent / "schemas"


@dataclass(frozen=True)
class TimeColumn:
    """Where the times of rows are.

    Attributes:
        column: of the table itself, or of the row that a key names.
        key: the column with that key; None: the table itself.
        unit: of whole numbers: "second" since 1970, or "year", which stands for its first second. Dates have their own.
    """

    column: str
    key: str | None = None
    unit: str = "second"


@dataclass(frozen=True)
class ForeignKey:
    """Columns whose values name a row of a table.

    Attributes:
        columns: as many as the key of the other table has.
        table: the other table.
    """

    columns: tuple[str, ...]
    table: str

    @property
    def name(self) -> str:
        """The key as the relations' names have it: f2p_NAME and rev_f2p_NAME."""
        return "_".join(self.columns)


@dataclass(frozen=True)
class TableSchema:
    """One table.

    Attributes:
        name: of the table, which becomes a node type.
        file: relative to the folder.
        key: the columns that name a row; empty: no other table names its rows.
        time: when rows become known; None: they always were.
        foreign: the keys of other tables' rows.
        columns: column -> kind, those that become features; None: all that are no key.
        missing: texts that mean a missing value, beside the usual ones.
        short_rows: whether rows may end early; the cells that they lack are missing.
        always_known: whether the schema says `time: null`: that there is no time is meant.
        dangling: whether keys are expected that name no row.
    """

    name: str
    file: str
    key: tuple[str, ...] = ()
    time: TimeColumn | None = None
    foreign: tuple[ForeignKey, ...] = ()
    columns: Mapping[str, str] | None = None
    missing: tuple[str, ...] = ()
    short_rows: bool = False
    always_known: bool = False
    dangling: bool = False


@dataclass(frozen=True)
class TaskSchema:
    """One task: items of an entity, a time and a label.

    Attributes:
        name: of the task.
        files: split -> file with the items of the split; or "all" -> the file with all.
        table: of the entities.
        entity: column of the items that names a row of that table.
        by: "key", the value is the row's key; or "row", its number in the file, from 0.
        time: column of the items.
        label: column of the items, the value to learn.
        kind: "binary", "multiclass" or "regression".
        split: first times of "val" and "test", in seconds since 1970, or None.
        split_zone: whether one of them has a time zone.
    """

    name: str
    files: Mapping[str, str]
    table: str
    entity: str
    time: TimeColumn
    label: str
    kind: str
    by: str = "key"
    split: tuple[int, int] | None = None
    split_zone: bool = False


@dataclass(frozen=True)
class Schema:
    """The tables and tasks of a folder.

    Attributes:
        path: of the file.
        tables: name -> table, in the order of the file.
        tasks: name -> task.
    """

    path: Path
    tables: dict[str, TableSchema]
    tasks: dict[str, TaskSchema] = field(default_factory=dict)

    def task(self, name: Any) -> TaskSchema:
        """The task of a name.

        Raises:
            DatasetError: there is none.
        """
        if name not in self.tasks:
            has = f"it has {', '.join(self.tasks)}" if self.tasks else "it has none: add one under 'tasks'"
            raise DatasetError(f"{self.path} has no task {shown(name)}; {has}{nearest(str(name), self.tasks)}")
        return self.tasks[name]


def read_schema(path: Path) -> Schema:
    """Reads and checks a schema.

    Raises:
        DatasetError: there is no such file, it is no YAML, or an entry is not as said above.
    """
    yaml = import_optional("yaml", "a schema of tables", "relational")
    try:
        _refuse_repeats(yaml.compose(text := path.read_text(encoding="utf-8"), yaml.SafeLoader), path)
        given = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        what = " ".join(str(error).split())[:200]
        raise DatasetError(f"{path} cannot be read as a schema in YAML ({what}); correct it") from error
    top = _Entry(path, "", given)
    top.has_only("tables", "tasks", "split")
    tables = {name: _table(entry) for name, entry in top.entries("tables").items()}
    if not tables:
        raise DatasetError(f"{path} has no tables; name them under 'tables', each with its file")
    split = _split(top)
    if all(table.time is None for table in tables.values()):
        raise DatasetError(
            f"{path}: no table has a time, and a task asks what is known at one; say under 'time' of a table when its "
            "rows become known"
        )
    schema = Schema(path, tables, {name: _task(entry, top, split) for name, entry in top.entries("tasks").items()})
    for table in tables.values():
        _check_ends(schema, table)
    for task in schema.tasks.values():
        if task.table not in tables:
            raise _unknown(path, f"tasks.{task.name}.table", task.table, tables)
        if task.by == "key" and len(tables[task.table].key) != 1:
            raise DatasetError(
                f"{path}: tasks.{task.name} names rows of {task.table} by key, which has {len(tables[task.table].key)} "
                "columns; it must have one, or say by: row and give the rows' numbers"
            )
    return schema


def _refuse_repeats(node: Any, path: Path) -> None:
    """Raises DatasetError if a mapping of a YAML file has a name twice, of which YAML's readers take the last one."""
    values = [] if node is None or isinstance(node.value, str) else node.value
    if values and isinstance(values[0], tuple):
        names = [name.value for name, _ in values]
        for name in names:
            if names.count(name) > 1:
                line = values[names.index(name)][0].start_mark.line + 1
                raise DatasetError(f"{path} has {shown(name)} twice in one mapping, first in line {line}; rename one")
        values = [value for _, value in values]
    for value in values:
        _refuse_repeats(value, path)


class _Entry:
    """A part of a schema, which knows where it is."""

    def __init__(self, path: Path, place: str, given: Any) -> None:
        self.path, self.place = path, place
        if not isinstance(given, Mapping):
            raise DatasetError(
                f"{path}: {place or 'the schema'} is {shown(given)}; it must be a mapping of names to values"
            )
        self.given = given

    @property
    def name(self) -> str:
        return self.place.rpartition(".")[2]

    def at(self, name: str) -> str:
        return f"{self.path}: {self.place}.{name}".replace(": .", ": ")

    def has_only(self, *names: str) -> None:
        for name in self.given:
            if name not in names:
                raise DatasetError(
                    f"{self.at(str(name))} is not known; it must be one of {', '.join(names)}"
                    f"{nearest(str(name), names)}"
                )

    def entries(self, name: str) -> dict[str, _Entry]:
        inner = _Entry(self.path, f"{self.place}.{name}".lstrip("."), self.given.get(name) or {})
        return {str(key): _Entry(self.path, f"{inner.place}.{key}", value) for key, value in inner.given.items()}

    def text(self, name: str, default: str | None = None) -> str:
        value = self.given.get(name, default)
        if not isinstance(value, str) or not value:
            what = f"is {shown(value)}" if name in self.given else "is missing"
            raise DatasetError(f"{self.at(name)} {what}; it must be a text")
        return value

    def texts(self, name: str, value: Any = None) -> tuple[str, ...]:
        value = self.given.get(name) if value is None else value
        several = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(several, Sequence) or not all(isinstance(one, str) for one in several):
            raise DatasetError(f"{self.at(name)} is {shown(value)}; it must be a text or a list of texts")
        return tuple(several)

    def one_of(self, name: str, values: Sequence[str], default: str | None = None) -> str:
        value = self.given.get(name, default)
        if value not in values:
            what = f"is {shown(value)}" if name in self.given else "is missing"
            raise DatasetError(
                f"{self.at(name)} {what}; it must be one of {', '.join(values)}{nearest(str(value), values)}"
            )
        return str(value)

    def flag(self, name: str) -> bool:
        value = self.given.get(name, False)
        if not isinstance(value, bool):
            raise DatasetError(f"{self.at(name)} is {shown(value)}; it must be true or false")
        return value

    def time(self, name: str) -> TimeColumn:
        value = self.given[name]
        if isinstance(value, Mapping):
            inner = _Entry(self.path, f"{self.place}.{name}", value)
            inner.has_only("column", "key", "unit")
            key = inner.text("key") if "key" in value else None
            return TimeColumn(inner.text("column"), key, inner.one_of("unit", UNITS, "second"))
        led, dot, column = self.text(name).partition(".")
        return TimeColumn(column, led) if dot else TimeColumn(led)


def _table(entry: _Entry) -> TableSchema:
    entry.has_only("file", "key", "time", "foreign", "columns", "missing", "short_rows", "dangling")
    if not entry.name.isidentifier() or entry.name == "training":  # an attribute of every module
        raise DatasetError(
            f"{entry.path}: a table is called {entry.name!r}; a model's weights are named after it, so it must be a "
            "Python identifier, letters, digits and _, and not 'training'"
        )
    columns = None
    if entry.given.get("columns") is not None:
        kinds = _Entry(entry.path, f"{entry.place}.columns", entry.given["columns"])
        columns = {str(name): kinds.one_of(name, COLUMN_KINDS) for name in kinds.given}
    return TableSchema(
        entry.name,
        entry.text("file"),
        entry.texts("key"),
        entry.time("time") if entry.given.get("time") is not None else None,
        _foreign(entry),
        columns,
        entry.texts("missing"),
        entry.flag("short_rows"),
        "time" in entry.given and entry.given["time"] is None,
        entry.flag("dangling"),
    )


def _foreign(entry: _Entry) -> tuple[ForeignKey, ...]:
    given = entry.given.get("foreign") or {}
    several = given if isinstance(given, list) else [{column: table} for column, table in _mapping(entry, given)]
    found = []
    for one in several:
        if isinstance(one, Mapping) and set(one) == {"columns", "table"}:
            columns, table = entry.texts("foreign", one["columns"]), one["table"]
        elif isinstance(one, Mapping) and len(one) == 1:
            ((column, table),) = one.items()
            columns = entry.texts("foreign", column)
        else:
            raise DatasetError(
                f"{entry.at('foreign')} has the entry {shown(one)}; it must be 'column: table', or have 'columns', a "
                "list, and 'table'"
            )
        if not isinstance(table, str) or not columns:
            raise DatasetError(f"{entry.at('foreign')} names {shown(table)} for {list(columns)}; it must be a table")
        found.append(ForeignKey(columns, table))
        if not found[-1].name.isidentifier():
            raise DatasetError(
                f"{entry.at('foreign')} has the columns {', '.join(columns)}; a model's weights are named after them, "
                "so they must be Python identifiers: letters, digits and _: rename them"
            )
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise DatasetError(f"{entry.at('foreign')} has {names.count(name)} keys of the columns {name}; leave one")
    return tuple(found)


def _mapping(entry: _Entry, given: Any) -> list[tuple[Any, Any]]:
    if not isinstance(given, Mapping):
        raise DatasetError(f"{entry.at('foreign')} is {shown(given)}; it must be 'column: table' pairs, or a list")
    return list(given.items())


def _task(entry: _Entry, top: _Entry, split: tuple[int, int] | None) -> TaskSchema:
    entry.has_only("files", "file", "table", "entity", "by", "time", "label", "kind", "split")
    given = (entry if entry.given.get("split") else top).given.get("split") or {}
    split = _split(entry) or split
    if ("file" in entry.given) == ("files" in entry.given):
        raise DatasetError(f"{entry.path}: {entry.place} must have 'file', or 'files' of train, val and test")
    if "file" in entry.given:
        files = {"all": entry.text("file")}
        if split is None:
            raise DatasetError(
                f"{entry.at('split')} is missing, and the items of all splits are in one file; give the first times, "
                "e.g. split: {val: 2005-01-01, test: 2010-01-01}"
            )
    else:
        inner = _Entry(entry.path, f"{entry.place}.files", entry.given["files"])
        inner.has_only(*SPLITS)
        files = {name: inner.text(name) for name in SPLITS}
    if "time" not in entry.given:
        raise DatasetError(f"{entry.at('time')} is missing; name the column with the times of the items")
    time = entry.time("time")
    if time.key is not None:
        raise DatasetError(f"{entry.at('time')} is {time.key}.{time.column}; it must be a column of the items")
    return TaskSchema(
        entry.name,
        files,
        entry.text("table"),
        entry.text("entity"),
        time,
        entry.text("label"),
        entry.one_of("kind", KINDS),
        entry.one_of("by", ("key", "row"), "key"),
        split,
        any(getattr(given[name], "tzinfo", None) is not None for name in given),
    )


def _split(entry: _Entry) -> tuple[int, int] | None:
    if entry.given.get("split") is None:
        return None
    inner = _Entry(entry.path, f"{entry.place}.split".lstrip("."), entry.given["split"])
    inner.has_only("val", "test")
    val, test = (_moment(inner, name) for name in ("val", "test"))
    if val >= test:
        raise DatasetError(f"{inner.at('val')} is {inner.given['val']}; it must be before test, {inner.given['test']}")
    return val, test


def _moment(entry: _Entry, name: str) -> int:
    """A date, a time of day or seconds, in seconds since 1970 (UTC)."""
    value = entry.given.get(name)
    if isinstance(value, datetime.datetime):
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, (datetime.date, datetime.datetime)):
        return int(np.datetime64(value, "s").astype(np.int64))
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise DatasetError(
        f"{entry.at(name)} is {shown(value) if value is not None else 'missing'}; it must be a date, such as "
        "2005-01-01, or seconds since 1970"
    )


def _check_ends(schema: Schema, table: TableSchema) -> None:
    """Raises DatasetError unless the keys of a table lead to tables that have such keys."""
    path, place = schema.path, f"tables.{table.name}"
    if not table.key and not table.foreign:
        raise DatasetError(
            f"{path}: {place} has neither 'key' nor 'foreign', so no edge would lead to its rows; name one"
        )
    for one in table.foreign:
        if one.table not in schema.tables:
            raise _unknown(path, f"{place}.foreign.{one.name}", one.table, schema.tables)
        key = schema.tables[one.table].key
        if len(key) != len(one.columns):
            raise DatasetError(
                f"{path}: {place}.foreign has {len(one.columns)} columns ({', '.join(one.columns)}) for the key of "
                f"{one.table}, which has {len(key)} ({', '.join(key) or 'none'}); make them equal"
            )
    if table.time is not None and table.time.key is not None:
        led = [one for one in table.foreign if one.columns == (table.time.key,)]
        if not led:
            known = [one.columns[0] for one in table.foreign if len(one.columns) == 1]
            raise DatasetError(
                f"{path}: {place}.time is {table.time.key}.{table.time.column}, but {table.time.key} is no foreign "
                f"key of one column; there are {', '.join(known) or 'none'}{nearest(table.time.key, known)}"
            )


def _unknown(path: Path, place: str, name: str, tables: Mapping[str, Any]) -> DatasetError:
    return DatasetError(
        f"{path}: {place} is {name!r}, which is no table; there are {', '.join(tables)}{nearest(name, tables)}"
    )
