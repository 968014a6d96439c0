"""Arguments that had another name in the release before."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])


def renamed(names: Mapping[str, str]) -> Callable[[Class], Class]:
    """Lets a class take its arguments, and give its attributes, by their old names, too.

    Each use of an old name gives one FutureWarning. Signatures have the new names only.

    Args:
        names: old name -> new one, of an argument of `__init__` by keyword and of an attribute.

    Raises:
        TypeError: from `__init__`, if it gets an argument by both names.
    """

    def decorate(made: Class) -> Class:
        made.__init__ = _taking_old_names(made.__init__, made.__name__, names)  # type: ignore[misc]
        for old, new in names.items():
            setattr(made, old, _old_attribute(made, old, new))
        return made

    return decorate


def renamed_arguments(names: Mapping[str, str]) -> Callable[[Function], Function]:
    """Lets a function take its arguments by their old names, too, as `renamed` does for a class."""

    def decorate(function: Function) -> Function:
        made: Function = _taking_old_names(function, function.__name__, names)
        return made

    return decorate


def _taking_old_names(function: Any, of: str, names: Mapping[str, str]) -> Any:
    @wraps(function)
    def take(*arguments: Any, **options: Any) -> Any:
        for old in names.keys() & options.keys():
            new = names[old]
            if new in options:
                raise TypeError(f"{old} is the old name of {new}, which is given, too; leave out {old}")
            _warn(of, old, new)
            options[new] = options.pop(old)
        return function(*arguments, **options)

    return take


def _old_attribute(of: type, old: str, new: str) -> property:
    def read(self: Any) -> Any:
        _warn(of.__name__, old, new)
        return getattr(self, new)

    return property(read, doc=f"The old name of `{new}`.")


def _warn(of: str, old: str, new: str) -> None:
    warnings.warn(
        f"{of} has {new} in place of {old}; the old name goes with the next release",
        FutureWarning,
        stacklevel=3,
    )
