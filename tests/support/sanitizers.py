"""Compiling and running programs of C++ under a sanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = next((c for c in (os.environ.get("CXX"), "c++", "g++", "clang++") if c and shutil.which(c)), None)
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
FLAGS = ["-std=c++17", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-pthread", *WARNINGS]


def run(command: list[str], timeout: int) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=environment)


def build(
    sources: list[Path], sanitizer: str, target: Path, options: Sequence[str] = ("-O1", "-g1")
) -> subprocess.CompletedProcess[str]:
    """Compiles C++ of the core with a sanitizer ("": none); `options` come before the core's own folders of headers.

    Lines of the source are all that a sanitizer tells: to describe variables and types, too, takes a third of the time.
    """
    assert COMPILER is not None
    includes = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'tests' / 'csrc'}"]
    flags = [*FLAGS, *([f"-fsanitize={sanitizer}"] if sanitizer else []), *options, *includes]
    return run([COMPILER, *flags, *map(str, sources), "-o", str(target)], timeout=3000)


def cannot_run(why: str) -> NoReturn:
    """A skip; a failure where REQUIRE_SANITIZERS is set (in .ci/run)."""
    if os.environ.get("REQUIRE_SANITIZERS"):
        pytest.fail(why)
    pytest.skip(why)


def skip_unless_it_runs(sanitizer: str, folder: Path) -> None:
    """Skips where there is no compiler, or where its sanitizer does not link or start on this machine."""
    if COMPILER is None:
        cannot_run("no C++ compiler: none of $CXX, c++, g++, clang++ is on the path")
    source, target = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() {}\n")
    built = build([source], sanitizer, target)
    if built.returncode != 0:
        cannot_run(f"{COMPILER} has no -fsanitize={sanitizer}: {built.stderr.strip()[:200]}")
    started = run([str(target)], timeout=60)
    if started.returncode != 0:
        cannot_run(f"-fsanitize={sanitizer} does not start here: {started.stderr.strip()[:200]}")
