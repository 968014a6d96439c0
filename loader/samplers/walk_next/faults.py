"""What a next did that it may not do while it ran: numbers, and what is said of them (csrc/walks/custom/walker.h)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Wrong(IntEnum):
    """`enum class Wrong` of the core."""

    NODE = 1
    PLACE = 2
    BOUND = 3
    EMPTY = 4
    DIVISION = 5
    SHIFT = 6
    MEMORY = 7
    TURNS = 8
    RETURNED = 9


_SAID = {
    Wrong.NODE: "it asks for node {value}; nodes are 0 to {last} (walker.previous is -1 at the first step)",
    Wrong.PLACE: "it asks for the neighbor at place {value}; a node has places 0 to lists.degree(v) - 1",
    Wrong.BOUND: (
        "draws.uniform({value}) has nothing to draw from; it takes 1 to 2**32 - 1. At a node without neighbors "
        "return -1, which ends the walk"
    ),
    Wrong.EMPTY: (
        "draws.by_weight({value}): this node has no neighbors by a weight above 0; return -1 where "
        "lists.degree(v) is 0, which ends the walk"
    ),
    Wrong.DIVISION: "it divides {value} by 0",
    Wrong.SHIFT: "it shifts by {value} bits; a shift is at least 0",
    Wrong.MEMORY: "it asks for walker.memory[{value}]; there are 0 to {places}, and Next(..., memory=n) gives it more",
    Wrong.TURNS: (
        "its loops took more than {value} turns in one step and were stopped; Next(..., turns=n) lets them take more"
    ),
    Wrong.RETURNED: "it returned {value}; it must return a node, 0 to {last}, or -1, which ends the walk",
}


class Fault(NamedTuple):
    """Where a next went wrong.

    Attributes:
        wrong: a `Wrong`.
        line: of the function, from 1; 0: not known.
        value: what the message names.
        row, step: of the walker and of its step, from 0.
    """

    wrong: int
    line: int
    value: int
    row: int
    step: int


class NextError(RuntimeError):
    """A function for the next node did what it may not do, for example it returned what is no node."""


def described(fault: Fault, where: str, num_nodes: int, memory: int) -> NextError:
    """The error that says what happened; `where` names the function or its line."""
    said = _SAID[Wrong(fault.wrong)].format(value=fault.value, last=num_nodes - 1, places=memory - 1)
    return NextError(f"{where}: {said}. It was at step {fault.step} of the walk in row {fault.row}")
