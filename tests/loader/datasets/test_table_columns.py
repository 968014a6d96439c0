from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from loader.datasets import Column, DatasetError
from loader.datasets.column_values import as_integers, as_weights
from loader.datasets.table_columns import TableFile

pa = pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def column(path, values, kind=None) -> Column:
    return Column.of("c", pa.chunked_array([pa.array(values, kind)]), path)


def features(path, values, kind=None) -> list[list[float]]:
    return column(path, values, kind).features(pa.array(values, kind)).tolist()


def test_all_kinds_of_files_give_the_same_table(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n2,\n")
    (tmp_path / "b.tsv").write_text("x\ty\n1\ta\n2\t\n")
    with gzip.open(tmp_path / "c.csv.gz", "wt") as file:
        file.write("x,y\n1,a\n2,\n")
    parquet.write_table(pa.table({"x": [1, 2], "y": ["a", None]}), tmp_path / "d.parquet")
    tables = [TableFile(tmp_path / name) for name in ("a.csv", "b.tsv", "c.csv.gz", "d.parquet")]
    assert all(table.names == ["x", "y"] for table in tables)
    assert all(table.read(["y", "x"]).to_pydict() == {"y": ["a", None], "x": [1, 2]} for table in tables)


def test_quoted_line_ends_lie_across_blocks(path):
    cell = "said\nand,0.25,more"  # each line of it looks like a row
    rows = 700_000  # of 27 bytes: more than a block
    path.write_text("id,x,text\n" + "".join(f'{number},0.5,"{cell}"\n' for number in range(rows)))
    table = TableFile(path).read(["id", "text"])
    assert table.column("id").to_numpy().tolist() == list(range(rows))
    assert table.column("text").unique().to_pylist() == [cell]
    assert sum(len(piece) for piece in TableFile(path).pieces({"text": pa.string()})) == rows


def test_pieces_keep_the_digits_of_ids(path):
    path.write_text('id\n007\n18446744073709551615\nNA\n" b"\n')
    pieces = list(TableFile(path).pieces({"id": pa.string()}))
    assert [value for piece in pieces for value in piece.column("id").to_pylist()] == [
        "007", "18446744073709551615", "NA", " b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read as a .csv file"),
        ("a;b\n1;2\n", "has one column, 'a;b', which holds ';'; columns of a .csv file are separated by commas"),
        ("a,a\n1,2\n", "has 2 columns 'a'; give each a name of its own"),
        ("a,b\n1,2\n1,2,3\n", r"cannot be read as a .csv file \(.*Expected 2 columns, got 3"),
    ],
)
def test_bad_files_give_one_line(path, content, message):
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DatasetError, match=message) as raised:
        TableFile(path).read(["a", "b"])
    assert "\n" not in str(raised.value)


def test_ids_are_in_utf8(path):
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(DatasetError, match=r"cannot be read as a .csv file \(.*UTF8"):
        list(TableFile(path).pieces({"a": pa.string()}))


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"does not end in .csv, .tsv, .parquet; save the table as one of these"):
        TableFile(tmp_path / "edges.xlsx")


def test_numbers_are_standardised_filled_and_flagged(path):
    assert features(path, [1.0, 3.0, None]) == [[-1, 0], [1, 0], [0, 1]]
    assert features(path, [1.0, 3.0, float("nan")]) == [[-1, 0], [1, 0], [0, 1]]
    assert features(path, [True, False]) == [[1], [-1]]


def test_missing_texts_are_values_of_parquet_files(tmp_path):
    path, days = tmp_path / "nodes.parquet", np.array(["1900-01-01", "2020-01-01", "2020-01-02"], "datetime64[us]")
    table = pa.table(
        {
            "float": np.array([1.0, np.nan, -999.0]),
            "int": pa.array([1, -999, 0]),
            "day": pa.array(days),
            "text": ["-999", "NaN", "a"],
            "flag": [True, False, None],
            "many": pa.array(["b", "n/k", "b"]).dictionary_encode(),
        }
    )
    pa.parquet.write_table(table, path)
    found = TableFile(path).read(table.column_names, ("NaN", "-999", "1900-01-01", "0", "n/k"))
    wanted = {"float": [1.0, None, None], "int": [1, None, None], "text": [None, None, "a"]}
    wanted |= {"flag": [True, False, None], "many": ["b", None, "b"], "day": [None, *days[1:].tolist()]}
    assert found.to_pydict() == {name: wanted[name] for name in table.column_names}
    (piece,) = TableFile(path).pieces({"int": None})  # ids are missing only if empty
    assert piece.to_pydict() == {"int": [1, -999, 0]}


