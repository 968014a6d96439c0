"""The thresholds that decide a walk, as integers: CPU and GPU compare random words with them (csrc/walks/walk.h)."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any, NamedTuple

from loader.machine.arguments import as_finite, as_number

_WORD = 2**32
_MOST_EXTRA = 2**64 - 2**33  # of the core's 64 bits


class WalkLaw(NamedTuple):
    """Thresholds of 32-bit words.

    Attributes:
        stop_below: a walk ends at a word below this,
        home_below: else it goes back to its start at a word below this.
        accept: None for the first order; of the second order, a neighbor is accepted at a word that is at most this:
            the node before, one that is listed there, any other.
        folded: the same thresholds, and the mass that the way back has beyond the larger one of the others, see
            csrc/walks/second_order.h; for steps that do not go by weight.
    """

    stop_below: int
    home_below: int
    accept: tuple[int, int, int] | None
    folded: tuple[int, int, int, int] | None

    @property
    def sifts(self) -> bool:
        """Whether it matters which neighbors the node before has."""
        return self.accept is not None and self.accept[1] != self.accept[2]

    def searches(self, *, weighted: bool) -> bool:
        """Whether walks search in lists."""
        return self.sifts or (self.folded is not None and not weighted)

    def acceptance(self, *, weighted: bool) -> tuple[int, int, int, int] | None:
        """The numbers for the core."""
        return self.folded if self.accept is None or not weighted else (*self.accept, 0)


def walk_law(p: Any, q: Any, stop: Any, restart: Any) -> WalkLaw:
    """The thresholds of these parameters, see `WalkSampler`.

    Raises:
        TypeError, ValueError: one of them is out of its range.
    """
    stop_below = _below("stop", stop)
    home_below = stop_below + _below("restart", restart)
    if home_below > _WORD:
        raise ValueError(f"stop and restart are {stop} and {restart}; together they must be at most 1")
    accept = _acceptance(p, q)
    return WalkLaw(stop_below, home_below, accept, None if accept is None else _folded(p, q, accept))


def edge_type(value: Any) -> int:
    """`value` as a type of edges; TypeError or ValueError if it is none."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"metapath holds {value!r}; it must be integers, as graph.edge_types") from None
    if not 0 <= number < 2**31:
        raise ValueError(f"metapath holds {number}; a type is a number from 0 to {2**31 - 1}")
    return number


def _below(name: str, probability: Any) -> int:
    number = as_number(name, probability)
    if not 0 <= number < 1 or round(Fraction(number) * _WORD) == _WORD:
        raise ValueError(f"{name} is {probability}; it must be at least 0 and less than 1 - 2**-33")
    return round(Fraction(number) * _WORD)


def _acceptance(p: Any, q: Any) -> tuple[int, int, int] | None:
    """Each of the weights 1/p, 1 and 1/q as a share of the largest, in 2**-32, less one."""
    numbers = [Fraction(as_finite(name, value, positive=True)) for name, value in (("p", p), ("q", q))]
    weights = 1 / numbers[0], Fraction(1), 1 / numbers[1]
    most = max(weights)
    back, common, far = (round(weight / most * _WORD) - 1 for weight in weights)
    if min(back, common, far) < 0:
        raise ValueError(
            f"p and q are {p} and {q}; of 1/p, 1 and 1/q the largest must be less than 2**33 times the least"
        )
    return None if p == 1 and q == 1 else (back, common, far)


def _folded(p: Any, q: Any, accept: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """The same as shares of the larger of 1 and 1/q, and the mass that 1/p has beyond that, in 2**-32."""
    most = max(Fraction(1), 1 / Fraction(float(q)))
    extra = round((1 / Fraction(float(p)) / most - 1) * _WORD)
    if extra <= 0:
        return (*accept, 0)
    common, far = (round(weight / most * _WORD) - 1 for weight in (Fraction(1), 1 / Fraction(float(q))))
    return _WORD - 1, common, far, min(extra, _MOST_EXTRA)
