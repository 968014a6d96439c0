"""The code of tutorials and examples runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import ROOT, Block, blocks, has_compiler, has_dgl, run

TUTORIALS = sorted(path for path in (ROOT / "docs" / "tutorials").glob("*.md") if path.stem != "index")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def skip_unless_it_can_run(document: Path) -> None:
    if document.stem in ("dgl", "with_dgl") and not has_dgl():
        pytest.skip("DGL is not installed")
    if document.stem in ("walks", "own_walk") and not has_compiler():
        pytest.skip("there is no C++ compiler")


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorials_code_runs(tutorial: Path, tmp_path: Path) -> None:
    skip_unless_it_can_run(tutorial)
    run(blocks(tutorial), tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_runs(example: Path, tmp_path: Path) -> None:
    skip_unless_it_can_run(example)
    assert len(example.read_text(encoding="utf-8").splitlines()) < 80
    shown = run([Block("", "sh", f"python examples/{example.name}")], tmp_path)
    accuracy = re.findall(r"accuracy (0\.\d+|1\.0)", shown)[-1]
    assert float(accuracy) > 0.8, shown
