"""The code of tutorials and examples runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, Block, blocks, run
from marks import needs_compiler, needs_dgl, needs_frame

NEEDS = {
    "database": needs_frame,
    "dgl": needs_dgl,
    "with_dgl": needs_dgl,
    "walks": needs_compiler,
    "own_walk": needs_compiler,
}


def each(folder: str, pattern: str) -> list[Any]:
    paths = sorted(path for path in (ROOT / folder).glob(pattern) if path.stem != "index")
    return [pytest.param(path, id=path.stem, marks=NEEDS.get(path.stem, ())) for path in paths]


@pytest.mark.parametrize("tutorial", each("docs/tutorials", "*.md"))
def test_a_tutorials_code_runs(tutorial: Path, tmp_path: Path) -> None:
    run(blocks(tutorial), tmp_path)


@pytest.mark.parametrize("recipe", each("docs/extend", "*.md"))
def test_a_recipe_to_extend_runs(recipe: Path, tmp_path: Path) -> None:
    code = blocks(recipe)
    assert code or recipe.stem in ("lists", "sampler"), "only those of the core have no code to run"
    run(code, tmp_path)


def test_recipes_of_the_core_name_what_exists() -> None:
    for recipe in ("lists", "sampler"):
        text = (ROOT / "docs" / "extend" / f"{recipe}.md").read_text(encoding="utf-8")
        for path in re.findall(r"`((?:csrc|loader|tests|conf)/[\w./*]+)`", text):
            assert list(ROOT.glob(path)), path
        paths = [*(ROOT / "csrc").rglob("*.*"), *(ROOT / "loader").rglob("*.py")]
        sources = "".join(path.read_text(encoding="utf-8") for path in paths)
        for word in re.findall(r"`(\w+[A-Z_]\w+)`", text):
            if not word.startswith("Mine"):
                assert word in sources, word


@pytest.mark.parametrize("example", each("examples", "*.py"))
def test_an_example_is_short_and_runs(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < 80
    shown = run([Block("", "sh", f"python examples/{example.name}")], tmp_path)
    accuracy = re.findall(r"accuracy (0\.\d+|1\.0)", shown)[-1]
    assert float(accuracy) > 0.8, shown
