"""The attributes of a `Data`: those with a row per vertex or edge, and how a mini-batch gets its rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from loader.machine.arguments import kind_of
from loader.machine.kept import Kept, Seen, version_of
from loader.samples import Subgraph
from loader.stores import FeatureStore, HostFeatures, TensorRows, auto_features, open_store

if TYPE_CHECKING:
    from torch_geometric.data import Data

MakeStore = Callable[[Tensor], FeatureStore]

_stores = Kept()  # loaders of one tensor share its rows on a GPU


class Attributes:
    """The attributes of a `Data`, for its mini-batches.

    A dense tensor with a row per vertex or edge has a store, from which a loader gathers. Other attributes of vertices
    or edges are sparse tensors, arrays of numpy, and tensors whose rows are not the first dimension. A mini-batch gets
    their parts as in torch_geometric, when it is given out. All other attributes are copied to every mini-batch.

    What is added to `data`, replaced or deleted afterwards changes no mini-batch: `are_those_of` tells. What is written
    in place to a tensor on the CPU, of which no store has a copy, is in the mini-batches that are gathered afterwards:
    `serve` tells whether all that changed is of this kind.

    Args:
        data: the graph, of one type.
        device: where mini-batches arrive.
        features: a function that makes the store of `x`; None for `HostFeatures` on the CPU and `auto_features` on a
            GPU.
        before: of the same loader. Stores of what has not changed since are taken from there, the others are let go.
        release: called if some store will not be there any more, before that; its reader lets go of it.
        shared: whether others still read the stores of `before`, which are not closed then.

    Attributes:
        stores: kind -> store; a kind is "node/NAME" or "edge/NAME".

    Raises:
        TypeError, ValueError: see `check_attributes`.
    """

    def __init__(
        self,
        data: Data,
        device: torch.device,
        features: MakeStore | None,
        before: Attributes | None = None,
        release: Callable[[], object] = lambda: None,
        shared: bool = False,
    ) -> None:
        check_attributes(data)
        self._data = copy.copy(data)
        self._seen = {name: Seen.of(value) for name, value in data._store.items()}
        self._make_x = features
        self.stores: dict[str, FeatureStore] = {}
        self._parts: list[tuple[str, str, int]] = []  # name, kind, dimension
        rows: list[tuple[str, str, Tensor]] = []  # name, kind of its store, value
        for name, value, kind in _levels(data):
            if not kind:
                continue
            dim = data.__cat_dim__(name, value, data._store)
            if isinstance(value, Tensor) and value.layout == torch.strided and dim == 0 and not value.requires_grad:
                rows.append((name, f"{kind}/{name}", value))
                self._data[name] = None  # each mini-batch has its rows in this place
            else:
                self._parts.append((name, kind, dim))
        kept: dict[str, FeatureStore] = {}
        if before is not None:
            kept = {kind: before.stores[kind] for name, kind, value in rows if before.has(name, kind, value)}
            if not kept.keys() == before.stores.keys() == {kind for _, kind, _ in rows}:
                release()
            before.drop(kept, close=not shared)
        self._copied: set[str] = set()  # names of what a store has a copy of
        for name, kind, value in rows:
            made = kept.get(kind)
            if made is None:
                made = _store_of(name, value, device, features if name == "x" else None)
            self.stores[kind] = made
            in_place = device.type == "cpu" == value.device.type and value.is_contiguous()
            if not in_place or (name == "x" and features is not None):
                self._copied.add(name)

    def has(self, name: str, kind: str, value: Tensor) -> bool:
        """Whether there is a store of these values: of the same tensor, unchanged, or of what was moved to `value`."""
        return kind in self.stores and name in self._seen and self._seen[name].has(value)

    def drop(self, kept: Mapping[str, object], *, close: bool) -> None:
        """Lets go of all stores but those `kept`. `close`: and closes the one that `features` made."""
        for kind in self.stores.keys() - kept.keys():
            store = self.stores.pop(kind)
            if close and kind == "node/x" and self._make_x is not None:
                store.close()
        self._seen = {}

    def are_those_of(self, data: Data) -> bool:
        """Whether `data` has the attributes that it had, and none was changed in place."""
        items = data._store.items()
        return len(items) == len(self._seen) and all(
            name in self._seen and self._seen[name].is_of(value) for name, value in items
        )

    def serve(self, data: Data) -> bool:
        """Whether mini-batches that are gathered from now on have what `data` has."""
        items = data._store.items()
        if len(items) != len(self._seen):
            return False
        for name, value in items:
            seen = self._seen.get(name)
            if seen is None or seen.value is not value:
                return False
            if name in self._copied and not value.is_inference() and not seen.is_of(value):
                return False
        return True

    def data_of(self, sample: Subgraph, *, by_hop: bool = True) -> Data:
        """The `Data` of a mini-batch, as `torch_geometric.loader.NeighborLoader` gives it.

        Args:
            by_hop: whether its edges lie hop by hop, so that it has numbers of vertices and of edges per hop.
        """
        from torch_geometric.loader.utils import index_select

        data = copy.copy(self._data)
        for kind, rows in sample.rows.items():
            data[kind.partition("/")[2]] = rows
        for name, kind, dim in self._parts:
            value, ids = self._data[name], sample.ids(kind)
            data[name] = index_select(value, ids.to(value.device if isinstance(value, Tensor) else "cpu"), dim)
        if "adj_t" in data:
            del data.adj_t
        data.edge_index = sample.edge_index
        if "num_nodes" in self._data._store or "x" not in data:
            data.num_nodes = sample.nodes.numel()
        if "n_id" not in data:  # else these are rows of the user's
            data.n_id = sample.nodes
        if sample.edge_ids is not None and "e_id" not in data:
            data.e_id = sample.edge_ids
        data.num_sampled_nodes = list(sample.num_nodes) if by_hop else None
        data.num_sampled_edges = list(sample.num_edges) if by_hop else None
        return data


def check_attributes(data: Data) -> None:
    """Looks at what mini-batches take from a `Data`.

    Raises:
        TypeError: an attribute of vertices or edges is a list, such as names, or an array of text or objects.
        ValueError: `x` has not one row per vertex.
    """
    for name, value, kind in _levels(data):
        if name == "x" and kind != "node" and isinstance(value, Tensor):  # it would be copied to each mini-batch
            raise ValueError(
                f"data.x has shape {list(value.shape)}, data {data.num_nodes} vertices; give a row to each"
            )
        if kind and not _has_rows(value):
            what = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else kind_of(value)
            raise TypeError(
                f"data.{name} is {what}, a value per {kind}, but mini-batches can have rows of tensors and arrays of "
                f"numbers only: keep it elsewhere ({name} = data.{name}; del data.{name}), and look it up by "
                f"batch.{'n_id' if kind == 'node' else 'e_id'}"
            )


def _levels(data: Data) -> Iterator[tuple[str, Any, str]]:
    """Name, value and level ("node", "edge" or none) of each attribute, as torch_geometric sees it: if there are as
    many edges as vertices, one whose name holds "edge" is of edges.
    """
    store = data._store
    for name, value in store.items():
        if name not in ("edge_index", "adj_t", "num_nodes"):
            yield name, value, "node" if store.is_node_attr(name) else "edge" if store.is_edge_attr(name) else ""


def _has_rows(value: Any) -> bool:
    """Whether torch_geometric's `index_select` takes rows of it."""
    if isinstance(value, np.ndarray):
        try:
            torch.from_numpy(value[:0])
        except TypeError:
            return False
        return True
    return not isinstance(value, (list, tuple))


def _store_of(name: str, value: Tensor, device: torch.device, make: MakeStore | None) -> FeatureStore:
    tensor = value.as_subclass(Tensor).contiguous().detach()
    if make is not None:
        return open_store(make, tensor)
    if tensor.device.type != "cpu":
        if tensor.device != device:
            raise ValueError(
                f"data.{name} lies on {tensor.device} and mini-batches arrive on {device}; give "
                f"device='{tensor.device}', or data.cpu()"
            )
        return TensorRows(tensor)
    if device.type == "cpu":
        return HostFeatures(tensor)
    return _stores.get(value, version_of(value), device, lambda: auto_features(tensor, device))
