"""Processes on this machine that take the places of a run on several hosts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import loader

LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_PORT")
ROOT = Path(loader.__file__).parent.parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_ranks(
    command: Sequence[str], hosts: int, local: int, *paths: Path, **environment: str
) -> list[subprocess.Popen[str]]:
    """Starts the command `hosts * local` times, each with the environment that torchrun gives a process.

    Args:
        command: after the name of the Python interpreter.
        paths: folders that Python imports from, beside the project's own.
        environment: more variables.
    """
    shared = {
        **{name: value for name, value in os.environ.items() if name not in LAUNCHED},
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(hosts * local), "LOCAL_WORLD_SIZE": str(local),
        "PYTHONPATH": os.pathsep.join([*map(str, (ROOT, Path(__file__).parent, *paths)), *_paths(os.environ)]),
        **environment,
    }  # fmt: skip
    return [
        subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank % local), "GROUP_RANK": str(rank // local)},
        )
        for rank in range(hosts * local)
    ]


def finish_ranks(ranks: list[subprocess.Popen[str]], seconds: float) -> list[tuple[int, str, str]]:
    """Status, stdout and stderr of each process when all have ended; afterwards none is left."""
    try:
        ended = [rank.communicate(timeout=seconds) for rank in ranks]
        return [(rank.returncode, *said) for rank, said in zip(ranks, ended, strict=True)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def _paths(environment: Mapping[str, str]) -> list[str]:
    return [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
