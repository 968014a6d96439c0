"""The kernels of the GPU sampler as a program of the host: every schedule and node set gives the CPU's mini-batches.

What a GPU alone can show, its memory model and its speed, the tests marked `gpu` have to.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from cuda_on_host import OPTIONS
from sanitizers import ROOT, build, run, skip_unless_it_runs

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
Started = Callable[[int, str], CompletedProcess[str]]
SANITIZERS = "address,undefined"


def compiled(tmp_path: Path, csrc: Path = ROOT / "csrc", sanitizers: str = SANITIZERS, *options: str) -> Path:
    skip_unless_it_runs(sanitizers, tmp_path)
    cpu = csrc / "sampler" / "cpu"
    sources = [HERE / "sampler_cuda_on_host.cpp", cpu / "hopwise.cpp", cpu / "pick_batch.cpp"]
    target = tmp_path / "on_host"
    built = build(sources, sanitizers, target, (*OPTIONS, *options, f"-I{csrc}"))
    assert built.returncode == 0, built.stderr
    return target


def test_every_schedule_gives_the_cpus_mini_batches(tmp_path: Path) -> None:
    done = run([str(compiled(tmp_path)), "1"], timeout=3000)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal: ")


# A part of the program, and the rounds in which it finds the mistakes that it should.
ROUNDS = {"schedules": "2", "choices": "1"}
# Of a file: what is right, the mistake in its place, and the part of the program that meets it.
MISTAKES = [
    # where the picks of a hop lie
    ("block_programs.cuh", "first += (rows + 31) / 32 * 32 * {};", "K", "(K - 1)", "schedules"),
    ("hash_set_phases.cuh", "row += {};", "total", "total > 0", "schedules"),  # nodes of a range's later windows
    ("list_scan.cuh", "begin = 0, step = {},", "kGroup", "1", "choices"),  # groups of a long list's parts
    # Lists that are raced together:
    ("race_queue.cuh", "__popc(votes & {})", "before_lane & ~bits_below(from, base)", "before_lane", "choices"),
    # A warp makes the rows of seeds that another one counts, without a barrier between:
    (
        "hopwise.cuh",
        "groups = {};",
        "this->own_groups(this->num_seeds())",
        "share((this->num_seeds() + 31) / 32, this->warps(), this->warps() - 1 - this->warp())",
        "schedules",
    ),
    # Rows that a warp looks up after the first ones:
    ("assemble.cuh", "row = begin + {} + lane;", "before", "before / 2", "schedules"),
]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One program with all mistakes. It makes the one whose number, from 1 on, is in the environment; 0 is none."""
    folder = tmp_path_factory.mktemp("planted")
    csrc = folder / "csrc"
    shutil.copytree(ROOT / "csrc", csrc)
    for number, (name, around, right, wrong, _) in enumerate(MISTAKES, start=1):
        source = csrc / "sampler" / "cuda" / name
        text = source.read_text()
        assert text.count(around.format(right)) == 1
        chosen = f"(planted_mistake == {number} ? ({wrong}) : ({right}))"
        source.write_text(text.replace(around.format(right), around.format(chosen)))
    chosen = folder / "chosen.h"
    chosen.write_text(
        '#include <cstdlib>\ninline const int planted_mistake = std::atoi(std::getenv("PLANTED_MISTAKE"));\n'
    )
    return compiled(folder, csrc, "", "-include", str(chosen))


@pytest.fixture
def with_mistake(planted: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    def started(number: int, part: str) -> CompletedProcess[str]:
        monkeypatch.setenv("PLANTED_MISTAKE", str(number))
        return run([str(planted), ROUNDS[part], part], timeout=3000)

    return started


@pytest.mark.parametrize("part", ROUNDS)
def test_without_a_planted_mistake_nothing_is_found(with_mistake: Started, part: str) -> None:
    """So what ends the program below is the mistake."""
    done = with_mistake(0, part)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", range(1, len(MISTAKES) + 1))
def test_a_planted_mistake_is_found(with_mistake: Started, number: int) -> None:
    """A run that finds nothing means something. The comparison finds these by itself, unless a wrong index ends it."""
    done = with_mistake(number, MISTAKES[number - 1][-1])
    ended = done.returncode in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
    assert ended or (done.returncode > 0 and "FAILED" in done.stderr)