@pytest.mark.parametrize(
    ("kind", "digits"), [("decimal128", (9, 2)), ("decimal256", (40, 1)), ("decimal64", (9, 0)), ("float16", ())]
)
def test_missing_texts_are_decimals_and_half_floats(tmp_path, kind, digits):
    if not hasattr(pa, kind):
        pytest.skip(f"pyarrow {pa.__version__} has no {kind}")
    path = tmp_path / "nodes.parquet"
    values = pa.array(["1", "-999", None, "2"]).cast(getattr(pa, kind)(*digits))
    pa.parquet.write_table(pa.table({"x": values}), path)
    assert TableFile(path).read(["x"], ("NaN", "n/k", "-999")).column("x").is_null().to_pylist() == [0, 1, 1, 0]


def test_equal_values_are_no_feature(path):
    for values in ([0.1] * 7, ["a"] * 3, [None, None]):
        assert column(path, values).width == 0
        assert "no feature of its own" in column(path, values).report()
    assert features(path, [5, 5, None]) == [[0], [0], [1]]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**53, 2**53 + 1, None], pa.int64()),
        ([2**64 - 1, 2**64 - 2], pa.uint64()),
        (range(2**60, 2**60 + 1000), pa.int64()),
        ([1_700_000_000 * 10**9, 1_700_000_000 * 10**9 + 100], pa.timestamp("ns")),
    ],
)
def test_values_that_float64_makes_one_are_refused(path, values, kind):
    with pytest.raises(DatasetError, match=r"column c has different values around .*, which are nearly one as float64"):
        column(path, list(values), kind)
    assert column(path, [values[0]] * 3, kind).width == 0
    assert column(path, [2**60 + 1000 * one for one in range(1000)]).deviation == pytest.approx(288_675, rel=1e-3)


def test_dates_are_numbers_of_seconds(path):
    found = column(path, [0, 2], pa.date32())
    assert (found.kind, found.mean, found.deviation) == ("time", 86400, 86400)
    nanoseconds = pa.array([0, 2 * 10**9 + 1], pa.timestamp("ns"))
    assert column(path, nanoseconds).mean == pytest.approx(1 + 5e-10)


def test_categories_go_by_frequency_then_text(path):
    found = column(path, ["b", "a", "c", "c", None])
    assert found.categories == ("c", "a", "b")
    assert found.features(pa.array(["a", "new", None, "c"])).tolist() == [
        [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0],
    ]  # fmt: skip


def test_rare_categories_share_a_feature(path):
    found = column(path, [f"{i:03d}" for i in range(150)])
    assert (len(found.categories), found.others, found.width) == (100, True, 101)
    assert found.features(pa.array(["099", "100", "new"])).argmax(1).tolist() == [99, 100, 100]
    assert "and one for all others" in found.report()


def test_columns_survive_json(path):
    for values in ([1.0, 0.1, None], ["a", "b"]):
        found = column(path, values)
        assert Column.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, float("inf")], "column c is inf in row 2; features are finite"),
        ([1e300, -1e300], r"column c has numbers up to 1e\+300, whose deviation is no float64"),
        ([b"\xff", b"a"], "column c has type binary; features are made of numbers, texts in UTF-8"),
        ([[1], [2]], "column c has type list<.*>; features are made of numbers, texts in UTF-8"),
    ],
)
def test_bad_features_are_named(path, values, message):
    with pytest.raises(DatasetError, match=message), np.errstate(over="ignore"):
        column(path, values)


def test_times_become_integers(path):
    def times(values, kind=None):
        return as_integers("time", "t", pa.chunked_array([pa.array(values, kind)]), path).tolist()

    assert times([3, -1]) == [3, -1]
    assert times([3.0, 2.0]) == [3, 2]
    assert times([1], pa.date32()) == [86400]
    assert times([-2, 5], pa.timestamp("s", "UTC")) == [-2, 5]


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([1, None], None, r"column t \(dataset.time\) is empty in row 2, and in 0 more"),
        ([1.0, float("nan")], None, r"column t \(dataset.time\) is nan in row 2; fill it in"),
        ([0.5], None, r"column t \(dataset.time\) is 0.5 in row 1; times are whole numbers"),
        (["x"], None, "has type string, such as 'x'; times are whole numbers of 64 bits, dates"),
        ([1500], pa.timestamp("ms"), "is 1.5 in row 1; the seconds of a time are whole"),
    ],
)
def test_bad_times_are_named(path, values, kind, message):
    with pytest.raises(DatasetError, match=message):
        as_integers("time", "t", pa.chunked_array([pa.array(values, kind)]), path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, -2.0], r"column w \(dataset.weight\) is -2.0 in row 2; a weight is finite and at least 0"),
        ([1.0, float("nan")], "is nan in row 2"),
        ([None], "is empty in row 1"),
        (["a"], "has type string; weights are numbers"),
    ],
)
def test_bad_weights_are_named(path, values, message):
    with pytest.raises(DatasetError, match=message):
        as_weights("weight", "w", pa.chunked_array([pa.array(values)]), path)
