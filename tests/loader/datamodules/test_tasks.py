from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from shop import edit, write_shop

from loader.datamodules.tasks import TaskDataModule
from loader.datasets import DatasetError, RelationalDataset
from loader.samplers import FusedSampler, TreeSampler
from loader.stores import HostFeatures

pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_shop(tmp_path / "shop")


def make(shop: Path, task: str = "again", sampler: Any = None, **options: Any) -> TaskDataModule:
    named = {"cache_dir": shop.parent / "cache", **options.pop("dataset", {})}
    sampler = TreeSampler([4, 4], times="both") if sampler is None else sampler
    module = TaskDataModule(
        RelationalDataset(shop, task, **named), sampler, **{"batch_size": 32, "prefetch": 0, **options}
    )
    module.setup()
    return module


@pytest.mark.parametrize("split", ["train", "val", "test", "predict"])
def test_each_item_comes_once_with_its_label(shop: Path, split: str) -> None:
    module = make(shop, "spent")
    items = module.items(split)
    found = []
    for batch in getattr(module, f"{split}_dataloader")():
        ids = batch.nodes[: batch.batch_size]
        ids = ids - batch.node_types["customers"].start
        found += list(zip(ids.tolist(), batch.seed_times.tolist(), batch.y.tolist(), strict=True))
    assert items.labels is not None
    assert sorted(found) == sorted(zip(items.ids.tolist(), items.times.tolist(), items.labels.tolist(), strict=True))


def test_edge_features_reach_the_batches(shop: Path) -> None:
    key, rows = ("orders", "f2p_customer", "customers"), torch.randn(400, 3)
    sampler = TreeSampler([4, 4], times="both", edge_ids=True)
    kind = f"edge/{'__'.join(key)}"
    for batch in make(shop, sampler=sampler, edge_features={key: rows}).train_dataloader():
        assert batch.ids(kind).numel()
        assert torch.equal(batch.rows[kind], rows[batch.ids(kind).long()])


@pytest.mark.parametrize(
    "options", [{"storage_dtype": "bfloat16"}, {"storage_dtype": "int8"}, {"dtype": torch.float16}]
)
def test_rows_are_not_rounded(shop: Path, options: dict[str, Any]) -> None:
    (name, dtype), given = *options.items(), partial(HostFeatures, **options)
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(ValueError, match=f"^features.{name} is {kind}, and rows of tables hold days, years and codes"):
        TaskDataModule(RelationalDataset(shop, "again"), TreeSampler([4], times="both"), None, given)
    with pytest.raises(ValueError, match=r"^features of customers is (int8|bfloat16|float16), and rows of tables hold"):
        make(shop, features=lambda rows: given(rows - rows.mean(0)))  # around 0, or the store refuses days first
    make(shop, features=partial(HostFeatures, dtype="float32", storage_dtype=None))


def test_nothing_is_later_than_its_item(shop: Path) -> None:
    module = make(shop, dataset={"later_rows": True})
    assert module.data is not None
    times = module.data.graph.lists.node_times
    assert times is not None
    seen = 0
    for batch in module.test_dataloader():
        for name in ("orders", "reviews"):
            own = times[batch.n_id[name].long() + batch.node_types[name].start]
            assert (own <= batch.seed_times[batch.tree_of(name).long()]).all()
            seen += own.numel()
    assert seen > 300


def test_new_items_are_predicted_without_labels(shop: Path) -> None:
    (shop / "new.csv").write_text("who,at\nc7,2020-05-01\nc1,2020-05-02\n")
    module = make(shop, dataset={"items": shop / "new.csv", "later_rows": True})
    (batch,) = module.predict_dataloader()
    assert (batch.nodes[:2].tolist(), batch.y) == ([7, 1], None)


def test_a_range_of_labels_is_of_a_regression(shop: Path) -> None:
    assert make(shop).sizes["label_range"] is None
    module = make(shop, "spent")
    labels = module.items("train").labels
    assert labels is not None
    low, high = module.sizes["label_range"]
    assert ((labels < low).float().mean() - 0.02).abs() < 0.01
    assert ((labels > high).float().mean() - 0.02).abs() < 0.01


def test_a_sampler_that_ignores_times_is_refused(shop: Path) -> None:
    for sampler in (FusedSampler([4, 4]), TreeSampler([4, 4])):
        with pytest.raises(
            DatasetError, match="ignores them, so that items would see what came later; give sampler=trees"
        ):
            make(shop, sampler=sampler)


def test_other_datasets_are_refused(random_graph: Any) -> None:
    from loader.datasets import Digits

    with pytest.raises(DatasetError, match="has no task on tables; give dataset=relational"):
        TaskDataModule(Digits(), TreeSampler([4], times="both")).setup()


def test_a_range_of_many_labels_is_found(shop: Path) -> None:
    module = make(shop, "spent")
    assert module.data is not None
    train = module.items("train")
    labels = torch.arange(2**24 + 1).float()
    object.__setattr__(module.data, "items", {**module.data.items, "train": replace(train, labels=labels)})
    assert module.sizes["label_range"] == pytest.approx((0.02 * 2**24, 0.98 * 2**24))


@pytest.mark.parametrize("file", ["orders.csv", "items.csv"])
def test_a_checkpoint_goes_on_with_its_rows_only(shop: Path, file: str) -> None:
    state = make(shop).state_dict()
    make(shop).load_state_dict(state)
    before = state["data"]
    changes = {
        "orders.csv": lambda text: text + "999,c1,x,1,5,2020-01-05T00:00:00\n",
        "items.csv": lambda text: text.replace("\nc3,2020-01-31T00:00:00,1,", "\nc3,2020-01-31T00:00:00,0,"),
    }
    edit(shop / file, changes[file])
    module = make(shop)
    with pytest.raises(ValueError, match=r"the checkpoint is of dataset shop whose (columns|node_types|items) is"):
        module.load_state_dict(state)
    moved = shop.rename(shop.parent / "shop-of-june")
    if file == "items.csv":  # the columns are the same
        data = make(moved).data
        assert data is not None
        data.require(before, "the checkpoint")


def test_each_process_measures_mini_batches_of_its_own(shop: Path) -> None:
    module = make(shop, eval_batch_size=80)
    module.trainer = SimpleNamespace(  # type: ignore[assignment]
        global_rank=1, world_size=3, strategy=None, overfit_batches=0, state=SimpleNamespace(fn=None)
    )
    with pytest.raises(ValueError, match=r"val has 2 mini-batches of 80 items for 3 processes, .*eval_batch_size"):
        module.val_dataloader()


def test_samplers_set_later_may_not_ignore_times(shop: Path) -> None:
    module = make(shop)
    module.train_dataloader()
    module.sampler = module.eval_sampler = FusedSampler([4, 4])
    for loader_of in (module.train_dataloader, module.val_dataloader, module.predict_dataloader):
        with pytest.raises(DatasetError, match="ignores them, so that items would see what came later"):
            loader_of()
    module.close()
