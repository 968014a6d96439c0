"""The kernels of subgraphs as a program of the host, beside plain code."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_on_host import OPTIONS
from sanitizers import build, run, skip_unless_it_runs

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
SANITIZERS = "address,undefined"


def test_subgraphs_are_those_of_plain_code(tmp_path: Path) -> None:
    skip_unless_it_runs(SANITIZERS, tmp_path)
    target = tmp_path / "on_host"
    built = build([HERE / "subgraph_cuda_on_host.cpp"], SANITIZERS, target, (*OPTIONS, "-DLOADER_SUBGRAPH_BLOCKS=3"))
    assert built.returncode == 0, built.stderr
    done = run([str(target), "8"], timeout=3000)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal: ")
