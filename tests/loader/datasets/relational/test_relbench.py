from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from marks import needs_frame
from shop import write_shop

from loader.datasets import RelationalDataset, write_relbench
from loader.datasets.errors import DatasetError

pytestmark = needs_frame


def stand_in(kind: str) -> Any:
    if kind == "relbench":
        return pytest.importorskip("relbench.base").Table
    return lambda df, keys, pkey_col=None, time_col=None: SimpleNamespace(
        df=df, fkey_col_to_pkey_table=keys, pkey_col=pkey_col, time_col=time_col
    )


def database(shop: Path, kind: str) -> tuple[Any, Any]:
    """The shop as RelBench has it: keys of one column, times of pandas, a task."""
    table, read = stand_in(kind), {one.stem: pd.read_csv(one) for one in shop.glob("*.csv")}
    read["orders"]["at"] = pd.to_datetime(read["orders"]["at"])
    read["items"]["at"] = pd.to_datetime(read["items"]["at"])
    read["orders"]["product"] = read["orders"]["brand"] + read["orders"]["number"].astype(str)
    read["products"]["code"] = read["products"]["brand"] + read["products"]["number"].astype(str)
    keys = {"customer": "customers", "product": "products"}
    tables = {
        "customers": table(read["customers"], {}, "id"),
        "products": table(read["products"][["code", "price"]], {}, "code"),
        "orders": table(read["orders"][["id", "customer", "product", "amount", "at"]], keys, "id", "at"),
    }
    bounds = pd.to_datetime(["2020-01-01", "2020-03-01", "2020-04-01", "2021-01-01"])

    def get_table(split: str, mask_input_cols: bool | None = None) -> Any:
        assert mask_input_cols is False  # else the labels of test are left out
        at = ["train", "val", "test"].index(split)
        of = read["items"][(read["items"]["at"] >= bounds[at]) & (read["items"]["at"] < bounds[at + 1])]
        return table(of[["who", "at", "again"]], {"who": "customers"}, None, "at")

    task = SimpleNamespace(
        task_type=SimpleNamespace(value="binary_classification"), entity_table="customers", entity_col="who",
        time_col="at", target_col="again", get_table=get_table,
        dataset=SimpleNamespace(val_timestamp=bounds[1], test_timestamp=bounds[2]),
    )  # fmt: skip
    return SimpleNamespace(table_dict=tables), task


@pytest.mark.parametrize("kind", ["relbench", "its attributes"])
def test_a_database_is_read_as_its_tables(tmp_path: Path, kind: str) -> None:
    shop = write_shop(tmp_path / "shop")
    tables, task = database(shop, kind)
    schema = write_relbench(tmp_path / "bench", tables, {"again": task})
    assert schema == tmp_path / "bench" / "schema.yaml"
    assert not list(tmp_path.glob("*.part"))
    assert schema.read_text().count("time: null") == 2  # of its database, that is meant
    found = RelationalDataset(tmp_path / "bench", "again", cache_dir=tmp_path / "cache").load()
    wanted = RelationalDataset(shop, "again", cache_dir=tmp_path / "cache").load()
    for split in ("train", "val", "test"):
        for name in ("ids", "times", "labels"):
            assert torch.equal(getattr(found.items[split], name), getattr(wanted.items[split], name))
    key = ("orders", "f2p_customer", "customers")
    a, b = found.graph.relation(key), wanted.graph.relation(key)
    assert torch.equal(a.indptr, b.indptr)
    assert torch.equal(a.indices, b.indices)
    assert {name for *_, name in found.graph.edge_types} == {"customers", "products", "orders"}


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    tables, task = database(write_shop(tmp_path / "shop"), "its attributes")
    ranked = SimpleNamespace(**{**vars(task), "task_type": SimpleNamespace(value="recommendation")})
    with pytest.raises(DatasetError, match="task next is of kind recommendation; RelationalDataset takes binary_class"):
        write_relbench(tmp_path / "bench", tables, {"next": ranked})
    tables.table_dict["lone"] = stand_in("its attributes")(pd.DataFrame({"x": [1, 2]}), {"y": "nowhere"})
    with pytest.raises(DatasetError, match="nowhere"):
        write_relbench(tmp_path / "bench", tables, {"again": task})
    assert [one.name for one in tmp_path.iterdir()] == ["shop"]
    (tmp_path / "bench").mkdir()
    with pytest.raises(FileExistsError, match="bench is there already; name a new folder, or remove it"):
        write_relbench(tmp_path / "bench", tables, {"again": task})
