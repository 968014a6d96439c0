"""A kind of lists and a choice of neighbors of a test's own run in the core's samplers, which do not know them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_on_host import OPTIONS
from sanitizers import ROOT, build, run, skip_unless_it_runs

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
SANITIZERS = "address,undefined"


def test_own_lists_give_the_cores_mini_batches(tmp_path: Path) -> None:
    skip_unless_it_runs(SANITIZERS, tmp_path)
    cpu = ROOT / "csrc" / "sampler" / "cpu"
    names = ("hopwise", "philox_lanes", "pick_batch", "race_scan", "rank_bitmap", "scan")
    sources = [HERE / "own_lists_on_host.cpp", *(cpu / f"{name}.cpp" for name in names)]
    target = tmp_path / "own_lists"
    built = build(sources, SANITIZERS, target, OPTIONS)
    assert built.returncode == 0, built.stderr
    done = run([str(target), "2"], timeout=3000)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal: ")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("  int32_t read(P at) const {", "  int64_t read(P at) const {"),  # no node
        ("  using Row = VertexRow;\n", "  using Row = SlotRow;\n"),  # a row of a hop is a node, or a typed one
    ],
)
def test_other_structs_do_not_compile(tmp_path: Path, right: str, wrong: str) -> None:
    skip_unless_it_runs("", tmp_path)
    text = (HERE / "own_lists_on_host.cpp").read_text()
    assert text.count(right) == 1
    source = tmp_path / "own_lists.cpp"
    source.write_text(text.replace(right, wrong))
    built = build([source], "", tmp_path / "own_lists", (*OPTIONS, "-fsyntax-only"))
    assert built.returncode != 0
    assert "see graph/lists.h" in built.stderr or "a row of a hop is a node" in built.stderr
