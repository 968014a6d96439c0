"""The rows of a folder of tables: their times, and the rows that their keys name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.datasets.column_values import as_whole_times, has_zone, is_text, pyarrow, refuse_spaces, whole_bits
from loader.datasets.errors import DatasetError
from loader.datasets.non_numeric_cells import odd_cells, way_to_numbers
from loader.datasets.relational.schema import ForeignKey, Schema, TableSchema, TimeColumn
from loader.datasets.table_columns import MISSING, TableFile
from loader.graph.checks import MISSING_TIME
from loader.machine.arguments import shown
from loader.machine.spelling import nearest

_LAST_SECOND = 253_402_300_799  # of the year 9999
_BETWEEN = "\x1f"  # the values of a key of several columns, as one text


@dataclass(frozen=True)
class Rows:
    """The rows of one table.

    Attributes:
        schema: of the table.
        path: of its file.
        features: column -> values, an array of pyarrow.
        size: number of rows.
        times: `[size]` int64, seconds since 1970, `MISSING_TIME` where there is none; None: all were always known.
        named: key -> `[size]` int64 rows of the other table, -1 where a value is missing or names none.
        row_numbers: `[size]` int64, the number of each row in the file.
    """

    schema: TableSchema
    path: Path
    features: dict[str, Any]
    size: int
    times: NDArray[np.int64] | None
    named: dict[ForeignKey, NDArray[np.int64]]
    row_numbers: NDArray[np.int64]


@dataclass(frozen=True)
class Tables:
    """The rows of all tables.

    Attributes:
        rows: table -> its rows, in the order of the schema.
        keys: table -> texts of its keys, an array of pyarrow, of tables that have some, in the order of the file.
        notes: what a reader should know of the tables, a line each.
        warnings: what is wrong with them unless it is meant, likewise, with the way to say so.
        zones: where there are times of day with a time zone (True), and without.
    """

    rows: dict[str, Rows]
    keys: dict[str, Any]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    zones: dict[bool, str]

    def until(self, time: int) -> Tables:
        """These tables without the rows that are later than a time, and a line that says how many these are."""
        seen, cut = {}, {}
        for name, rows in self.rows.items():
            known = np.ones(rows.size, bool) if rows.times is None else rows.times <= time
            seen[name], cut[name] = known, int(known.size - known.sum())
        if not any(cut.values()):
            return self
        left = {}
        for name, rows in self.rows.items():
            named = {}
            for key, of in rows.named.items():
                there = seen[key.table]
                place = np.where(there, there.cumsum() - 1, -1)
                named[key] = np.where(of >= 0, place[of], -1)[seen[name]] if there.size else of[seen[name]]
            mask = pyarrow().array(seen[name])
            left[name] = replace(
                rows,
                features={column: values.filter(mask) for column, values in rows.features.items()},
                size=int(seen[name].sum()),
                times=None if rows.times is None else rows.times[seen[name]],
                named=named,
                row_numbers=rows.row_numbers[seen[name]],
            )
        left_out = ", ".join(f"{count:,} of {name}" for name, count in cut.items() if count)
        note = f"rows after {np.datetime64(time, 's')} are left out: {left_out}"
        return replace(self, rows=left, notes=(*self.notes, note))


def read_tables(schema: Schema, folder: Path) -> Tables:
    """Reads the tables of a schema.

    Raises:
        DatasetError: a file or column is missing, a key is missing or names two rows, no value of a foreign key names a
            row, or times are no times.
    """
    notes: list[str] = []
    warnings: list[str] = []
    read = {name: _read(schema, table, folder) for name, table in schema.tables.items()}
    keys = {name: _keys(table, read[name][0].path, read[name][1]) for name, table in schema.tables.items() if table.key}
    found, zones = {}, dict[bool, str]()
    for name, table in schema.tables.items():
        file, columns = read[name]
        size = len(next(iter(columns.values())))  # there is one: a table has a key, or one of another table
        named = {one: _named(one, table, file.path, columns, keys[one.table], notes, warnings) for one in table.foreign}
        times = _times(schema, table, size, read, named, zones)
        if table.time is not None and table.time.unit == "year":
            first = f"rows of {name} are known from January 1 of their year on"
            notes.append(f"{first}; rows that sum up a year need a date at its end")
        if times is not None and (missing := int((times == MISSING_TIME).sum())):
            notes.append(
                f"{missing:,} of {size:,} rows of {name} have no time; sampler.missing_times says who sees them"
            )
        features = {column: columns[column] for column in _feature_columns(table, file)}
        if table.time is None and not table.always_known:
            warnings += _without_time(schema, table, features)
        if table.columns is None:
            cells = f"name texts that mean a missing value under 'missing' of tables.{name}, correct the cells"
            warnings += [
                f"{file.path}: column {column} is read as texts, since {odd}; {way_to_numbers(file, cells)}, or say "
                f"{column}: category under 'columns' of tables.{name}"
                for column, values in features.items()
                if (odd := odd_cells(values))
            ]
        found[name] = Rows(table, file.path, features, size, times, named, np.arange(size))
    return Tables(found, keys, tuple(notes), tuple(warnings), zones)


def _without_time(schema: Schema, table: TableSchema, features: Mapping[str, Any]) -> list[str]:
    """A warning of a table without times that could have some: nothing else would tell that items see later rows."""
    types, place = pyarrow().types, f"tables.{table.name} in {schema.path}"
    seen = f"rows of {table.name} have no time, so every item sees them"
    meant = f"say time: null under {place} if they were always known"
    if timed := [one for one in table.foreign if schema.tables[one.table].time is not None]:
        way = f"for those times say time: {timed[0].columns[0]}.COLUMN, if they come with these"
        return [f"{seen}, also before the rows of {timed[0].table} that they name; {way}, or {meant}"]
    dates = [name for name, values in features.items() if types.is_timestamp(values.type) or types.is_date(values.type)]
    if not dates:
        return []
    columns = f"column{'s'[: len(dates) > 1]} {', '.join(dates)} of dates"
    return [f"{seen}, whatever the {columns} says; say time: COLUMN if it tells when they become known, or {meant}"]


def _read(schema: Schema, table: TableSchema, folder: Path) -> tuple[TableFile, dict[str, Any]]:
    """The file of a table, and all of its columns that are read."""
    path = folder / table.file
    if not path.is_file():
        raise DatasetError(f"{schema.path}: tables.{table.name}.file is {table.file}; there is no file {path}")
    file = TableFile(path, short_rows=table.short_rows)
    wanted: dict[str, str] = dict.fromkeys(table.key, "key")
    wanted |= {column: "foreign" for one in table.foreign for column in one.columns}
    if table.time is not None and table.time.key is None:
        wanted[table.time.column] = "time"
    for other in schema.tables.values():  # whose times are those of the rows of this table
        if other.time is not None and other.time.key is not None and _led(other, other.time).table == table.name:
            wanted.setdefault(other.time.column, f"(tables.{other.name}.time)")
    wanted |= dict.fromkeys(_feature_columns(table, file), "columns")
    for column, option in wanted.items():
        require_column(file, column, f"{schema.path}: tables.{table.name}.{option}")
    missing = (*MISSING, *table.missing)
    read = file.read([*wanted], missing)
    found = {column: read.column(column) for column in wanted}
    for column, option in wanted.items():
        if option in ("key", "foreign"):
            found[column] = key_values(file, column, found[column], missing)
        elif (table.columns or {}).get(column) == "category":  # whose values are codes, as keys are
            found[column] = file.as_written(column, found[column], missing)
    return file, found


def require_column(file: TableFile, column: str, place: str) -> None:
    """Raises DatasetError unless a file has a column; `place` in the schema names it."""
    if column not in file.names:
        few = ", ".join(file.names[:20]) + (", ..." if len(file.names) > 20 else "")
        raise DatasetError(
            f"{place} names the column {shown(column)}, which {file.path} has not; it has {few}"
            f"{nearest(column, file.names)}"
        )


def _feature_columns(table: TableSchema, file: TableFile) -> list[str]:
    """Those that the schema names, else all that are no key."""
    if table.columns is not None:
        return [*table.columns]
    keys = {*table.key, *(column for one in table.foreign for column in one.columns)}
    found = [name for name in file.names if name not in keys]
    for name in found:
        file.refuse_index(name, f"under 'columns' of tables.{table.name}")
    return found


def key_values(file: TableFile, column: str, values: Any, missing: Sequence[str] = MISSING) -> Any:
    """A column of a key, of whole numbers, texts, dates or truth values.

    Whole numbers that a file has as floats, since some are missing, are whole. 007 is a text: as a number it would be
    the key 7.

    Raises:
        DatasetError: the column is of another type, or has floats that are no whole numbers, or so large that
            different keys would be equal.
    """
    arrow, compute = pyarrow(), pyarrow("pyarrow.compute")
    types, kind = arrow.types, values.type
    what = f"{file.path}: column {column}"
    if (coded := file.as_written(column, values, missing)) is not values:
        return coded
    if types.is_floating(kind):
        bits = whole_bits(kind)
        values = values.cast(arrow.float64())
        values = compute.if_else(compute.is_nan(values), None, values)
        wrong = compute.or_(
            compute.not_equal(values, compute.trunc(values)), compute.greater_equal(compute.abs(values), 2.0**bits)
        )
        if compute.any(wrong).as_py():
            raise DatasetError(
                f"{what} has the float {values.filter(wrong)[0]}; keys are texts, or whole numbers, which {kind} holds "
                f"below 2**{bits}: save it as integers, e.g. by pandas: frame[column].astype('Int64')"
            )
        return values.cast(arrow.int64())
    tests = (types.is_integer, types.is_boolean, types.is_null, types.is_date, types.is_timestamp)
    refuse_spaces(values, what, "key")
    if is_text(kind) or any(test(kind) for test in tests):
        return values
    raise DatasetError(f"{what} has type {kind}; keys are whole numbers, texts or dates: convert it")


def key_texts(columns: Iterable[Any]) -> Any:
    """The values of a key's columns, see `key_values`, as one array of texts; null where one of them is missing."""
    arrow, compute = pyarrow(), pyarrow("pyarrow.compute")
    texts = [_key_text(values) for values in columns]
    return (
        texts[0]
        if len(texts) == 1
        else compute.binary_join_element_wise(*texts, arrow.scalar(_BETWEEN, arrow.large_string()))
    )


