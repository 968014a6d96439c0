"""The Python function that says where a walker goes next: its text and the constants that it reads."""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

from loader.machine.arguments import kind_of

BUILTINS = ("min", "max", "abs", "range")
MOST_CONSTANTS = 32  # csrc/walks/custom/walker.h
INTEGERS = range(-(2**63), 2**63)


class Source(NamedTuple):
    """A function of three parameters.

    Attributes:
        text: of the function; its first line is line 1.
        file, first_line: where it stands, for messages.
        constants: integers that it reads from around it, in the order of their names.
    """

    text: str
    file: str
    first_line: int
    constants: tuple[tuple[str, int], ...]

    def tree(self) -> ast.FunctionDef:
        """The function, parsed."""
        return _function_in(self.text, self.file)

    def at(self, line: int) -> str:
        """A line of the function, as messages name it."""
        return f"{self.file}:{self.first_line + line - 1}"


def source_of(function: Callable[..., Any] | str) -> Source:
    """What there is to know of a function, or of its text.

    Raises:
        TypeError, ValueError: it is none, its text is not to be found, or it reads what is no integer.
    """
    if isinstance(function, str):
        text, file, first_line = textwrap.dedent(function).strip("\n"), "<next>", 1
    else:
        if not inspect.isfunction(function):
            raise TypeError(f"next is {kind_of(function)}; it must be a function of Python, its text, or a loader.Next")
        if function.__name__ == "<lambda>":  # its source is the line around it
            raise ValueError(
                "next is a lambda, whose text cannot be cut out; write it as def next(walker, lists, draws)"
            )
        try:
            lines, first_line = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise ValueError(
                f"the text of {function.__name__} is not to be found, which is translated; write it into a file, or "
                "give its text: next='def next(walker, lists, draws): ...'"
            ) from None
        text = textwrap.dedent("".join(lines)).rstrip("\n")
        file = inspect.getsourcefile(function) or "<next>"
    tree = _function_in(text, file)
    around = {} if isinstance(function, str) else _around(function)
    found = Source(text, file, first_line, ())
    names = free_names(tree)
    if len(names) > MOST_CONSTANTS:
        raise ValueError(
            f"{found.at(1)}: {tree.name} reads {len(names)} constants; at most {MOST_CONSTANTS} are possible"
        )
    constants = tuple((name, _constant(found, name, line, around)) for name, line in sorted(names.items()))
    return found._replace(constants=constants)


def free_names(tree: ast.FunctionDef) -> dict[str, int]:
    """Names that the function reads and does not set, and the line of the first use of each."""
    body = [node for statement in tree.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    own = {node.id for node in body if isinstance(node.ctx, ast.Store)} | {a.arg for a in tree.args.args}
    free: dict[str, int] = {}
    for node in body:
        if node.id not in own and node.id not in BUILTINS:
            free.setdefault(node.id, node.lineno)
    return free


def _function_in(text: str, file: str) -> ast.FunctionDef:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"{file}: the text of next is not Python ({error.msg}, line {error.lineno})") from None
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise ValueError(f"{file}: next must be one function, 'def next(walker, lists, draws): ...', and nothing else")
    function = tree.body[0]
    for decorator in function.decorator_list:  # the text below it is translated, whatever it makes of the function
        if ast.unparse(decorator) != "staticmethod":
            raise ValueError(
                f"{file}: {function.name} has the decorator {ast.unparse(decorator)}, which would have no effect; "
                "leave it out"
            )
    given = function.args
    if len(given.args) != 3 or given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults:
        raise ValueError(f"{file}: {function.name} must have three parameters: walker, lists and draws")
    return function


def _around(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        around = inspect.getclosurevars(function)
    except ValueError:  # a cell is empty
        raise ValueError(
            f"{function.__name__} reads a variable around it that has no value yet; set it before the function is given"
        ) from None
    return {**around.globals, **around.nonlocals}


def _constant(source: Source, name: str, line: int, around: dict[str, Any]) -> int:
    where = source.at(line)
    if name not in around and hasattr(builtins, name):
        raise ValueError(f"{where}: {name} cannot be used; a next may call min, max, abs and what lists and draws have")
    if name not in around:
        raise ValueError(
            f"{where}: {name} has no value; a next reads its own variables and integers of the function's module. A "
            "text reads none: write the number in its place"
        )
    value = around[name]
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(
            f"{where}: {name} is {_shown(value)}; a next computes with integers only. loader.Next.chance(0.25) makes a "
            "probability one, for draws.accept"
        ) from None
    if number not in INTEGERS:
        raise ValueError(f"{where}: {name} is {number}; integers have 64 bits")
    return number


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, float) else f"a {type(value).__name__}"
