from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shop import DAY, FIRST, edit, write_shop

from loader.datasets import DatasetError, RelationalData, RelationalDataset

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
pytest.importorskip("pyarrow.parquet")

VAL, TEST = FIRST + 60 * DAY, FIRST + 91 * DAY


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_shop(tmp_path / "shop")


def load(folder: Path, task: str = "again", **options: Any) -> RelationalData:
    options = {"cache_dir": folder.parent / "cache", **options}
    data = RelationalDataset(folder, task, **options).load()
    assert isinstance(data, RelationalData)
    return data


def edges(data: RelationalData, *key: str) -> list[tuple[int, int]]:
    """(source, destination) of a relation, sorted."""
    one = data.graph.relation((key[0], key[1], key[2]))
    ends = torch.arange(one.num_dst).repeat_interleave(one.in_degrees().long())
    return sorted(zip(one.indices.tolist(), ends.tolist(), strict=True))


class TestGraph:
    def test_keys_are_two_relations_each(self, shop: Path) -> None:
        data = load(shop, later_rows=True)
        orders = pd.read_csv(shop / "orders.csv")
        products = pd.read_csv(shop / "products.csv")
        wanted = sorted((row, int(who[1:])) for row, who in enumerate(orders.customer))
        assert edges(data, "orders", "f2p_customer", "customers") == wanted
        assert edges(data, "customers", "rev_f2p_customer", "orders") == sorted((b, a) for a, b in wanted)
        place = {pair: row for row, pair in enumerate(zip(products.brand, products.number, strict=True))}
        wanted = sorted((row, place[pair]) for row, pair in enumerate(zip(orders.brand, orders.number, strict=True)))
        assert edges(data, "orders", "f2p_brand_number", "products") == wanted
        assert data.graph.timed_types == ("orders", "reviews")

    def test_times_come_over_a_key(self, shop: Path) -> None:
        data = load(shop, later_rows=True)
        orders, reviews = pd.read_csv(shop / "orders.csv"), pd.read_csv(shop / "reviews.csv")
        at = pd.to_datetime(orders["at"]).astype("datetime64[s]").astype(np.int64).to_numpy()
        times = data.graph.lists.node_times
        assert times is not None
        of = {name: times[ids.start : ids.stop].numpy() for name, ids in data.graph.node_types.items()}
        assert np.array_equal(of["orders"], at)
        assert np.array_equal(of["reviews"], at[reviews.order_id.to_numpy() - 1000])

    def test_rows_after_the_beginning_of_test_are_cut(self, shop: Path) -> None:
        cut, whole = load(shop), load(shop, later_rows=True)
        orders = pd.read_csv(shop / "orders.csv")
        at = pd.to_datetime(orders["at"]).astype("datetime64[s]").astype(np.int64).to_numpy()
        kept = np.flatnonzero(at <= TEST)
        assert len(cut.graph.node_types["orders"]) == kept.size < len(whole.graph.node_types["orders"])
        assert torch.equal(cut.features["orders"], whole.features["orders"][kept])
        wanted = [
            (int(np.searchsorted(kept, a)), b)
            for a, b in edges(whole, "orders", "f2p_customer", "customers")
            if a in kept
        ]
        assert edges(cut, "orders", "f2p_customer", "customers") == wanted
        assert any("are left out" in line for line in cut.report)
        assert not any("are left out" in line for line in whole.report)

    def test_rows_may_come_in_any_order(self, shop: Path) -> None:
        before = load(shop, later_rows=True)
        lines = (shop / "orders.csv").read_text().splitlines()
        order = np.random.default_rng(1).permutation(len(lines) - 1)
        (shop / "orders.csv").write_text("\n".join([lines[0], *(lines[1 + i] for i in order), ""]))
        after = load(shop, later_rows=True)
        assert torch.equal(after.features["orders"], before.features["orders"][order])
        place = {int(old): new for new, old in enumerate(order)}
        wanted = sorted((place[a], b) for a, b in edges(before, "orders", "f2p_customer", "customers"))
        assert edges(after, "orders", "f2p_customer", "customers") == wanted

    def test_keys_in_a_circle_are_edges(self, shop: Path) -> None:
        edit(shop / "customers.csv", lambda text: _with_column(text, "first_order", lambda i: 1000 + i))
        edit(
            shop / "schema.yaml",
            lambda text: text.replace("key: id}\n", "key: id, foreign: {first_order: orders}}\n", 1),
        )
        data = load(shop, later_rows=True)
        assert edges(data, "customers", "f2p_first_order", "orders") == [(i, i) for i in range(40)]

    def test_keys_of_text_and_float_meet_numbers(self, shop: Path) -> None:
        wanted = edges(load(shop), "reviews", "f2p_order_id", "orders")
        frame = pd.read_csv(shop / "reviews.csv")
        frame["order_id"] = frame["order_id"].astype(float)  # as pandas has them if some are missing
        frame.to_parquet(shop / "reviews.parquet", index=False)
        edit(shop / "schema.yaml", lambda text: text.replace("reviews.csv", "reviews.parquet"))
        assert edges(load(shop), "reviews", "f2p_order_id", "orders") == wanted

    @pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
    @pytest.mark.parametrize("unit", ["s", "us", "ns"])
    def test_keys_of_dates_meet_in_any_unit(self, shop: Path, unit: str, zone: str | None) -> None:
        wanted = edges(load(shop), "reviews", "f2p_order_id", "orders")
        dates = pd.Timestamp("2024-01-01", tz=None if zone is None else "UTC")
        edit(shop / "orders.csv", lambda text: re.sub(r"(?m)^(\d+)", lambda id: _as_date(dates, id[0]), text))
        frame = pd.read_csv(shop / "reviews.csv")
        frame["order_id"] = pd.to_datetime([_as_date(dates, str(id)) for id in frame.order_id]).as_unit(unit)
        if zone is not None:
            frame["order_id"] = frame["order_id"].dt.tz_convert(zone)
        frame.to_parquet(shop / "reviews.parquet", index=False)
        edit(shop / "schema.yaml", lambda text: text.replace("reviews.csv", "reviews.parquet"))
        assert edges(load(shop), "reviews", "f2p_order_id", "orders") == wanted

    def test_leading_zeros_are_part_of_a_key(self, shop: Path) -> None:
        for file in ("customers.csv", "items.csv"):
            edit(shop / file, lambda text: text.replace("\nc1,", "\n7,").replace("\nc2,", "\n007,"))
        orders = pd.read_csv(shop / "orders.csv").assign(customer="007")
        orders.to_csv(shop / "orders.csv", index=False)  # a reader takes them all for the number 7
        data = load(shop, later_rows=True)
        assert {b for _, b in edges(data, "orders", "f2p_customer", "customers")} == {2}
        (shop / "new.csv").write_text("who,at\n007,2020-05-01\n")
        assert load(shop, items=shop / "new.csv").items["new"].ids.tolist() == [2]

    def test_numbers_of_categories_are_codes(self, shop: Path) -> None:
        codes = ["7", "007", str(2**64 - 1), str(2**64 - 2)]
        edit(shop / "orders.csv", lambda text: _with_column(text, "code", lambda i: codes[i % 4]))
        given = "file: orders.csv\n    columns: {code: category}"
        edit(shop / "schema.yaml", lambda text: text.replace("file: orders.csv", given, 1))
        data = load(shop, later_rows=True)
        assert sorted(data.columns["orders"][0].categories) == sorted(codes)
        assert len(data.features["orders"][:4, 0].unique()) == 4

    def test_keys_beyond_int64_meet(self, shop: Path) -> None:
        wanted = edges(load(shop), "reviews", "f2p_order_id", "orders")
        edit(shop / "orders.csv", lambda text: re.sub(r"(?m)^(\d+)", lambda id: str(2**63 + int(id[0])), text))
        frame = pd.read_csv(shop / "reviews.csv")
        frame["order_id"] = [2**63 + int(id) for id in frame.order_id]
        frame.to_csv(shop / "reviews.csv", index=False)
        assert edges(load(shop), "reviews", "f2p_order_id", "orders") == wanted

    def test_fractions_of_a_second_show_nothing_early(self, shop: Path) -> None:
        """A row at half past a second is known from the next one on; an item at that time sees none of it."""
        edit(shop / "orders.csv", lambda text: re.sub(r"T00:00:00$", " 00:00:00.500", text, flags=re.MULTILINE))
        edit(shop / "items.csv", lambda text: re.sub(r"T00:00:00,", " 00:00:00.500,", text))
        data = load(shop, later_rows=True)
        times = data.graph.lists.node_times[data.graph.node_types["orders"].start :][:400]
        assert set((times % 86_400).tolist()) == {1}
        assert set((data.items["train"].times % 86_400).tolist()) == {0}

    @pytest.mark.parametrize("file", ["orders.csv", "items.csv"])
    def test_times_all_have_a_zone_or_none(self, shop: Path, file: str) -> None:
        edit(shop / file, lambda text: re.sub(r"(T00:00:00)", r"\1+02:00", text))
        with pytest.raises(DatasetError, match=r"has times without a time zone, .* with one; they are compared"):
            load(shop)
        for other in {"orders.csv", "items.csv"} - {file}:
            edit(shop / other, lambda text: re.sub(r"(T00:00:00)", r"\1+02:00", text))
        assert (load(shop, later_rows=True).items["train"].times % 86_400 == 79_200).all()

    def test_the_split_has_a_zone_as_times_have(self, shop: Path) -> None:
        schema = (shop / "schema.yaml").read_text()
        edit(shop / "schema.yaml", lambda text: text.replace("val: 2020-03-01", "val: 2020-03-01T00:00:00+05:00"))
        with pytest.raises(
            DatasetError, match=r"the split of task again has a time zone, and .*orders.csv: column at .*"
        ):
            load(shop)
        for file in ("orders.csv", "items.csv"):
            edit(shop / file, lambda text: re.sub(r"(T00:00:00)", r"\1+05:00", text))
        found = load(shop)
        (shop / "schema.yaml").write_text(schema.replace("val: 2020-03-01", "val: 2020-02-29 19:00:00"))
        assert torch.equal(found.items["val"].times, load(shop).items["val"].times)

    def test_years_are_told(self, shop: Path) -> None:
        edit(shop / "products.csv", lambda text: _with_column(text, "since", lambda i: 2000 + i))
        edit(
            shop / "schema.yaml",
            lambda text: text.replace("number]}", "number], time: {column: since, unit: year}}"),
        )
        report = load(shop).report
        assert any("rows of products are known from January 1 of their year on; rows that sum up" in r for r in report)

    @pytest.mark.parametrize("scale", [2.0**53, 1e20, 0.3])
    def test_floats_that_hold_no_keys_are_refused(self, shop: Path, scale: float) -> None:
        frame = pd.read_csv(shop / "reviews.csv")
        frame["order_id"] = frame["order_id"] * scale
        frame.to_parquet(shop / "reviews.parquet", index=False)
        edit(shop / "schema.yaml", lambda text: text.replace("reviews.csv", "reviews.parquet"))
        with pytest.raises(DatasetError, match=r"column order_id has the float .* below 2\*\*53: save it as integers"):
            load(shop)

    def test_keys_beyond_float32_are_refused(self, shop: Path) -> None:
        frame = pd.read_csv(shop / "reviews.csv")
        frame["order_id"] = (frame["order_id"] + 2**24).astype("float32")
        frame.to_parquet(shop / "reviews.parquet", index=False)
        edit(shop / "schema.yaml", lambda text: text.replace("reviews.csv", "reviews.parquet"))
        with pytest.raises(
            DatasetError, match=r"has the float .* which float holds below 2\*\*24: save it as integers"
        ):
            load(shop)

    def test_other_types_are_no_keys(self, shop: Path) -> None:
        frame = pd.read_csv(shop / "reviews.csv")
        frame["order_id"] = [[one] for one in frame["order_id"]]
        frame.to_parquet(shop / "reviews.parquet", index=False)
        edit(shop / "schema.yaml", lambda text: text.replace("reviews.csv", "reviews.parquet"))
        with pytest.raises(
            DatasetError, match=r"column order_id has type list.*; keys are whole numbers, texts or dat"
        ):
            load(shop)

    @pytest.mark.parametrize("table", ["customers", "products", "orders"])
    def test_keys_of_a_table_without_rows_are_named(self, shop: Path, table: str) -> None:
        edit(shop / f"{table}.csv", lambda text: text.splitlines()[0] + "\n")
        with pytest.raises(DatasetError, match=rf"name no row of {table}, the first is .* its key \(it has no rows\)"):
            load(shop)

    def test_a_missing_or_dangling_key_is_no_edge(self, shop: Path, caplog: pytest.LogCaptureFixture) -> None:
        edit(shop / "orders.csv", lambda text: text.replace(",c1,", ",,").replace(",c2,", ",nobody,"))
        data = load(shop, later_rows=True)
        found = {b for _, b in edges(data, "orders", "f2p_customer", "customers")}
        assert not {1, 2} & found
        dangling = (shop / "orders.csv").read_text().count(",nobody,")
        (line,) = [line for line in data.report if "name no row" in line]
        assert f"orders.csv: {dangling} of " in line
        assert "keys customer name no row of customers, the first is 'nobody'; these rows have no such edge" in line
        assert "or say dangling: true there if this is expected" in line
        assert [one.levelname for one in caplog.records if line in one.getMessage()] == ["WARNING"]

    def test_dangling_keys_may_be_expected(self, shop: Path, caplog: pytest.LogCaptureFixture) -> None:
        edit(shop / "orders.csv", lambda text: text.replace(",c2,", ",nobody,"))
        edit(shop / "schema.yaml", lambda text: text.replace("    key: id\n", "    key: id\n    dangling: true\n"))
        (line,) = [line for line in load(shop).report if "name no row" in line]
        assert line.endswith("the first is 'nobody'; these rows have no such edge")
        assert "name no row" not in "".join(one.getMessage() for one in caplog.records if one.levelname == "WARNING")

    def test_short_rows_lack_their_last_cells(self, shop: Path) -> None:
        edit(shop / "customers.csv", lambda text: text.replace("\nc3,", '\nc3\nc99,"a, ""b""",1990-01-01\nc98,', 1))
        with pytest.raises(DatasetError, match=r"cannot be read as a \.csv file"):
            load(shop)
        edit(shop / "schema.yaml", lambda text: text.replace("customers.csv,", "customers.csv, short_rows: true,"))
        data = load(shop)
        assert len(data.graph.node_types["customers"]) == 42
        assert data.features["customers"][3, 0] == -1
        assert data.entity_ids is not None
        assert data.entity_ids.of(torch.tensor([3, 4])).tolist() == ["c3", "c99"]

    def test_equal_short_rows_are_all_filled(self, shop: Path) -> None:
        edit(shop / "reviews.csv", lambda text: text + "1000,3\n1000,3\n1000,3")
        edit(shop / "schema.yaml", lambda text: text.replace("reviews.csv,", "reviews.csv, short_rows: true,"))
        lines = (shop / "reviews.csv").read_text().splitlines()
        assert len(load(shop, later_rows=True).graph.node_types["reviews"]) == len(lines) - 1

    def test_years_begin_on_january_1(self, shop: Path) -> None:
        edit(shop / "orders.csv", lambda text: _with_column(text, "year", lambda i: 2019 + i % 2))
        edit(shop / "schema.yaml", lambda text: text.replace("time: at\n", "time: {column: year, unit: year}\n"))
        edit(shop / "schema.yaml", lambda text: text.replace("order_id.at", "order_id.at", 1) + "\n")
        data = load(shop, later_rows=True)
        ids, times = data.graph.node_types["orders"], data.graph.lists.node_times
        assert times is not None
        assert times[ids.start : ids.start + 2].tolist() == [1_546_300_800, FIRST]


