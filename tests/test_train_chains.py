"""train.py, killed or told to end again and again, ends with the weights and the scores of the run that never was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from digest_record import records
from train_runs import ROOT

# `TRAIN_CHAINS=40 python -m pytest -m slow tests/test_train_chains.py`
COUNT = int(os.environ.get("TRAIN_CHAINS", "2"))
SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
TASKS = (
    ("dataset=digits", "model.hidden_channels=16", "exact_test=false"),
    ("task=link", "model.hidden_channels=16", "datamodule.eval_negatives=2"),
    ("model=node2vec", "datamodule.batch_size=400", "model.dim=8"),
)


def options_of(r: random.Random) -> list[str]:
    task = r.choice(TASKS)
    size = [] if task[0] == "model=node2vec" else [f"datamodule.batch_size={r.choice((135, 270, 2000))}"]
    every = f"callbacks.step.every_n_train_steps={r.choice((1, 2, 1000))}"
    return [
        *task, *size, every, f"trainer.max_epochs={r.randint(2, 4)}", "device=cpu", "num_threads=1", "callbacks=quiet",
        f"trainer.accumulate_grad_batches={r.choice((1, 1, 2))}", "logger=none", "callbacks.early_stopping.patience=2",
    ]  # fmt: skip


def start(folder: Path, name: str, *arguments: str, seconds: float = 0.0) -> subprocess.Popen[str]:
    digests = folder / name / "d"
    paths = [str(ROOT / "tests" / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [
            sys.executable, str(ROOT / "train.py"), f"data_dir={folder.parent / 'data'}", f"hydra.run.dir={name}",
            "+callbacks.digests._target_=digest_record.DigestRecord", f"+callbacks.digests.folder={digests}",
            f"+callbacks.digests.seconds={seconds}", *arguments,
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> None:
    shown, _ = process.communicate(timeout=600)
    assert process.returncode == 0, shown


@pytest.mark.slow
@pytest.mark.parametrize("number", range(COUNT))
def test_killed_runs_end_as_the_unbroken_run(tmp_path: Path, number: int) -> None:
    r = random.Random(number)
    options = options_of(r)
    ended(start(tmp_path, "whole", *options))
    resume: list[str] = []
    told = [str(options)]
    for i in range(r.randint(1, 4)):
        steps, told_to = r.randint(1, 8), SIGNALS[number % 3] if i == 0 else r.choice(SIGNALS)
        process = start(tmp_path, f"cut-{i}", *options, *resume, seconds=0.1)
        while process.poll() is None and len(records(tmp_path / f"cut-{i}" / "d").get(0, (0, []))[1]) < steps:
            time.sleep(0.01)
        process.send_signal(told_to)
        shown, _ = process.communicate(timeout=600)
        assert "Traceback" not in shown, shown
        newest = tmp_path / "cut-0" / "checkpoints" / "step.ckpt"
        resume = [f"ckpt_path={newest}"] if newest.exists() else []
        told.append(f"{told_to.name} in mini-batch {steps} -> {resume}")
        if not resume:
            break
    ended(start(tmp_path, "last", *options, *resume))
    weights = [tmp_path / name / "d" / "weights" for name in ("whole", "last")]
    if weights[1].exists():  # else the training was over before the last process began, which then tests only
        assert weights[0].read_text() == weights[1].read_text(), told
    folders = [tmp_path / "whole" / "checkpoints", tmp_path / ("cut-0" if resume else "last") / "checkpoints"]
    best = [torch.load(folder / "best.ckpt", weights_only=True) for folder in folders]
    assert best[0]["global_step"] == best[1]["global_step"], told
    assert all(torch.equal(value, best[1]["state_dict"][name]) for name, value in best[0]["state_dict"].items()), told