def _key_text(values: Any) -> Any:
    """Values as texts. Those of equal times are equal, in whatever unit and zone, as are a date and its midnight."""
    arrow, kind = pyarrow(), values.type
    if not arrow.types.is_timestamp(kind):
        return values.cast(arrow.large_string())
    text = values.cast(kind if kind.tz is None else arrow.timestamp(kind.unit, "UTC")).cast(arrow.large_string())
    for odd, plain in ((r"(\.\d*?)0+(Z?)$", r"\1\2"), (r"\.(Z?)$", r"\1"), (" 00:00:00$", "")):
        text = pyarrow("pyarrow.compute").replace_substring_regex(text, odd, plain)
    return text


def _keys(table: TableSchema, path: Path, columns: Mapping[str, Any]) -> Any:
    compute = pyarrow("pyarrow.compute")
    keys, named = key_texts(columns[one] for one in table.key), ", ".join(table.key)
    keys = keys.combine_chunks() if hasattr(keys, "combine_chunks") else keys
    if keys.null_count:
        row = int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0])
        raise DatasetError(
            f"{path}: the key {named} is missing in row {row + 1}, and in {keys.null_count - 1} more; fill it in, "
            "leave these rows out, or leave the key out if no table names its rows"
        )
    counts = compute.value_counts(keys)
    twice = counts.filter(compute.greater(counts.field("counts"), 1))
    if len(twice):
        first = twice[0]["values"].as_py().replace(_BETWEEN, ", ")
        raise DatasetError(
            f"{path}: {len(twice):,} keys ({named}) name several rows, the first is {first}; a key names one row: "
            "leave the others out, or name further columns"
        )
    return keys


