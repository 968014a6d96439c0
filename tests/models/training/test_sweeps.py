"""What a worker of a sweep takes of the machine, and what is said of a failed job."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.training import sweeps

JOBLIB = {"_target_": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher", "n_jobs": 2}


@given(st.integers(1, 40), st.integers(1, 20))
def test_workers_share_all_cpus_evenly(cpus: int, workers: int) -> None:
    parts = [sweeps.part_of_cpus(range(100, 100 + cpus), number, workers) for number in range(workers)]
    assert all(parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    if workers <= cpus:
        assert [cpu for part in parts for cpu in part] == list(range(100, 100 + cpus))


@pytest.mark.parametrize(("n_jobs", "workers"), [(3, 3), (-1, 8), (-2, 7), (None, 1), (-20, 1)])
def test_joblibs_number_of_workers_is_known(n_jobs: int | None, workers: int) -> None:
    assert sweeps.number_of_workers(n_jobs, 8) == workers
    joblib = pytest.importorskip("joblib")
    if n_jobs is not None and n_jobs > -9:
        assert joblib.effective_n_jobs(n_jobs) == sweeps.number_of_workers(n_jobs, joblib.cpu_count())


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[int]]]:
    """This process as a worker of joblib on a machine of four CPUs and three GPUs; the CPUs that it takes."""
    taken: dict[str, list[int]] = {}
    monkeypatch.setattr(multiprocessing.current_process(), "_name", "LokyProcess-7")
    monkeypatch.setattr(sweeps, "end_with", lambda parent: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5, 6, 7})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: taken.update(cpus=list(cpus)))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(sweeps, "_held", [])
    monkeypatch.setenv(sweeps._TAKEN, "")
    monkeypatch.delenv(sweeps._TAKEN)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c")
    yield taken
    for mark in sweeps._held:
        mark.close()


@pytest.mark.skipif(sys.platform != "linux", reason="numbers of workers are taken on Linux")
def test_workers_take_cpus_and_gpus_in_turn(worker: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps.take_part(JOBLIB, "auto", 1)
    assert (worker["cpus"], os.environ["CUDA_VISIBLE_DEVICES"]) == ([4, 5], "GPU-a")
    sweeps.take_part(JOBLIB, "auto", 1)  # the next job of this worker
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    monkeypatch.delenv(sweeps._TAKEN)  # another worker, beside the first one
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c")
    sweeps.take_part(JOBLIB, "auto", 1)
    assert (worker["cpus"], os.environ["CUDA_VISIBLE_DEVICES"]) == ([6, 7], "GPU-b")
    sweeps._held.pop(0).close()  # the first one ends, and another takes its place
    monkeypatch.delenv(sweeps._TAKEN)
    sweeps.take_part(JOBLIB, "cpu", 1)
    assert (worker["cpus"], os.environ["CUDA_VISIBLE_DEVICES"]) == ([4, 5], "GPU-b")


@pytest.mark.parametrize(("device", "devices"), [("cpu", 1), ("cuda", 3)])
def test_other_jobs_see_all_gpus(worker: dict[str, list[int]], device: str, devices: int) -> None:
    sweeps.take_part(JOBLIB, device, devices)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b,GPU-c"


def test_other_launchers_leave_the_process_alone(worker: dict[str, list[int]]) -> None:
    sweeps.take_part({"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}, "auto", 1)
    assert not worker
    assert sweeps._TAKEN not in os.environ


def test_later_processes_import_the_same_loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import loader

    monkeypatch.setenv("PYTHONPATH", "before")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    started = tmp_path / "started"
    started.mkdir()
    (started / "hydra.py").write_text("raise ImportError('the wrong one')")
    monkeypatch.chdir(started)
    monkeypatch.setattr(sys, "path", [*sys.path])
    core = str(Path(loader.__file__).resolve().parents[1])
    sweeps.share_imports(tmp_path / "train.py")  # of a wheel, beside which another package may be called `models`
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), core, "before", str(started)]
    (tmp_path / "loader").mkdir()  # of a checkout, which may have no core
    monkeypatch.setenv("PYTHONPATH", "before")
    sweeps.share_imports(tmp_path / "train.py")
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [core, str(tmp_path), "before", str(started)]
    assert sys.path[-1] == str(started)  # a file of the user's hides no package


def test_a_failed_job_is_one_line() -> None:
    trace = "Job 7 (task: 0) with path /a.pkl\nError stream produced:\n---\nerror: fanout -3 is not possible\n\n"
    error = type("UncompletedJobError", (RuntimeError,), {"__module__": "submitit.core.utils"})(trace)
    assert (sweeps.failed_job(error) or "").startswith("a job of the sweep failed: fanout -3 is not possible; ")
    killed = type("TerminatedWorkerError", (RuntimeError,), {"__module__": "joblib.externals.loky"})("A worker died.")
    assert (sweeps.failed_job(killed) or "").startswith("a job of the sweep failed: A worker died; correct this")
    assert sweeps.failed_job(RuntimeError("ours")) is None
