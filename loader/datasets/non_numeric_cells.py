"""The cells that keep a column of numbers or dates from being one."""

from __future__ import annotations

from typing import Any

import numpy as np

from loader.datasets.column_values import is_text, pyarrow
from loader.datasets.table_columns import TableFile
from loader.machine.arguments import shown

_NEARLY = 0.9  # of the cells, or of the different values
_LOOKED_AT = 10_000
_FORMS = {
    "number": r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$",
    "date": r"^\s*\d{4}-\d\d-\d\d([ T].*)?$",
}
# What people write for them: 2,5 and 1,000 and 10 % and $5; 31.5.2024 and 5/31/24.
_OTHER_FORMS = {
    "number": r"^\s*[+-]?[$€£]?\s*(\d+\.?\d*|\d+(\.\d{3})*,\d+|\d{1,3}([,' ]\d{3})+(\.\d+)?)\s*[%$€£]?\s*$",
    "date": r"^\s*(\d{4}-\d\d-\d\d([ T].*)?|\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d\d)([ T].*)?)\s*$",
}
_LIKE = {"number": "2.5", "date": "2024-05-31"}
_ZONED = r"\d\d:\d\d\S*(Z|[+-]\d\d(:?\d\d)?)\s*$"  # a time of day that ends with its zone


def odd_cells(values: Any) -> str | None:
    """Says which cells are no number, if nearly all of a column of texts are one, or no date; or that they are written
    in another way, or only some with a time zone.

    Args:
        values: an array of pyarrow.

    Returns:
        For example "1 of its 200 cells is no number, 'n/k' in row 17"; None if most cells are something else, or all
        are numbers.
    """
    if not is_text(values.type):
        return None
    compute = pyarrow("pyarrow.compute")
    total = len(values) - values.null_count
    some = values
    if len(values) > _LOOKED_AT:  # columns of names are long, and looking at each cell takes as long as reading it
        some = values.take(pyarrow().array(np.linspace(0, len(values) - 1, _LOOKED_AT).astype(np.int64)))
    for kind, form in _FORMS.items():
        if len(values) > _LOOKED_AT and not _are_mostly(some, form, _NEARLY / 2):
            continue
        fits = compute.match_substring_regex(values, form)
        few = compute.sum(fits).as_py() or 0
        if not 0 < few < total:
            continue
        if few < _NEARLY * total and not _are_mostly(values.drop_null().unique(), form, _NEARLY):
            continue
        odd, first = total - few, _first_that_differs(values, fits)
        which = f"is no {kind}, {first}" if odd == 1 else f"are no {kind}s, the first is {first}"
        return f"{odd:,} of its {total:,} cells {which}"
    for kind, form in _OTHER_FORMS.items():
        if not _are_mostly(some, form, _NEARLY):
            continue
        plain = compute.match_substring_regex(values, _FORMS[kind])
        if compute.any(compute.invert(plain)).as_py():
            first = _first_that_differs(values, plain)
            return f"its cells are {kind}s, but not all are written as {_LIKE[kind]}, the first is {first}"
        zoned = compute.match_substring_regex(values, _ZONED)
        if kind == "date" and compute.any(zoned).as_py() and not compute.all(zoned).as_py():
            first = _first_that_differs(values, zoned)
            return f"not all of its dates have a time zone written as Z or +02:00, the first is {first}"
    return None


def _first_that_differs(values: Any, fits: Any) -> str:
    """The first cell that does not fit, and its row; missing cells do."""
    differs = pyarrow("pyarrow.compute").equal(fits, False).to_numpy(zero_copy_only=False)
    place = int(np.flatnonzero(differs)[0])
    return f"{shown(values[place].as_py())} in row {place + 1}"


def way_to_numbers(file: TableFile, cells: str) -> str:
    """What mends odd cells: of a CSV file `cells` says it; a Parquet file has types."""
    if file.kind != ".parquet":
        return cells
    way = "convert the column by pandas.to_numeric, or to_datetime with utc=True and format='mixed'"
    return f"{way}, where errors='coerce' makes other cells missing, and save it again"


def _are_mostly(values: Any, form: str, share: float) -> bool:
    """Whether that share of texts, or of the different ones among them, have a form."""
    compute = pyarrow("pyarrow.compute")
    for some in (values.drop_null(), values.drop_null().unique()):
        if len(some) and compute.sum(compute.match_substring_regex(some, form)).as_py() >= share * len(some):
            return True
    return False
