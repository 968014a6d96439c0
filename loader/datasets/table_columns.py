"""The readers of columns: of CSV, TSV and Parquet files, in pieces, and the features that are made of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loader.datasets.column_values import as_numbers, as_text, is_number, is_text, pyarrow
from loader.datasets.errors import DatasetError
from loader.machine.arguments import shown
from loader.machine.spelling import nearest

SUFFIXES = (".csv", ".tsv", ".parquet")
_PACKED = (".gz", ".bz2", ".zst", ".lz4")  # which pyarrow unpacks
CODED = r"^[+-]?0[\dxX]"  # of a cell that is a code rather than a number: 007, 0x7
# What says that a value is missing in every kind of file, as pandas reads it. Ids are missing only if empty.
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>")
_BLOCK = 1 << 24  # bytes of a CSV file that are parsed at once
_PART_ROWS = 1 << 20  # rows of a Parquet file that are read at once
_MOST_CATEGORIES = 100
MOST_ROUNDED = 0.25  # of a column's deviation, as in stores: what float64 may round off its values
_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")


def table_kind(path: Path) -> str:
    """The one of `SUFFIXES` that a path ends in, before that of a compression; "" if it is no table's."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in SUFFIXES else ""


class TableFile:
    """The columns of one file.

    Args:
        path: of a CSV, TSV or Parquet file. The first line of CSV and TSV has the names of the columns. They may be
            compressed (.csv.gz).
        short_rows: whether rows of CSV and TSV may end early; the cells that they lack are missing. The file is then
            held in memory.

    Attributes:
        names: of the columns.

    Raises:
        DatasetError: it cannot be read as such a file.
    """

    def __init__(self, path: Path, *, short_rows: bool = False) -> None:
        self.path = path
        self._filled: bytes | None = None  # the content, if short rows were filled
        self.kind = table_kind(path)
        self._mark = "\t" if self.kind == ".tsv" else ","
        if not self.kind:
            raise DatasetError(
                f"{path} does not end in {', '.join(SUFFIXES)}; save the table as one of these, e.g. by pandas: "
                "frame.to_parquet(path, index=False)"
            )
        if self.kind != ".parquet":
            self._check_text()
        with self._readable():
            if self.kind == ".parquet":
                with pyarrow("pyarrow.parquet").ParquetFile(path) as file:
                    self.names = [str(name) for name in file.schema_arrow.names]
            else:
                if short_rows:
                    self._fill_short_rows()
                with self._csv({}, ()) as file:
                    self.names = [str(name) for name in file.schema.names]
        for name in self.names:
            if self.names.count(name) > 1:
                raise DatasetError(f"{path} has {self.names.count(name)} columns '{name}'; give each a name of its own")
        if len(self.names) == 1 and (mark := next((m for m in ";,\t| " if m in self.names[0]), None)):
            raise DatasetError(
                f"{path} has one column, {shown(self.names[0])}, which holds {mark!r}; columns of a .csv file are "
                "separated by commas, of a .tsv file by tabs: save it as one of them, with a line of names"
            )

    def _check_text(self) -> None:
        """Refuses texts whose beginning says that they are no such table."""
        with self._readable(), pyarrow().input_stream(self.path) as file:
            begin = bytes(file.read(80))
        if begin.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in begin:
            raise DatasetError(f"{self.path} is no text in UTF-8; save it in that encoding, or as a .parquet file")
        if begin.startswith((b"# ", b"%")):
            line = begin.splitlines()[0].decode(errors="replace")
            raise DatasetError(
                f"{self.path} begins with the comment {shown(line)}; the first line must name the columns: take out "
                "the lines of comments, and add one, e.g. source,target"
            )

    def column(self, option: str, given: Any, place: int) -> str:
        """The name of the column that an option names, by default the one at `place`.

        Raises:
            DatasetError: there is none.
        """
        if given is None:
            if place >= len(self.names):
                raise DatasetError(
                    f"{self.path} has the columns {self._names()}; {option} is by default the column "
                    f"{place + 1}: name another one (dataset.{option}), or add it"
                )
            self.refuse_index(self.names[place], f"dataset.{option}")
            return self.names[place]
        if given not in self.names:
            raise DatasetError(
                f"{self.path} has no column {shown(given)} (dataset.{option}); it has {self._names()}"
                f"{nearest(str(given), self.names)}"
            )
        return str(given)

    def refuse_index(self, name: str, where: str) -> None:
        """Raises DatasetError if a column that nobody named is the index that pandas wrote; `where` says how to name
        others.
        """
        if _INDEX.fullmatch(name):
            raise DatasetError(
                f"{self.path}: column {self.names.index(name) + 1} has the name '{name}', as an index has that pandas "
                f"wrote; save the table with index=False, or name the columns to read ({where})"
            )

    def pieces(self, columns: Mapping[str, Any], missing: Sequence[str] = ("",)) -> Iterator[Any]:
        """Some rows at a time, as record batches.

        Args:
            columns: name -> type of pyarrow that a CSV file's texts are read as; None takes the first rows' type.
            missing: texts that mean a missing value.

        Raises:
            DatasetError: the file is damaged, or a value is not of its column's type.
        """
        with self._readable():
            if self.kind == ".parquet":
                with pyarrow("pyarrow.parquet").ParquetFile(self.path) as file:
                    for part in file.iter_batches(_PART_ROWS, columns=list(columns)):
                        yield _plain(part, missing, self.path)
            else:
                with self._csv(columns, missing) as file:
                    yield from file

    def read(self, columns: Sequence[str], missing: Sequence[str] = MISSING) -> Any:
        """Whole columns as a table. The type of a CSV file's column is that of all its values.

        Args:
            columns: names.
            missing: texts that mean a missing value.
        """
        with self._readable():
            if self.kind != ".parquet":
                return pyarrow("pyarrow.csv").read_csv(
                    self._content(), **self._options(dict.fromkeys(columns), missing)
                )
            return _plain(pyarrow("pyarrow.parquet").read_table(self.path, columns=list(columns)), missing, self.path)

    def text(self, name: str, missing: Sequence[str] = MISSING) -> Any:
        """A column of a CSV file as its cells are; None of a Parquet file, which has types."""
        if self.kind == ".parquet":
            return None
        with self._readable():
            options = self._options({name: pyarrow().large_string()}, missing)
            return pyarrow("pyarrow.csv").read_csv(self._content(), **options).column(name)

    def as_written(self, name: str, values: Any, missing: Sequence[str] = MISSING) -> Any:
        """A column that was read, or its cells as texts if different ones became one value: 007 and 0x7 are codes, and
        would be the number 7; 1 beside TRUE would be True; whole numbers beyond int64 would be floats.
        """
        types, compute = pyarrow().types, pyarrow("pyarrow.compute")
        if types.is_integer(values.type) or types.is_floating(values.type):
            odd = CODED
        elif types.is_boolean(values.type):
            odd = r"^\d$"  # a column of these alone is one of numbers
        else:
            return values
        texts = self.text(name, missing)
        if texts is None:
            return values
        coded = compute.any(compute.match_substring_regex(texts, odd)).as_py()
        if not coded and types.is_floating(values.type):  # pyarrow makes floats of whole numbers that int64 lacks
            coded = compute.all(compute.match_substring_regex(texts, r"^[+-]?\d+$")).as_py()
        return texts if coded else values

    def _content(self) -> Any:
        return self.path if self._filled is None else pyarrow().BufferReader(self._filled)

    def _fill_short_rows(self) -> None:
        csv, mark = pyarrow("pyarrow.csv"), self._mark
        short: dict[str, int] = {}

        def met(row: Any) -> str:
            if row.actual_columns > row.expected_columns:
                return "error"
            short[row.text] = row.expected_columns - row.actual_columns
            return "skip"

        options = csv.ParseOptions(delimiter=mark, newlines_in_values=True, invalid_row_handler=met)
        csv.read_csv(self.path, parse_options=options, read_options=csv.ReadOptions(use_threads=False))
        if short:
            cells = {text.encode(): mark.encode() * lacking for text, lacking in short.items()}
            with pyarrow().input_stream(str(self.path)) as file:
                lines = file.read().replace(b"\r\n", b"\n").split(b"\n")
            self._filled = b"\n".join(line + cells.get(line, b"") for line in lines)

    def _csv(self, columns: Mapping[str, Any], missing: Sequence[str]) -> Any:
        return pyarrow("pyarrow.csv").open_csv(self._content(), **self._options(columns, missing))

    def _options(self, columns: Mapping[str, Any], missing: Sequence[str]) -> dict[str, Any]:
        csv = pyarrow("pyarrow.csv")
        return {
            "read_options": csv.ReadOptions(block_size=_BLOCK),
            # Else a block may end amid a cell in quotes, which then is the end of one row and the begin of another.
            "parse_options": csv.ParseOptions(delimiter=self._mark, newlines_in_values=True),
            "convert_options": csv.ConvertOptions(
                include_columns=list(columns) or None,
                column_types={name: kind for name, kind in columns.items() if kind is not None},
                null_values=list(missing),
                strings_can_be_null=True,
            ),
        }

    def _names(self) -> str:
        few = ", ".join(self.names[:10])
        return few if len(self.names) <= 10 else f"{few}, ... ({len(self.names)})"

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        arrow = pyarrow()
        try:
            yield
        except (arrow.ArrowException, OSError) as error:
            if isinstance(error, arrow.ArrowMemoryError):
                raise
            why = " ".join(str(error).split())
            if "UTF8" in why:
                why = f"it is not in UTF-8: {why}"
            raise DatasetError(
                f"{self.path} cannot be read as a {self.kind} file ({why[:300]}); correct that row or column, or save "
                "the file again"
            ) from error


