"""How the GPU part is compiled for the host."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType

import pybind11
import pytest
from filelock import FileLock
from sanitizers import ROOT, build, skip_unless_it_runs

# Two warps a block: what matters happens between warps and between blocks. Few ranges of a hash set, a small window and
# few nodes that are compared: small graphs fill them. Lists are long soon. The folder has a stand-in for CUDA.
OPTIONS = (
    "-O0",
    "-DLOADER_SAMPLER_WARPS=2",
    "-DLOADER_SAMPLER_RANGES=64",
    "-DLOADER_SAMPLER_WINDOW=2",
    "-DLOADER_SAMPLER_COMPARED=8",
    "-DLOADER_SAMPLER_LONG_LIST=40",
    "-DLOADER_SAMPLER_SHORT_LIST=40",
    "-DLOADER_TREE_LONG_ROW=60",
    "-DLOADER_INDUCED_THREADS=64",
    "-Wno-unknown-pragmas",
    f"-I{ROOT / 'tests' / 'csrc' / 'cuda_on_host'}",
)


def module_on_host(name: str, folders: pytest.TempPathFactory) -> ModuleType:
    """The module of Python that tests/csrc/`name`.cpp is: bindings and kernels of the core, built once per session.

    Skips where there is no compiler.
    """
    folder = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # all workers'
    folder = folder / name
    folder.mkdir(exist_ok=True)
    skip_unless_it_runs("", folders.mktemp("empty"))
    target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    with FileLock(folder / "lock"):
        if not target.exists():
            _build(name, target)
    return _loaded(name, target)


def _build(name: str, target: Path) -> None:
    includes = pybind11.get_include(), sysconfig.get_path("include")
    options = "-fPIC", "-shared", "-fvisibility=hidden", '-DLOADER_KERNELS_DEVICE="cpu"', *(f"-I{i}" for i in includes)
    built = build([ROOT / "tests" / "csrc" / f"{name}.cpp"], "", target, (*OPTIONS, *options))
    assert built.returncode == 0, built.stderr


@cache
def _loaded(name: str, target: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
