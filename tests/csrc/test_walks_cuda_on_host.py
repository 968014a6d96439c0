"""The kernels of walks as a program of the host: every law and every type of ids gives the CPU's walks."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_on_host import OPTIONS
from sanitizers import ROOT, build, run, skip_unless_it_runs

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
SANITIZERS = "address,undefined"


def test_every_law_gives_the_walks_of_the_cpu(tmp_path: Path) -> None:
    skip_unless_it_runs(SANITIZERS, tmp_path)
    csrc = ROOT / "csrc"
    walks, picks = csrc / "walks" / "cpu", csrc / "sampler" / "cpu"
    sources = [HERE / "walks_cuda_on_host.cpp", walks / "walk.cpp", walks / "edge_filter.cpp"]
    sources += [picks / "pick_batch.cpp", picks / "philox_lanes.cpp"]
    target = tmp_path / "on_host"
    built = build(sources, SANITIZERS, target, OPTIONS)
    assert built.returncode == 0, built.stderr
    done = run([str(target), "2"], timeout=3000)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal: ")
