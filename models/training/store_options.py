"""Options of the stores of `loader.stores`, looked at before the data are read: a store is only made afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from loader import _core
from loader.machine.arguments import as_finite, as_flag, as_number, as_size, shown
from loader.machine.cpus import as_threads
from loader.stores.rows import as_dtype

_HOTNESS = ("degree", "pagerank", "visits")


def check_store_options(options: Mapping[str, Any]) -> None:
    """Raises TypeError or ValueError for a value that no store can have, whatever the rows are.

    Args:
        options: of one store, by name; None is its default.
    """
    for name, value in options.items():
        if value is not None and name in _CHECKS:
            _CHECKS[name](f"features.{name}", value)
    both = options.get("fraction"), options.get("budget_gib")
    if None not in both:
        raise ValueError(
            f"features.fraction is {both[0]} and features.budget_gib is {both[1]}; give one, the other null"
        )


def _share(name: str, value: Any) -> None:
    if not 0 <= as_number(name, value) <= 1:
        raise ValueError(f"{name} is {value}; it must be in 0 to 1")


def _share_above_zero(name: str, value: Any) -> None:
    if not 0 < as_number(name, value) <= 1:
        raise ValueError(f"{name} is {value}; it must be in (0, 1]")


def _timeout(name: str, value: Any) -> None:
    if not 0 < as_number(name, value) <= 86400:
        raise ValueError(f"{name} is {value}; it must be greater than 0 and at most 86400 seconds, a day")


def _hotness(name: str, value: Any) -> None:
    if value not in _HOTNESS:
        raise ValueError(f"{name} is {shown(value)}; it must be one of {', '.join(_HOTNESS)}")


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "dtype": as_dtype,
    "storage_dtype": as_dtype,
    "fraction": _share,
    "budget_gib": as_finite,
    "hotness": _hotness,
    "gpu_share": _share_above_zero,
    "timeout": _timeout,
    "batches_per_exchange": as_size,
    "buffer_mib": as_size,
    "num_threads": lambda name, value: as_threads(value),
    "host_threads": lambda name, value: as_size(name, value, least=0, most=_core.max_threads),
    "lookahead": lambda name, value: as_size(name, value, least=0, most=_core.most_together),
    "lazy": as_flag,
    "copy": as_flag,
}
