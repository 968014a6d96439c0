"""What is wrong in a schema or in tables is one line that names value, limit and way out."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from relational import FOLDER, needs_data
from shop import edit, write_shop

from loader.datasets import DatasetError, RelationalDataset
from loader.datasets.relational.schema import OWN_SCHEMAS, read_schema
from loader.datasets.relational.tables import read_tables

pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shop(tmp_path_factory.mktemp("intact") / "shop", customers=10, orders=60)


ITEMS = "table: customers, entity: who, time: at, label: again"
REVIEWS = "reviews: {file: reviews.csv,"
SCHEMAS: list[tuple[str, str, str]] = [
    ("tables:", "table:", r"schema\.yaml: table is not known; it must be one of tables, tasks, split; did you mean"),
    ("customers: {file", "cust-omers: {file", r"a table is called 'cust-omers'; .* Python identifier"),
    ("customers: {file", "training: {file", r"a table is called 'training'; .* and not 'training'"),
    ("time: ", "missing: ", r"no table has a time, and a task asks what is known at one; say under 'time'"),
    ("{file: customers.csv, ", "{", r"tables\.customers\.file is missing; it must be a text"),
    ("customers.csv", "clients.csv", r"schema.yaml names the file clients.csv; there is no "),
    ("key: id}", "keys: id}", r"tables\.customers\.keys is not known; .* did you mean key\?"),
    ("key: id}", "key: 3}", r"tables\.customers\.key is 3; it must be a text or a list of texts"),
    ("key: id}", "key: ID}", r"tables\.customers\.key names the column 'ID', which .* has not; it has id, city, born"),
    ("key: id}", "}", r"tables\.customers has neither 'key' nor 'foreign'"),
    ("customer: customers", "customer: clients", r"foreign\.customer is 'clients', which is no table; there are"),
    ("[brand, number], table", "[brand], table", r"foreign has 1 columns \(brand\) for the key of"),
    ("{customer: customers}", "{customer: customers, x: y}", r"orders\.foreign has the entry .*'column: table'"),
    ("time: at\n", "time: when\n", r"orders\.time names the column 'when', which .* has not"),
    ("time: at\n", "time: {column: at, unit: day}\n", r"orders\.time\.unit is 'day'; it must be one of second, year"),
    ("time: at\n", "time: {column: at, unit: year}\n", r"has the unit year, but .* column at holds dates; leave it"),
    ("time: at\n", "time: brand\n", r"column brand .* has type string, such as '[xy]'; times are whole numbers of 64"),
    ("order_id.at", "orders.at", r"reviews\.time is orders\.at, but orders is no foreign key .* there are order_id"),
    ("val: 2020-03-01, test", "val: 2020-05-01, test", r"split\.val is 2020-05-01; it must be before test, 2020-04-01"),
    ("val: 2020-03-01", "val: soon", r"split\.val is 'soon'; it must be a date, such as 2005-01-01, or seconds"),
    ("kind: binary", "kind: binery", r"again\.kind is 'binery'; it must be one of .* did you mean binary\?"),
    ("kind: binary", "kind: binary, by: name", r"again\.by is 'name'; it must be one of key, row"),
    (ITEMS, ITEMS.replace("customers", "products"),
     r"names rows of products by key, which has 2 columns; it must have one, or say by: row"),
    (ITEMS, ITEMS.replace("customers", "reviews") + ", by: row",
     r"column who has type string; with by: row it holds the rows' numbers"),
    (ITEMS, ITEMS.replace("who", "whom"), r"again\.entity names the column 'whom'"),
    ("label: again, kind: binary", "label: spent, kind: binary", r"column spent is .* in row \d+; labels of"),
    ("label: again, kind: binary", "label: mood, kind: regression", r"column mood has type string; labels of kind"),
    ("again: {file: items.csv", "again: {file: items.csv, files: {train: a}", r"must have 'file', or 'files'"),
    ("split: {val: 2020-03-01, test: 2020-04-01}", "", r"again\.split is missing, and the items of all"),
    (REVIEWS, REVIEWS + " columns: {stars: numbr},", r"columns\.stars is 'numbr'"),
    (REVIEWS, REVIEWS + " columns: {text: number},", r"column text is a number by the sch"),
    (REVIEWS, REVIEWS + " columns: {stars: time},", r"column stars is a time by the schema"),
    ("  products:", "  customers:", r"has 'customers' twice in one mapping, first in line 3; rename one"),
    ("tables:", "tables: [", r"cannot be read as a schema in YAML"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), SCHEMAS)
def test_a_damaged_schema_is_named(intact: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    refused(copied(intact, tmp_path), tmp_path, "schema.yaml", old, new, message)


TABLES: list[tuple[str, str, str, str]] = [
    ("customers.csv", "\nc3,", "\nc2,", r"1 keys \(id\) name several rows, the first is c2; a key names one row"),
    ("customers.csv", "\nc3,", "\n,", r"the key id is missing in row 4, and in 0 more; fill it in"),
    ("customers.csv", "\nc3,", "\n c3,", r"column id is ' c3' in row 4, with a space around it"),
    ("customers.csv", "id,city,born", "id,Unnamed: 0,born", r"column 2 has the name 'Unnamed: 0', as an index has"),
    ("customers.csv", "id,city", "id,id", r"has 2 columns 'id'; give each a name of its own"),
    ("orders.csv", "1000,c", "1000,1,c", r"cannot be read as a .csv file"),
    ("orders.csv", "T", " soon ", r"column at .* has type string, such as '2020-.* soon "),
    ("orders.csv", ":00\n1001", ":00Z\n1001", r"column at .* has type string, such as .* all with a time zone"),
    ("orders.csv", ",x,", ",z,", None),  # some products are not known: a line in the report
    ("customers.csv", "\nc", "\nk", r"60 of 60 keys customer name no row of customers, the first is 'c\d'; name the"),
    ("items.csv", "\nc3,", "\nc33,", r"9 of 90 items name no row of customers, the first is 'c33' in row 4 "),
    ("items.csv", "\nc3,2020-01-31T00:00:00", "\nc3,", r"column at is empty in row 4, and in 0 more; an item has all"),
    ("items.csv", "2020", "2019", r"task again has no items for val .* it needs some"),
    ("items.csv", "2020-04", "2020-03", r"task again has no items for test .* it needs some"),
    ("items.csv", ",1,", ",0,", r"all \d+ labels of train \(again\) are 0; AUROC needs both 0 and 1: change the split"),
    ("products.csv", "x,0,5", "x,0,inf", r"column price is inf in row 1; features are finite"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "message"), TABLES)
def test_a_damaged_table_is_named(
    intact: Path, tmp_path: Path, file: str, old: str, new: str, message: str | None
) -> None:
    folder = copied(intact, tmp_path)
    if message is not None:
        refused(folder, tmp_path, file, old, new, message)
        return
    edit(folder / file, lambda text: text.replace(old, new))
    data: Any = RelationalDataset(folder, "again", cache_dir=tmp_path / "cache").load()
    assert any("keys brand, number name no row of products, the first is 'z, " in line for line in data.report)


def copied(intact: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    for file in intact.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def refused(folder: Path, tmp_path: Path, file: str, old: str, new: str, message: str) -> None:
    edit(folder / file, lambda text: text.replace(old, new))
    with pytest.raises(DatasetError, match=message) as found:
        RelationalDataset(folder, "again", cache_dir=tmp_path / "cache").load()
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "agian"}, r"has no task 'agian'; it has again, spent, mood; did you mean again\?"),
        ({"schema": "rel-f2"}, r"there is no schema .*rel-f2; or name one of .*rel-f1.*; did you mean rel-f1\?"),
        ({"path": "nowhere"}, r"path: there is no folder .*nowhere; give that of the tables"),
        ({"items": "nowhere.csv"}, r"items: there is no file .*nowhere.csv; give that of the items to predict"),
    ],
)
def test_a_wrong_option_is_named(intact: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    given = {"path": intact, "task": "again", "data_dir": tmp_path, "cache_dir": tmp_path / "cache", **options}
    with pytest.raises(DatasetError, match=message):
        RelationalDataset(**given).load()


def test_options_that_tables_have_not_are_refused(intact: Path) -> None:
    with pytest.raises(ValueError, match="undirected is given; tables have both directions of each key"):
        RelationalDataset(intact, "again", undirected=True)


def test_a_folder_without_a_schema_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"there is no schema .*schema.yaml; write one, or give schema=PATH"):
        RelationalDataset(tmp_path, "again", cache_dir=tmp_path).load()


@pytest.mark.parametrize("path", sorted(OWN_SCHEMAS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_schemas_of_the_package_are_read(path: Path) -> None:
    schema = read_schema(path)
    assert sum(len(table.foreign) for table in schema.tables.values()) > 5


@needs_data
@pytest.mark.parametrize("path", sorted(OWN_SCHEMAS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_packages_databases_raise_no_warning(path: Path) -> None:
    assert read_tables(read_schema(path), FOLDER / path.stem).warnings == ()


def years(at: Any) -> Any:
    return at.dt.year


def dates(at: Any) -> Any:
    return at.dt.strftime("%Y%m%d").astype(int)


def milliseconds(at: Any) -> Any:
    return at.astype("datetime64[ms]").astype("int64")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (years, r"whole numbers, 2020 to 2020, .* these are years: say time: {column: at, unit: year}"),
        (dates, r"whole numbers, 202001\d\d to 20200\d\d\d, .* these are dates: write them as 2024-05-31"),
        (milliseconds, r"seconds end with the year 9999: divide milliseconds by 1000"),
    ],
)
def test_whole_numbers_that_are_no_seconds_are_refused(intact: Path, tmp_path: Path, change: Any, message: str) -> None:
    pd = pytest.importorskip("pandas")
    folder = copied(intact, tmp_path)
    frame = pd.read_csv(folder / "orders.csv")
    frame["at"] = change(pd.to_datetime(frame["at"]))
    frame.to_csv(folder / "orders.csv", index=False)
    with pytest.raises(DatasetError, match=message):
        RelationalDataset(folder, "again", cache_dir=tmp_path / "cache").load()


def warnings_of(folder: Path, caplog: Any) -> list[str]:
    """What loading warns of. Each is a line of the report, too."""
    caplog.clear()
    data = RelationalDataset(folder, "again", cache_dir=folder.parent / "cache").load()
    lines = [
        one.getMessage().removeprefix(f"{data.name}: ") for one in caplog.records if one.levelno == logging.WARNING
    ]
    assert list(data.report[: len(lines)]) == lines  # type: ignore[attr-defined]
    return lines


def test_rows_without_times_that_name_timed_are_told(intact: Path, tmp_path: Path, caplog: Any) -> None:
    folder = copied(intact, tmp_path)
    edit(folder / "schema.yaml", lambda text: text.replace("time: order_id.at, ", ""))
    (line,) = [line for line in warnings_of(folder, caplog) if "rows of reviews" in line]
    assert "have no time, so every item sees them, also before the rows of orders that they name; for those" in line
    assert "say time: order_id.COLUMN, if they come with these, or say time: null under tables.reviews in" in line
    edit(folder / "schema.yaml", lambda text: text.replace("file: reviews.csv, ", "file: reviews.csv, time: null, "))
    assert not [line for line in warnings_of(folder, caplog) if "rows of reviews" in line]


def test_dates_without_a_time_are_warned_of(intact: Path, tmp_path: Path, caplog: Any) -> None:
    folder = copied(intact, tmp_path)
    for _ in range(2):  # of the conversion that is opened, too
        (line,) = warnings_of(folder, caplog)
        assert line.startswith("rows of customers have no time, so every item sees them, whatever the column born of")
        assert "say time: COLUMN if it tells when they become known, or say time: null under tables.customers" in line
    edit(
        folder / "customers.csv",
        lambda text: text.replace("id,city,born", "id,city,born,moved").replace("-11", "-11,2020-01-01"),
    )
    assert "whatever the columns born, moved of dates says" in warnings_of(folder, caplog)[0]
    edit(
        folder / "schema.yaml",
        lambda text: text.replace("customers.csv, key: id}", "customers.csv, key: id, time: null}"),
    )
    assert warnings_of(folder, caplog) == []


def test_numbers_with_a_word_are_warned_of(intact: Path, tmp_path: Path, caplog: Any) -> None:
    folder = copied(intact, tmp_path)
    edit(folder / "orders.csv", lambda text: re.sub(r",[\d.]*,(\d{4}-\d\d-\d\dT)", r",n/k,\1", text, count=1))
    (line,) = [line for line in warnings_of(folder, caplog) if "amount" in line]
    assert re.search(
        r"orders.csv: column amount is read as texts, since 1 of its \d+ cells is no number, 'n/k' in", line
    )
    assert "name texts that mean a missing value under 'missing' of tables.orders, correct the cells, or say" in line
    assert line.endswith("amount: category under 'columns' of tables.orders")
    edit(
        folder / "schema.yaml",
        lambda text: text.replace("    time: at\n", "    time: at\n    columns: {amount: number}\n"),
    )
    with pytest.raises(DatasetError, match=r"has type string: 1 of its \d+ cells is no number, 'n/k' in row 1; name"):
        warnings_of(folder, caplog)
    edit(folder / "schema.yaml", lambda text: text.replace("amount: number", "amount: category"))
    assert not [line for line in warnings_of(folder, caplog) if "amount" in line]
    edit(folder / "schema.yaml", lambda text: text.replace("columns: {amount: category}", "missing: n/k"))
    assert not [line for line in warnings_of(folder, caplog) if "amount" in line]


def test_columns_that_are_left_out_need_no_time(intact: Path, tmp_path: Path, caplog: Any) -> None:
    folder = copied(intact, tmp_path)
    edit(folder / "schema.yaml", lambda text: text.replace("key: id}", "key: id, columns: {city: category}}", 1))
    assert warnings_of(folder, caplog) == []


def test_an_item_before_its_row_is_refused(intact: Path, tmp_path: Path) -> None:
    folder = copied(intact, tmp_path)
    edit(folder / "customers.csv", lambda text: text.replace("\nc3,", "\nc3,Rome,2020-03-15\nc33,", 1))
    edit(
        folder / "schema.yaml",
        lambda text: text.replace("customers.csv, key: id", "customers.csv, key: id, time: born"),
    )
    with pytest.raises(
        DatasetError, match=r"5 of 90 items ask about a row of customers before it is known, the first at"
    ):
        RelationalDataset(folder, "again", cache_dir=tmp_path / "cache", later_rows=True).load()


@pytest.mark.parametrize("split", ["train", "val"])
def test_items_of_the_next_split_are_refused(intact: Path, tmp_path: Path, split: str) -> None:
    folder = copied(intact, tmp_path)
    head, *lines = (folder / "items.csv").read_text().splitlines()
    bounds = {"train": ("", "2020-03-01"), "val": ("2020-03-01", "2020-04-01"), "test": ("2020-04-01", "3")}
    for name, (first, last) in bounds.items():
        late = [f"c1,{last}T00:00:00,0,1.0,sad"] if name == split else []
        own = [line for line in lines if first <= line.split(",")[1] < last]
        (folder / f"{name}.csv").write_text("\n".join([head, *own, *late, ""]))
    files = "files: {train: train.csv, val: val.csv, test: test.csv}"
    edit(folder / "schema.yaml", lambda text: text.replace("again: {file: items.csv", f"again: {{{files}"))
    with pytest.raises(
        DatasetError, match=rf"task again has 1 of \d+ items of {split} at or after 2020-0[34]-01T00:00:00"
    ):
        RelationalDataset(folder, "again", cache_dir=tmp_path / "cache").load()


@pytest.mark.parametrize(("above", "refused"), [(1_700_000_000, True), (100_000, False)])
def test_labels_that_float32_makes_equal_are_refused(intact: Path, tmp_path: Path, above: int, refused: bool) -> None:
    """Seconds since 1970 that differ by some: they would be one number, which any model predicts without an error."""
    folder = copied(intact, tmp_path)
    head, *lines = (folder / "items.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines]
    for row in rows:
        row[3] = str(above + round(float(row[3])))
    (folder / "items.csv").write_text("\n".join([head, *map(",".join, rows), ""]))
    dataset = RelationalDataset(folder, "spent", cache_dir=tmp_path / "cache")
    if not refused:
        assert dataset.load().items["train"].labels.unique().numel() > 5
        return
    with pytest.raises(DatasetError, match=r"column spent has labels around 17000000\d\d with a deviation of 1\d"):
        dataset.load()


def test_large_labels_and_single_items_are_refused(intact: Path, tmp_path: Path) -> None:
    folder = copied(intact, tmp_path)
    head, first, *lines = (folder / "items.csv").read_text().splitlines()
    for changed, message in (
        ([first.replace(first.split(",")[3], "1e300"), *lines], r"is 1e\+300 in row 1; labels .* are finite float32"),
        (
            [first, *(line for line in lines if "2020-04" not in line), "c1,2020-04-09,0,1.0,sad"],
            "R2 needs two or more",
        ),
    ):
        (folder / "items.csv").write_text("\n".join([head, *changed, ""]))
        with pytest.raises(DatasetError, match=message):
            RelationalDataset(folder, "spent", cache_dir=tmp_path / "cache").load()
