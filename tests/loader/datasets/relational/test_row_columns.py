"""Columns of tables that a checkpoint of an earlier release has."""

import pytest

from loader.datasets.errors import DatasetError
from loader.datasets.relational.row_columns import RowColumn

arrow = pytest.importorskip("pyarrow")


def earlier(*categories: str) -> RowColumn:
    """A category as releases saved it that read 007 as the number 7."""
    saved = RowColumn("shop", "category", categories=categories).to_json()
    del saved["written"]
    return RowColumn.from_json(saved)


def test_codes_that_were_numbers_are_refused() -> None:
    codes = arrow.array(["007", "12"])
    with pytest.raises(DatasetError, match=r"^shop has codes such as 007, .* train it again$"):
        earlier("7", "12").encode(codes, "shop")
    assert RowColumn("shop", "category", categories=("7", "12")).encode(codes, "shop").tolist() == [[-1.0], [1.0]]


@pytest.mark.parametrize(
    ("categories", "values", "wanted"),
    [
        (("007", "12"), ["007", "12"], [0, 1]),  # texts of a Parquet file
        (("7", "12"), [12, 7], [1, 0]),
        (("a", "12"), ["0x", "12"], [-1, 1]),
    ],
)
def test_categories_that_were_as_written_stay(
    categories: tuple[str, ...], values: list[object], wanted: list[int]
) -> None:
    found = earlier(*categories).encode(arrow.array(values), "shop")
    assert found[:, 0].tolist() == wanted
