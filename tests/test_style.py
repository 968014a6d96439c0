"""Rules of docs/style.md that a program can check."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent
MAX_WORDS = 8


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