@dataclass(frozen=True)
class Column:
    """How a column of a table becomes columns of features. Its statistics are of all rows at the conversion.

    Attributes:
        name: of the column.
        kind: "number", "time" (seconds since 1970) or "category".
        mean, deviation: of a number or a time, without missing values: a feature is `(value - mean) / deviation`, and 0
            if it is missing. A deviation of 0: all values are equal, and there is no such feature.
        categories: the values of a category that have a feature of zeros and ones each, the most frequent ones first.
        others: whether a further feature says that the value is another one.
        missing: how many values are missing.
        flagged: whether the last feature says which values are missing: if some are, but not all.
    """

    name: str
    kind: str
    mean: float = 0.0
    deviation: float = 0.0
    categories: tuple[str, ...] = ()
    others: bool = False
    missing: int = 0
    flagged: bool = False

    @classmethod
    def of(cls, name: str, values: Any, path: Path, most: int = _MOST_CATEGORIES) -> Column:
        """The column of a chunked array of pyarrow, with at most so many categories.

        Raises:
            DatasetError: its type has no such form, or a number is infinite.
        """
        compute = pyarrow("pyarrow.compute")
        kind = column_kind(name, values.type, path)
        if kind == "category":
            texts = as_text(values)
            missing = texts.null_count
            counts = compute.value_counts(texts.drop_null())
            found = list(
                zip(counts.field("counts").to_pylist(), counts.field("values").to_pylist(), strict=True)
            )  # ties go by the text, so that the order is that of the content
            found.sort(key=lambda one: (-one[0], one[1]))
            categories = tuple(text for _, text in found[:most]) if len(found) > 1 else ()
            flagged = 0 < missing < len(texts)
            others = len(found) > len(categories) > 0
            return cls(name, kind, categories=categories, others=others, missing=missing, flagged=flagged)
        numbers = as_numbers(values)
        there = numbers[~np.isnan(numbers)]
        if np.isinf(there).any():
            row = int(np.flatnonzero(np.isinf(numbers))[0])
            raise DatasetError(
                f"{path}: column {name} is {numbers[row]} in row {row + 1}; features are finite: correct it, or leave "
                "the cell empty"
            )
        with np.errstate(over="ignore"):  # what is no float64 is refused
            mean, deviation = (float(there.mean()), float(there.std())) if there.size else (0.0, 0.0)
        if not np.isfinite(mean + deviation):
            raise DatasetError(
                f"{path}: column {name} has numbers up to {np.abs(there).max():g}, whose deviation is no float64; "
                "divide them before, or take their logarithms"
            )
        if there.size and there.min() == there.max():
            deviation = 0.0  # not what rounding makes of it
        if there.size and MOST_ROUNDED * deviation < np.spacing(np.abs(there).max()) / 2 and _differ(values):
            raise DatasetError(
                f"{path}: column {name} has different values around {there[0]:.17g}, which are nearly one as float64: "
                "save by how much they are above the smallest, or leave the column out"
            )
        missing = int(numbers.size - there.size)
        return cls(name, kind, mean, deviation, missing=missing, flagged=0 < missing < numbers.size)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Column:
        """What `to_json` gave."""
        return cls(**{**saved, "categories": tuple(saved["categories"])})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def width(self) -> int:
        """Number of features."""
        return (self.deviation > 0) + len(self.categories) + self.others + self.flagged

    def features(self, values: Any) -> NDArray[np.float32]:
        """`[rows, width]` of some values, an array of pyarrow."""
        rows = np.zeros((len(values), self.width), dtype=np.float32)
        if self.width == 0:  # of any type: no value was known
            return rows
        if self.kind == "category":
            arrow = pyarrow()
            texts = as_text(values)
            absent = texts.is_null().to_numpy(zero_copy_only=False) if len(texts) else np.zeros(0, dtype=bool)
            place = pyarrow("pyarrow.compute").index_in(
                texts, value_set=arrow.array(self.categories, arrow.large_string())
            )
            place = place.fill_null(len(self.categories)).to_numpy(zero_copy_only=False)
            is_one = (place < len(self.categories) + self.others) & ~absent
            rows[np.flatnonzero(is_one), place[is_one]] = 1
        else:
            numbers = as_numbers(values)
            absent = np.isnan(numbers)
            if self.deviation > 0:
                rows[:, 0] = np.where(absent, 0, (numbers - self.mean) / self.deviation)
        if self.flagged:
            rows[:, -1] = absent
        return rows

    def report(self) -> str:
        """What was done to the column, in words."""
        gaps = f"; {self.missing:,} missing, flagged by a feature" if self.flagged else ""
        if self.width == self.flagged:
            which = "known values are equal" if self.missing else "values are equal"
            return f"{self.name}: no feature of its own, since all its {which}{gaps}"
        if self.kind == "category":
            most = " most frequent" if self.others else ""
            rest = ", and one for all others (names are no category: choose columns by dataset.features)"
            what = (
                f"category, a feature for each of its {len(self.categories)}{most} values{rest if self.others else ''}"
            )
        else:
            what = f"{self.kind}, standardised: mean {self.mean:g}, standard deviation {self.deviation:g}"
            gaps = gaps.replace("missing", "missing, filled with the mean")
        return f"{self.name}: {what}{gaps}"


