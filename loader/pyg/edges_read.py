"""What a loader read from its `Data` once: the edges, the weights by which neighbors are picked, and the times."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.datasets.digests import digest_of
from loader.graph import Graph, HeteroGraph
from loader.machine.memo import Seen, version_of
from loader.pyg.attributes import Place, label_of, stores_of


def state_of(tensor: Tensor) -> tuple[int, str]:
    """What changes when somebody writes to a tensor. If NumPy or `tensor.data` does, torch does not count it; then a
    digest changes, for which evenly spaced values of a large tensor are read.
    """
    return version_of(tensor), _digest(tensor)


def _digest(tensor: Tensor) -> str:
    return digest_of(tensor.detach().as_subclass(Tensor)) if tensor.layout == torch.strided else ""


class EdgesRead:
    """The edges, weights and times that a `Data` or `HeteroData` has now, to see later whether it still has them.

    Args:
        data: a `Data` or `HeteroData`; stores of torch_geometric are not looked at.
        weight_attr: name of the weights, or None.
        graph: that was made of it.
        time_attr: name of the times, or None.
    """

    def __init__(
        self, data: Any, weight_attr: str | None, graph: Graph | HeteroGraph, time_attr: str | None = None
    ) -> None:
        self._names = [name for name in ("edge_index", "adj_t", weight_attr, time_attr) if name is not None]
        self._of_nodes = [] if time_attr is None else [time_attr]
        self._num_nodes: dict[Any, int] = {None: graph.num_nodes}
        if isinstance(graph, HeteroGraph):
            self._num_nodes = {name: len(ids) for name, ids in graph.node_types.items()}
        self._seen = self._now(data)
        self._digests = self._digests_of(self._seen)

    def differs(self, data: Any, *, counted: bool = False) -> str | None:
        """What `data` has, as "data.edge_index", and is another than what was read; None if all is as it was.

        Args:
            counted: look only at what torch counts, which takes no time.
        """
        seen, now = self._seen, self._now(data)
        digests = self._digests if counted else self._digests_of(now)
        other = (place for place, of in now.items() if place not in seen or not seen[place].has(of.value))
        gone = (place for place in seen if place not in now)
        written = (place for place, digest in digests.items() if self._digests.get(place) != digest)
        found = next(other, None) or next(gone, None) or next(written, None)
        return None if found is None else label_of(found)

    def again(self, data: Any) -> EdgesRead:
        """What a copy of `data` has."""
        copy, seen = object.__new__(EdgesRead), self._now(data)
        copy.__dict__.update(self.__dict__, _seen=seen, _digests=self._digests_of(seen))
        return copy

    def check(self, data: Any, who: str, *, counted: bool = False) -> None:
        """Raises ValueError if `data` has other edges, weights, times or nodes; `who` is the loader's name.

        Args:
            counted: see `differs`.
        """
        if isinstance(data, tuple):
            return
        if (label := self.differs(data, counted=counted)) is not None:
            raise ValueError(f"{label} is another than when this {who} was made, which read it then; make a new loader")
        self._seen |= self._now(data)  # the same values, on another device perhaps
        for where, store in stores_of(data).items():
            said = "num_nodes" in store or isinstance(store.get("x"), Tensor)  # else it is a guess
            if said and where in self._num_nodes and store.num_nodes != self._num_nodes[where]:
                owner = "data" if where is None else f"data[{where!r}]"
                raise ValueError(
                    f"{owner} has {store.num_nodes} nodes now and had {self._num_nodes[where]} when this {who} was "
                    "made; make a new loader"
                )

    @staticmethod
    def _digests_of(seen: dict[Place, Seen]) -> dict[Place, str]:
        return {place: _digest(of.value) for place, of in seen.items() if isinstance(of.value, Tensor)}

    def _now(self, data: Any) -> dict[Place, Seen]:
        if isinstance(data, tuple):
            return {}
        found: dict[Place, Seen] = {}
        for where, store in stores_of(data).items():
            if where is None and not hasattr(data, "_store"):
                continue
            names = self._of_nodes if isinstance(where, str) else self._names
            found |= {(where, name): Seen.of(store[name]) for name in names if name in store}
        return found
