"""The attributes of a `Data`: those with a row per vertex or edge, and how a mini-batch gets its rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

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

    What is added to `data`, replaced or deleted afterwards changes no mini-batch: `are_those_of` tells.

    Args:
        data: the graph, of one type.
        device: where mini-batches arrive.
        features: a function that makes the store of `x`; None for `HostFeatures` on the CPU and `auto_features` on a
            GPU.
        before: of the same loader. Stores of what has not changed since are taken from there, the others are let go.
        release: called if some store will not be there any more, before that; its reader lets go of it.

    Attributes:
        stores: kind -> store; a kind is "node/NAME" or "edge/NAME".

    Raises:
        ValueError: `x` has not one row per vertex.
    """

    def __init__(
        self,
        data: Data,
        device: torch.device,
        features: MakeStore | None,
        before: Attributes | None = None,
        release: Callable[[], object] = lambda: None,
    ) -> None:
        self._data = copy.copy(data)
        self._seen = {name: Seen.of(value) for name, value in data._store.items()}
        self._make_x = features
        self.stores: dict[str, FeatureStore] = {}
        self._parts: list[tuple[str, str, int]] = []  # name, kind, dimension
        rows: list[tuple[str, str, Tensor]] = []  # name, kind of its store, value
        store = data._store
        for name, value in store.items():
            if name in ("edge_index", "adj_t", "num_nodes"):
                continue
            kind = "node" if store.is_node_attr(name) else "edge" if store.is_edge_attr(name) else ""
            if name == "x" and kind != "node" and isinstance(value, Tensor):  # it would be copied to each mini-batch
                raise ValueError(
                    f"data.x has shape {list(value.shape)}, data {data.num_nodes} vertices; give a row to each"
                )
            if not kind:
                continue
            dim = data.__cat_dim__(name, value, store)
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
            before.drop(kept)
        for name, kind, value in rows:
            made = kept.get(kind)
            if made is None:
                made = _store_of(name, value, device, features if name == "x" else None)
            self.stores[kind] = made

    def has(self, name: str, kind: str, value: Tensor) -> bool:
        """Whether there is a store of these values: of the same tensor, unchanged, or of what was moved to `value`."""
        return kind in self.stores and name in self._seen and self._seen[name].has(value)

    def drop(self, kept: Mapping[str, object]) -> None:
        """Lets go of all stores but those `kept`, and closes the one that `features` made."""
        for kind in self.stores.keys() - kept.keys():
            store = self.stores.pop(kind)
            if kind == "node/x" and self._make_x is not None:
                store.close()
        self._seen = {}

    def are_those_of(self, data: Data) -> bool:
        """Whether `data` has the attributes that it had, and none was changed in place."""
        items = data._store.items()
        return len(items) == len(self._seen) and all(
            name in self._seen and self._seen[name].is_of(value) for name, value in items
        )

    def data_of(self, sample: Subgraph) -> Data:
        """The `Data` of a mini-batch, as `torch_geometric.loader.NeighborLoader` gives it."""
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
        data.num_sampled_nodes, data.num_sampled_edges = list(sample.num_nodes), list(sample.num_edges)
        return data


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
