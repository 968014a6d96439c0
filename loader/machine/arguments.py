"""What a number or a flag of the caller's has to be. Each message is one line: the name, the value, the limit."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

_SHOWN = 60  # characters of a value in a message


def as_size(name: str, size: int, least: int = 1, most: int | None = None) -> int:
    """`size` as an int of at least `least` and at most `most`; `name` is what the messages call it.

    Raises:
        TypeError: it is no integer.
        ValueError: it is out of that range.
    """
    number = _index(size)
    if number is None:
        raise TypeError(f"{name} is {shown(size)}; it must be an integer of at least {least}")
    if number < least:
        raise ValueError(f"{name} is {number}; it must be at least {least}")
    if most is not None and number > most:
        raise ValueError(f"{name} is {number}; it must be at most {most}")
    return number


def as_64_bits(name: str, value: int) -> int:
    """`value` as an int in `[0, 2**64)`: a part of the key that random numbers are drawn by.

    Raises:
        TypeError: it is no integer.
        ValueError: it is out of that range.
    """
    number = _index(value)
    if number is None:
        raise TypeError(f"{name} is {shown(value)}; it must be an integer")
    if not 0 <= number < 2**64:
        raise ValueError(f"{name} is {number}; it must be in [0, 2**64)")
    return number


def as_seed(seed: int) -> int:
    """`seed` as an int; raises as `as_64_bits`."""
    return as_64_bits("seed", seed)


def as_flag(name: str, value: bool) -> bool:
    """`value` as a bool. Only True and False are taken, numpy's too, and the numbers 1 and 0: a word such as "no" would
    count as true.

    Raises:
        TypeError: it is anything else.
    """
    if isinstance(value, (bool, np.bool_)) or (_index(value) in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} is {shown(value)}; it must be True or False")


def as_number(name: str, value: float) -> float:
    """`value` as a float, which may be NaN or infinite.

    Raises:
        TypeError: it is no number.
    """
    if hasattr(value, "__float__") and not isinstance(value, (bool, np.bool_)):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # an array of several, an int beyond all floats
            pass
    raise TypeError(f"{name} is {shown(value)}; it must be a number")


def shown(value: Any) -> str:
    """`value` for a message of one line: as it is written or, if that is long, its type."""
    text = repr(value)
    return text if len(text) <= _SHOWN and "\n" not in text else f"a {type(value).__name__}"


def _index(value: Any) -> int | None:
    """`value` as an int; None if it is no integer, or a truth value."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
