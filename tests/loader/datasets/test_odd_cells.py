"""A cell that keeps a column from being numbers is found, wherever it is, and words are left alone."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")

from loader.datasets.odd_cells import odd_cells  # noqa: E402

NUMBERS = [str(number) for number in range(1000)]


@pytest.mark.parametrize("place", [0, 500, 1000])
def test_one_word_among_numbers_is_found(place):
    cells = [*NUMBERS[:place], "n/k", *NUMBERS[place:]]
    told = f"1 of its 1,001 cells is no number, 'n/k' in row {place + 1}"
    assert odd_cells(pa.chunked_array([cells[:400], cells[400:]])) == told
    assert odd_cells(pa.array(cells, pa.large_string())) == told


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([*NUMBERS, None, "?", "?"], "2 of its 1,002 cells are no numbers, the first is '?' in row 1002"),
        (["?"] * 900 + NUMBERS[:100], "900 of its 1,000 cells are no numbers, the first is '?' in row 1"),
        (["0", "1"] * 20 + ["?"], "1 of its 41 cells is no number, '?' in row 41"),
        (["-1.5e3", "+.5", "3.", " 4 "] * 5 + ["1,5"], "1 of its 21 cells is no number, '1,5' in row 21"),
        (["2024-05-31", "2024-05-31 08:00:00"] * 9 + ["soon"], "1 of its 19 cells is no date, 'soon' in row 19"),
    ],
)
def test_most_cells_or_most_values_suffice(cells, told):
    assert odd_cells(pa.array(cells)) == told


def test_long_columns_are_looked_at_in_part_first(monkeypatch):
    numbers, names = [str(number) for number in range(30_000)], [f"u{number}" for number in range(30_000)]
    assert odd_cells(pa.array([*numbers, "?"])) == "1 of its 30,001 cells is no number, '?' in row 30001"
    assert odd_cells(pa.array([*["?"] * 30_000, *numbers])).startswith("30,000 of its 60,000 cells are no numbers")
    looked = []
    monkeypatch.setattr("loader.datasets.odd_cells._are_mostly", lambda some, *_: looked.append(len(some)))
    assert odd_cells(pa.array(names)) is None
    assert looked == [10_000, 10_000]  # for numbers, and for dates


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [None],
        NUMBERS,
        ["red", "4", "blue"],
        ["a"] * 20,
        ["2024-05-31"] * 20,
        ["u1", "u2"],
        [1, 2],
        ["z"] * 9 + ["1"],
    ],
)
def test_other_columns_have_none(cells):
    assert odd_cells(pa.array(cells)) is None
