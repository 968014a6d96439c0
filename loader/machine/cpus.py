"""How many threads there is room for."""

from __future__ import annotations

import operator
import os

from loader import _core


def available_cpus() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def as_threads(num_threads: int) -> int:
    """`num_threads` as an int.

    Raises:
        TypeError: it is no integer.
        ValueError: it is below 1 or above 1024.
    """
    try:
        number = operator.index(num_threads)
    except TypeError:
        number = None
    if number is None or isinstance(num_threads, bool):
        raise TypeError(f"num_threads is {num_threads!r}; it must be an integer")
    if 1 <= number <= _core.max_threads:
        return number
    limit = "at least 1" if number < 1 else f"at most {_core.max_threads}"
    raise ValueError(f"num_threads is {number}; it must be {limit}")
