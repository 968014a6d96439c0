"""A cell that keeps a column from being numbers is found, wherever it is, and words are left alone."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")

from loader.datasets.non_numeric_cells import odd_cells  # noqa: E402

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


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (["3", None, "2,5", "10"], "numbers, but not all are written as 2.5, the first is '2,5' in row 3"),
        (["1,000.5", "12,345"], "numbers, but not all are written as 2.5, the first is '1,000.5' in row 1"),
        (["1.000,5", "-7,25"], "numbers, but not all are written as 2.5, the first is '1.000,5' in row 1"),
        (["10%", "7.5 %"], "numbers, but not all are written as 2.5, the first is '10%' in row 1"),
        (["€5", "$ 7.50", "8 €"], "numbers, but not all are written as 2.5, the first is '€5' in row 1"),
        (
            ["31.5.2024", "01.06.2024"],
            "dates, but not all are written as 2024-05-31, the first is '31.5.2024' in row 1",
        ),
        (
            ["2024-05-31", "5/31/24 08:00"],
            "dates, but not all are written as 2024-05-31, the first is '5/31/24 08:00' ",
        ),
    ],
)
def test_other_ways_to_write_are_found(cells, told):
    found = odd_cells(pa.array(cells * 10))
    assert found is not None
    assert found.startswith(f"its cells are {told}")


@pytest.mark.parametrize("zone", ["Z", "+02:00", "-0330", "+05"])
def test_dates_of_which_some_have_zones(zone):
    cells = ["2024-05-31 08:00:00" + zone, None, "2024-05-31T08:00:00.5" + zone]
    assert odd_cells(pa.array(cells)) is None
    for other in ("2024-06-01 08:00:00", "2024-06-01"):
        found = odd_cells(pa.array([*cells, other]))
        assert found == f"not all of its dates have a time zone written as Z or +02:00, the first is '{other}' in row 4"


def test_long_columns_are_looked_at_in_part_first(monkeypatch):
    numbers, names = [str(number) for number in range(30_000)], [f"u{number}" for number in range(30_000)]
    assert odd_cells(pa.array([*numbers, "?"])) == "1 of its 30,001 cells is no number, '?' in row 30001"
    assert odd_cells(pa.array([*["?"] * 30_000, *numbers])).startswith("30,000 of its 60,000 cells are no numbers")
    looked = []
    monkeypatch.setattr("loader.datasets.non_numeric_cells._are_mostly", lambda some, *_: looked.append(len(some)))
    assert odd_cells(pa.array(names)) is None
    assert looked == [10_000] * 4  # for numbers, and for dates, as they are read and as others write them


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
        ["1.2.3", "10.0.0.1", "030 1234"],
        ["XS", "12/24", "3-4"],
    ],
)
def test_other_columns_have_none(cells):
    assert odd_cells(pa.array(cells)) is None
