"""`Next`: a function that says where a walker goes next."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import torch

from loader.kernels.compiler import add_source
from loader.kernels.host import function_of
from loader.machine.arguments import as_flag, as_number, as_size, kind_of, shown
from loader.samplers.walk_next.faults import Fault, NextError, described
from loader.samplers.walk_next.source import INTEGERS, MOST_CONSTANTS, Source, source_of
from loader.samplers.walk_next.translate import translated

MOST_MEMORY = 64  # csrc/walks/custom/walker.h
MOST_TURNS = 2**32 - 1
_READS = ("has_edge", "weight", "by_weight")
_TYPES = {torch.int32: "int32_t", torch.int64: "int64_t"}


class Next:
    """Where a walker goes next, by a function of your own: `loader.random_walk(graph, starts, 80, next=function)`.

    The function is translated and compiled, for the CPU by the system's C++ compiler when a sampler is opened, for a
    GPU by NVRTC, once: what was compiled is kept on disk, as GPU kernels are. The walks are the same on both, and with
    `compiled=False`, which has Python run the function. The example goes back with half the probability of the others::

        def next(walker, lists, draws):
            degree = lists.degree(walker.at)
            if degree == 0:
                return -1
            while True:
                x = lists.neighbor(walker.at, draws.uniform(degree))
                if x != walker.previous or draws.accept(HALF):
                    return x

    where `HALF = loader.Next.chance(0.5)` stands in its module. It returns a node, listed or not, or -1, which ends
    the walk. It sees:

    - `walker.at`, `walker.previous` (-1 at the first step), `walker.start`, `walker.step` (from 0), and
      `walker.memory[i]`, integers that the walker keeps, 0 at first;
    - `lists.degree(v)`; `lists.neighbor(v, i)` with `0 <= i < degree`; `lists.has_edge(u, v)`, whether v is listed at
      u; `lists.weight(v, i)`, the weight of that edge as an integer from 1 to 2**32 - 1, which is the largest of the
      graph; `lists.num_nodes`;
    - `draws.uniform(n)`, one of 0 to n - 1, all alike, exactly, `1 <= n < 2**32`; `draws.accept(chance)`, true with
      probability `chance / 2**32`; `draws.word()`, 32 random bits; `draws.by_weight(v)`, a neighbor of v with a
      probability in proportion to the weight of its edge, by one read.

    Weights need `weights="edge_weights"` beside `next`; then edges of weight 0 count as absent. Draws are a walker's
    own stream of words, a pure function of (seed, epoch, batch, row): to draw a neighbor by `uniform` gives
    the walks of `WalkSampler` without options, by `by_weight` those of `weights`.

    Numbers are integers of 64 bits that wrap around. There are `= += if elif else while for i in range(...) break
    continue pass return`, `+ - * // % & | ^ << >> ~`, comparisons, `and or not`, `x if y else z`, `min max abs`, and
    names of integers around the function, whose values are read when it is given. Other lines are refused by name. If
    the function does what it may not do while it runs (it returns what is no node, divides by 0, never ends), the
    call raises `NextError` with its line, and there are no walks.

    Two `Next` of the same text and numbers are equal; they can be pickled.

    Args:
        function: of Python, with three parameters, or its text.
        memory: length of `walker.memory`, 1 to 64; it costs 8 bytes of a walker each if the function uses it.
        turns: of the function's loops in one step, at most, 1 to 2**32 - 1; more are an error.
        compiled: False: Python runs the function, on the CPU, about a thousand times slower; to look for errors.

    Raises:
        TypeError, ValueError: an argument is not as said above, or a line of the function cannot be translated; the
            message names the line, and what can be.
    """

    def __init__(
        self, function: Callable[..., Any] | str, *, memory: int = 8, turns: int = 2**24, compiled: bool = True
    ) -> None:
        self.memory = as_size("memory", memory, most=MOST_MEMORY)
        self.turns = as_size("turns", turns, most=MOST_TURNS)
        self.compiled = as_flag("compiled", compiled)
        source = source_of(function)
        made = translated(source, self.memory)
        self._source: Source | None = source
        self.name, self.constants, self.uses = source.tree().name, source.constants, made.used & set(_READS)
        self._text = f'#include "walks/custom/walker.h"\n{made.text}'

    @classmethod
    def cpp(cls, text: str, *, constants: Mapping[str, int] | None = None, memory: int = 8) -> Next:
        """Makes a `Next` of a body in C++: `Next.cpp("return lists.neighbor(walker.at, draws.uniform(3));")`.

        `walker`, `lists` and `draws` are as in Python, numbers are `int64_t`. It is compiled as it is: that it ends and
        divides by no 0 is up to you, and there is no slow version to compare with. A node or place that is not there
        is an error as ever.

        Args:
            text: the body, which returns a node or -1.
            constants: integers by the names that the body has for them; another value compiles nothing anew.
            memory: length of `walker.memory`.
        """
        if not isinstance(text, str):
            raise TypeError(f"text is {kind_of(text)}; it must be C++, the body of a function")
        made = cls.__new__(cls)
        made.memory, made.turns, made.compiled = as_size("memory", memory, most=MOST_MEMORY), MOST_TURNS, True
        made._source, made.name = None, "next (C++)"
        made.constants = tuple(sorted((constants or {}).items()))
        if len(made.constants) > MOST_CONSTANTS:
            raise ValueError(f"there are {len(made.constants)} constants; at most {MOST_CONSTANTS} are possible")
        if not text.strip():
            raise ValueError(f"text is {shown(text)}; it must be C++, the body of a function, e.g. 'return -1;'")
        for name, value in made.constants:
            if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or type(value) is not int or value not in INTEGERS:
                raise ValueError(f"constants has {name!r}: {value!r}; they are names and integers of 64 bits")
        made.uses = frozenset(word for word in _READS if re.search(rf"\b{word}\b", text))
        names = "".join(f"    const int64_t {name} = constants[{i}];\n" for i, (name, _) in enumerate(made.constants))
        made._text = _PLAIN.format(memory=made.memory, names=names, text=text)
        return made

    @staticmethod
    def chance(probability: float) -> int:
        """A probability from 0 to 1 as the integer that `draws.accept` takes: to the nearest multiple of 2**-32."""
        number = as_number("probability", probability)
        if not 0 <= number <= 1:
            raise ValueError(f"probability is {probability}; it must be from 0 to 1")
        return round(Fraction(number) * 2**32)

    @property
    def source(self) -> Source | None:
        """The Python function that was given; None if it was C++."""
        return self._source

    @property
    def cplusplus(self) -> str:
        """The C++ that is compiled: a struct `loader::Next` (csrc/walks/custom/walker.h)."""
        return self._text

    @property
    def values(self) -> list[int]:
        """The values of the function's constants."""
        return [value for _, value in self.constants]

    @property
    def searches(self) -> bool:
        """Whether the function asks for edges between nodes."""
        return "has_edge" in self.uses

    @property
    def weighs(self) -> bool:
        """Whether the function needs edge weights."""
        return bool({"weight", "by_weight"} & self.uses)

    def spec(self) -> dict[str, Any]:
        """All settings of the function that decide the walks."""
        text = self._text if self._source is None else self._source.text
        return {"text": text, "constants": dict(self.constants), "memory": self.memory, "turns": self.turns}

    def cpu_function(self, edges: torch.dtype, nodes: torch.dtype) -> int:
        """The address of the compiled function (csrc/walks/custom/call.h) for graphs of these types.

        Raises:
            NoCompilerError: there is no C++ compiler.
            CompilationError: the C++ does not compile.
        """
        text = f'#include "walks/custom/walkers.h"\n{self._text}'
        types = f"{_TYPES[edges]}, {_TYPES[nodes]}"
        return function_of(
            self._header("h", text),
            text,
            f"LOADER_WALK_CUSTOM({types})",
            "loader_walk_custom",
            f"{self.name} for walks",
        )

    def gpu_header(self) -> str:
        """The name of the header that the GPU's kernel is compiled from (csrc/walks/cuda/custom.cuh)."""
        text = f'#include "walks/cuda/custom.cuh"\n{self._text}'
        header = self._header("cuh", text)
        add_source(header, text)
        return header

    def error(self, fault: Fault, num_nodes: int) -> NextError:
        """The error to raise for a fault on a graph of `num_nodes` nodes."""
        where = self._source.at(fault.line) if self._source is not None and fault.line else self.name
        return described(fault, where, num_nodes, self.memory)

    def _header(self, kind: str, text: str) -> str:
        return f"next/{hashlib.sha256(text.encode()).hexdigest()[:40]}.{kind}"

    def _identity(self) -> tuple[Any, ...]:
        return self._text, self._source, self.constants, self.memory, self.turns, self.compiled

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Next) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return f"Next({self.name})"


def as_next(given: Any) -> Next:
    """`given`, which is one, a function or its text."""
    return given if isinstance(given, Next) else Next(given)


_PLAIN = """\
#include "walks/custom/cpp_next_arguments.h"
namespace loader {{
struct Next {{
  static constexpr int kMemory = {memory};
  struct Frame {{
    uint32_t at = 0;
    int64_t result = 0;
  }};
  template <class W, class L, class D>
  LOADER_HD static int64_t next(const int64_t* constants, W& walker, L& lists, D& draws) {{
{names}#line 1 "next"
    {text}
  }}
  template <int Way, class Lists, class Walker>
  LOADER_HD static Reply run(const CustomRules& rules, const Lists& lists, Walker& walker, Frame& f) {{
    LOADER_RUN_PLAIN(next)
  }}
}};
}}  // namespace loader
"""
