"""What was made of an object, kept for as long as that lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from torch import Tensor

Made = TypeVar("Made")


class Kept:
    """Makes things of an object once: the next who asks gets the same, while the object lives and is what it was."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[weakref.ref[Any], Hashable, dict[Hashable, Any]]] = {}

    def get(self, owner: Any, state: Hashable, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` makes, or made before for this owner, in this state, under this key.

        Args:
            owner: an object that can be referenced weakly. What is made must not refer to it, or both stay.
            state: what changes as the owner is changed; then all is made anew.
        """
        number = id(owner)
        reference, known, made = self._of.get(number, (None, None, {}))
        if reference is None or reference() is not owner or known != state:
            made = {}
            # The collector may call back at any time: this is one step of Python.
            self._of[number] = weakref.ref(owner, lambda _: self._of.pop(number, None)), state, made
        if key not in made:
            made[key] = make()
        found: Made = made[key]
        return found

    def __len__(self) -> int:
        return len(self._of)


def version_of(tensor: Tensor) -> int:
    """How often torch saw this tensor written to; -1 for one of inference mode, which does not count."""
    return -1 if tensor.is_inference() else tensor._version
