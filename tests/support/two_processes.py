"""Two processes that train together, each of which calls a function of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lightning.fabric.plugins.environments.lightning import find_free_network_port

import models


def call_in_two(test: str, function: str, *arguments: str) -> None:
    """Calls `function(*arguments)` of a test file in two processes, and waits until both have ended well.

    `LOCAL_RANK` says which process it is, `MASTER_ADDR` and `MASTER_PORT` where they meet. They are not forked: torch's
    threads, which other tests began, hold locks that no one releases in a child.
    """
    own = [Path(models.__file__).parent.parent, Path(test).parent, Path(__file__).parent]
    shared = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*map(str, own), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(find_free_network_port()),
        "OMP_NUM_THREADS": "1",
    }
    program = f"import sys, {Path(test).stem} as t; t.{function}(*sys.argv[1:])"
    command = [sys.executable, "-c", program, *arguments]
    ranks = [subprocess.Popen(command, env={**shared, "LOCAL_RANK": str(rank)}) for rank in range(2)]
    try:
        assert [rank.wait(timeout=600) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
