"""Walks by a next that Python itself runs, one walker after the other: slow, and the measure of what was compiled.

The function is run as it is written, but for what Python would do otherwise than 64 bits do: results of arithmetic are
cut to 64 bits, and the turns of its loops are counted. The random words are those of csrc/sampler/pick.h, made here
once more.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from loader.samplers.walk_next.faults import Fault, Wrong
from loader.samplers.walk_next.source import Source

_WORD = 2**32
_ROUNDS = 10
_STEP_BITS = 24  # csrc/walks/custom/walker.h


class Faulted(Exception):
    """A next went wrong."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


class Lists(NamedTuple):
    """What a next can ask of a graph, as sequences.

    Attributes:
        indptr, indices: of the graph.
        weights: of its edges, integers; None if there are none.
        cells: of the tables to draw by weight: threshold and alias of each edge; None if there are none.
    """

    indptr: Sequence[int]
    indices: Sequence[int]
    weights: Sequence[int] | None
    cells: tuple[Sequence[int], Sequence[int]] | None


def walk(
    source: Source, lists: Lists, starts: Iterable[int], length: int, key: int, *, memory: int, turns: int
) -> list[list[int]]:
    """The walk from each of `starts`: `length + 1` nodes, -1 after its end.

    Raises:
        Faulted: the function did what it may not do.
    """
    run = _Run(lists, key, memory, turns)
    function = _compiled(source, run)
    walks = []
    for row, start in enumerate(starts):
        run.begin(row, start)
        nodes = [start]
        while len(nodes) <= length:
            to = run.step(function)
            nodes.append(to)
            if to < 0:
                nodes += [-1] * (length + 1 - len(nodes))
        walks.append(nodes)
    return walks