class TestItems:
    def test_splits_go_by_time(self, shop: Path) -> None:
        data = load(shop)
        frame = pd.read_csv(shop / "items.csv")
        at = pd.to_datetime(frame["at"]).astype("datetime64[s]").astype(np.int64).to_numpy()
        for split, part in {"train": at < VAL, "val": (at >= VAL) & (at < TEST), "test": at >= TEST}.items():
            items = data.items[split]
            assert items.times.tolist() == at[part].tolist()
            assert items.ids.tolist() == [int(who[1:]) for who in frame.who[part]]
            assert items.labels is not None
            assert items.labels.tolist() == frame.again[part].tolist()

    def test_files_by_split_and_rows_by_number(self, shop: Path) -> None:
        whole = load(shop)
        frame = pd.read_csv(shop / "items.csv")
        frame["who"] = [int(who[1:]) for who in frame["who"]]
        at = pd.to_datetime(frame["at"]).astype("datetime64[s]").astype(np.int64).to_numpy()
        for split, part in {"train": at < VAL, "val": (at >= VAL) & (at < TEST), "test": at >= TEST}.items():
            frame[part].to_csv(shop / f"{split}.csv", index=False)
        files = "files: {train: train.csv, val: val.csv, test: test.csv}, by: row"
        edit(shop / "schema.yaml", lambda text: text.replace("again: {file: items.csv", f"again: {{{files}"))
        edit(shop / "schema.yaml", lambda text: text.replace("split: {val: 2020-03-01, test: 2020-04-01}", ""))
        edit(shop / "schema.yaml", lambda text: "\n".join(one for one in text.splitlines() if "items.csv" not in one))
        data = load(shop)
        for split, items in data.items.items():
            assert torch.equal(items.ids, whole.items[split].ids)
            assert torch.equal(items.times, whole.items[split].times)
        assert data.entity_ids is not None
        assert data.entity_ids.of(torch.tensor([3, 0])).tolist() == [3, 0]

    def test_labels_have_the_kind_of_the_task(self, shop: Path) -> None:
        frame = pd.read_csv(shop / "items.csv")
        spent, mood = load(shop, "spent"), load(shop, "mood")
        labels = torch.cat([items.labels for items in spent.items.values() if items.labels is not None])
        assert labels.dtype == torch.float32
        assert sorted(labels.tolist()) == pytest.approx(sorted(frame.spent))
        assert mood.classes == ("happy", "sad")
        assert mood.items["train"].labels is not None
        assert mood.items["train"].labels.dtype == torch.int64

    def test_labels_that_items_see_are_told(self, shop: Path) -> None:
        schema = (shop / "schema.yaml").read_text().rstrip()
        orders = pd.read_csv(shop / "orders.csv")
        orders.assign(rush=orders.id % 2).dropna().to_csv(shop / "orders.csv", index=False)
        paid = "\n  paid: {file: orders.csv, table: orders, entity: id, time: at, label: %s, kind: %s}\n"
        for label, kind in (("amount", "regression"), ("brand", "multiclass")):  # a feature, and an edge
            (shop / "schema.yaml").write_text(schema + paid % (label, kind))
            with pytest.raises(
                DatasetError, match=f"the column {label} of orders, whose rows its items ask about, so a"
            ):
                load(shop, "paid")
        (shop / "schema.yaml").write_text(
            (schema + paid % ("rush", "binary")).replace("orders.csv\n", "orders.csv\n    columns: {amount: number}\n")
        )
        assert load(shop, "paid", later_rows=True).items["train"].ids.numel()
        history = "  history: {file: items.csv, time: at, foreign: {who: customers}}\nsplit:"
        (shop / "schema.yaml").write_text(schema.replace("split:", history))
        told = [line for line in load(shop).report if "an item sees its own row" in line]
        assert len(told) == 1
        assert told[0].startswith("rows of history are the items of task again with their label, the column again, and")

    def test_labels_with_zeros_are_texts(self, shop: Path) -> None:
        frame = pd.read_csv(shop / "items.csv")
        frame["mood"] = frame.mood.map({"happy": "07", "sad": "7"})
        frame.to_csv(shop / "items.csv", index=False)
        data = load(shop, "mood")
        assert data.classes == ("07", "7")
        labels = torch.cat([items.labels for items in data.items.values() if items.labels is not None])
        assert labels.sum() == (frame.mood == "7").sum()

    def test_a_space_makes_no_other_label(self, shop: Path) -> None:
        edit(shop / "items.csv", lambda text: text.replace(",sad\n", ", sad\n", 1))
        with pytest.raises(DatasetError, match=r"label mood is ' sad' in row \d+, with a space around it"):
            load(shop, "mood")

    @pytest.mark.parametrize(("column", "task"), [("at", "again"), ("mood", "mood"), ("spent", "spent")])
    def test_nan_is_no_value_of_an_item(self, shop: Path, column: str, task: str) -> None:
        frame = pd.read_csv(shop / "items.csv")
        at = pd.to_datetime(frame["at"]).to_numpy().astype("datetime64[s]").astype(np.int64)
        columns = {
            "who": pa.array(frame.who),
            "at": at,
            "again": frame.again.to_numpy(),
            "spent": frame.spent.to_numpy(),
        }
        columns |= {"mood": (frame.mood == "sad").to_numpy().astype(float)}
        columns[column] = np.where(np.arange(len(frame)) == 6, np.nan, columns[column])
        pa.parquet.write_table(pa.table(columns), shop / "items.parquet")  # pandas would write nothing in its place
        edit(shop / "schema.yaml", lambda text: text.replace("items.csv", "items.parquet"))
        with pytest.raises(DatasetError, match=f"column {column} is empty in row 7, and in 0 more"):
            load(shop, task)

    def test_new_items_need_no_label(self, shop: Path) -> None:
        (shop / "new.csv").write_text("who,at\nc7,2020-05-01\nc1,2020-05-02\n")
        new = load(shop, items=shop / "new.csv").items["new"]
        assert (new.ids.tolist(), new.labels) == ([7, 1], None)

    @pytest.mark.parametrize("later_rows", [True, False])
    def test_new_items_without_their_rows_are_told(self, shop: Path, later_rows: bool) -> None:
        (shop / "new.csv").write_text("who,at\nc7,2020-04-01\nc1,2020-05-02\n")
        report = load(shop, items=shop / "new.csv", later_rows=later_rows).report
        told = [line.partition("new.csv: ")[2] for line in report if "give later_rows=True" in line]
        seen = "1 of 2 items are later than 2020-04-01T00:00:00, and rows after that are left out, so they see none of"
        assert told == ([] if later_rows else [f"{seen} these; give later_rows=True"])

    def test_identity_is_of_columns_and_not_of_rows(self, shop: Path) -> None:
        before = load(shop)
        columns = {name: [column.to_json() for column in of] for name, of in before.columns.items()}
        edit(shop / "customers.csv", lambda text: text + "c40,Bonn,1999-01-01\n")
        dataset = RelationalDataset(shop, "again", cache_dir=shop.parent / "cache")
        dataset.use_columns(columns)
        after = dataset.load()
        after.require(before.identity(), "the checkpoint")
        assert len(after.graph.node_types["customers"]) == 41
        assert torch.equal(after.features["customers"][:40], before.features["customers"])
        with pytest.raises(ValueError, match="the checkpoint"):
            load(shop, "spent").require(before.identity(), "the checkpoint")

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("time: order_id.at, ", "", "rows of reviews have no time, and had one in training; give the schema that"),
            ("key: id}", "key: id, time: born}", "rows of customers have a time, and had none in training"),
        ],
    )
    def test_columns_of_other_times_are_refused(self, shop: Path, old: str, new: str, message: str) -> None:
        columns = {name: [column.to_json() for column in of] for name, of in load(shop).columns.items()}
        edit(shop / "schema.yaml", lambda text: text.replace(old, new))
        with pytest.raises(DatasetError, match=message):
            RelationalDataset(shop, "again", cache_dir=shop.parent / "cache").use_columns(columns)


