"""The C++ core without Python under ThreadSanitizer, and under AddressSanitizer with UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = next((c for c in (os.environ.get("CXX"), "c++", "g++", "clang++") if c and shutil.which(c)), None)
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
FLAGS = ["-std=c++17", "-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-pthread", *WARNINGS]


def run(command: list[str], timeout: int) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=environment)


def build(sources: list[Path], sanitizer: str, target: Path) -> subprocess.CompletedProcess[str]:
    assert COMPILER is not None
    includes = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'tests' / 'csrc'}"]
    command = [COMPILER, *FLAGS, f"-fsanitize={sanitizer}", *includes, *map(str, sources), "-o", str(target)]
    return run(command, timeout=280)


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


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
@pytest.mark.parametrize("subject", ["sampler", "features", "aggregate"])
def test_no_race_and_no_undefined_behaviour(subject: str, sanitizer: str, tmp_path: Path) -> None:
    skip_unless_it_runs(sanitizer, tmp_path)
    sources = [Path(__file__).with_name(f"{subject}_stress.cpp"), *(ROOT / "csrc" / subject / "cpu").glob("*.cpp")]
    assert len(sources) > 1
    target = tmp_path / subject
    built = build(sources, sanitizer, target)
    assert built.returncode == 0, built.stderr
    done = run([str(target), "5"], timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal: ")


def test_the_sanitizers_find_a_race_and_an_overflow(tmp_path: Path) -> None:
    """A run that finds nothing means something: planted mistakes end the program."""
    race = """#include <thread>
        int x; int main() { std::thread t([] { ++x; }); ++x; t.join(); return x > 5; }"""
    overflow = """#include <vector>
        int main(int argc, char**) { std::vector<int> v(argc); return *(v.data() + argc); }"""
    for sanitizer, program, message in (
        ("thread", race, "data race"),
        ("address,undefined", overflow, "heap-buffer-overflow"),
    ):
        skip_unless_it_runs(sanitizer, tmp_path)
        source, target = tmp_path / "planted.cpp", tmp_path / "planted"
        source.write_text(program)
        built = build([source], sanitizer, target)
        assert built.returncode == 0, built.stderr
        done = run([str(target)], timeout=60)
        assert done.returncode != 0
        assert message in done.stderr
