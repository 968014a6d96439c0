"""What was made of an object, kept for as long as that lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")


class Memo:
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

    def get_of(
        self,
        tensors: Sequence[Tensor],
        key: Hashable,
        make: Callable[[], Made],
        state_of: Callable[[Tensor], Hashable] | None = None,
    ) -> Made:
        """What `make` makes, or made before for all these tensors, while nobody writes to one of them.

        Args:
            state_of: what changes as a tensor is written to; by default `version_of`.
        """
        state_of, memo = state_of or version_of, self
        for tensor in tensors[:-1]:
            memo = memo.get(tensor, state_of(tensor), "next", Memo)
        return memo.get(tensors[-1], state_of(tensors[-1]), key, make)

    def __len__(self) -> int:
        return len(self._of)


def version_of(tensor: Tensor) -> int:
    """A number that changes when torch sees this tensor written to.

    Torch does not count writes to a tensor of inference mode. Its number follows from its values, which are read.
    """
    if not tensor.is_inference():
        return tensor._version
    if tensor.layout != torch.strided:
        return -1
    values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
    return -1 - int.from_bytes(blake2b(values.numpy().tobytes(), digest_size=8).digest(), "little")


class Seen(NamedTuple):
    """An object as it was, to see later whether it still is: a tensor with its version, or anything else."""

    value: Any
    version: int

    @classmethod
    def of(cls, value: Any) -> Seen:
        return cls(value, version_of(value) if isinstance(value, Tensor) else 0)

    def is_of(self, value: Any) -> bool:
        """Whether it is this object, and nobody wrote to it."""
        return self.value is value and self.version == Seen.of(value).version

    def has(self, value: Any) -> bool:
        """Whether it had these values, too; a module's or a graph's `to(device)` replaces tensors by copies."""
        if self.is_of(value):
            return True
        before = self.value
        if not (isinstance(before, Tensor) and isinstance(value, Tensor)) or not self.is_of(before):
            return False
        alike = before.device != value.device and before.dtype == value.dtype and before.shape == value.shape
        return alike and torch.equal(before.cpu(), value.cpu())
