"""The kernels of the GPU sampler as a program of the host: every schedule and vertex set gives the CPU's mini-batches.

What a GPU alone can show, its memory model and its speed, the tests marked `gpu` have to.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from cuda_on_host import OPTIONS
from sanitizers import ROOT, build, run, skip_unless_it_runs

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
SANITIZERS = "address,undefined"


def compiled(tmp_path: Path, csrc: Path = ROOT / "csrc", sanitizers: str = SANITIZERS) -> Path:
    skip_unless_it_runs(sanitizers, tmp_path)
    cpu = csrc / "sampler" / "cpu"
    sources = [HERE / "sampler_cuda_on_host.cpp", cpu / "hopwise.cpp", cpu / "pick_batch.cpp"]
    target = tmp_path / "on_host"
    built = build(sources, sanitizers, target, (*OPTIONS, f"-I{csrc}"))
    assert built.returncode == 0, built.stderr
    return target


def test_every_schedule_gives_the_cpus_mini_batches(tmp_path: Path) -> None:
    done = run([str(compiled(tmp_path)), "1"], timeout=3000)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal: ")


@pytest.fixture(scope="module")
def sound_without_sanitizers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What ends the program below is the mistake."""
    done = run([str(compiled(tmp_path_factory.mktemp("sound"), sanitizers="")), "2"], timeout=3000)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("queue.cuh", "static_cast<uint32_t>(count), first * Widest)", "static_cast<uint32_t>(count), first)"),
        ("hashed.cuh", "row += total;", "row += total > 0;"),  # vertices of a range's later windows
        ("scan.cuh", "begin = 0, step = kGroup,", "begin = 0, step = 1,"),  # groups of a long list's parts
        ("race_queue.cuh", "before_lane & ~bits_below(from, base)", "before_lane"),  # lists that are raced together
        # A warp makes the rows of seeds that another one counts, without a barrier between:
        (
            "hopwise.cuh",
            "= this->own_groups(this->num_seeds())",
            "= share((this->num_seeds() + 31) / 32, this->warps(), this->warps() - 1 - this->warp())",
        ),
        # Rows that a warp looks up after the first ones:
        ("assemble.cuh", "begin + before + lane;", "begin + before / 2 + lane;"),
    ],
)
@pytest.mark.usefixtures("sound_without_sanitizers")
def test_a_planted_mistake_is_found(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    """A run that finds nothing means something. The comparison finds these by itself, unless a wrong index ends it."""
    csrc = tmp_path / "csrc"
    shutil.copytree(ROOT / "csrc", csrc)
    source = csrc / "sampler" / "cuda" / name
    text = source.read_text()
    assert text.count(right) == 1
    source.write_text(text.replace(right, wrong))
    done = run([str(compiled(tmp_path, csrc, sanitizers="")), "2"], timeout=3000)
    ended = done.returncode in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
    assert ended or (done.returncode > 0 and "FAILED" in done.stderr)
