"""A next of Python as C++ (csrc/walks/custom/walker.h), for the GPU's compiler and the system's."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from loader.samplers.walk_next.expressions import Expressions
from loader.samplers.walk_next.source import Source

_AUGMENTED = "=, +=, -=, *=, //=, %=, &=, |=, ^=, <<= and >>="


class Translated(NamedTuple):
    """C++ of a next.

    Attributes:
        text: a struct `loader::Next`.
        used: what it uses, e.g. "has_edge", "weight", "by_weight".
    """

    text: str
    used: frozenset[str]


def translated(source: Source, memory: int) -> Translated:
    """`source` in C++; walkers have `memory` integers.

    Raises:
        ValueError: a line cannot be translated; the message names it, and what can.
    """
    tree = source.tree()
    body = _Body(source, tree)
    body.run()
    variables = [f"v{i}" for i in range(body.slots)] + [f"t{i}" for i in range(body.out.most_temporaries)]
    frame = "".join(f" int64_t {name} = 0;" for name in variables)
    text = _STRUCT.format(
        memory=memory if "memory" in body.out.used else 0,
        frame=frame,
        body="\n".join(body.out.lines),
    )
    return Translated(text, frozenset(body.out.used))


_STRUCT = """\
namespace loader {{
struct Next {{
  static constexpr int kMemory = {memory};
  struct Frame {{
    uint32_t at = 0;
    int64_t result = 0;
   {frame}
  }};
  template <int Way, class Lists, class Walker>
  LOADER_HD static Reply run(const CustomRules& rules, const Lists& lists, Walker& walker, Frame& f) {{
    switch (Way == kAtOnce ? 0u : f.at) {{
      case 0:
{body}
    }}
    return Reply::kFailed;
  }}
}};
}}  // namespace loader
"""


class _Body:
    """The statements of one function.

    Attributes:
        slots: variables, those of loops included.
    """

    def __init__(self, source: Source, tree: ast.FunctionDef) -> None:
        self._tree = tree
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        variables = sorted(names)
        self.slots = len(variables)
        self.out = Expressions(source, [a.arg for a in tree.args.args], variables)
        self._loops: list[list[set[str]]] = []  # of each, what is known where it is left by break

    def run(self) -> None:
        body = self._tree.body
        if ast.get_docstring(self._tree) is not None:
            body = body[1:]
        if not self._statements(body):
            last = body[-1] if body else self._tree
            self.out.refuse(
                last,
                f"{self._tree.name} can end here without return; every way through it ends with 'return node' or "
                "'return -1'",
            )

    def _statements(self, body: Sequence[ast.stmt]) -> bool:
        """True if what follows is never reached."""
        for i, statement in enumerate(body):
            if self._statement(statement):
                if i + 1 < len(body):
                    self.out.refuse(body[i + 1], "this line is never reached")
                return True
        return False

    def _statement(self, node: ast.stmt) -> bool:
        self.out.begin_statement()
        if isinstance(node, ast.Assign):
            self._assign(node.targets, node.value)
        elif isinstance(node, ast.AugAssign):
            if any(
                isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) for part in ast.walk(node.target)
            ):
                self.out.refuse(node, f"{ast.unparse(node)}: put the place into a variable first")
            result = ast.BinOp(_as_read(node.target), node.op, node.value)
            self._assign([node.target], ast.fix_missing_locations(ast.copy_location(result, node)))
        elif isinstance(node, ast.If):
            return self._if(node)
        elif isinstance(node, ast.While):
            return self._while(node)
        elif isinstance(node, ast.For):
            self._for(node)
        elif isinstance(node, ast.Return):
            if node.value is None:
                self.out.refuse(node, "return without a value; return a node, or -1, which ends the walk")
            value = self.out.value(node.value)
            self.out.emit(f"LOADER_RETURN({node.lineno}, {value})")
            return True
        elif isinstance(node, (ast.Break, ast.Continue)):
            if isinstance(node, ast.Break):
                self._loops[-1].append(set(self.out.known))
            self.out.emit("break;" if isinstance(node, ast.Break) else "continue;")
            return True
        elif not isinstance(node, ast.Pass):
            self.out.refuse(
                node,
                f"{type(node).__name__} cannot be translated; a next may have {_AUGMENTED}, if, while, for i in "
                "range(...), break, continue, pass and return",
            )
        return False

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        result = self.out.value(value)
        if len(targets) > 1:
            self.out.refuse(targets[1], "a line sets one variable")
        (target,) = targets
        if isinstance(target, ast.Subscript):
            place = self.out.memory_place(target)
            self.out.emit(f"walker.memory[{place}] = {result};")
        elif isinstance(target, ast.Name):
            self._set(target)
            self.out.emit(f"{self.out.variable(target.id)} = {result};")
        else:
            self.out.refuse(target, f"{ast.unparse(target)} cannot be set; set a variable or walker.memory[i]")

    def _set(self, target: ast.Name) -> None:
        if self.out.is_parameter(target.id):
            self.out.refuse(target, f"{target.id} is given; give the variable another name")
        self.out.known.add(target.id)

    def _if(self, node: ast.If) -> bool:
        condition = self.out.condition(node.test)
        before = set(self.out.known)
        with self.out.block(f"if ({condition})"):
            ends = self._statements(node.body)
        after, self.out.known = self.out.known, before
        if not node.orelse:
            self.out.known = before if ends else before & after
            return False
        before = set(before)
        with self.out.block("else"):
            others_end = self._statements(node.orelse)
        if ends or others_end:
            self.out.known = self.out.known if ends else after
        else:
            self.out.known &= after
        return ends and others_end

    def _while(self, node: ast.While) -> bool:
        if node.orelse:
            self.out.refuse(node, "a loop with else cannot be translated")
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._loops.append([])
        with self.out.block("for (;;)"):
            self.out.emit(f"LOADER_TURN({node.lineno})")
            if not forever:
                self.out.emit(f"if (!{self.out.condition(node.test)}) break;")
            before = set(self.out.known)
            self._statements(node.body)
        left = self._loops.pop()
        if not forever:
            left.append(before)
        self.out.known = set.intersection(*left) if left else before
        return not left

    def _for(self, node: ast.For) -> None:
        call = node.iter
        if node.orelse:
            self.out.refuse(node, "a loop with else cannot be translated")
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        if not isinstance(call, ast.Call) or not is_range or not isinstance(node.target, ast.Name):
            self.out.refuse(node, "a loop is 'for i in range(...)' or 'while ...'")
        if call.keywords or not 1 <= len(call.args) <= 3:
            self.out.refuse(node, "range takes one to three integers")
        by = _literal(call.args[2]) if len(call.args) == 3 else 1
        if not by:
            self.out.refuse(node, f"{ast.unparse(call)}: the third number of range is written out, and not 0")
        values = [self.out.value(a) for a in call.args[:2]]
        begin, end = ("int64_t{0}", values[0]) if len(values) == 1 else values
        at, left = f"f.v{self.slots}", f"f.v{self.slots + 1}"
        self.slots += 2
        self.out.emit(f"{left} = static_cast<int64_t>(::loader::range_turns({begin}, {end}, {by}));")
        self.out.emit(f"{at} = {begin};")
        before = set(self.out.known)
        self._loops.append([])
        with self.out.block(f"for (; {left} != 0; --{left}, {at} = ::loader::wrap_add({at}, {by}))"):
            self.out.emit(f"LOADER_TURN({node.lineno})")
            self._set(node.target)
            self.out.emit(f"{self.out.variable(node.target.id)} = {at};")
            self._statements(node.body)
        self.out.known = set.intersection(before, *self._loops.pop())


def _literal(node: ast.expr) -> int:
    """The integer that is written there; 0 if there is none."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return 0
    return value if isinstance(value, int) and abs(value) < 2**62 else 0


def _as_read(target: ast.expr) -> ast.expr:
    """A target of `+=` where its value is read."""
    if isinstance(target, ast.Name):
        return ast.copy_location(ast.Name(target.id, ast.Load()), target)
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    return target
