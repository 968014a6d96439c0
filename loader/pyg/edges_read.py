"""What a loader read from its `Data` once: the edges, and the weights by which neighbours are picked."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from loader.machine.kept import Seen


class EdgesRead:
    """The edges and weights that a `Data` has now, to see later whether it still has them.

    Args:
        data: a `Data`; stores of torch_geometric are not looked at.
        weight_attr: name of the weights, or None.
        num_nodes: of the graph that was made of it.
    """

    def __init__(self, data: Any, weight_attr: str | None, num_nodes: int) -> None:
        self._names = [name for name in ("edge_index", "adj_t", weight_attr) if name is not None]
        self._num_nodes = num_nodes
        self._seen = self._now(data)

    def differs(self, data: Any) -> str | None:
        """The name of what `data` has and is another than what was read; None if all is as it was."""
        seen = self._seen
        now = self._now(data).items()
        return next((name for name, of in now if name not in seen or not seen[name].has(of.value)), None)

    def again(self, data: Any) -> EdgesRead:
        """What a copy of `data` has."""
        copy = object.__new__(EdgesRead)
        copy.__dict__.update(self.__dict__, _seen=self._now(data))
        return copy

    def check(self, data: Any, who: str) -> None:
        """Raises ValueError if `data` has other edges, weights or vertices; `who` is the loader's name."""
        if isinstance(data, tuple):
            return
        if (name := self.differs(data)) is not None:
            raise ValueError(
                f"data.{name} is another than when this {who} was made, which read it then; make a new loader"
            )
        self._seen |= self._now(data)  # the same values, on another device perhaps
        said = "num_nodes" in data._store or isinstance(data.get("x"), Tensor)  # else it is a guess
        if said and data.num_nodes != self._num_nodes:
            raise ValueError(
                f"data has {data.num_nodes} vertices now and had {self._num_nodes} when this {who} was made; make a "
                "new loader"
            )

    def _now(self, data: Any) -> dict[str, Seen]:
        if isinstance(data, tuple):
            return {}
        return {name: Seen.of(data[name]) for name in self._names if name in data}
