"""Steps past Lightning's hooks: results, counters and calls as by Lightning's loop, and only if nobody could tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from graphed_nets import (
    CLASSES,
    FEATURES,
    EachEpoch,
    EachStep,
    Listed,
    make_batches,
    take_steps_without_graphs,
)
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from marks import needs_gpu
from torch import Tensor

from loader.samples import MiniBatch
from models.training import classifier
from models.training.callbacks import StageTimes, StepCheckpoint
from models.training.module import NodeClassifier
from models.training.short_epoch_loop import ShortEpochLoop

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
COUNT = 9


@pytest.fixture
def without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    take_steps_without_graphs(monkeypatch)


@pytest.fixture
def batches(random_graph: Any) -> list[MiniBatch]:
    return make_batches(random_graph(), multilabel=False, device="cpu", count=COUNT)


def net(kind: type[NodeClassifier] = NodeClassifier, **options: Any) -> NodeClassifier:
    torch.manual_seed(0)
    return kind(FEATURES, CLASSES, hidden_channels=CLASSES, **options)


class Run:
    """A training, with short steps if they are allowed.

    Attributes: `short`, how many there were; `trainer`, `model`.
    """

    def __init__(
        self, model: NodeClassifier, batches: Any, *, short: bool = True, ckpt: Path | None = None, **options: Any
    ) -> None:
        torch.manual_seed(1)  # of dropout
        quiet = {f"enable_{name}": False for name in ("progress_bar", "model_summary")}
        kept = any(isinstance(callback, Checkpoint) for callback in options.get("callbacks", []))
        defaults: dict[str, Any] = {"accelerator": "cpu", "max_epochs": 3, "devices": 1, "logger": False}
        self.trainer = Trainer(**{**defaults, **quiet, "enable_checkpointing": kept, **options})
        self.loop = ShortEpochLoop(self.trainer, self.trainer.fit_loop.epoch_loop)
        if short:
            self.trainer.fit_loop.epoch_loop = self.loop
        self.model = model
        data = {"datamodule": batches} if isinstance(batches, LightningDataModule) else {"train_dataloaders": batches}
        if isinstance(batches, list):
            data = {"train_dataloaders": Listed(batches), "val_dataloaders": Listed(batches[:2])}
        self.trainer.fit(model, **data, ckpt_path=ckpt)
        self.short = self.loop.short

    def told(self) -> dict[str, Any]:
        """All that a run leaves behind, but for its parameters."""
        trainer = self.trainer
        progress = trainer.fit_loop.state_dict()
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        return {
            "progress": progress,
            "metrics": metrics,
            "steps": trainer.global_step,
            "taken": self.model.whole_step.taken,
        }


def assert_equal_runs(one: Run, other: Run) -> None:
    assert one.told() == other.told()
    torch.testing.assert_close(one.model.state_dict(), other.model.state_dict(), rtol=0, atol=0)


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize(
    ("options", "short"),
    [
        ({}, 3 * (COUNT - 2)),  # the first step of an epoch and the last one are Lightning's
        ({"limit_train_batches": 5}, 3 * 3),
        ({"max_steps": 13, "max_epochs": -1}, 7 + 2),  # as is the last one of all
        ({"val_check_interval": 3}, 3 * 3),  # those after and before a validation are Lightning's
        ({"val_check_interval": 4, "check_val_every_n_epoch": None}, None),
        ({"limit_val_batches": 0}, 3 * (COUNT - 2)),
    ],
)
def test_results_and_counters_are_lightnings(batches: list[MiniBatch], options: dict[str, Any], short: Any) -> None:
    one, other = Run(net(), batches, **options), Run(net(), batches, short=False, **options)
    assert_equal_runs(one, other)
    assert one.short == short if short is not None else 0 < one.short < 3 * COUNT
    assert other.short == 0


@pytest.mark.usefixtures("without_graphs")
def test_own_callbacks_are_called_in_order(batches: list[MiniBatch], monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[bool, list[Any]] = {True: [], False: []}
    for short in (True, False):
        with monkeypatch.context() as patch:

            def start(self: Any, trainer: Any, module: Any, batch: Any, number: int, to: Any = called[short]) -> None:
                progress = trainer.fit_loop.epoch_loop.batch_progress.current
                to.append(("start", number, batch.index, trainer.global_step, vars(progress).copy()))

            def end(
                self: Any, trainer: Any, module: Any, found: Any, batch: Any, number: int, to: Any = called[short]
            ) -> None:
                progress = trainer.fit_loop.epoch_loop.batch_progress
                place = trainer.global_step, vars(progress.current).copy(), progress.is_last_batch
                to.append(("end", number, batch.index, float(found["loss"]), place))

            patch.setattr(StageTimes, "on_train_batch_start", start)
            patch.setattr(StageTimes, "on_train_batch_end", end)
            run = Run(net(), batches, short=short, callbacks=[StageTimes()])
            assert (run.short > 0) == short
    assert called[True] == called[False]
    assert len(called[True]) == 2 * 3 * COUNT


class Ends(Callback):
    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        pass


class OwnTimes(StageTimes):
    pass


class OwnEnd(NodeClassifier):
    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        pass


class OwnStart(NodeClassifier):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)


class OwnTransfer(NodeClassifier):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


class OwnOptimizerStep(NodeClassifier):
    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)


class Batches(LightningDataModule):
    def __init__(self, batches: list[MiniBatch]) -> None:
        super().__init__()
        self.batches = batches

    def train_dataloader(self) -> Any:
        return Listed(self.batches)


class OwnBatches(Batches):
    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (OwnStart, {}),
        (OwnEnd, {}),
        (OwnTransfer, {}),
        (OwnOptimizerStep, {}),
        (EachStep, {}),
        (NodeClassifier, {"callbacks": [Ends()]}),
        (NodeClassifier, {"callbacks": [OwnTimes()]}),
        (NodeClassifier, {"accumulate_grad_batches": 2}),
        (NodeClassifier, {"profiler": "simple"}),
        (NodeClassifier, {"gradient_clip_val": 0.1}),
        (NodeClassifier, {"fast_dev_run": True}),
    ],
)
def test_what_could_tell_has_lightnings_way(batches: list[MiniBatch], kind: Any, options: dict[str, Any]) -> None:
    assert Run(net(kind), batches, **options).short == 0


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize("each", [1, 2])
def test_checkpoints_by_step_are_lightnings(batches: list[MiniBatch], tmp_path: Path, each: int) -> None:
    def saved(name: str, **options: Any) -> list[str]:
        callback = ModelCheckpoint(tmp_path / name, every_n_train_steps=each, save_top_k=-1, monitor=None)
        assert Run(net(), batches, callbacks=[callback], **options).short == 0
        return sorted(path.name for path in (tmp_path / name).iterdir())

    assert saved("one") == saved("other", short=False)


@pytest.mark.usefixtures("without_graphs")
def test_checkpoints_by_epoch_let_steps_be_short(batches: list[MiniBatch], tmp_path: Path) -> None:
    callback = ModelCheckpoint(tmp_path, save_top_k=-1)
    assert Run(net(), batches, callbacks=[callback]).short > 0
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize("kind", [Batches, OwnBatches])
def test_a_data_module_may_move_mini_batches(batches: list[MiniBatch], kind: Any) -> None:
    assert (Run(net(), kind(batches)).short > 0) == (kind is Batches)


@pytest.mark.usefixtures("without_graphs")
def test_learning_rates_by_epoch_are_lightnings(batches: list[MiniBatch]) -> None:
    one, other = Run(net(EachEpoch), batches), Run(net(EachEpoch), batches, short=False)
    assert_equal_runs(one, other)
    assert one.short > 0
    assert one.trainer.optimizers[0].param_groups[0]["lr"] == other.trainer.optimizers[0].param_groups[0]["lr"]


@pytest.mark.usefixtures("without_graphs")
def test_what_no_graph_holds_is_lightnings(batches: list[MiniBatch], monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = net(), net()
    asked: list[int] = []

    def repeats(batch: MiniBatch) -> bool:
        asked.append(batch.index)
        return batch.index % 3 != 0

    monkeypatch.setattr(model.whole_step, "repeats", repeats)
    one = Run(model, batches)
    assert_equal_runs(one, Run(other, batches, short=False))
    assert one.short == sum(index % 3 != 0 for index in asked)
    assert 0 < one.short < len(asked)


@pytest.mark.usefixtures("without_graphs")
def test_a_nan_ends_a_run_amid_an_epoch(random_graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier, "CHECKED_EVERY", 4)
    batches = make_batches(random_graph(), multilabel=False, device="cpu", count=20)
    assert batches[5].x is not None
    batches[5] = batches[5].replace(x=torch.full_like(batches[5].x, torch.nan))
    with pytest.raises(ValueError, match="train/loss is nan in epoch 1, after 8 steps"):
        Run(net(), batches)


@pytest.mark.usefixtures("without_graphs")
def test_processes_add_up_in_the_same_steps(batches: list[MiniBatch], monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for each other there, and one may go Lightning's way where the step of another is short."""
    monkeypatch.setattr(classifier, "CHECKED_EVERY", 4)
    found = []
    for short in (True, False):
        steps: list[int] = []

        def added(module: Any, sums: Tensor, to: list[int] = steps) -> Tensor:
            to.append(module.global_step)
            return sums

        monkeypatch.setattr(classifier, "sums_of_all", added)
        Run(net(), batches, short=short, max_steps=13, max_epochs=-1)
        found.append(steps)
    assert found[0] == found[1]
    assert {4, 8, 9, 13} <= {*found[0]}


