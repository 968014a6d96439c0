"""Arguments that had another name in the release before, or are no longer there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

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
        renamed_arguments(names)(made)
        for old, new in names.items():
            setattr(made, old, _old_attribute(made, old, new))
        return made

    return decorate


def renamed_arguments(names: Mapping[str, str]) -> Callable[[Function], Function]:
    """Lets a function take its arguments by their old names, too, as `renamed` does for a class.

    Of a class, it does so for `__init__` and leaves attributes alone, which a class derived from it may have.
    """

    def decorate(function: Function) -> Function:
        if isinstance(function, type):
            function.__init__ = _init_taking_old_names(function, names)  # type: ignore[misc]
            return function

        @wraps(function)
        def take(*arguments: Any, **options: Any) -> Any:
            _rename(options, function.__name__, names)
            return function(*arguments, **options)

        return cast("Function", take)

    return decorate


def removed_arguments(reasons: Mapping[str, str]) -> Callable[[Function], Function]:
    """Lets a function name the way out if it gets an argument that it had in the release before.

    Args:
        reasons: name -> what the TypeError says of it, and what to do.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def refuse(*arguments: Any, **options: Any) -> Any:
            for name in reasons.keys() & options.keys():
                raise TypeError(f"{name} of {function.__name__} was removed in 0.2: {reasons[name]}")
            return function(*arguments, **options)

        return cast("Function", refuse)

    return decorate


def _init_taking_old_names(made: Any, names: Mapping[str, str]) -> Any:
    init = made.__init__

    # Lightning's save_hyperparameters goes through the frames of `__init__`, which it knows by this name and by a
    # `__class__`. Without them it would stop here, and miss the arguments of a derived class.
    @wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        __class__ = object  # noqa: F841
        _rename(kwargs, made.__name__, names)
        init(self, *args, **kwargs)

    return __init__


def _rename(options: dict[str, Any], of: str, names: Mapping[str, str]) -> None:
    for old in names.keys() & options.keys():
        new = names[old]
        if new in options:
            raise TypeError(f"{old} is the old name of {new}, which is given, too; leave out {old}")
        _warn(of, old, new, stacklevel=4)
        options[new] = options.pop(old)


def _old_attribute(of: type, old: str, new: str) -> property:
    def read(self: Any) -> Any:
        _warn(of.__name__, old, new, stacklevel=3)
        return getattr(self, new)

    return property(read, doc=f"The old name of `{new}`.")


def _warn(of: str, old: str, new: str, stacklevel: int) -> None:
    warnings.warn(
        f"{of} has {new} in place of {old}; the old name goes with the next release",
        FutureWarning,
        stacklevel=stacklevel,
    )