def _named(
    one: ForeignKey,
    table: TableSchema,
    path: Path,
    columns: Mapping[str, Any],
    keys: Any,
    notes: list[str],
    warnings: list[str],
) -> NDArray[np.int64]:
    compute = pyarrow("pyarrow.compute")
    values = key_texts(columns[column] for column in one.columns)
    found = compute.index_in(values, value_set=keys)
    places = np.asarray(found.fill_null(-1)).astype(np.int64)
    given = len(values) - values.null_count
    dangling = int((places < 0).sum()) - values.null_count
    if dangling:
        lost = values.filter(compute.and_(found.is_null(), values.is_valid()))
        what = (
            f"{path}: {dangling:,} of {given:,} keys {', '.join(one.columns)} name no row of {one.table}, the first is "
            f"{shown(lost[0].as_py().replace(_BETWEEN, ', '))}"
        )
        if dangling == given:
            known = f"{len(keys):,} such as {keys[0]}" if len(keys) else "it has no rows"
            raise DatasetError(f"{what}; name the column that holds its key ({known})")
        if table.dangling:
            notes.append(f"{what}; these rows have no such edge")
        else:
            warnings.append(
                f"{what}; these rows have no such edge: correct the keys, name texts that stand for no row under "
                f"'missing' of tables.{table.name}, or say dangling: true there if this is expected"
            )
    return places


