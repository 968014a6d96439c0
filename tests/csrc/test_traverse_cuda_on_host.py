"""The kernels of traversals as a program of the host: lists of either memory give the CPU's results."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_on_host import OPTIONS
from sanitizers import ROOT, build, run, skip_unless_it_runs

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
SANITIZERS = "address,undefined"
# Small graphs have lists that a warp, a block or several threads read.
SMALL = ("-DLOADER_TRAVERSE_WARPS=2", "-DLOADER_TRAVERSE_WARP_LIST=6",
         "-DLOADER_TRAVERSE_BLOCK_LIST=20", "-DLOADER_TRAVERSE_NARROW=6")  # fmt: skip


def test_both_schedules_give_the_results_of_the_cpu(tmp_path: Path) -> None:
    skip_unless_it_runs(SANITIZERS, tmp_path)
    traverse = ROOT / "csrc" / "traverse" / "cpu"
    sources = [HERE / "traverse_cuda_on_host.cpp"]
    sources += [traverse / f"{name}.cpp" for name in ("bfs", "components", "pagerank", "sssp")]
    target = tmp_path / "on_host"
    built = build(sources, SANITIZERS, target, (*OPTIONS, *SMALL))
    assert built.returncode == 0, built.stderr
    done = run([str(target), "4"], timeout=3000)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal: ")
