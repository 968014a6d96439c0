"""How many threads there is room for."""

from __future__ import annotations

import os

from loader import _core
from loader.machine.arguments import as_size
from loader.machine.shared import local_ranks


def processors() -> int:
    """Number of processors of this machine that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_cpus() -> int:
    """Number of processors for the threads of this process, at most as many as the core takes: if several processes of
    a run are here, an equal part.
    """
    return max(1, min(processors() // local_ranks()[1], _core.max_threads))


def as_threads(num_threads: int) -> int:
    """`num_threads` as an int.

    Raises:
        TypeError: it is no integer.
        ValueError: it is below 1 or above 1024.
    """
    return as_size("num_threads", num_threads, most=_core.max_threads)
