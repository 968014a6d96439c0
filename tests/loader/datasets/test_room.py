"""What the rooms of graphs and of datasets know: what stands before them, and nothing of sampling or devices."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

LOADER = Path(__file__).resolve().parents[3] / "loader"
KNOWN = {
    "machine": {"machine"},
    "graph": {"graph", "machine"},
    "traverse": {"traverse", "graph", "machine"},
    "datasets": {"datasets", "traverse", "graph", "machine"},
}


def rooms_of(file: Path) -> set[str]:
    """The rooms of `loader` that a file imports from, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    parts = [name.split(".") for name in names]
    return {part[1] for part in parts if part[0] == "loader" and len(part) > 1 and part[1] != "_core"}


@pytest.mark.parametrize("room", KNOWN)
def test_a_room_knows_only_those_before_it(room):
    for file in (LOADER / room).rglob("*.py"):
        assert rooms_of(file) <= KNOWN[room], file


def test_datasets_know_no_device():
    for file in (LOADER / "datasets").glob("*.py"):
        assert "cuda" not in file.read_text(encoding="utf-8"), file
