"""Counts features that are not finite."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loader.datasets.classes import listed


class NotFinite:
    """What is wrong with features that are looked at some rows at a time; its text is one line.

    Args:
        nodes: the nodes of the rows; None if row `i` is that of node `i`.

    Attributes:
        found: number of values that are not finite as float32.
    """

    def __init__(self, nodes: NDArray[np.int64] | None = None) -> None:
        self.found = 0
        self._nodes = nodes
        self._nan = self._too_large = 0
        self._columns: set[int] = set()
        self._first = ""

    def look(self, given: NDArray[np.generic], part: NDArray[np.float32], at: int) -> None:
        """Counts in some rows.

        Args:
            given: `[rows, num_features]` of the source.
            part: the same as float32.
            at: the number of the first row.
        """
        wrong = ~np.isfinite(part)
        if not wrong.any():
            return
        rows, columns = np.nonzero(wrong)
        if not self.found:
            node = at + rows[0] if self._nodes is None else self._nodes[at + rows[0]]
            self._first = f"feature {columns[0]} of node {node} is {given[rows[0], columns[0]]}"
        self.found += rows.size
        self._nan += int(np.isnan(part[wrong]).sum())
        self._too_large += int(np.isfinite(given[wrong]).sum())
        self._columns.update(np.unique(columns).tolist())
        self._width = part.shape[1]

    def __str__(self) -> str:
        counts = {
            "NaN": self._nan,
            "infinite": self.found - self._nan - self._too_large,
            "too large for float32": self._too_large,
        }
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
        columns = "column" if len(self._columns) == 1 else "columns"
        return (
            f"features must be finite, and are not in {columns} {listed(sorted(self._columns))} of {self._width}: "
            f"{kinds} ({self._first}); replace them in the source by zeros (numpy.nan_to_num) or by the mean "
            "of their column"
        )
