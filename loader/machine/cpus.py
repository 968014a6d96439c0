"""How many threads there is room for."""

from __future__ import annotations

import os


def available_cpus() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
