"""A loader that Lightning gets without a data module of ours counts by its fit loop, and by itself afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from small_datamodule import BATCH_SIZE, NUM_BATCHES, Crash, Recorder, crash_at, lines, make_dataset, make_trainer

from loader.loaders.nodes import NodeLoader
from loader.samplers import FusedSampler

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
resumes = pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")


def make_loader(**options: Any) -> NodeLoader:
    data, sampler = make_dataset(), FusedSampler([4, 3], num_threads=1)
    seeds = data.splits["train"]
    return NodeLoader(data.graph, data.features, data.labels, seeds, sampler, BATCH_SIZE, shuffle=True, **options)


class Scheduled(Recorder):
    """Asks for the number of steps, for which Lightning makes the loader before it reads the loader's state."""

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps + 1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


@resumes
@pytest.mark.parametrize("step", [1, 4, NUM_BATCHES, NUM_BATCHES + 1, 2 * NUM_BATCHES])
@pytest.mark.parametrize("model", [Recorder, Scheduled])
def test_a_loader_alone_goes_on_where_it_was(tmp_path: Path, model: Any, step: int) -> None:
    alone, resumed = tmp_path / "alone.log", tmp_path / "resumed.log"
    make_trainer(tmp_path, 1, max_epochs=3).fit(model(alone), make_loader())
    make_trainer(tmp_path, 1, max_epochs=3).fit(model(resumed), make_loader(), ckpt_path=tmp_path / f"step={step}.ckpt")
    assert lines(resumed) == lines(alone)[step:]


@resumes
def test_a_failed_steps_mini_batch_comes_again(tmp_path: Path) -> None:
    alone, resumed = tmp_path / "alone.log", tmp_path / "resumed.log"
    make_trainer(tmp_path, max_epochs=2).fit(Recorder(alone), make_loader())
    trainer, loader = make_trainer(tmp_path, max_epochs=2), make_loader()
    with pytest.raises(Crash):
        trainer.fit(Recorder(tmp_path / "crashed.log", crash_at(9)), loader)
    trainer.save_checkpoint(tmp_path / "crash.ckpt")
    assert loader.state_dict()["next"] == 9 - NUM_BATCHES
    make_trainer(tmp_path, max_epochs=2).fit(Recorder(resumed), make_loader(), ckpt_path=tmp_path / "crash.ckpt")
    assert lines(resumed) == lines(alone)[9:]
    loader.close()


def test_after_a_fit_a_loader_counts_by_itself(tmp_path: Path) -> None:
    loader = make_loader()
    make_trainer(tmp_path, max_epochs=1).fit(Recorder(tmp_path / "log"), loader)
    batches = iter(loader)
    next(batches), next(batches)
    assert (loader.state_dict()["epoch"], loader.state_dict()["next"]) == (1, 2)
    assert loader.finished is None
    loader.close()


def test_a_hook_may_tell_another_epoch(tmp_path: Path) -> None:
    """Only Lightning's own call is the fit loop's."""
    loader = make_loader()

    class Telling(Callback):
        def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            loader.set_epoch(7)

    make_trainer(tmp_path, max_epochs=1, callbacks=[Telling()]).fit(Recorder(tmp_path / "log"), loader)
    assert {line.split()[1] for line in lines(tmp_path / "log")} == {"7"}


@resumes
def test_what_lightning_counts_is_right_after_resumes(tmp_path: Path) -> None:
    """After a checkpoint of an epoch's last mini-batch, Lightning does not count the next epoch as begun."""
    make_trainer(tmp_path, 1, max_epochs=1, max_steps=NUM_BATCHES).fit(Recorder(tmp_path / "log"), make_loader())
    checkpoint = tmp_path / f"step={NUM_BATCHES}.ckpt"
    for steps in (NUM_BATCHES + 2, NUM_BATCHES + 3, 2 * NUM_BATCHES):
        trainer = make_trainer(tmp_path, 1, max_epochs=3, max_steps=steps)
        trainer.fit(Recorder(tmp_path / "log"), make_loader(), ckpt_path=checkpoint)
        checkpoint = tmp_path / f"step={steps}.ckpt"
        saved = torch.load(checkpoint, weights_only=True)
        loops = saved["loops"]["fit_loop"]
        epochs, batches = loops["epoch_progress"]["current"], loops["epoch_loop.batch_progress"]
        assert (epochs["ready"], epochs["started"], epochs["processed"]) == (2, 2, 1)
        assert batches["current"]["processed"] == steps - NUM_BATCHES
        assert batches["total"]["processed"] == saved["global_step"] == steps
        assert (
            loops["epoch_loop.state_dict"]["_batches_that_stepped"] == steps - 1
        )  # Lightning adds this one afterwards


class Several(Recorder):
    """Gets mini-batches of several loaders at once."""

    def training_step(self, batches: Any) -> Any:
        return torch.stack([super(Several, self).training_step(batch) for batch in batches if batch is not None]).mean()


@resumes
@pytest.mark.parametrize("mode", ["max_size", "max_size_cycle", "min_size"])
def test_several_loaders_go_on_after_an_epochs_end(tmp_path: Path, mode: Any) -> None:
    """With `max_steps`, Lightning takes each run that goes on for one within an epoch."""

    def combined() -> CombinedLoader:
        return CombinedLoader([make_loader(), make_loader(drop_last=True, seed=1)], mode)

    steps = 3 * NUM_BATCHES if mode != "min_size" else 3 * (NUM_BATCHES - 1)
    alone, resumed = tmp_path / "alone.log", tmp_path / "resumed.log"
    checkpoint: Path | None = None
    for log in (alone, resumed):
        saving = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1, save_on_train_epoch_end=True)
        options: dict[str, Any] = {"callbacks": [saving], "enable_checkpointing": True}
        trainer = make_trainer(tmp_path, max_epochs=3, max_steps=steps, **options)
        trainer.fit(Several(log), combined(), ckpt_path=checkpoint)
        checkpoint = tmp_path / "epoch=0.ckpt"
    assert lines(resumed) == lines(alone)[-len(lines(resumed)) :]
    assert len(lines(resumed)) == 2 * len(lines(alone)) // 3
