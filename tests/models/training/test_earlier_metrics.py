"""A run that goes on in its folder keeps the rows of metrics.csv up to its checkpoint, each once."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from lightning.pytorch.loggers import CSVLogger
from train_runs import FAST, run

from models.training.earlier_metrics import keep_earlier_metrics

HEADER = "epoch,step,test/acc,train/acc,val/acc"
ROWS = ["0,4,,,.5", "0,4,,.6,", "1,9,,,.7", "1,9,,.8,", "2,10,.9,,"]


def logger_of(folder: Path) -> CSVLogger:
    return CSVLogger(folder, name="", version="csv", flush_logs_every_n_steps=1)


@pytest.mark.filterwarnings("ignore:Experiment logs directory")
@pytest.mark.parametrize(("steps", "kept"), [(4, 0), (5, 2), (9, 2), (10, 4), (11, 4)])
def test_rows_up_to_the_checkpoint_are_kept(tmp_path: Path, steps: int, kept: int) -> None:
    file = tmp_path / "csv" / "metrics.csv"
    file.parent.mkdir()
    file.write_text("\n".join([HEADER, *ROWS, "2,"]))  # the last one was cut
    loop = {"epoch_loop.state_dict": {"_batches_that_stepped": steps}}
    logger = logger_of(tmp_path)
    keep_earlier_metrics([logger], {"global_step": 2 * steps, "loops": {"fit_loop": loop}})
    logger.log_metrics({"epoch": 2, "val/f1": 0.25}, 14)
    logger.finalize("success")
    found = [{k: v for k, v in row.items() if v} for row in csv.DictReader(file.read_text().splitlines())]
    before = [{k: v for k, v in row.items() if v} for row in csv.DictReader([HEADER, *ROWS[:kept]])]
    assert found == [*before, {"epoch": "2", "step": "14", "val/f1": "0.25"}]


def test_a_run_resumed_in_place_has_all_epochs(tmp_path: Path) -> None:
    options = (*FAST[1:], "sampler.fanouts=[2,2]", "callbacks=quiet")
    for folder, epochs, more in (
        ("whole", 4, ()),
        ("run", 2, ()),
        ("run", 4, ("ckpt_path=run/checkpoints/step.ckpt",)),
    ):
        done = run(tmp_path, *options, f"trainer.max_epochs={epochs}", f"hydra.run.dir={folder}", *more)
        assert done.returncode == 0, done.stderr
    assert "step 8" in done.stdout  # amid the second epoch
    whole, parts = ((tmp_path / folder / "csv" / "metrics.csv").read_text() for folder in ("whole", "run"))
    assert parts == whole
    assert len(whole.splitlines()) == 1 + 4 * 2 + 1


@pytest.mark.filterwarnings("ignore:Experiment logs directory")
def test_an_epoch_that_ends_again_has_one_row(tmp_path: Path) -> None:
    """The best checkpoint is of the last validation amid an epoch, which is at its end."""
    file = tmp_path / "csv" / "metrics.csv"
    file.parent.mkdir()
    file.write_text("\n".join([HEADER, "0,1,,,.4", *ROWS[:2], ""]))
    loops = {
        "epoch_loop.state_dict": {"_batches_that_stepped": 4},
        "epoch_loop.batch_progress": {"total": {"ready": 5, "completed": 5}},
        "epoch_loop.val_loop.batch_progress": {"is_last_batch": True},
    }
    logger = logger_of(tmp_path)
    keep_earlier_metrics([logger], {"global_step": 5, "loops": {"fit_loop": loops}})
    assert file.read_text().splitlines() == ["epoch,step,val/acc", "0,1,.4", "0,4,.5"]
