"""`Next`: what it takes, what it refuses and where it says so. Nothing is compiled here."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from graphs import messy_graph
from walk_functions import by_python, deepwalk, importance, node2vec, odd

import loader
from loader import Next

HEAD = "def next(walker, lists, draws):\n"
LEVEL, SHARE = np.int32(7), 0.25


def lines(*body: str) -> str:
    return HEAD + "\n".join(f"    {line}" for line in body)


REFUSED = {
    "x may have no value here": ("if walker.step:", "    x = 1", "return x"),
    "next can end here without return; every way through it ends with 'return node' or 'return -1'": (
        "if walker.step:",
        "    return 1",
    ),
    "never reached": ("return 1", "return 2"),
    "return without a value": ("return",),
    "0.5 is a float; a next computes with integers": ("return 0.5",),
    "is too large; integers have 64 bits": ("return 9223372036854775808",),
    r"// divides; there is no \*\*": ("return walker.at / 2",),
    "only + - * // % & | ^ << >>": ("return walker.at ** 2",),
    "walker has no weight; it has at, previous, start, step and memory": ("return walker.weight",),
    "lists has no neighbours; there are lists.degree": ("return lists.neighbours(1)",),
    r"has 1 arguments; write lists.neighbor\(v, i\)": ("return lists.neighbor(1)",),
    "without names or stars": ("return draws.uniform(n=3)",),
    "walker is no number": ("return walker",),
    "draws is given; give the variable another name": ("draws = 3", "return draws"),
    "a line sets one variable": ("a = b = 3", "return a"),
    "cannot be set; set a variable or walker.memory": ("walker.at = 3", "return 1"),
    "only walker.memory has places": ("return lists[3]",),
    "slices of it": ("return walker.memory[1:2]",),
    "put the place into a variable first": ("walker.memory[draws.uniform(3)] += 1", "return 1"),
    "a loop is 'for i in range": ("for i in lists:", "    pass", "return 1"),
    "third number of range is written out, and not 0": ("for i in range(1, 5, walker.at):", "    pass", "return 1"),
    "a loop with else": ("while walker.at:", "    pass", "else:", "    return 2", "return 1"),
    "With cannot be translated; a next may have": (
        "with walker:",
        "    return 2",
    ),
    "print cannot be used": ("print(walker.at)", "return 1"),
    r"range stands in 'for i in range": ("return range(3)",),
    "min and max take two integers or more": ("return min(3)",),
    "q has no value; a next reads its own variables": ("return q",),
    "only == != < <= > >= compare": ("return walker.at is 3",),
    "write it as two comparisons with 'and'": ("return 1 < 2 < lists.degree(0)",),
    "lambda: 3 cannot be translated": ("return lambda: 3",),
    "put the integer into a variable of its own": ("x = 3", "return x.real"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.filterwarnings("ignore:.is. with:SyntaxWarning")
def test_lines_that_cannot_be_translated_are_named(what: str) -> None:
    with pytest.raises(ValueError, match=what if "**" in what or "\\" in what else re.escape(what)) as raised:
        Next(lines(*REFUSED[what]))
    assert re.match(r"<next>:[2-6]: ", str(raised.value))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("def next(", "is not Python"),
        ("x = 3", "must be one function"),
        ("def next(walker, lists): return 1", "next must have three parameters"),
        ("def next(walker, lists, draws, p=3): return 1", "next must have three parameters"),
        ("@once\ndef next(walker, lists, draws): return 1", "next has the decorator once, which would have no effect"),
    ],
)
def test_text_that_is_no_function_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Next(text)


@pytest.mark.parametrize("given", [3, len, "", print])
def test_what_is_no_function_is_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"must be (a|one) function"):
        Next(given)


def test_a_lambda_is_told_from_its_line() -> None:
    with pytest.raises(ValueError, match="next is a lambda, whose text cannot be cut out; write it as def next"):
        Next(lambda walker, lists, draws: -1)


def test_integers_around_a_function_are_read() -> None:
    limit = 5

    def own(walker, lists, draws):
        return min(limit, LEVEL)

    assert Next(own).constants == (("LEVEL", 7), ("limit", 5))
    before = Next(own)
    limit = 6
    assert Next(own).constants == (("LEVEL", 7), ("limit", 6))
    assert before != Next(own)

    def wrong(walker, lists, draws):
        return draws.accept(SHARE)

    with pytest.raises(TypeError, match=r"test_next.py:\d+: SHARE is 0.25; .* loader.Next.chance"):
        Next(wrong)


def test_a_changed_integer_changes_the_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, where = messy_graph(40, 300, seed=1), [1]

    def own(walker, lists, draws):
        return where_to

    for where_to in (3, 4):
        walks = loader.random_walk(graph, torch.arange(40), 2, next=Next(own, compiled=False))
        assert walks[:, 1:].eq(where_to).all()
    assert where == [1]


def test_a_function_without_text_is_refused() -> None:
    names: dict[str, Any] = {}
    exec(lines("return 1"), names)
    with pytest.raises(ValueError, match=r"text of next is not to be found, .* give its text"):
        Next(names["next"])


def test_equal_functions_are_equal_and_pickled() -> None:
    for step in (Next(node2vec), Next.cpp("return K;", constants={"K": 3}), by_python(odd)):
        again = pickle.loads(pickle.dumps(step))
        assert again == step
        assert hash(again) == hash(step)
        assert again.spec() == step.spec()
    assert Next(node2vec) != Next(node2vec, memory=9)
    assert Next(node2vec) != by_python(node2vec)
    graph = messy_graph(40, 300, seed=1)
    sampler = loader.WalkSampler(5, next=by_python(node2vec))
    assert repr(sampler) == "WalkSampler(5, next=Next(node2vec))"
    starts = torch.arange(40)
    moved = pickle.loads(pickle.dumps(sampler))
    assert torch.equal(moved.sample(graph, starts).nodes, sampler.sample(graph, starts).nodes)
    assert moved.spec() == sampler.spec()
    assert moved.spec()["next"]["constants"] == {"BACK": 2**30, "COMMON": 2**31}
    assert "next" not in loader.WalkSampler(5).spec()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"p": 2}, "p is 2.0; it does not go with next"),
        ({"stop": 0.5}, "stop is 0.5; it does not go with next"),
        ({"metapath": [1]}, "metapath is"),
        ({"edge_ids": True}, "it returns nodes, not edges"),
        ({"weights": "edge_weights"}, "uses none; leave weights out"),
        ({"next": importance}, "uses weights; name those of the graph: weights='edge_weights'"),
    ],
)
def test_options_that_exclude_each_other_are_named(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        loader.WalkSampler(5, **{"next": deepwalk, **options})


def test_numbers_out_of_range_are_named() -> None:
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: Next(deepwalk, memory=65), "memory is 65; it must be at most 64"),
        (lambda: Next(deepwalk, turns=2**32), "turns is 4294967296; it must be at most"),
        (lambda: Next.chance(1.5), "probability is 1.5; it must be from 0 to 1"),
        (lambda: Next.cpp("return 1;", constants={"a b": 1}), "'a b': 1; they are names"),
        (lambda: Next.cpp("return 1;", constants={"a": 2**63}), "integers of 64 bits"),
        (lambda: Next.cpp("", constants={f"a{i}": 1 for i in range(33)}), "33 constants; at most 32"),
        (lambda: Next.cpp(" "), "text is ' '; it must be C"),
    ]
    for make, what in refused:
        with pytest.raises(ValueError, match=what):
            make()
    with pytest.raises(TypeError, match="text is a function"):
        Next.cpp(deepwalk)  # type: ignore[arg-type]
    assert [Next.chance(x) for x in (0, 0.25, 1)] == [0, 2**30, 2**32]


def test_no_compiler_names_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    step = Next(lines("return 17"))
    with pytest.raises(RuntimeError, match=r"none of c\+\+, .* on the path: install one .*compiled=False"):
        loader.WalkSampler(5, next=step).open(messy_graph(40, 300, seed=1))
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(RuntimeError, match="CXX names no-such-compiler, which is not there"):
        loader.random_walk(messy_graph(40, 300, seed=1), torch.arange(3), 2, next=step)
