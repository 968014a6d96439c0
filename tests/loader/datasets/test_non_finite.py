"""Features that are not finite are counted over the whole table, by kind and column."""

from __future__ import annotations

import numpy as np
import pytest

from loader.datasets import DatasetError, NpzDataset
from loader.datasets.non_finite import NotFinite


def test_kinds_and_columns_are_counted():
    rows = np.zeros((6, 9))
    rows[1, 2] = rows[4, 2] = rows[5, 8] = np.nan
    rows[3, 0] = -np.inf
    rows[4, 1] = 1e300
    found = NotFinite()
    for at in (0, 2, 4):
        part = rows[at : at + 2]
        with np.errstate(over="ignore"):
            found.look(part, part.astype(np.float32), at)
    assert found.found == 5
    assert str(found) == (
        "features must be finite, and are not in columns 0, 1, 2, 8 of 9: 3 NaN, 1 infinite, 1 too large for float32 "
        "(feature 2 of node 1 is nan); replace them in the source by zeros (numpy.nan_to_num) or by the mean of "
        "their column"
    )


@pytest.mark.parametrize("zeros", [False, True], ids=["table", "mostly zeros"])
def test_all_parts_of_a_table_are_counted(npz_file, tmp_path, monkeypatch, zeros):
    """Tables are read in parts, as bags of words or in full; the advice is no way to train on NaN."""
    monkeypatch.setattr(NpzDataset, "rows_at_once", lambda self, width: 2)
    features = np.zeros((6, 40)) if zeros else np.ones((6, 40))
    features[[0, 3, 5], [7, 7, 30]] = np.nan
    with pytest.raises(DatasetError, match=r"columns 7, 30 of 40: 3 NaN \(feature 7 of node 0 is nan\)") as error:
        NpzDataset(npz_file(features=features), data_dir=tmp_path).load()
    assert "check_features" not in str(error.value)
    assert "\n" not in str(error.value)
