"""Two processes that average gradients in one exchange learn what Lightning's DDP learns."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from shop import edit, write_shop
from small_datamodule import make_datamodule, make_dataset
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from two_processes import call_in_two

from loader.datamodules.tasks import TaskDataModule
from loader.datasets import RelationalDataset
from loader.samplers import TreeSampler
from models.training.strategy import OneExchangeStrategy, check_data

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated and clipped": {"accumulate_grad_batches": 2, "gradient_clip_val": 0.01},
    "bf16": {"precision": "bf16-mixed"},
    "batch norm": {"norm": True, "max_epochs": 2},
}


class Collectives(Callback):
    """How often processes spoke with each other since the first step."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.steps: list[dict[str, int]] = []

    def watch(self, name: str, patch: pytest.MonkeyPatch) -> None:
        plain = getattr(torch.distributed, name)

        def counted(*args: Any, **options: Any) -> Any:
            self.all[name] += 1
            return plain(*args, **options)

        patch.setattr(torch.distributed, name, counted)

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        self.steps.append(dict(self.all))
        self.all.clear()


class Regression(LightningModule):
    """Of every process its own rows, so that averaging matters; begins otherwise in each process."""

    def __init__(self, rank: int, norm: bool) -> None:
        super().__init__()
        torch.manual_seed(rank)
        self.net = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7) if norm else nn.Tanh(), nn.Linear(7, 3))
        self.frozen = nn.Linear(2, 2).requires_grad_(False)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return (self.net(x) - y).square().mean()

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val", self.training_step(batch, batch_idx), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.1)


def fit(rank: int, strategy: Any, *, norm: bool = False, **options: Any) -> list[Tensor]:
    """All parameters and buffers, and the validation's result."""
    g = torch.Generator().manual_seed(10 + rank)
    rows = TensorDataset(torch.randn(18, 5, generator=g), torch.randn(18, 3, generator=g))
    model = Regression(rank, norm)
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy=strategy, use_distributed_sampler=False, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        **{"max_epochs": 1, **options},
    )  # fmt: skip
    trainer.fit(model, DataLoader(rows, 4), DataLoader(rows, 18))
    found = [t.detach().clone().float() for t in model.state_dict().values()]
    return [*found, trainer.callback_metrics["val"].float()]


def collectives(rank: int) -> list[dict[str, int]]:
    with pytest.MonkeyPatch.context() as patch:
        spoken = Collectives()
        for name in ("all_reduce", "broadcast", "barrier", "all_gather", "broadcast_object_list"):
            spoken.watch(name, patch)
        fit(rank, OneExchangeStrategy(), callbacks=[spoken])
    return spoken.steps


def refusals(rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {"collectives": collectives(rank)}
    found["mean of 2 and 3"] = float(OneExchangeStrategy().reduce(torch.tensor(2 + rank)))
    by_hand = Regression(rank, False)
    by_hand.automatic_optimization = False
    unused = Regression(rank, False)
    unused.frozen.requires_grad_(True)
    for name, model in (("by hand", by_hand), ("unused", unused)):
        trainer = Trainer(
            accelerator="cpu", devices=2, strategy=OneExchangeStrategy(), logger=False, max_epochs=1,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        rows = TensorDataset(torch.randn(8, 5), torch.randn(8, 3))
        try:
            trainer.fit(model, DataLoader(rows, 4))
        except (ValueError, RuntimeError) as error:
            found[name] = str(error)
    for name in ("data", "features"):
        own = make_dataset()
        if name == "data":
            own.splits["train"] += rank
        else:
            own.features.mul_(1 + rank)
        trainer = Trainer(accelerator="cpu", devices=2, strategy=OneExchangeStrategy(), logger=False, max_epochs=1)
        try:
            trainer.fit(Regression(rank, False), datamodule=make_datamodule(dataset=own))
        except ValueError as error:
            found[f"other {name}"] = str(error)
    return found


def tables_of_two(root: Path, rank: int) -> dict[str, str]:
    """What is said where machines have their tables in folders of their own, and where one row differs."""
    folder = write_shop(root / f"tables{rank}")
    found = {}
    for case in ("same", "other"):
        if case == "other" and rank:
            edit(folder / "items.csv", lambda text: text.replace("c1,", "c2,", 1))
        tables = RelationalDataset(folder, "again", cache_dir=root / f"cache{rank}")
        module = TaskDataModule(tables, TreeSampler([4], times="both"), batch_size=32, prefetch=0)
        module.setup()
        found[case] = "nothing"
        try:
            check_data(module)
        except ValueError as error:
            found[case] = str(error)
    return found


# Called by each of two processes.
def main(root: str) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    found = {
        name: [fit(rank, strategy, **case) for strategy in (OneExchangeStrategy(), "ddp")]
        for name, case in CASES.items()
    }
    torch.save(found, Path(root) / f"{rank}.pt")
    found = refusals(rank)
    if find_spec("pyarrow") is not None:
        found["tables"] = tables_of_two(Path(root), rank)
    (Path(root) / f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()  # Lightning leaves gloo's threads to the end of the interpreter


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("processes")
    call_in_two(__file__, "main", str(root))
    return root


@pytest.mark.parametrize("case", CASES)
def test_one_exchange_learns_what_ddp_does(root: Path, case: str) -> None:
    ours, theirs = torch.load(root / "0.pt")[case]
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_all_processes_have_the_same_model(root: Path, case: str) -> None:
    of_ranks = [torch.load(root / f"{rank}.pt")[case][0] for rank in range(2)]
    for name, (a, b) in enumerate(zip(*of_ranks, strict=True)):
        assert torch.equal(a, b), name


def test_a_step_has_one_exchange_only(root: Path) -> None:
    for rank in range(2):
        _, *steps = json.loads((root / f"{rank}.json").read_text())["collectives"]
        assert steps == [{"all_reduce": 1}] * 4


def test_what_it_cannot_do_is_refused(root: Path) -> None:
    for rank in range(2):
        found = json.loads((root / f"{rank}.json").read_text())
        assert found["by hand"].endswith(
            "so nobody knows which of its backward passes ends a step; give trainer.strategy=ddp"
        )
        assert found["unused"].startswith("frozen.weight got no gradient in this step")


def test_other_data_in_a_process_is_refused(root: Path) -> None:
    for rank in range(2):
        found = json.loads((root / f"{rank}.json").read_text())
        assert found["other data"].startswith("process 1 of this run has other data than process 0: the train split of")
        assert re.match(
            "process 1 of .* than process 0: the features of .* differ; give all machines", found["other features"]
        )


def test_other_items_in_a_process_are_refused(root: Path) -> None:
    pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
    for rank in range(2):
        found = json.loads((root / f"{rank}.json").read_text())["tables"]
        assert found["same"] == "nothing"
        assert found["other"].startswith(
            f"process 1 of this run has other data than process 0: the items of tables{rank} is"
        )


def test_options_of_ddp_are_refused() -> None:
    with pytest.raises(ValueError, match="find_unused_parameters is an option of DistributedDataParallel"):
        OneExchangeStrategy(find_unused_parameters=True)


def test_a_mean_of_counts_is_no_integer(root: Path) -> None:
    of_ranks = [json.loads((root / f"{rank}.json").read_text()) for rank in range(2)]
    assert [found["mean of 2 and 3"] for found in of_ranks] == [2.5, 2.5]
