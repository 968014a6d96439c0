"""What values of columns are: texts, numbers, times and weights, from arrays of pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loader.datasets.errors import DatasetError
from loader.machine.arguments import shown
from loader.machine.optional import import_optional


def pyarrow(module: str = "pyarrow") -> Any:
    """A module of pyarrow, which reads the files."""
    return import_optional(module, "a dataset of tables", "tables")


def is_text(kind: Any) -> bool:
    """Whether a type of pyarrow is that of texts."""
    types = pyarrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def spaced(values: Any) -> NDArray[np.int64]:
    """The places of texts with spaces around them, which look like others without, but differ."""
    compute = pyarrow("pyarrow.compute")
    return np.flatnonzero(compute.not_equal(values, compute.utf8_trim_whitespace(values)).to_numpy(False))


def refuse_spaces(values: Any, what: str, named: str) -> None:
    """Raises DatasetError if a text has a space around it; what it stands for is `named` key, label or the like."""
    if is_text(values.type) and (places := spaced(values)).size:
        raise DatasetError(
            f"{what} is {shown(values[int(places[0])].as_py())} in row {int(places[0]) + 1}, with a space around it, "
            f"which makes it another {named} than without; take it out"
        )


def as_text(values: Any) -> Any:
    """Values of a category as texts of pyarrow."""
    return values.cast(pyarrow().large_string())


def as_numbers(values: Any) -> NDArray[np.float64]:
    """Numbers, truth values, or the seconds of times since 1970, as `[rows]`; NaN if one is missing."""
    arrow = pyarrow()
    if arrow.types.is_temporal(values.type):
        ticks, per_second = _ticks(values)
        return _floats(ticks) / per_second
    if arrow.types.is_boolean(values.type):
        values = values.cast(arrow.int8())
    return _floats(values.cast(arrow.float64(), safe=False))


def as_integers(option: str, name: str, values: Any, path: Path) -> NDArray[np.int64]:
    """Times as integers: whole numbers as they are, dates and times as whole seconds since 1970 (UTC).

    Raises:
        DatasetError: one is missing, or is no whole number.
    """
    refuse_missing(option, name, values, path)
    numbers, known, _ = as_whole_times(values, what := f"{path}: column {name} (dataset.{option})")
    if not known.all():  # Parquet files hold NaN
        raise DatasetError(f"{what} is nan in row {int(known.argmin()) + 1}; fill it in, or leave these rows out")
    return numbers


class WholeTimes(NamedTuple):
    """Times as integers.

    Attributes:
        numbers: `[rows]`, 0 where a time is missing.
        known: `[rows]`, false where a time is missing.
        dated: whether they were dates or times, and are seconds since 1970 (UTC).
    """

    numbers: NDArray[np.int64]
    known: NDArray[np.bool_]
    dated: bool


def as_whole_times(values: Any, what: str, fractions: str = "refuse") -> WholeTimes:
    """Times as integers: whole numbers as they are, dates and times as whole seconds since 1970 (UTC).

    Args:
        values: an array of pyarrow.
        what: begins messages.
        fractions: of a second: "refuse" them, or round all "up" or "down".

    Raises:
        DatasetError: one is no whole number.
    """
    arrow = pyarrow()
    known = values.is_valid().to_numpy(**({} if hasattr(values, "chunks") else {"zero_copy_only": False}))
    kind, unit = values.type, 1
    dated = bool(arrow.types.is_timestamp(kind) or arrow.types.is_date(kind))
    if arrow.types.is_null(kind):
        return WholeTimes(np.zeros(len(values), np.int64), known, False)
    if dated:
        values, unit = _ticks(values)
    elif arrow.types.is_floating(kind):
        numbers = _floats(values)
        known = known & ~np.isnan(numbers)
        wrong = known & (numbers != np.trunc(numbers))
        _refuse(wrong, numbers, what, "times are whole numbers, dates, or dates with a time of day")
        bits = whole_bits(kind)
        wrong = known & ~(np.abs(numbers) < 2.0**bits)
        _refuse(wrong, numbers, what, f"type {kind} has not all whole numbers from 2**{bits} on: save them as integers")
        return WholeTimes(np.where(known, numbers, 0).astype(np.int64), known, False)
    elif not arrow.types.is_integer(kind) or kind == arrow.uint64():
        example = shown(values.drop_null()[0].as_py()) if known.any() else kind
        raise DatasetError(
            f"{what} has type {kind}, such as {example}; times are whole numbers of 64 bits, dates (2024-05-31), or "
            "dates with a time of day (2024-05-31 08:00:00), all with a time zone or all without"
        )
    numbers = values.fill_null(0).to_numpy().astype(np.int64, copy=False)
    if fractions == "refuse":
        _refuse(numbers % unit != 0, numbers / unit, what, "the seconds of a time are whole: give whole numbers")
    return WholeTimes(-(-numbers // unit) if fractions == "up" else numbers // unit, known, dated)


def whole_bits(kind: Any) -> int:
    """Below which power of two all whole numbers differ in a floating type of pyarrow."""
    types = pyarrow().types
    return 11 if types.is_float16(kind) else 24 if types.is_float32(kind) else 53


def has_zone(values: Any) -> bool | None:
    """Whether times of day have a time zone; None of dates and numbers."""
    return values.type.tz is not None if pyarrow().types.is_timestamp(values.type) else None


def as_weights(option: str, name: str, values: Any, path: Path) -> NDArray[np.float64]:
    """Weights, each at least 0.

    Raises:
        DatasetError: one is missing, negative or infinite.
    """
    refuse_missing(option, name, values, path)
    if not is_number(values.type):
        raise DatasetError(
            f"{path}: column {name} (dataset.{option}) has type {values.type}; weights are numbers: name another column"
        )
    numbers = as_numbers(values)
    wrong, limit = ~(numbers >= 0) | np.isinf(numbers), "a weight is finite and at least 0: correct it, or leave it out"
    _refuse(wrong, numbers, f"{path}: column {name} (dataset.{option})", limit)
    return numbers


def refuse_missing(option: str, name: str, values: Any, path: Path) -> None:
    """Raises DatasetError if a value is missing."""
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise DatasetError(
            f"{path}: column {name} (dataset.{option}) is empty in row {row + 1}, and in {values.null_count - 1} more; "
            "fill it in, or leave these rows out"
        )


def _refuse(wrong: NDArray[np.bool_], values: Any, what: str, limit: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise DatasetError(f"{what} is {values[row]} in row {row + 1}; {limit}")


def _floats(values: Any) -> NDArray[np.float64]:
    found: NDArray[np.float64] = values.to_numpy() if hasattr(values, "chunks") else values.to_numpy(False)
    return found.astype(np.float64, copy=False)


def _ticks(values: Any) -> tuple[Any, int]:
    """Dates or times as integers since 1970, and how many of them a second has."""
    arrow = pyarrow()
    if arrow.types.is_date(values.type):
        values = values.cast(arrow.timestamp("s" if arrow.types.is_date32(values.type) else "ms"))
    return values.cast(arrow.int64()), {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[values.type.unit]


def is_number(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
