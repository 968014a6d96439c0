"""Which processes were launched together: the ranks of one run on one machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_RANKS = ("LOCAL_RANK", "SLURM_LOCALID")  # set by torchrun and by Lightning, and by Slurm


def this_process() -> dict[str, Any]:
    """What others on this machine can tell this process and its parent by, as JSON."""
    return {"host": socket.gethostname(), "self": _identity(os.getpid()), "parent": _identity(os.getppid())}


def is_of_this_launch(process: Mapping[str, Any]) -> bool:
    """Whether `process`, as it described itself, still runs and is another rank of this process' run.

    The first rank starts the others (Lightning), or one launcher started all of them (torchrun, srun).
    """
    mine = this_process()
    other, parent = process["self"], mine["parent"]
    if not any(name in os.environ for name in _RANKS) or process["host"] != mine["host"]:
        return False
    if other is None or parent is None or _identity(other[0]) != other:
        return False
    return parent in (other, process["parent"])


def _identity(pid: int) -> list[int] | None:
    """Number and start of a process, in ticks since the machine's; None where Linux' /proc does not tell."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return [pid, int(after_name[19])]
