"""The processes of a run: which one this is, and how the others of this machine start.

Nothing here needs torch. The other processes start as soon as the configuration says how many there are, and import
what they need at the same time as the first one does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PARENT = "GNN_LOADER_PARENT"  # the process that started this one, by its number
_STARTED_BY_OTHERS = (
    *("LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "LSB_JOBID"),
    *("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
)
_LOOK = 0.2  # seconds between two looks at the other processes
GRACE = 10.0  # seconds in which a process ends by itself, or the first one prints what all would print
_PAUSE = 1.0  # seconds after which it is known whether another process was lost
MOST_PROCESSES = 4  # per processor
_SAID = (1, 130)  # a status with which a process has printed why it ended


def number_of_devices(devices: Any) -> int | None:
    """The processes on a machine that `trainer.devices` asks for; None if the machine's GPUs decide."""
    if isinstance(devices, str) and re.fullmatch(r"\s*\d+\s*", devices):
        devices = int(devices)
    if isinstance(devices, int) and not isinstance(devices, bool):
        return devices if devices >= 0 else None
    if isinstance(devices, str):
        return len([part for part in devices.split(",") if part.strip()]) if "," in devices else None
    return len(devices) if isinstance(devices, Sequence) else None


def rank_here() -> int:
    """The number of this process in its run, as far as its environment says; 0 for a process of its own."""
    for name in ("RANK", "SLURM_PROCID"):
        if name in os.environ and any(other in os.environ for other in _STARTED_BY_OTHERS):
            return int(os.environ[name])
    local, node = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("NODE_RANK", 0))
    return local + node * int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def check_launch(trainer: Mapping[str, Any]) -> None:
    """Raises ValueError if torchrun started other numbers of processes than the trainer is told.

    Without this, each process would train a model of its own.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
    devices, nodes = number_of_devices(trainer.get("devices")), _nodes(trainer)
    if devices is not None and (devices, nodes * devices) != (here, everywhere):
        ways = f"trainer.devices={here}" + (f" trainer.num_nodes={everywhere // here}" if everywhere > here else "")
        given = f"trainer.devices is {devices} and trainer.num_nodes {nodes}"
        raise ValueError(f"torchrun started {here} processes here and {everywhere} in all, but {given}; give {ways}")


def check_hosts(trainer: Mapping[str, Any]) -> None:
    """Raises ValueError unless each process knows its host, as those that have features of their host's own need."""
    devices, nodes = trainer.get("devices"), _nodes(trainer)
    if (nodes > 1 or number_of_devices(devices) != 1) and "LOCAL_WORLD_SIZE" not in os.environ:
        run = f"trainer.devices={devices}, trainer.num_nodes={nodes} and trainer.strategy={trainer.get('strategy')}"
        way = "start by torchrun, or on one host give a number of devices and trainer.strategy=auto"
        raise ValueError(f"features=partitioned with {run} would not know which process is on which host; {way}")


def be_quiet_unless_first() -> None:
    """A process other than the first one logs and warns of nothing: the first one does."""
    if rank_here() > 0:
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")


@contextlib.contextmanager
def other_ranks(trainer: Any, command: list[str], folder: str) -> Iterator[None]:
    """Starts the other processes of this machine, if this is the first one, and ends them with it.

    If another process fails, this one says so and ends with status 1, and so do all. If this one is killed, they end
    within a second or two.

    Args:
        trainer: options of Lightning's Trainer, not checked yet. Processes start only with `strategy="auto"`, several
            `devices`, and if nobody else starts them (torchrun, Slurm, MPI, or who set `LOCAL_RANK`).
        command: of a further process, which finds its number in the environment variable `LOCAL_RANK`.
        folder: in which it runs.
    """
    if _PARENT in os.environ:
        with _end_with(int(os.environ[_PARENT])):
            yield
        return
    count = (number_of_devices(trainer.get("devices")) or 1) if isinstance(trainer, Mapping) else 1
    sensible = 1 < count <= MOST_PROCESSES * (os.cpu_count() or 1)  # else this process says what is wrong
    if not sensible or trainer.get("strategy") != "auto" or any(name in os.environ for name in _STARTED_BY_OTHERS):
        yield
        return
    shared = {
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "127.0.0.1"),
        "MASTER_PORT": os.environ.get("MASTER_PORT") or str(_free_port()),
        "NODE_RANK": os.environ.get("NODE_RANK", "0"),
        "WORLD_SIZE": str(count * _nodes(trainer)),
        "LOCAL_WORLD_SIZE": str(count),
    }
    before = {name: os.environ.get(name) for name in (*shared, "LOCAL_RANK")}
    os.environ.update(shared, LOCAL_RANK="0")
    others = [
        subprocess.Popen(command, cwd=folder, env={**os.environ, "LOCAL_RANK": str(i), _PARENT: str(os.getpid())})
        for i in range(1, count)
    ]
    done = threading.Event()
    threading.Thread(target=_watch, args=(others, done), name="other ranks", daemon=True).start()
    try:
        yield
        _leave()  # before it waits for others that wait for this one to leave
        while any(other.poll() is None for other in others):  # `_watch` ends this if one fails
            time.sleep(_LOOK / 10)
    except Exception as error:
        done.set()
        time.sleep(_PAUSE)
        if (lost := _lost(others)) is None:
            raise
        _say(*lost)
        raise SystemExit(1) from error  # which only says that the other one left the exchange
    finally:
        done.set()
        for other in others:
            other.kill()
            other.wait()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _lost(others: list[subprocess.Popen[bytes]]) -> tuple[int, int] | None:
    """Number and status of a process that failed."""
    return next(((i, status) for i, other in enumerate(others, 1) if (status := other.poll())), None)


def _say(rank: int, status: int) -> None:
    if status not in _SAID:
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        print(f"error: process {rank} of this run {how}, so the run ends", file=sys.stderr, flush=True)


def _watch(others: list[subprocess.Popen[bytes]], done: threading.Event) -> None:
    """Ends the run when one of its processes fails: the main thread may wait for that one for ever."""
    while not done.wait(_LOOK):
        lost = _lost(others)
        # After Ctrl-C, which all get, this process ends by itself; after an error, too, if it notices.
        if lost is None or done.wait(GRACE if lost[1] == 130 else _PAUSE):
            continue
        _say(*lost)
        for other in others:
            other.kill()
        sys.stdout.flush()
        os._exit(lost[1] if lost[1] in _SAID else 1)


@contextlib.contextmanager
def _end_with(parent: int) -> Iterator[None]:
    """Ends this process when the one that started it is gone."""
    end_with(parent)
    try:
        yield
        _leave()
    except Exception:
        time.sleep(2 * _PAUSE)  # if another process is lost, the first one says so and ends this one
        raise


def end_with(parent: int) -> None:
    """From now on, this process ends when `parent`, the process that started it, is gone."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        os._exit(1)

    threading.Thread(target=look, name="parent", daemon=True).start()


def _leave() -> None:
    """Leaves the group of the processes, which all leave together: the next job of a sweep has one of its own."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def _nodes(trainer: Mapping[str, Any]) -> int:
    nodes = trainer.get("num_nodes")
    return nodes if isinstance(nodes, int) and nodes > 0 else 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