def _led(table: TableSchema, time: TimeColumn) -> ForeignKey:
    return next(one for one in table.foreign if one.columns == (time.key,))


def _times(
    schema: Schema,
    table: TableSchema,
    size: int,
    read: Mapping[str, tuple[TableFile, dict[str, Any]]],
    named: Mapping[ForeignKey, NDArray[np.int64]],
    zones: dict[bool, str],
) -> NDArray[np.int64] | None:
    if (time := table.time) is None:
        return None
    place = f"{schema.path}: tables.{table.name}.time"
    if time.key is None:
        file, columns = read[table.name]
        return times_of_column(columns[time.column], time, file.path, place, zones, up=True)
    key = _led(table, time)
    file, columns = read[key.table]
    times = times_of_column(columns[time.column], time, file.path, place, zones, up=True)
    rows = named[key]
    return np.where(rows >= 0, times[rows], MISSING_TIME) if times.size else np.full(size, MISSING_TIME)


def times_of_column(
    values: Any, time: TimeColumn, path: Path, place: str, zones: dict[bool, str], *, up: bool
) -> NDArray[np.int64]:
    """Times in seconds since 1970, `MISSING_TIME` where there is none.

    Args:
        values: an array of pyarrow.
        time: of the schema.
        path: of the file.
        place: in the schema.
        zones: where there are times of day with a time zone, and without; this column is added.
        up: round fractions of a second up, as for rows, which are then not seen too early; else down, as for items,
            which then see nothing too late.

    Raises:
        DatasetError: the values are neither dates nor whole numbers, or other times have a time zone and these not.
    """
    what = f"{path}: column {time.column} ({place})"
    if (zone := has_zone(values)) is not None:
        zones.setdefault(zone, what)
        if len(zones) == 2:
            raise DatasetError(
                f"{zones[False]} has times without a time zone, {zones[True]} with one; they are compared, so give all "
                "times a zone, or none"
            )
    numbers, known, dated = as_whole_times(values, what, "up" if up else "down")
    if time.unit == "year":
        if dated:
            raise DatasetError(f"{place} has the unit year, but {path}: column {time.column} holds dates; leave it out")
        wrong = known & (np.abs(numbers) > 9999)
        if wrong.any():
            raise DatasetError(
                f"{path}: column {time.column} is {numbers[wrong][0]} in row {int(wrong.argmax()) + 1}; a year is at "
                "most 9999: leave the unit out for seconds"
            )
        numbers = (numbers - 1970).astype("datetime64[Y]").astype("datetime64[s]").astype(np.int64)
    elif not dated and known.any():
        _check_seconds(numbers[known], what, time.column)
    return np.where(known, numbers, MISSING_TIME)


def _check_seconds(seconds: NDArray[np.int64], what: str, column: str) -> None:
    """Refuses whole numbers that are years, dates or milliseconds: as seconds, all rows would be of 1970, which
    every item sees, or later than any item.
    """
    low, high = int(seconds.min()), int(seconds.max())
    if low >= 1000 and high <= 2999:
        way = f"these are years: say time: {{column: {column}, unit: year}}"
    elif low >= 1000_01_01 and high <= 2999_12_31 and (seconds // 100 % 100 <= 12).all():
        way = "these are dates: write them as 2024-05-31"
    elif max(-low, high) > _LAST_SECOND:
        way = "seconds end with the year 9999: divide milliseconds by 1000"
    else:
        return
    raise DatasetError(f"{what} has whole numbers, {low} to {high}, which are seconds since 1970; {way}")
