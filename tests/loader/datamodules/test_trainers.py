"""One data module under one trainer after another, and in nobody's hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.trainer.states import TrainerFn
from small_datamodule import Crash, Recorder, crash_at, lines, make_datamodule, make_trainer, make_trainer_of
from small_loader import no_threads

from loader.samplers import FullSampler


def test_ranks_take_turns_in_the_splits() -> None:
    datamodule = make_datamodule()
    datamodule.trainer = make_trainer_of(1, 2, TrainerFn.FITTING)
    datamodule.setup()
    train = datamodule.train_dataloader()
    assert len(train) == 4
    assert [(b.index, b.repeats) for b in train] == [(1, False), (3, False), (5, False), (0, True)]
    assert len(datamodule.test_dataloader()) == 2


def test_another_number_of_processes_makes_new_loaders(tmp_path: Path) -> None:
    datamodule = make_datamodule(eval_batch_size=16)
    made = {}
    for rank, world_size in ((0, 2), (1, 2), (0, 1)):
        datamodule.trainer = make_trainer_of(rank, world_size, fn=TrainerFn.TESTING)
        datamodule.setup()
        made[rank, world_size] = loader = datamodule.test_dataloader()
        assert datamodule.test_dataloader() is loader
        begun = next(iter(loader))  # a loader that is replaced amid an epoch leaves no threads
        assert begun.index == rank
    assert [len(loader) for loader in made.values()] == [2, 2, 4]
    assert [batch.index for batch in datamodule.test_dataloader()] == [0, 1, 2, 3]
    assert datamodule.loaders == {"test": made[0, 1]}
    datamodule.close()
    assert no_threads()


def test_a_trainer_on_another_device_makes_new_loaders() -> None:
    datamodule = make_datamodule()
    datamodule.setup()
    first = datamodule.test_dataloader()
    assert first.device == datamodule.device == torch.device("cpu")
    trainer = make_trainer_of(0, 1, TrainerFn.TESTING)
    trainer.strategy = SimpleNamespace(root_device=torch.device("meta"))
    datamodule.trainer = trainer
    with pytest.raises(ValueError, match="device is 'meta'; mini-batches arrive on cpu or cuda"):
        datamodule.test_dataloader()  # it was asked for there
    assert datamodule.loaders == {}
    trainer.strategy.root_device = torch.device("cpu")
    assert datamodule.test_dataloader() is not first


def test_the_order_is_that_of_the_trainer(tmp_path: Path) -> None:
    log, datamodule = tmp_path / "log", make_datamodule(sampler=FullSampler(1, num_threads=1))
    for overfit in (2, 0):
        trainer = make_trainer(tmp_path, overfit_batches=overfit, max_epochs=1, limit_val_batches=0)
        trainer.fit(Recorder(log), datamodule=datamodule)
    again = tmp_path / "again"
    make_trainer(tmp_path, max_epochs=1, limit_val_batches=0).fit(
        Recorder(again), datamodule=make_datamodule(sampler=FullSampler(1, num_threads=1))
    )
    assert lines(log)[2:] == lines(again)


def test_a_state_after_a_fit_counts_manual_iteration(tmp_path: Path) -> None:
    datamodule = make_datamodule()
    make_trainer(tmp_path, max_epochs=1, limit_val_batches=0).fit(Recorder(tmp_path / "log"), datamodule=datamodule)
    for train in (datamodule.loaders["train"], datamodule.train_dataloader()):
        train.set_epoch(1)
        batches = iter(train)
        for _ in range(4):
            next(batches)
        state = train.state_dict()
        assert (state["epoch"], state["next"]) == (1, 4)


def test_a_state_after_a_failure_counts_manual_iteration(tmp_path: Path) -> None:
    datamodule = make_datamodule()
    with pytest.raises(Crash):
        make_trainer(tmp_path).fit(Recorder(tmp_path / "log", crash_at(9)), datamodule=datamodule)
    loader = datamodule.train_dataloader()
    batches = iter(loader)
    next(batches), next(batches)
    assert loader.state_dict()["next"] == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_checkpoint_after_a_run_holds_its_end(tmp_path: Path, fails: bool) -> None:
    trainer = make_trainer(tmp_path, max_epochs=-1, max_steps=20 if fails else 10, limit_val_batches=0)
    try:
        on_step = crash_at(10 if fails else -1)
        trainer.fit(Recorder(tmp_path / "log", on_step), datamodule=make_datamodule())
    except Crash:
        assert fails
    trainer.save_checkpoint(tmp_path / "after.ckpt")
    saved = torch.load(tmp_path / "after.ckpt", weights_only=True)
    (state,) = saved["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    assert (state["epoch"], state["next"]) == (1, 3)


def test_a_second_fit_repeats_the_first(tmp_path: Path) -> None:
    datamodule = make_datamodule()
    logs = [tmp_path / "first", tmp_path / "second"]
    for log in logs:
        make_trainer(tmp_path, max_epochs=2).fit(Recorder(log), datamodule=datamodule)
    assert lines(logs[0]) == lines(logs[1])
    assert lines(logs[0], "val") == lines(logs[1], "val")
