"""The C++ core without Python under ThreadSanitizer, and under AddressSanitizer with UndefinedBehaviorSanitizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from sanitizers import ROOT, build, run, skip_unless_it_runs

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

# Of the sampler's folder; its program does without, and compiling them takes as long as all others.
WITHOUT = ("fused_hetero.cpp", "hopwise_hetero.cpp", "subgraph.cpp", "trees.cpp")


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
@pytest.mark.parametrize("subject", ["sampler", "features", "aggregate", "traverse"])
def test_no_race_and_no_undefined_behaviour(subject: str, sanitizer: str, tmp_path: Path) -> None:
    skip_unless_it_runs(sanitizer, tmp_path)
    core = [source for source in (ROOT / "csrc" / subject / "cpu").glob("*.cpp") if source.name not in WITHOUT]
    assert core
    sources = [Path(__file__).with_name(f"{subject}_stress.cpp"), *core]
    target = tmp_path / subject
    # Of the samplers' many kinds, more time goes to optimize the checks of each access than to run them as they are.
    level = "-O0" if (subject, sanitizer) == ("sampler", "address,undefined") else "-O1"
    built = build(sources, sanitizer, target, (level, "-g1"))
    assert built.returncode == 0, built.stderr
    done = run([str(target), "5"], timeout=3000)
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
