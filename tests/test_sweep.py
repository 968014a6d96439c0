"""A sweep whose jobs leave results: it goes on where it was killed, and benchmarks/convergence.py reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SWEEP = (
    *("-m", "experiment=convergence", "dataset=digits", "hydra.sweeper.params.seed='0,1'", "trainer.max_epochs=2"),
    *("hydra.sweeper.params.sampler='fused,hopwise'", "num_threads=1", "device=cpu", "model.hidden_channels=8"),
)
# train.py, which tells before each job how many of the earlier ones' datasets are still in memory.
WATCHED = """
import runpy, sys, weakref
from loader.datasets.base import Dataset
load, seen = Dataset.load, []
def watched(dataset):
    print("datasets before:", sum(features() is not None for features in seen))
    data = load(dataset)
    seen.append(weakref.ref(data.features))
    return data
Dataset.load = watched
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=800, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_jobs_that_ended_are_not_run_again(tmp_path: Path) -> None:
    first = run(tmp_path, "-c", WATCHED, str(ROOT / "train.py"), *SWEEP)
    assert "finished before" not in first
    assert first.count("datasets before: 0\n") == first.count("datasets before:") == 8
    results = sorted(tmp_path.glob("multirun/convergence/*/result.json"))
    assert len(results) == 8  # 2 samplers, 2 depths, 2 seeds
    for path in results:  # the folder tells what ran in it
        config = json.loads(path.read_text())["config"]
        assert f"model.num_layers={config['model']['num_layers']}" in path.parent.name
        assert f"seed={config['seed']}" in path.parent.name
        assert len(json.loads(path.read_text())["epochs"]) == 2

    killed, kept = results[3], {path: path.stat().st_mtime_ns for path in results}
    killed.unlink()
    again = run(tmp_path, str(ROOT / "train.py"), *SWEEP)
    assert again.count("finished before") == 7
    changed = [path for path in results if path.stat().st_mtime_ns != kept[path]]
    assert changed == [killed]

    run(
        tmp_path, str(ROOT / "benchmarks" / "convergence.py"), "multirun/convergence", "--against", "hopwise",
        "--json", "found.json", "--images", "images",
    )  # fmt: skip
    for row in json.loads((tmp_path / "found.json").read_text())["settings"]:
        # The same mini-batches: the same curves.
        assert row["sides"]["fused"]["val_mean"] == row["sides"]["hopwise"]["val_mean"]
        assert row["differences"]["fused"]["first_loss_gap"] == 0


@pytest.mark.parametrize("path", sorted((ROOT / "conf" / "experiment").glob("*.yaml")), ids=lambda p: p.stem)
def test_experiments_name_their_command(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert f"experiment={path.stem}" in text
    assert text.startswith("# @package _global_\n")
    assert yaml.safe_load(text)["task_name"] == path.stem