class Stops(Listed):
    """Tells the trainer to stop when the fifth mini-batch is drawn."""

    run: Run | None = None
    trainer: Any = None

    def __iter__(self) -> Iterator[MiniBatch]:
        for i, batch in enumerate(self.batches):
            if i == 4:
                self.trainer.should_stop = True
            yield batch


@pytest.mark.usefixtures("without_graphs")
def test_stopping_amid_an_epoch_is_lightnings(batches: list[MiniBatch], monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(NodeClassifier):
        def on_train_start(self) -> None:
            super().on_train_start()
            loader = self.trainer.train_dataloader
            assert isinstance(loader, Stops)
            loader.trainer = self.trainer

    one, other = (Run(net(Stopped), Stops(batches), short=short) for short in (True, False))
    assert_equal_runs(one, other)
    assert one.trainer.global_step == 5
    assert one.short > 0


@pytest.mark.usefixtures("without_graphs")
def test_a_run_goes_on_from_a_short_step(batches: list[MiniBatch], tmp_path: Path) -> None:
    """A checkpoint that was written amid short steps is that of Lightning's steps."""

    def written(short: bool) -> Any:
        path = tmp_path / f"{short}.ckpt"
        callback = StepCheckpoint(path, every_n_train_steps=5)
        run = Run(net(), batches, short=short, callbacks=[callback], max_steps=7, max_epochs=-1)
        assert (run.short > 0) == short
        return torch.load(path, weights_only=False)

    one, other = written(True), written(False)
    assert one["global_step"] == other["global_step"] == 5
    assert one["loops"] == other["loops"]
    torch.testing.assert_close(one["state_dict"], other["state_dict"], rtol=0, atol=0)


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("lazy", [False, True])
    @pytest.mark.parametrize("kind", [NodeClassifier, EachEpoch])
    def test_results_are_lightnings(self, random_graph: Any, kind: type[NodeClassifier], lazy: bool) -> None:
        batches = make_batches(random_graph(), multilabel=False, lazy=lazy)
        one = Run(net(kind, cuda_graph=True), batches, accelerator="gpu")
        other = Run(net(kind, cuda_graph=True), batches, short=False, accelerator="gpu")
        assert one.short > len(batches)
        assert one.model.whole_step.taken == other.model.whole_step.taken > one.short
        told, expected = one.told(), other.told()
        near = {"rtol": 2e-2, "atol": 3e-2}  # a GPU adds up gradients in no fixed order
        torch.testing.assert_close(told.pop("metrics"), expected.pop("metrics"), **near)
        assert told == expected
        torch.testing.assert_close(one.model.state_dict(), other.model.state_dict(), rtol=2e-2, atol=3e-3)
