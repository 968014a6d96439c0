"""Who imports whom: no files in a circle, and rooms only from those before them, as CONTRIBUTING.md has it."""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ["loader", "models", "train"]  # each imports only those before it


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    module_of(file): file for file in [*ROOT.glob("loader/**/*.py"), *ROOT.glob("models/**/*.py"), ROOT / "train.py"]
}


def imports_of(module: str, file: Path) -> set[str]:
    """The modules of this project that a file imports: also in functions, and for the checker of types only."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file} has a relative import"
            base = node.module or ""
            names = [alias.name for alias in node.names if alias.name != "_core"]  # the compiled core
            found |= {full if (full := f"{base}.{name}") in FILES else base for name in names}
    return {name for name in found if name in FILES} - {module}


IMPORTS = {module: imports_of(module, file) for module, file in FILES.items()}


def rooms() -> list[set[str]]:
    """The rooms of `loader` in the order of CONTRIBUTING.md; those between two arrows stand side by side."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sentence = re.search(r"only rooms on its left: (.*?)\.", text, re.DOTALL)
    assert sentence is not None
    return [set(re.findall(r"`(\w+)`", part)) for part in sentence[1].split("→")]


def test_no_files_import_each_other_in_a_circle() -> None:
    graphlib.TopologicalSorter(IMPORTS).prepare()  # CycleError names the files


def test_every_folder_of_the_library_is_a_room() -> None:
    folders = {file.parent.name for file in ROOT.glob("loader/*/__init__.py")}
    assert set.union(*rooms()) == folders


@pytest.mark.parametrize("module", [m for m in IMPORTS if m.count(".") and m.startswith("loader.")])
def test_a_room_imports_only_rooms_before_it(module: str) -> None:
    before: set[str] = {module.split(".")[1]}
    for side_by_side in rooms():
        if module.split(".")[1] in side_by_side:
            break
        before |= side_by_side
    used = {name.split(".")[1] for name in IMPORTS[module] if name.startswith("loader.")}
    assert used <= before


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_those_below(layer: str) -> None:
    below = LAYERS[: LAYERS.index(layer) + 1]
    used = {name.split(".")[0] for module, of in IMPORTS.items() if module.split(".")[0] == layer for name in of}
    assert used <= set(below)


def test_datasets_know_no_device() -> None:
    for file in (ROOT / "loader" / "datasets").glob("*.py"):
        assert "cuda" not in file.read_text(encoding="utf-8"), file
