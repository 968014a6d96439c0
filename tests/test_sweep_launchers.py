"""Sweeps whose jobs run in other processes, by joblib's launcher and by submitit's, also after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TRAIN = Path(__file__).parents[1] / "train.py"
SWEEP = (
    *("-m", "experiment=convergence", "dataset=digits", "hydra.sweeper.params.sampler=fused", "model.num_layers=2"),
    *("device=cpu", "model.hidden_channels=8", "data_dir=data", "trainer.max_epochs=2"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sweep")


def start(folder: Path, launcher: str, seeds: str, *more: str) -> subprocess.Popen[str]:
    """Without PYTHONPATH, from a folder that is no checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    arguments = (*SWEEP, f"hydra.sweeper.params.seed='{seeds}'", *more)
    return subprocess.Popen(
        [sys.executable, str(TRAIN), *arguments, f"hydra/launcher={launcher}"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def results(folder: Path) -> dict[str, int]:
    """The jobs that have a result, by the name of their folder, and when it was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("multirun/convergence/*/result.json")}


def test_joblib_runs_what_a_kill_left(folder: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra [joblib]")
    sweep = start(folder, "joblib", "0,1,2", "hydra.launcher.n_jobs=2")
    while not (before := results(folder)):
        assert sweep.poll() is None, sweep.communicate()[0]
        time.sleep(0.02)
    sweep.send_signal(signal.SIGKILL)
    sweep.communicate()
    before = results(folder)
    assert 0 < len(before) < 3
    again = start(folder, "joblib", "0,1,2", "hydra.launcher.n_jobs=2")
    said = again.communicate(timeout=800)[0]
    assert again.returncode == 0, said
    assert said.count("finished before") >= len(before)
    assert "Warning" not in said
    after = results(folder)
    assert len(after) == 3
    assert {name: after[name] for name in before} == before


def test_submitit_runs_what_is_left(folder: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs the extra [submitit]")
    before = results(folder)
    sweep = start(folder, "submitit_local", "0,3")
    said = sweep.communicate(timeout=800)[0]
    assert sweep.returncode == 0, said
    after = results(folder)
    assert len(after) == len(before) + (1 if before else 2)
    assert {name: after[name] for name in before} == before
    outputs = [path.read_text() for path in folder.glob("multirun/convergence/.submitit/*/*_log.out")]
    assert sum("finished before" in text for text in outputs) == (1 if before else 0)
