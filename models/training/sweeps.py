"""Jobs of a sweep in processes of their own: what they import, which CPUs and which GPU they take, when they end.

Hydra's launchers of joblib, submitit and Ray pickle the job, and call it in another process or on another machine.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from models.training.ranks import end_with

# Launchers by their names in Hydra -> the extra of this package that installs them.
LAUNCHERS = {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit", "ray": "ray"}
_TAKEN = "GNN_LOADER_SWEEP_PART"  # which part of the machine this process has taken


def share_imports(program: Path) -> None:
    """Lets this process, and those that start later, import the loader, what lies beside `program`, and the user's own
    files in the folder where the command was started. The last one comes last: it hides no package.

    submitit starts a job by `python -m`, which looks into the folder of that moment and not into that of `program`.
    """
    import loader

    places = [str(Path(loader.__file__).resolve().parents[1]), str(program.parent)]
    if not (program.parent / "loader").is_dir():  # of a wheel: no package called `models` hides that of `program`
        places.reverse()
    before = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    here = os.getcwd()
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*places, *before, here]))
    if here not in sys.path:
        sys.path.append(here)
    # The folder of that moment may be a checkout without a core. It comes first, unless Python 3.11 is told this.
    os.environ["PYTHONSAFEPATH"] = "1"


def take_part(launcher: Any, device: Any, devices: Any) -> None:
    """Gives a worker of joblib its part of the CPUs, and one of the GPUs in turn. It ends when the sweep is killed.

    The workers of a sweep take numbers. With `n` workers, number `i` gets the `i`-th `n`-th of the CPUs, and GPU `i`
    modulo their number. A worker keeps its part for all of its jobs. Call this before torch starts threads or CUDA.

    Args:
        launcher: `hydra.launcher` of the job; does nothing unless it is joblib's.
        device: "cpu" leaves the GPUs as they are.
        devices: `trainer.devices`; a job of several processes sees all GPUs.
    """
    if "hydra_joblib_launcher" not in str(launcher.get("_target_")) or _TAKEN in os.environ:
        return
    if not multiprocessing.current_process().name.startswith("Loky"):
        return  # n_jobs=1: the job runs in the process of the sweep
    end_with(os.getppid())
    cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    workers = number_of_workers(launcher.get("n_jobs"), len(cpus) or os.cpu_count() or 1)
    number = _free_number(os.getppid(), workers)
    os.environ[_TAKEN] = str(number)
    if cpus:
        os.sched_setaffinity(0, part_of_cpus(cpus, number, workers))
    if device != "cpu" and devices == 1 and (gpus := _visible_gpus()):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]


def failed_job(error: BaseException) -> str | None:
    """One line about an error by which a launcher says that a job failed; None for any other error."""
    package = type(error).__module__.partition(".")[0]
    if package not in ("joblib", "submitit", "ray"):
        return None
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("-", "You can check", "/"))]
    errors = [line for line in said if line.startswith("error: ")] or said[-1:]
    why = errors[-1].removeprefix("error: ") if errors else type(error).__name__
    where = "; the outputs of the jobs are in .submitit, in the folder of the sweep" if package == "submitit" else ""
    again = "; correct this and repeat the command: with result_path it runs only the jobs that are left"
    return f"a job of the sweep failed: {why.rstrip('.')}{where}{again}"


def number_of_workers(n_jobs: Any, cpus: int) -> int:
    """The processes that joblib starts: -1 means one per CPU, -2 one less, and so on; null means 1."""
    n_jobs = 1 if n_jobs is None else int(n_jobs)
    return n_jobs if n_jobs > 0 else max(1, cpus + 1 + n_jobs)


def part_of_cpus(cpus: Sequence[int], number: int, workers: int) -> list[int]:
    """The CPUs of worker `number`: neighbors, each CPU with one worker, or one CPU if there are more workers."""
    if workers >= len(cpus):
        return [cpus[number % len(cpus)]]
    return list(cpus[len(cpus) * number // workers : len(cpus) * (number + 1) // workers])


def _free_number(sweep: int, workers: int) -> int:
    """The least number that no other living worker of the sweep holds. joblib replaces workers, so names do not say."""
    if sys.platform != "linux":
        return 0
    for number in range(workers):
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(f"\0gnn-loader-sweep-{os.getuid()}-{sweep}-{number}")  # gone with the process, however that ends
        except OSError:
            mark.close()
            continue
        _held.append(mark)
        return number
    return os.getpid() % workers  # a worker that is about to end holds its number still


_held: list[socket.socket] = []


def _visible_gpus() -> list[str]:
    """The GPUs of this process, as CUDA_VISIBLE_DEVICES names them. CUDA must not have started."""
    import torch

    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return named[:count] if named else [str(number) for number in range(count)]