class TestColumns:
    def test_numbers_are_standardised_by_early_rows(self, shop: Path) -> None:
        data = load(shop, later_rows=True)
        orders = pd.read_csv(shop / "orders.csv")
        early = orders.amount[pd.to_datetime(orders["at"]) < "2020-03-01"]
        (place,) = [i for i, column in enumerate(data.columns["orders"]) if column.name == "amount"]
        assert place == 0
        assert data.columns["orders"][0].flagged
        wanted = ((orders.amount - early.mean()) / early.std(ddof=0)).fillna(0).to_numpy()
        rows = data.features["orders"]
        assert np.allclose(rows[:, 0].numpy(), wanted, atol=1e-5)
        assert np.array_equal(rows[:, 1].numpy(), orders.amount.isna())

    @pytest.mark.parametrize("form", ["bool", "int"])
    def test_categories_in_another_form_are_told(self, shop: Path, form: str) -> None:
        frame = pd.read_csv(shop / "orders.csv", parse_dates=["at"])
        frame["gift"] = frame.id % 3 == 0
        edit(shop / "schema.yaml", lambda text: text.replace("orders.csv", "orders.parquet"))
        frame.to_parquet(shop / "orders.parquet", index=False)
        columns = {name: [column.to_json() for column in of] for name, of in load(shop).columns.items()}
        frame.assign(gift=(frame.id % 5 == 0).astype(form)).to_parquet(shop / "orders.parquet", index=False)
        new = RelationalDataset(shop, "again", cache_dir=shop.parent / "cache")
        new.use_columns(columns)
        told = [line for line in new.load().report if "column gift" in line]
        assert len(told) == (form == "int")
        if told:
            assert re.search("has 297 values such as '[01]', and the 2 categories of the training are none", told[0])

    def test_a_table_without_early_rows_is_told(self, shop: Path) -> None:
        frame = pd.read_csv(shop / "reviews.csv")
        orders = pd.read_csv(shop / "orders.csv", parse_dates=["at"]).set_index("id")
        frame[(orders["at"].loc[frame.order_id] >= "2020-03-01").to_numpy()].to_csv(shop / "reviews.csv", index=False)
        data = load(shop)
        assert [column.kind for column in data.columns["reviews"]] == ["known"]
        told = [line for line in data.report if "is earlier than" in line]
        assert [line.partition("reviews.csv: ")[2] for line in told] == [
            f"none of the {len(data.graph.node_types['reviews'])} rows of reviews is earlier than 2020-03-01T00:00:00, "
            "where val begins, so none of its columns becomes a feature; begin val later, or say time: null under "
            "tables.reviews if they were always known"
        ]

    @pytest.mark.parametrize("suffix", ["csv", "parquet"])
    def test_missing_may_be_a_number(self, shop: Path, suffix: str) -> None:
        frame = pd.read_csv(shop / "orders.csv", parse_dates=["at"])
        wanted = load(shop, later_rows=True)
        frame["amount"] = frame.amount.fillna(-999)
        getattr(frame, f"to_{suffix}")(shop / f"orders.{suffix}", index=False)
        edit(shop / "schema.yaml", lambda text: text.replace("orders.csv", f"orders.{suffix}\n    missing: '-999.0'"))
        found = load(shop, later_rows=True)
        assert found.columns["orders"] == wanted.columns["orders"]
        assert torch.equal(found.features["orders"], wanted.features["orders"])

    def test_times_have_the_parts_that_pandas_gives(self, shop: Path) -> None:
        data = load(shop, later_rows=True)
        at = pd.to_datetime(pd.read_csv(shop / "customers.csv").born)
        wanted = np.stack(
            [at.dt.year, at.dt.month - 1, at.dt.day - 1, at.dt.day_of_week, at.dt.hour, at.dt.minute, at.dt.second], 1
        )
        assert [column.kind for column in data.columns["customers"]] == ["category", "time"]
        assert np.array_equal(data.features["customers"][:, 1:].numpy(), wanted)

    @pytest.mark.parametrize("more", [1, -1])
    def test_rows_have_the_numbers_of_their_columns(self, shop: Path, more: int) -> None:
        def change(data: RelationalData) -> RelationalData:
            rows = data.features["orders"]
            rows = torch.cat([rows, rows[:, :1]], 1) if more > 0 else rows[:, :-1]
            return dataclasses.replace(data, features={**data.features, "orders": rows.contiguous()})

        with pytest.raises(
            DatasetError, match=rf"rows of orders have {11 + more} numbers, and their columns 11; models"
        ):
            load(shop, transform=change)

    def test_known_at_is_exact(self, shop: Path) -> None:
        data = load(shop, later_rows=True)
        ids, times = data.graph.node_types["orders"], data.graph.lists.node_times
        assert times is not None
        known = data.features["orders"][:, -2:].long()
        assert torch.equal(known[:, 0] * DAY + known[:, 1], times[ids.start : ids.stop])

    def test_texts_that_differ_are_left_out(self, shop: Path) -> None:
        data = load(shop)
        assert "text" not in [column.name for column in data.columns["reviews"]]
        assert any(line.startswith("reviews.text: left out, since most of its texts differ") for line in data.report)
        edit(
            shop / "schema.yaml",
            lambda text: text.replace(
                "file: reviews.csv,", "file: reviews.csv, columns: {text: category, stars: category},"
            ),
        )
        assert [column.kind for column in load(shop).columns["reviews"]] == ["category", "category", "known"]

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        amount=st.one_of(st.just(""), st.floats(-1e30, 1e30).map(repr)),
        city=st.text("abc", max_size=3),
        day=st.integers(60, 200),
    )
    def test_a_later_row_changes_no_earlier_one(
        self, tmp_path_factory: pytest.TempPathFactory, amount: str, city: str, day: int
    ) -> None:
        shop = write_shop(tmp_path_factory.mktemp("later") / "shop", customers=6, orders=40)
        edit(shop / "orders.csv", lambda text: _with_column(text, "city", lambda i: "pqr"[i % 3]))
        before = load(shop, later_rows=True)
        at = np.datetime64(FIRST + day * DAY, "s")
        edit(shop / "orders.csv", lambda text: text + f"9999,c1,x,1,{amount},{at},{city}\n")
        after = load(shop, later_rows=True)
        assert after.columns == before.columns
        for name, rows in before.features.items():
            assert torch.equal(after.features[name][: len(rows)], rows)


def _with_column(text: str, name: str, value: Callable[[int], Any]) -> str:
    first, *lines = text.splitlines()
    return "\n".join([f"{first},{name}", *(f"{line},{value(i)}" for i, line in enumerate(lines)), ""])


def _as_date(first: Any, id: str) -> str:
    """A date, or in a zone a time, that stands for a number; without a zone all are midnights."""
    at = first + pd.Timedelta(days=int(id), hours=0 if first.tz is None else int(id) % 24)
    return f"{at:%Y-%m-%d}" if first.tz is None else f"{at:%Y-%m-%dT%H:%M:%S}Z"
