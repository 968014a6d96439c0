"""Columns of whole numbers that are read as numbers: only if no text is lost by that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader.datasets import TableDataset
from loader.datasets.integer_columns import plain_integers, text_length
from loader.datasets.table_columns import TableFile

pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
COLUMNS = ("source", "target")
HEADER = "source,target\n"


def file_of(folder: Path, text: str) -> TableFile:
    path = folder / "edges.csv"
    path.write_bytes(text.encode())
    return TableFile(path)


def read(folder: Path, text: str, columns: tuple[str, str] = COLUMNS) -> list[list[int]] | None:
    found = plain_integers(file_of(folder, text), columns)
    if found is None:
        return None
    pieces = list(found)
    return [[value.as_py() for piece in pieces for value in piece[place]] for place in range(2)]


@pytest.mark.parametrize("end", ["\n", ""])
def test_plain_numbers_are_read_as_numbers(tmp_path: Path, end: str) -> None:
    text = f"{HEADER}1,-20\n0,{2**63 - 1}\n{-(2**63)},10{end}"
    assert read(tmp_path, text) == [[1, 0, -(2**63)], [-20, 2**63 - 1, 10]]
    assert read(tmp_path, text, ("target", "source")) == [[-20, 2**63 - 1, 10], [1, 0, -(2**63)]]


@pytest.mark.parametrize(
    "rows",
    [
        "1,007\n2,3\n",
        "1,2\n-0,3\n",
        "1,2\n+4,3\n",
        "1,2\n 4,3\n",
        '1,2\n"4",3\n',
        "1,2\n4,\n",
        "1,2\n4,a\n",
        f"1,2\n{2**63},3\n",
        "1,2\r\n4,5\r\n",
        "1,2\n4,5\r\n",
        "1,2\n\n4,5\n",
        "1,2\n4.0,5\n",
        "01,2\n4,5",  # one more character, and one line feed less
        "a,b\n",
        "",
    ],
)
def test_other_texts_are_left_to_the_texts(tmp_path: Path, rows: str) -> None:
    assert read(tmp_path, HEADER + rows) is None


def test_other_columns_are_left_to_the_texts(tmp_path: Path) -> None:
    assert read(tmp_path, "source,target,weight\n1,2,3\n") is None


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_the_length_is_that_of_the_texts(numbers: list[int]) -> None:
    assert text_length(np.array(numbers)) == sum(len(str(number)) for number in numbers)


def test_the_length_of_many_numbers_is_counted() -> None:
    numbers = np.random.default_rng(0).integers(-(10**9), 10**9, 200_000) // 10 ** np.arange(200_000).__mod__(10)
    assert text_length(numbers) == sum(map(len, map(str, numbers.tolist())))


def test_both_ways_give_one_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = np.random.default_rng(0).integers(-50, 10**6, (3000, 2)) * 7
    path = tmp_path / "edges.csv"
    path.write_text(HEADER + "".join(f"{a},{b}\n" for a, b in pairs.tolist()))

    def load(cache: str) -> Any:
        return TableDataset(path, cache_dir=tmp_path / cache).load()

    fast = load("fast")
    monkeypatch.setattr("loader.datasets.table.plain_integers", lambda *_: None)
    slow = load("slow")
    for name in ("indptr", "indices"):
        assert getattr(fast.graph, name).equal(getattr(slow.graph, name))
    assert fast.tables.ids.digest == slow.tables.ids.digest
    assert fast.tables.report == slow.tables.report