class _Run:
    """What the function sees: this is its walker, its lists and its draws."""

    def __init__(self, lists: Lists, key: int, memory: int, turns: int) -> None:
        self._lists, self._places, self._most_turns = lists, memory, turns
        self._key = key % _WORD, key // _WORD
        self.num_nodes = len(lists.indptr) - 1
        self.begin(0, 0)

    def begin(self, row: int, start: int) -> None:
        self._row, self._number = row, 0
        self._block: tuple[int, ...] = ()
        self.start = self.at = start
        self.previous, self._step = -1, 0
        self.memory = _Memory(self, self._places)
        self.line = 0

    def step(self, function: Callable[..., Any]) -> int:
        """Takes a step; -1: the walk ends."""
        self._turns = 0
        to = int(function(_Walker(self), self, self))
        if not -1 <= to < self.num_nodes:
            raise self.fault(Wrong.RETURNED, to)
        self.previous, self.at = self.at, to
        self._step += 1
        return to

    def fault(self, wrong: Wrong, value: int) -> Faulted:
        return Faulted(Fault(wrong, self.line, value, self._row, self._step))

    # Lists

    def _list(self, v: int) -> tuple[int, int]:
        if not 0 <= v < self.num_nodes:
            raise self.fault(Wrong.NODE, v)
        return int(self._lists.indptr[v]), int(self._lists.indptr[v + 1])

    def _place(self, v: int, i: int) -> int:
        begin, end = self._list(v)
        if not 0 <= i < end - begin:
            raise self.fault(Wrong.PLACE, i)
        return begin + i

    def degree(self, v: int) -> int:
        begin, end = self._list(v)
        return end - begin

    def neighbor(self, v: int, i: int) -> int:
        return int(self._lists.indices[self._place(v, i)])

    def has_edge(self, u: int, v: int) -> bool:
        begin, end = self._list(u)
        self._list(v)
        return any(self._lists.indices[at] == v for at in range(begin, end))

    def weight(self, v: int, i: int) -> int:
        assert self._lists.weights is not None
        return int(self._lists.weights[self._place(v, i)])

    # Draws

    def word(self) -> int:
        number = self._number
        if number % 4 == 0:
            self._block = self._words(number >> (2 + _STEP_BITS), 0)
        self._number += 1
        return self._block[number % 4]

    def accept(self, chance: int) -> bool:
        return self.word() < chance

    def uniform(self, n: int) -> int:
        if not 1 <= n < _WORD:
            raise self.fault(Wrong.BOUND, n)
        again = self._number % 4 + 4 * (self._number >> (2 + _STEP_BITS))
        before, attempt = self._number, 0
        product = self.word() * n
        while product % _WORD < _WORD % n:
            attempt += 1
            product = self._words(again, attempt, before)[0] * n
        return product // _WORD

    def by_weight(self, v: int) -> int:
        assert self._lists.cells is not None
        begin, end = self._list(v)
        if begin == end:
            raise self.fault(Wrong.EMPTY, v)
        place = begin + self.uniform(end - begin)
        thresholds, aliases = self._lists.cells
        if self.word() >= thresholds[place]:
            place = begin + int(aliases[place])
        return int(self._lists.indices[place])

    def _words(self, index: int, attempt: int, number: int | None = None) -> tuple[int, ...]:
        """A block of the draws of draw `number`: by default the next one."""
        step = (self._number if number is None else number) // 4 % 2**_STEP_BITS
        return _philox((self._row % _WORD, self._row // _WORD, step + (attempt << _STEP_BITS), index), self._key)

    # What stands in the place of Python's own, see `_As64Bits`

    def _turn(self, line: int) -> bool:
        self.line = line
        self._turns += 1
        if self._turns > self._most_turns:
            raise self.fault(Wrong.TURNS, self._most_turns)
        return True

    def _each(self, line: int, values: range) -> Iterator[int]:
        for value in values:
            self._turn(line)
            yield value

    def _at_line(self, line: int, function: Callable[..., int], *arguments: int) -> int:
        """Calls what may fail, or draws."""
        self.line = line
        return function(*arguments)

    def _returned(self, line: int, value: int) -> int:
        self.line = line
        return value

    def _divided(self, a: int, b: int) -> int:
        if b == 0:
            raise self.fault(Wrong.DIVISION, a)
        return a // b

    def _rest(self, a: int, b: int) -> int:
        if b == 0:
            raise self.fault(Wrong.DIVISION, a)
        return a % b

    def _left(self, a: int, by: int) -> int:
        if by < 0:
            raise self.fault(Wrong.SHIFT, by)
        return a << min(by, 64)

    def _right(self, a: int, by: int) -> int:
        if by < 0:
            raise self.fault(Wrong.SHIFT, by)
        return a >> min(by, 64)


class _Walker:
    """`walker`, whose `step` is a number."""

    def __init__(self, run: _Run) -> None:
        self.start, self.at, self.previous, self.step, self.memory = (
            run.start,
            run.at,
            run.previous,
            run._step,
            run.memory,
        )


class _Memory:
    def __init__(self, run: _Run, places: int) -> None:
        self._run, self._values = run, [0] * places

    def _checked(self, place: int) -> int:
        if not 0 <= place < len(self._values):
            raise self._run.fault(Wrong.MEMORY, place)
        return place

    def __getitem__(self, place: int) -> int:
        return self._values[self._checked(place)]

    def __setitem__(self, place: int, value: int) -> None:
        self._values[self._checked(place)] = int(value)


_FAILING: dict[type[ast.operator], str] = {
    ast.FloorDiv: "_divided",
    ast.Mod: "_rest",
    ast.LShift: "_left",
    ast.RShift: "_right",
}


class _As64Bits(ast.NodeTransformer):
    """The same function with integers of 64 bits, counted loops and known lines."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if type(node.op) in _FAILING:
            return _call(
                "_cut", _call("_at_line", ast.Constant(node.lineno), _own(_FAILING[type(node.op)]), left, right)
            )
        return _call("_cut", ast.BinOp(left, node.op, right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return _call("_whole", ast.UnaryOp(node.op, operand))
        return _call("_cut", ast.UnaryOp(node.op, operand))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return _call("_whole", node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        read = copy.deepcopy(node.target)
        assert isinstance(read, (ast.Name, ast.Subscript))
        read.ctx = ast.Load()
        value = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
        return self.visit(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        place = _call("_returned", ast.Constant(node.lineno), self.visit(node.slice))
        return ast.Subscript(node.value, place, node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        arguments = [self.visit(a) for a in node.args]
        if isinstance(node.func, ast.Name):
            plain = ast.Call(node.func, arguments, [])
            return plain if node.func.id == "range" else _call("_cut", plain)
        return _call("_whole", _call("_at_line", ast.Constant(node.lineno), node.func, *arguments))

    def visit_While(self, node: ast.While) -> ast.stmt:
        test = ast.BoolOp(ast.And(), [_call("_turn", ast.Constant(node.lineno)), self.visit(node.test)])
        return ast.While(test, [self.visit(s) for s in node.body], [])

    def visit_For(self, node: ast.For) -> ast.stmt:
        values = _call("_each", ast.Constant(node.lineno), self.visit(node.iter))
        return ast.For(node.target, values, [self.visit(s) for s in node.body], [])

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        assert node.value is not None
        return ast.Return(_call("_returned", ast.Constant(node.lineno), self.visit(node.value)))


def _compiled(source: Source, run: _Run) -> Callable[..., Any]:
    tree = source.tree()
    tree.decorator_list, tree.returns = [], None
    for argument in tree.args.args:
        argument.annotation = None
    changed = ast.Module([_As64Bits().visit(tree)], [])
    code = compile(ast.fix_missing_locations(changed), source.file, "exec")
    own = {name: getattr(run, name) for name in ("_turn", "_each", "_at_line", "_returned", *_FAILING.values())}
    names: dict[str, Any] = {**dict(source.constants), **own, "_cut": _cut, "_whole": int}
    exec(code, names)
    function: Callable[..., Any] = names[tree.name]
    return function


def _own(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(_own(name), list(arguments), [])


def _cut(value: int) -> int:
    """To 64 bits, with a sign."""
    return (int(value) + 2**63) % 2**64 - 2**63


def _philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Philox 4x32-10 (Salmon et al., SC 2011)."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(_ROUNDS):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 // _WORD ^ c1 ^ k0, p1 % _WORD, p0 // _WORD ^ c3 ^ k1, p0 % _WORD
        k0, k1 = (k0 + 0x9E3779B9) % _WORD, (k1 + 0xBB67AE85) % _WORD
    return c0, c1, c2, c3
