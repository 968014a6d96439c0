"""The columns of a table as rows of numbers, from which a tabular model encodes each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.datasets.column_values import as_numbers, as_text, as_whole_times, is_number, is_text, pyarrow
from loader.datasets.errors import DatasetError
from loader.datasets.non_numeric_cells import odd_cells
from loader.datasets.relational.tables import Rows
from loader.datasets.table_columns import CODED, Column
from loader.graph.checks import MISSING_TIME
from loader.machine.arguments import shown

_MOST_CATEGORIES = 1000
_DAY = 86_400
_WIDTHS = {"category": 1, "time": 7, "known": 2}


@dataclass(frozen=True)
class RowColumn:
    """A column of a table, and how its values become numbers.

    Attributes:
        name: of the column.
        kind: "number", standardised, followed by a 1 where it is missing if it is `flagged`; "category", its code, -1
            if it is missing or none of `categories`; "time", its year, month, day (both from 0), day of the week, hour,
            minute and second; "known", the day and the second of the day at which the row becomes known. All are exact
            in float32 but the standardised numbers.
        mean, deviation, flagged: of a number. A missing one counts as the mean.
        categories: of a category, by code.
        middle: of a time, which stands for a missing one, in seconds since 1970.
        first_year: of a time; earlier years count as this one.
        written: categories are cells as they are written. Those of earlier releases are not: 007 was the number 7.
    """

    name: str
    kind: str
    mean: float = 0.0
    deviation: float = 1.0
    flagged: bool = False
    categories: tuple[str, ...] = ()
    middle: int = 0
    first_year: int = 0
    written: bool = True

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> RowColumn:
        """What `to_json` gave."""
        return cls(**{"written": False, **saved, "categories": tuple(saved["categories"])})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def width(self) -> int:
        """How many numbers a value becomes."""
        return _WIDTHS.get(self.kind, 1 + self.flagged)

    def layout(self) -> dict[str, Any]:
        """What a model needs to know of the column."""
        numbers = {"width": self.width, "categories": len(self.categories), "first_year": self.first_year}
        return {"name": self.name, "kind": self.kind, **numbers}

    def encode(self, values: Any, what: str) -> NDArray[np.float32]:
        """`[rows, width]` of values, an array of pyarrow.

        Raises:
            DatasetError: they are of another kind, or infinite; `what` begins the message.
        """
        _require(self.kind, values, what)
        if self.kind == "number":
            column = Column(self.name, "number", self.mean, self.deviation, flagged=self.flagged)
            found = column.features(values)
            if not np.isfinite(found).all():
                row = int((~np.isfinite(found).all(1)).argmax())
                raise DatasetError(
                    f"{what} is {as_numbers(values)[row]} in row {row + 1}; features are finite, and multiples of the "
                    f"deviation {self.deviation:g} within float32: correct it, or leave the cell empty"
                )
            return found
        if self.kind == "category":
            arrow = pyarrow()
            known, compute = arrow.array(self.categories, arrow.large_string()), pyarrow("pyarrow.compute")
            if not self.written and is_text(values.type) and all(_is_number(one) for one in self.categories):
                coded, before = (
                    compute.any(compute.match_substring_regex(of, CODED)).as_py() for of in (as_text(values), known)
                )
                if coded and not before:
                    raise DatasetError(
                        f"{what} has codes such as 007, which the release that trained this model read as the number "
                        "7; train it again"
                    )
            codes = compute.index_in(as_text(values), value_set=known).fill_null(-1)
            return np.asarray(codes).astype(np.float32)[:, None]
        times = as_whole_times(values, what, "down")
        return self._parts(np.where(times.known, times.numbers, self.middle))

    def _parts(self, seconds: NDArray[np.int64]) -> NDArray[np.float32]:
        at = seconds.astype("datetime64[s]")
        day, month = at.astype("datetime64[D]"), at.astype("datetime64[M]")
        second = (at - day).astype(np.int64)
        parts = [
            np.maximum(at.astype("datetime64[Y]").astype(np.int64) + 1970, self.first_year),
            month.astype(np.int64) % 12,
            (day - month.astype("datetime64[D]")).astype(np.int64),
            (day.astype(np.int64) + 3) % 7,  # Monday is 0, as in pandas
            second // 3600,
            second // 60 % 60,
            second % 60,
        ]
        return np.stack(parts, 1).astype(np.float32)


def fit_columns(rows: Rows, before: int) -> tuple[list[RowColumn], list[str]]:
    """The columns of a table that become numbers, and what was done with each, a line each.

    Means, deviations, categories and the middle of times are those of the rows that have no time by the schema, or one
    earlier than `before`, in seconds since 1970. So a later row changes no other one.

    Raises:
        DatasetError: a column is of another kind than the schema says, or a number is infinite.
    """
    early = np.ones(rows.size, bool)
    if rows.times is not None:
        early = (rows.times < before) & (rows.times != MISSING_TIME)
    mask = pyarrow().array(early)
    found: list[RowColumn] = []
    report: list[str] = []
    for name, values in rows.features.items():
        what, guessed = _place(rows, name), rows.schema.columns is None
        kind = _kind_of(values, what) if rows.schema.columns is None else rows.schema.columns[name]
        if kind == "clock":
            column, done = None, "left out, since it is a time of day without a date"
        else:
            _require(kind, values, what)
            column, done = _FITS[kind](name, values.filter(mask), rows, guessed)
        report.append(f"{rows.schema.name}.{name}: {done}")
        if column is not None:
            found.append(column)
    if rows.times is not None:
        found.append(RowColumn("", "known"))
    return found, report


def none_early(rows: Rows, before: int) -> list[str]:
    """A warning if no row tells `fit_columns` what the columns are."""
    if rows.times is None or not rows.size or bool((rows.times[rows.times != MISSING_TIME] < before).any()):
        return []
    return [
        f"{rows.path}: none of the {rows.size:,} rows of {rows.schema.name} is earlier than "
        f"{np.datetime64(before, 's')}, where val begins, so none of its columns becomes a feature; begin val later, "
        f"or say time: null under tables.{rows.schema.name} if they were always known"
    ]


def none_known(rows: Rows, columns: Sequence[RowColumn]) -> list[str]:
    """A warning for each category of earlier tables of which these have none: it may be written in another way."""
    arrow, compute, found = pyarrow(), pyarrow("pyarrow.compute"), []
    for column in columns:
        if column.kind != "category" or column.name not in rows.features:
            continue
        texts = as_text(rows.features[column.name]).drop_null()
        known = arrow.array(column.categories, arrow.large_string())
        if len(texts) and not compute.any(compute.is_in(texts, value_set=known)).as_py():
            found.append(
                f"{_place(rows, column.name)} has {len(texts):,} values such as {shown(texts[0].as_py())}, and the "
                f"{len(known)} categories of the training are none of them, such as {shown(column.categories[0])}; all "
                "count as missing: write them as they were then"
            )
    return found


def encode_rows(rows: Rows, columns: Sequence[RowColumn]) -> NDArray[np.float32]:
    """The rows of a table as numbers, `[rows, sum of the columns' widths]`.

    Raises:
        DatasetError: the table lacks a column, or see `RowColumn.encode`.
    """
    parts = [np.zeros((rows.size, 0), np.float32)]
    for column in columns:
        if column.kind == "known":
            assert rows.times is not None
            known = np.where(rows.times != MISSING_TIME, rows.times, 0)
            parts.append(np.stack(np.divmod(known, _DAY), 1).astype(np.float32))
        elif column.name not in rows.features:
            raise DatasetError(
                f"{rows.path} has no column {column.name}, which {rows.schema.name} had in training; add it"
            )
        else:
            parts.append(column.encode(rows.features[column.name], _place(rows, column.name)))
    return np.concatenate(parts, 1)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _place(rows: Rows, name: str) -> str:
    return f"{rows.path}: column {name}"


def _kind_of(values: Any, what: str) -> str:
    types, kind = pyarrow().types, values.type
    if is_text(kind) or types.is_boolean(kind):
        return "category"
    if is_number(kind) or types.is_null(kind):
        return "number"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "time"
    if types.is_time(kind):
        return "clock"
    raise DatasetError(
        f"{what} has type {kind}; columns are numbers, texts, dates and truth values: convert it, or name those to "
        "read under 'columns' of the schema"
    )


def _require(kind: str, values: Any, what: str) -> None:
    """Raises DatasetError unless values are of a kind. Anything can be a category."""
    types, given = pyarrow().types, values.type
    dated = types.is_timestamp(given) or types.is_date(given)
    if types.is_null(given) or kind == "category" or (is_number(given) if kind == "number" else dated):
        return
    ways = {
        "number": "name texts that mean a missing value under 'missing', or say category",
        "time": "convert it, or say number or category",
    }
    why = f": {odd}" if (odd := odd_cells(values)) else ""
    raise DatasetError(f"{what} is a {kind} by the schema, and has type {given}{why}; {ways[kind]}")


_Fitted = tuple[RowColumn | None, str]


def _fit_number(name: str, values: Any, rows: Rows, guessed: bool) -> _Fitted:
    column = Column.of(name, values, rows.path)
    done = column.report().removeprefix(f"{name}: ")
    if not column.deviation:
        return None, done
    return RowColumn(name, "number", column.mean, column.deviation, column.flagged), done


def _fit_category(name: str, values: Any, rows: Rows, guessed: bool) -> _Fitted:
    column = Column.of(name, as_text(values), rows.path, _MOST_CATEGORIES)
    count = len(column.categories)
    if guessed and column.others:
        return None, f"left out, since it has more than {_MOST_CATEGORIES} different texts; name it under 'columns'"
    if guessed and 2 * count > len(values):
        return None, "left out, since most of its texts differ, as names do; name it under 'columns'"
    if count < 2:
        return None, "left out, since its known texts are equal"
    others = f", those with the {_MOST_CATEGORIES} most frequent texts; all others as missing" if column.others else ""
    return RowColumn(name, "category", categories=column.categories), f"category of {count} texts{others}"


def _fit_time(name: str, values: Any, rows: Rows, guessed: bool) -> _Fitted:
    times = as_whole_times(values, _place(rows, name), "down")
    known = np.sort(times.numbers[times.known])
    if not known.size:
        return None, "left out, since it has no value"
    middle = int(known[known.size // 2])
    first_year = int(known[:1].astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64)[0]) + 1970
    missing = f"; {values.null_count:,} missing, as the middle one" if values.null_count else ""
    return RowColumn(name, "time", middle=middle, first_year=first_year), f"time from {first_year} on{missing}"


_FITS = {"number": _fit_number, "category": _fit_category, "time": _fit_time}
