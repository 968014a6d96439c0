"""The few cells that keep a column of numbers or dates from being one."""

from __future__ import annotations

from typing import Any

import numpy as np

from loader.datasets.columns import is_text, pyarrow
from loader.machine.arguments import shown

_NEARLY = 0.9  # of the cells, or of the different values
_FORMS = {
    "number": r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$",
    "date": r"^\s*\d{4}-\d\d-\d\d([ T].*)?$",
}


def odd_cells(values: Any) -> str | None:
    """Says which cells are no number, if nearly all of a column of texts are one, or no date.

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
    for kind, form in _FORMS.items():
        fits = compute.match_substring_regex(values, form)
        few = compute.sum(fits).as_py() or 0
        if not 0 < few < total:
            continue
        if few < _NEARLY * total:
            different = compute.match_substring_regex(values.drop_null().unique(), form)
            if compute.sum(different).as_py() < _NEARLY * len(different):
                continue
        odd, place = total - few, int(np.flatnonzero(compute.equal(fits, False).to_numpy(zero_copy_only=False))[0])
        first = f"{shown(values[place].as_py())} in row {place + 1}"
        told = f"is no {kind}, {first}" if odd == 1 else f"are no {kind}s, the first is {first}"
        return f"{odd:,} of its {total:,} cells {told}"
    return None
