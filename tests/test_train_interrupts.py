"""train.py, killed or interrupted, leaves what the next run goes on from."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import torch
from train_runs import FAST, ROOT, run


def test_a_killed_run_goes_on_after_its_checkpoint(tmp_path: Path) -> None:
    """kill -9 in the middle of an epoch; the resumed run ends with the weights of one that was never killed."""
    arguments = [
        "num_threads=1", "device=cpu", "datamodule.batch_size=8", "trainer.max_epochs=2",
        "callbacks.step.every_n_train_steps=50",
    ]  # fmt: skip
    whole = run(tmp_path, *arguments, "hydra.run.dir=whole")
    assert whole.returncode == 0, whole.stderr

    step = tmp_path / "killed" / "checkpoints" / "step.ckpt"
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *arguments, "hydra.run.dir=killed"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not step.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    saved = torch.load(step, weights_only=True)
    assert saved["global_step"] in (1, 2, 4, 8, 16, 32, 50, 100, 150, 200, 250)

    resumed = run(tmp_path, *arguments, "hydra.run.dir=resumed", f"ckpt_path={step}")
    assert resumed.returncode == 0, resumed.stderr

    def last_loss(folder: str) -> str:
        with (tmp_path / folder / "csv" / "metrics.csv").open() as file:
            return [row["val/loss"] for row in csv.DictReader(file) if row["val/loss"]][-1]

    assert last_loss("resumed") == last_loss("whole")


def interrupted(folder: Path, when: str, *arguments: str) -> tuple[int, str]:
    """Ctrl-C as soon as a file matches `when`; exit status and stderr."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what it runs in the background with SIGINT ignored, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    while not list(folder.glob(when)) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate()
    return process.returncode, shown


def test_ctrl_c_in_training_names_the_resume_command(tmp_path: Path) -> None:
    options = ("num_threads=1", "device=cpu", "trainer.max_epochs=100000", "callbacks.early_stopping=null")
    step = tmp_path / "run" / "checkpoints" / "step.ckpt"
    status, shown = interrupted(tmp_path, "run/checkpoints/step.ckpt", *options, "hydra.run.dir=run")
    assert status == 130
    assert "Traceback" not in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("interrupted in epoch ")]
    saved = int(torch.load(step, weights_only=True)["global_step"])
    way = line.partition(f"; to go on from step {saved}, give the same options again and ")[2]
    assert way == f"ckpt_path={step}"
    more = saved + 3
    resumed = run(tmp_path, *options, "hydra.run.dir=resumed", f"trainer.max_steps={more}", way)
    assert resumed.returncode == 0, resumed.stderr


def test_ctrl_c_in_a_conversion_leaves_one_line(tmp_path: Path) -> None:
    status, shown = interrupted(
        tmp_path, "cache/*/version-*", *FAST, "dataset=synthetic", "dataset.num_nodes=3000000",
        "dataset.mean_degree=30", "dataset.num_features=200", f"data_dir={tmp_path}",
    )  # fmt: skip
    assert (status, shown) == (130, "interrupted; what was under way is not kept\n")
    assert not list(tmp_path.glob("cache/*/version-*"))