def _differ(values: Any) -> bool:
    """Whether different values are there, of which float64 may make one: of integers, decimals and times."""
    if pyarrow().types.is_floating(values.type):
        return False
    compute = pyarrow("pyarrow.compute")
    ends = compute.min_max(values)
    return bool(compute.not_equal(ends["min"], ends["max"]).as_py())


def _plain(table: Any, missing: Sequence[str], path: Path) -> Any:
    """A table or record batch of a Parquet file, with categoricals of pandas as their values, and nothing in place of
    texts that mean a missing value, or of the numbers and dates that these texts are in a CSV file.
    """
    arrow, compute = pyarrow(), pyarrow("pyarrow.compute")
    for place, field in enumerate(table.schema):
        values, kind = table.column(place), field.type
        if (field.metadata or {}).get(b"ARROW:extension:name") == b"pandas.period":
            # An integer here, unless pandas was imported before.
            raise DatasetError(
                f"{path}: column {field.name} holds periods of pandas, whose numbers count in a unit of their own; "
                "convert it, e.g. by pandas: frame[column].dt.to_timestamp()"
            )
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
            values = values.cast(kind)
        if (absent := _read_as(missing, kind)) is not None:
            gone = compute.is_in(values.cast(absent.type), value_set=absent)
            values = compute.if_else(gone, arrow.scalar(None, kind), values)
        if values is not table.column(place):
            table = table.set_column(place, field.name, values)
    return table


