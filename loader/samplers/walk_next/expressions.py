"""Expressions of a next, translated to C++: what reads, draws or may fail becomes a statement of its own.

Those come in the order in which Python does them; what is left has no effects. `Way`, `walker`, `rules` and `f` are
names in csrc/walks/custom/walker.h.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from loader.samplers.walk_next.source import INTEGERS, Source

_WRAPPING = {ast.Add: "wrap_add", ast.Sub: "wrap_sub", ast.Mult: "wrap_mul"}
_BITS = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
_CHECKED = {
    ast.FloorDiv: ("LOADER_DIVIDE", "floor_div"),
    ast.Mod: ("LOADER_DIVIDE", "floor_mod"),
    ast.LShift: ("LOADER_SHIFT", "shift_left"),
    ast.RShift: ("LOADER_SHIFT", "shift_right"),
}
_COMPARED = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_WALKER = ("at", "previous", "start", "step")
# What may be called: its macro, the number of places where it gives way, of arguments, and how it is written.
_CALLS = {
    "lists": {
        "degree": ("LOADER_DEGREE", 1, 1, "lists.degree(v)"),
        "neighbor": ("LOADER_NEIGHBOR", 2, 2, "lists.neighbor(v, i)"),
        "has_edge": ("LOADER_HAS_EDGE", 4, 2, "lists.has_edge(u, v)"),
        "weight": ("LOADER_WEIGHT", 2, 2, "lists.weight(v, i)"),
    },
    "draws": {
        "uniform": ("LOADER_UNIFORM", 1, 1, "draws.uniform(n)"),
        "accept": ("LOADER_WORD", 1, 1, "draws.accept(chance)"),
        "word": ("LOADER_WORD", 1, 0, "draws.word()"),
        "by_weight": ("LOADER_BY_WEIGHT", 3, 1, "draws.by_weight(v)"),
    },
}
_METHODS = {owner: ", ".join(call[3] for call in calls.values()) for owner, calls in _CALLS.items()}


class Expressions:
    """Writes the statements that expressions need, and gives what is left of each.

    Attributes:
        lines: of C++, so far.
        used: names of calls, e.g. "has_edge".
        known: variables that certainly have a value here.
    """

    def __init__(self, source: Source, parameters: Sequence[str], variables: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.used: set[str] = set()
        self.known: set[str] = set()
        self.most_temporaries = 0
        self._source = source
        self._roles = dict(zip(parameters, ("walker", "lists", "draws"), strict=True))
        self._variables = {name: f"f.v{i}" for i, name in enumerate(variables)}
        self._constants = {name: f"rules.constants[{i}]" for i, (name, _) in enumerate(source.constants)}
        self._temporaries = self._places = self._depth = 0

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        """Raises ValueError for a line that cannot be translated."""
        raise ValueError(f"{self._source.at(getattr(node, 'lineno', 1))}: {what}")

    def emit(self, line: str) -> None:
        self.lines.append("  " * (self._depth + 3) + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is written inside stands in braces behind `head`."""
        self.emit(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.emit("}")

    def begin_statement(self) -> None:
        """Temporaries of the one before are free."""
        self._temporaries = 0

    def role(self, node: ast.expr) -> str | None:
        """ "walker", "lists" or "draws" if the expression is that parameter."""
        return self._roles.get(node.id) if isinstance(node, ast.Name) else None

    def is_parameter(self, name: str) -> bool:
        return name in self._roles

    def variable(self, name: str) -> str:
        return self._variables[name]

    def value(self, node: ast.expr) -> str:
        """The expression as one of C++, of type int64_t and without effects."""
        if isinstance(node, ast.Constant):
            return self._number(node)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._held(f"walker.memory[{self.memory_place(node)}]")
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
            operand = self.value(node.operand)
            if isinstance(node.op, ast.USub):
                return f"::loader::wrap_sub(0, {operand})"
            return operand if isinstance(node.op, ast.UAdd) else f"(~{operand})"
        if isinstance(node, (ast.UnaryOp, ast.Compare)):
            return f"int64_t{{{self.condition(node)}}}"
        if isinstance(node, ast.BoolOp):
            return self._choice_of(node)
        if isinstance(node, ast.IfExp):
            return self._either(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        self.refuse(
            node,
            f"{_named(node)} cannot be translated; there are integers, variables, + - * // % & | ^ << >> ~, "
            "comparisons, and, or, not, x if y else z, min, max, abs, and what walker, lists and draws have",
        )

    def condition(self, node: ast.expr) -> str:
        """The expression as a bool of C++, in parentheses."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"(!{self.condition(node.operand)})"
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, ast.BoolOp):
            return self._joined(node)
        return f"({self.value(node)} != 0)"

    def memory_place(self, node: ast.Subscript) -> str:
        """The place in `walker.memory[place]`, checked."""
        owner = node.value
        if not (isinstance(owner, ast.Attribute) and owner.attr == "memory" and self.role(owner.value) == "walker"):
            self.refuse(node, "only walker.memory has places in brackets")
        if isinstance(node.slice, ast.Slice):
            self.refuse(node, "walker.memory[i] is one integer; slices of it cannot be translated")
        self.used.add("memory")
        place = self._held(self.value(node.slice))
        self.emit(f"LOADER_MEMORY({node.lineno}, {place})")
        return place

    def _temporary(self) -> str:
        self._temporaries += 1
        self.most_temporaries = max(self.most_temporaries, self._temporaries)
        return f"f.t{self._temporaries - 1}"

    def _held(self, value: str) -> str:
        temporary = self._temporary()
        self.emit(f"{temporary} = {value};")
        return temporary

    def _place(self) -> str:
        self._places += 1
        return str(self._places)

    def _number(self, node: ast.Constant) -> str:
        if not isinstance(node.value, int):
            what = f"{node.value!r} is a {type(node.value).__name__}"
            self.refuse(node, f"{what}; a next computes with integers only (loader.Next.chance for probabilities)")
        if node.value not in INTEGERS:
            self.refuse(node, f"{node.value} is too large; integers have 64 bits")
        return f"int64_t{{{int(node.value)}}}"

    def _name(self, node: ast.Name) -> str:
        if node.id in self._roles:
            self.refuse(node, f"{node.id} is no number: use what it has, e.g. walker.at")
        if node.id in self._variables:
            if node.id not in self.known:
                self.refuse(node, f"{node.id} may have no value here; set it before, on every way to this line")
            return self._variables[node.id]
        if node.id in self._constants:
            return self._constants[node.id]
        self.refuse(node, f"{node.id} is a function, which must be called")

    def _attribute(self, node: ast.Attribute) -> str:
        role = self.role(node.value)
        if role == "walker" and node.attr in _WALKER:
            return f"int64_t{{walker.{node.attr}}}"
        if role == "lists" and node.attr == "num_nodes":
            return "lists.num_nodes"
        if role == "walker":
            self.refuse(node, f"walker has no {node.attr}; it has {', '.join(_WALKER)} and memory[i]")
        if role is not None:
            more = "num_nodes, " if role == "lists" else ""
            self.refuse(node, f"{role} has no {node.attr} that is a number; there are {more}{_METHODS[role]}")
        self.refuse(node, f"{ast.unparse(node)} cannot be read; put the integer into a variable of its own")

    def _arithmetic(self, node: ast.BinOp) -> str:
        kind = type(node.op)
        left = self.value(node.left)
        right = self.value(node.right)
        if kind in _WRAPPING:
            return f"::loader::{_WRAPPING[kind]}({left}, {right})"
        if kind in _BITS:
            return f"({left} {_BITS[kind]} {right})"
        if kind in _CHECKED:
            macro, how = _CHECKED[kind]
            to = self._temporary()
            self.emit(f"{macro}({to}, {how}, {node.lineno}, {left}, {right})")
            return to
        self.refuse(
            node,
            f"{ast.unparse(node)}: only + - * // % & | ^ << >> of integers are possible (// divides; there is no **)",
        )

    def _compared(self, node: ast.Compare) -> str:
        parts = []
        left = self.value(node.left)
        for i, (op, operand) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if type(op) not in _COMPARED:
                self.refuse(node, f"{ast.unparse(node)}: only == != < <= > >= compare integers")
            if i == 0:
                right = self.value(operand)
            else:
                # Python works it out only if what came before holds.
                right, lines = self._aside(operand)
                if lines:
                    self.refuse(node, f"{ast.unparse(node)}: write it as two comparisons with 'and'")
            parts.append(f"{left} {_COMPARED[type(op)]} {right}")
            left = right
        return f"({' && '.join(f'({part})' for part in parts) if len(parts) > 1 else parts[0]})"

    def _aside(self, node: ast.expr) -> tuple[str, list[str]]:
        """What is left of an expression, and the statements that it needs, which are not written."""
        before, self.lines = self.lines, []
        value = self.value(node)
        lines, self.lines = self.lines, before
        return value, lines

    def _joined(self, node: ast.BoolOp) -> str:
        """`and`, `or` where only their truth matters."""
        holds = isinstance(node.op, ast.And)
        joint = " && " if holds else " || "
        first = self.condition(node.values[0])
        for operand in node.values[1:]:
            before, self.lines = self.lines, []
            self._depth += 1
            condition = self.condition(operand)
            self._depth -= 1
            lines, self.lines = self.lines, before
            if not lines:
                first = f"({first}{joint}{condition})"
                continue
            truth = self._held(f"int64_t{{{first}}}")
            self.emit(f"if ({truth} {'!=' if holds else '=='} 0) {{")
            self.lines += lines
            self.emit(f"  {truth} = int64_t{{{condition}}};")
            self.emit("}")
            first = f"({truth} != 0)"
        return first

    def _choice_of(self, node: ast.BoolOp) -> str:
        """`and`, `or` as values: the first operand that decides."""
        sign = "!=" if isinstance(node.op, ast.And) else "=="
        result = self._held(self.value(node.values[0]))
        for operand in node.values[1:]:
            self.emit(f"if ({result} {sign} 0) {{")
            self._depth += 1
            self.emit(f"{result} = {self.value(operand)};")
        for _ in node.values[1:]:
            self._depth -= 1
            self.emit("}")
        return result

    def _either(self, node: ast.IfExp) -> str:
        condition = self.condition(node.test)
        result = self._temporary()
        with self.block(f"if ({condition})"):
            self.emit(f"{result} = {self.value(node.body)};")
        with self.block("else"):
            self.emit(f"{result} = {self.value(node.orelse)};")
        return result

    def _call(self, node: ast.Call) -> str:
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            self.refuse(node, f"{ast.unparse(node)}: arguments stand in their order, without names or stars")
        if isinstance(node.func, ast.Name):
            return self._builtin(node, node.func.id)
        role = self.role(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if role not in _CALLS or not isinstance(node.func, ast.Attribute):
            self.refuse(node, f"{ast.unparse(node.func)} cannot be called; there are {', '.join(_METHODS.values())}")
        name = node.func.attr
        if name not in _CALLS[role]:
            self.refuse(node, f"{role} has no {name}; there are {_METHODS[role]}")
        macro, places, count, form = _CALLS[role][name]
        if len(node.args) != count:
            self.refuse(node, f"{ast.unparse(node)} has {len(node.args)} arguments; write {form}")
        self.used.add(name)
        arguments = [self.value(a) for a in node.args]
        to = self._temporary()
        waits = [self._place() for _ in range(places)]
        line = [] if macro == "LOADER_WORD" else [str(node.lineno)]
        given = [] if name == "accept" else arguments
        self.emit(f"{macro}({', '.join([to, *waits, *line, *given])})")
        return f"int64_t{{{to} < {arguments[0]}}}" if name == "accept" else to

    def _builtin(self, node: ast.Call, name: str) -> str:
        if name == "abs" and len(node.args) == 1:
            return f"::loader::absolute({self.value(node.args[0])})"
        if name in ("min", "max") and len(node.args) >= 2:
            result, *others = (self.value(a) for a in node.args)
            for other in others:
                result = f"::loader::{'least' if name == 'min' else 'most'}({result}, {other})"
            return result
        if name == "range":
            self.refuse(node, "range stands in 'for i in range(...)' only")
        if name in ("min", "max", "abs"):
            self.refuse(node, f"{ast.unparse(node)}: min and max take two integers or more, abs one")
        self.refuse(node, f"{name} cannot be called; a next may call min, max, abs and what lists and draws have")


def _named(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}..."
