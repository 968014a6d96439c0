"""What numbers, flags and tensors of the caller's have to be. A message is one line: name, value, limit."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from loader.machine.spelling import nearest_name

_SHOWN = 60  # characters of a value in a message


def as_size(name: str, size: int, least: int = 1, most: int | None = None) -> int:
    """`size` as an int of at least `least` and at most `most`; `name` is what the messages call it.

    Raises:
        TypeError: it is no integer.
        ValueError: it is out of that range.
    """
    number = as_index(size)
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
    number = as_index(value)
    if number is None:
        raise TypeError(f"{name} is {shown(value)}; it must be an integer")
    if not 0 <= number < 2**64:
        raise ValueError(f"{name} is {number}; it must be in [0, 2**64)")
    return number


def as_seed(seed: int) -> int:
    """`seed` as an int.

    Raises:
        TypeError: it is no integer.
        ValueError: it is not in `[0, 2**64)`.
    """
    return as_64_bits("seed", seed)


def as_flag(name: str, value: bool) -> bool:
    """`value` as a bool. Only True and False are taken, numpy's too, and the numbers 1 and 0: a word such as "no" would
    count as true.

    Raises:
        TypeError: it is anything else.
    """
    if isinstance(value, (bool, np.bool_)) or (as_index(value) in (0, 1)):
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


def as_finite(name: str, value: float, *, positive: bool = False) -> float:
    """`value` as a float that is finite and at least 0, or greater than 0 if it must be `positive`.

    Raises:
        TypeError: it is no number.
        ValueError: it is out of that range; NaN is.
    """
    number = as_number(name, value)
    if 0 <= number < math.inf and (number > 0 or not positive):
        return number
    raise ValueError(f"{name} is {value}; it must be {'greater than' if positive else 'at least'} 0 and finite")


def as_fraction(name: str, value: float) -> float:
    """`value` as a float in [0, 1).

    Raises:
        TypeError: it is no number.
        ValueError: it is out of that range; NaN is.
    """
    number = as_number(name, value)
    if 0 <= number < 1:
        return number
    raise ValueError(f"{name} is {value}; it must be in [0, 1)")


def check_dense(name: str, array: Tensor) -> None:
    """Raises ValueError unless `array` is an ordinary tensor.

    One that is sparse, nested or quantized is not, nor is a view whose numbers torch negates when it reads them.
    """
    if array.layout != torch.strided:
        raise ValueError(f"{name} has the layout {array.layout}; it must be dense: .to_dense()")
    if array.is_nested or array.is_quantized:
        kind, way = ("nested", "to_padded_tensor") if array.is_nested else ("quantized", "dequantize")
        raise ValueError(f"{name} is {kind}; it must be dense: .{way}()")
    if array.is_conj() or array.is_neg():
        kind, way = ("conjugate", "resolve_conj") if array.is_conj() else ("negative", "resolve_neg")
        raise ValueError(f"{name} is a {kind} view of other numbers in memory; give a copy: .{way}()")


def shown(value: Any) -> str:
    """`value` for a message of one line: as it is written or, if that is long, its type."""
    text = repr(value)
    return text if len(text) <= _SHOWN and "\n" not in text else kind_of(value)


def kind_of(value: Any) -> str:
    """What `value` is, for a message: "None", "an int", "a Tensor", "the class Graph"."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeio' or name == 'ndarray' else 'a'} {name}"


def instead_of(word: str, known: Collection[str], verb: str = "knows") -> str:
    """The end of a message on a `word` that is none of the `known` ones: the one spelt nearly like it, or all."""
    found = nearest_name(word, known)
    return f"did you mean {found}?" if found else f"it {verb} {', '.join(known)}"


def check_known(who: str, given: Iterable[str], known: Collection[str], ways: Mapping[str, str] | None = None) -> None:
    """Raises TypeError for a name that is no option of `who`. `ways`: of names that users take for one, the way out."""
    for name in given:
        if name not in known:
            raise TypeError(f"{name} is no option of {who}; {(ways or {}).get(name) or instead_of(name, known)}")


def as_index(value: Any) -> int | None:
    """`value` as an int; None if it is no integer, or a truth value."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
