"""What a store can do besides returning rows. Stages and loaders ask this, and not which class a store is of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from loader.machine.arguments import kind_of


class Abilities(NamedTuple):
    """What a store says in its attribute `can`. A store without the attribute only gathers.

    Attributes:
        lazy: it has `lazy_rows(ids)`. A loader does not gather, and the first layer of the model reads the rows where
            they are kept.
        collective: it has `open_exchange()` and `gather_together(group, exchange)`. All processes of the run gather
            together, a group of mini-batches at a time.
        together: number of mini-batches in one collective gather, 1 by default.
        announced: number of gathers that a prefetching loader announces in one call of `begin_together(group)`, which
            the store then has. 0, the default: none.
        begun: it has `begin(ids)`, which returns what finishes the gather. A loader begins the next gather before it
            finishes one.
    """

    lazy: bool = False
    collective: bool = False
    together: int = 1
    announced: int = 0
    begun: bool = False


class Exchange(Protocol):
    """The groups of processes that gather together for one loader."""

    def close(self) -> None:
        """Leaves the groups."""


class AbleStore(Protocol):
    """The methods behind `Abilities`; a store has those of what it can."""

    def lazy_rows(self, ids: Tensor) -> Any:
        """The rows of `ids`, not gathered, see `LazyRows`."""

    def open_exchange(self) -> Exchange | None:
        """What `gather_together` is given; None if one process gathers alone. All processes call this together."""

    def gather_together(self, group: Sequence[Tensor], exchange: Exchange | None) -> list[Tensor]:
        """The rows of each entry of the group, which is empty for a process that has no more mini-batches."""

    def begin_together(self, group: Sequence[Tensor]) -> list[Callable[[], Tensor]]:
        """Announces the gathers that come next, in this order. Returns what finishes each."""

    def begin(self, ids: Tensor) -> Callable[[], Tensor]:
        """Begins a gather. Returns what finishes it."""


_METHODS = {
    "lazy": ("lazy_rows",),
    "collective": ("open_exchange", "gather_together"),
    "announced": ("begin_together",),
    "begun": ("begin",),
}


def abilities_of(store: Any) -> Abilities:
    """What a store can do, as it says.

    Raises:
        TypeError: its `can` is no `Abilities`, or names something for which it has no method.
    """
    # Of its own: a wrapper that passes on attributes (`__getattr__`) only gathers, as its `gather` may differ.
    own = hasattr(type(store), "can") or "can" in getattr(store, "__dict__", {})
    can = store.can if own else None
    if can is None:
        return Abilities()
    if not isinstance(can, Abilities):
        raise TypeError(
            f"{type(store).__name__}.can is {kind_of(can)}; it must be loader.stores.Abilities(...), or left out"
        )
    for ability, methods in _METHODS.items():
        missing = [name for name in methods if getattr(can, ability) and not hasattr(store, name)]
        if missing:
            raise TypeError(
                f"{type(store).__name__}.can says {ability}, and the store has no method {missing[0]}; write it, or "
                f"leave {ability} out"
            )
    return can
