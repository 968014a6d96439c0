"""Which machine, which software and when: what a figure needs beside it to be judged or repeated."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import resource
from pathlib import Path
from typing import Any

import torch

from loader.machine.cpus import processors

_PACKAGES = ("gnn-loader", "lightning", "dgl", "torch-geometric", "numpy")


def provenance() -> dict[str, Any]:
    """Of a figure that this process measures now, for JSON.

    Returns:
        `date`: in UTC, to the second.
        `hardware`: `cpu`, its name; `cores` that this process may use; `memory_gib` of the machine, where it says so.
        `system`: the operating system and its release.
        `versions`: of Python, torch, and those of the packages that matter here which are installed.
    """
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "hardware": {"cpu": _cpu(), "cores": processors(), **_memory()},
        "system": platform.platform(),
        "versions": _versions(),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def usable_memory(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Bytes of memory that this process and those beside it may use: the machine's, or less in a container or a job, or
    if this process has a limit (`ulimit -v`, `ulimit -d`).

    Args:
        cgroups, own: where Linux keeps the limits of control groups, and the groups of this process (cgroups(7)).
    """
    own_limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    limits = [_memory_bytes(), *(limit for limit in own_limits if limit != resource.RLIM_INFINITY)]
    for line in own.read_text(encoding="utf-8").splitlines() if own.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        # A container may be told the path that its group has outside.
        for folder in (group, *group.parents[: len(group.relative_to(root).parts)]):
            text = (folder / name).read_text(encoding="utf-8").strip() if (folder / name).is_file() else "max"
            if text != "max":
                limits.append(int(text))
    return min(limits)


def _memory() -> dict[str, float]:
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= names.keys():
        return {}
    return {"memory_gib": round(_memory_bytes() / 2**30, 1)}


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _versions() -> dict[str, str]:
    installed = {d.name: d.version for d in importlib.metadata.distributions()}
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    return versions | {package: installed[package] for package in _PACKAGES if package in installed}
