"""How the GPU part is compiled for the host."""

from __future__ import annotations

import importlib.util
import sysconfig
from pathlib import Path
from types import ModuleType

import pybind11
from sanitizers import ROOT, build, skip_unless_it_runs

# Two warps a block: what matters happens between warps and between blocks. Few ranges of a hash set, a small window and
# few vertices that are compared: small graphs fill them. Lists are long soon. The folder has a stand-in for CUDA.
OPTIONS = (
    "-O0",
    "-DLOADER_SAMPLER_WARPS=2",
    "-DLOADER_SAMPLER_RANGES=64",
    "-DLOADER_SAMPLER_WINDOW=2",
    "-DLOADER_SAMPLER_COMPARED=8",
    "-DLOADER_SAMPLER_LONG_LIST=40",
    "-DLOADER_SAMPLER_SHORT_LIST=40",
    "-Wno-unknown-pragmas",
    f"-I{ROOT / 'tests' / 'csrc' / 'cuda_on_host'}",
)


def module_on_host(name: str, folder: Path) -> ModuleType:
    """The module of Python that tests/csrc/`name`.cpp is: bindings and kernels of the core, built in this folder.

    Skips where there is no compiler.
    """
    skip_unless_it_runs("", folder)
    target = folder / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    includes = pybind11.get_include(), sysconfig.get_path("include")
    options = "-fPIC", "-shared", "-fvisibility=hidden", '-DLOADER_KERNELS_DEVICE="cpu"', *(f"-I{i}" for i in includes)
    built = build([ROOT / "tests" / "csrc" / f"{name}.cpp"], "", target, (*OPTIONS, *options))
    assert built.returncode == 0, built.stderr
    spec = importlib.util.spec_from_file_location(name, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
