"""Rules of docs/style.md that a program can check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
MAX_WORDS = 8

# Words that names do not have, with those to take instead. Prose may have them.
WORDS = {
    "told": "report, warned, or what the value is",
    "kept": "memo, stored, or what the value is",
    "crew": "walkers",
    "squad": "walkers",
    "flight": "outstanding, staged; loads for those of a thread",
    "cold": "missed, misses: rows that are not in a cache",
    "amount": "num_, e.g. num_negatives",
    "ranked": "eval_negatives for those of an evaluation",
}
WORDS_FOR_USERS = {"vertex": "node", "vertices": "nodes", "neighbour": "neighbor"}  # of all but the core
CLASS_WORDS = {"piece": "part, range, slice or vector"}  # of classes, constants and template parameters


def names_of_tests(source: str) -> list[str]:
    """The names of all functions and methods of `source` that begin with "test_"."""
    functions = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return [function.name for function in functions if function.name.startswith("test_")]


def words(name: str) -> int:
    """The number of words after "test_"."""
    return len(name.split("_")) - 1


def test_names_of_tests_have_at_most_eight_words() -> None:
    named = [
        (path.relative_to(TESTS).as_posix(), name)
        for path in sorted(TESTS.rglob("test_*.py"))
        for name in names_of_tests(path.read_text(encoding="utf-8"))
    ]
    assert ("test_style.py", "test_names_of_tests_have_at_most_eight_words") in named
    long = [f"{path}: {name} has {words(name)} words" for path, name in named if words(name) > MAX_WORDS]
    assert not long, f"a test's name has at most {MAX_WORDS} words after test_; shorten\n" + "\n".join(long)


def test_methods_and_async_tests_are_counted() -> None:
    source = "class TestX:\n    def test_a_b(self): ...\nasync def test_a(): ...\ndef helper(): ..."
    assert sorted(map(words, names_of_tests(source))) == [1, 2]


def python_names(source: str) -> set[str]:
    """The names that `source` gives: of classes, functions, parameters, variables and attributes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.alias) and node.asname:
            found.add(node.asname)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
    return found


def cpp_names(source: str) -> set[str]:
    """All identifiers of `source`, and the names of files it includes and of Python it binds (`py::arg("x")`)."""
    bound = re.findall(r'(?:py::arg|\.def\w*|attr)\("(\w+)"', source)
    code = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", source, flags=re.S)
    return {*bound, *re.findall(r"[A-Za-z_]\w*", code)}


def parts(name: str) -> set[str]:
    """The words of a name in snake or camel case, in the singular."""
    split = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name).lower().split("_")
    return {*split, *(part.removesuffix("s") for part in split)}


def words_of(name: str) -> set[str]:
    """The words of a name that names do not have."""
    of_class = CLASS_WORDS if re.search("[A-Z]", name) else {}
    return parts(name) & {*WORDS, *of_class}


def sources() -> list[Path]:
    """The files whose names are looked at, of the checkout and not of a build."""
    found = [
        path
        for folder in ("loader", "models", "gnn_loader_app", "csrc", "benchmarks")
        for path in (ROOT / folder).rglob("*.*")
    ]
    return [ROOT / "train.py", *(path for path in found if path.suffix in (".py", ".pyi", ".h", ".cpp", ".cuh"))]


def test_names_have_words_of_the_field() -> None:
    wrong, files = [], sorted(sources())
    assert len(files) > 400
    for path in files:
        at = path.relative_to(ROOT).as_posix()
        names = (python_names if path.suffix in (".py", ".pyi") else cpp_names)(path.read_text(encoding="utf-8"))
        for name in sorted({*names, *at.replace(".", "/").split("/")}):
            words_for_users = {} if at.startswith("csrc/") else WORDS_FOR_USERS
            for word in sorted(words_of(name) | parts(name) & {*words_for_users}):
                way = (WORDS | CLASS_WORDS | WORDS_FOR_USERS)[word]
                wrong.append(f"{at}: {name} has {word}; take {way}")
    assert not wrong, "names have words of the field:\n" + "\n".join(wrong)


def test_words_are_found_within_names() -> None:
    source = (
        "import a as flight\nclass InducedTold:\n  def kept_of(self, amounts, *, ranked=1):\n    self._crew = cold = 0"
    )
    found = python_names(source)
    assert found == {"flight", "InducedTold", "kept_of", "self", "amounts", "ranked", "_crew", "cold"}
    assert {word for name in found for word in words_of(name)} == {*WORDS} - {"squad"}
    source = 'int kInFlight = cold_below;  // told\nthrow "kept"; m.def("ranked_of", py::arg("amount"));'
    assert {word for name in cpp_names(source) for word in words_of(name)} == {"flight", "cold", "ranked", "amount"}
    assert words_of("kPieces") == words_of("GPUPiece") == {"piece"}
    for name in ("pieces", "outright", "scold", "ranking", "keptx"):
        assert not words_of(name), name