def _read_as(texts: Sequence[str], kind: Any) -> Any:
    """Those of the texts that are a value of a type, as an array of it or of a wider one; None if none is."""
    arrow, types = pyarrow(), pyarrow().types
    if is_text(kind):
        return arrow.array(texts, kind)
    if types.is_boolean(kind) or not (is_number(kind) or types.is_timestamp(kind) or types.is_date(kind)):
        return None
    wide = kind  # `is_in` has no kernel for half floats and short decimals
    if types.is_float16(kind):
        wide = arrow.float32()
    elif types.is_decimal(kind) and kind.bit_width < 128:
        wide = arrow.decimal128(38, kind.scale)
    found = []
    for text in texts:
        with contextlib.suppress(arrow.ArrowInvalid, arrow.ArrowNotImplementedError):  # \N is no number
            found.append(arrow.scalar(text).cast(kind).cast(wide))
    return arrow.array(found, wide) if found else None


def column_kind(name: str, kind: Any, path: Path) -> str:
    """What features are made of a column of a type of pyarrow, see `Column.kind`.

    Raises:
        DatasetError: none are.
    """
    types = pyarrow().types
    if is_text(kind):
        return "category"
    if is_number(kind) or types.is_null(kind):
        return "number"
    if types.is_timestamp(kind) or types.is_date(kind):
        return "time"
    raise DatasetError(
        f"{path}: column {name} has type {kind}; features are made of numbers, texts in UTF-8, dates and truth values: "
        "convert it, or leave it out of dataset.features"
    )
