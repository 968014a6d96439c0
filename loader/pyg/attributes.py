"""The attributes of a `Data` or `HeteroData`: those with a row per node or edge, and how mini-batches get rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from loader.machine.arguments import kind_of
from loader.machine.memo import Memo, Seen, version_of
from loader.samples import HeteroSubgraph, Subgraph
from loader.stores import FeatureStore, HostFeatures, TensorRows, auto_features, open_store

if TYPE_CHECKING:
    from torch_geometric.data import Data

Place = tuple[Any, str]  # the node or edge type, or None, and the name of an attribute
MakeStore = Callable[[Tensor], FeatureStore]

_stores = Memo()  # loaders of one tensor share its rows on a GPU


class Attributes:
    """The attributes of a `Data`, for its mini-batches.

    A dense tensor with a row per node or edge has a store, from which a loader gathers. Other attributes of nodes
    or edges are sparse tensors, arrays of numpy, and tensors whose rows are not the first dimension. A mini-batch gets
    their parts as in torch_geometric, when it is given out. All other attributes are copied to every mini-batch.

    What is added to `data`, replaced or deleted afterwards changes no mini-batch: `are_those_of` tells. What is written
    in place to a tensor on the CPU, of which no store has a copy, is in the mini-batches that are gathered afterwards:
    `serve` tells whether all that changed is of this kind.

    Args:
        data: the graph, of one type or a `HeteroData`.
        device: where mini-batches arrive.
        features: a function that makes the store of `x`; None for `HostFeatures` on the CPU and `auto_features` on a
            GPU.
        before: of the same loader. Stores of what has not changed since are taken from there, the others are let go.
        release: called if some store will not be there any more, before that; its reader lets go of it.
        shared: whether others still read the stores of `before`, which are not closed then.

    Attributes:
        stores: kind -> store; a kind is "node/NAME" or "edge/NAME"; of several types "node/TYPE/NAME" or
            "edge/SOURCE__RELATION__TARGET/NAME".

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
        self._seen = {place: Seen.of(value) for place, value in values_of(data).items()}
        self._make_x = features
        self.stores: dict[str, FeatureStore] = {}
        self._parts: list[tuple[Place, str, int]] = []  # place, kind, dimension
        rows: list[tuple[Place, str, Tensor]] = []  # place, kind of its store, value
        for place, value, kind in _levels(data):
            if not kind:
                continue
            dim = _cat_dim(data, place, value)
            if isinstance(value, Tensor) and value.layout == torch.strided and dim == 0 and not value.requires_grad:
                rows.append((place, f"{kind}/{place[1]}", value))
                _put(self._data, place, None)  # each mini-batch has its rows in this place
            else:
                self._parts.append((place, kind, dim))
        self._places = {kind: place for place, kind, _ in rows}
        unchanged: dict[str, FeatureStore] = {}
        if before is not None:
            unchanged = {kind: before.stores[kind] for place, kind, value in rows if before.has(place, kind, value)}
            if not unchanged.keys() == before.stores.keys() == {kind for _, kind, _ in rows}:
                release()
            before.drop(unchanged, close=not shared)
        self._copied: set[Place] = set()  # places of what a store has a copy of
        for place, kind, value in rows:
            made, is_x = unchanged.get(kind), _is_x(kind)
            if made is None:
                made = _store_of(label_of(place), value, device, features if is_x else None)
            self.stores[kind] = made
            in_place = device.type == "cpu" == value.device.type and value.is_contiguous()
            if not in_place or (is_x and features is not None):
                self._copied.add(place)

    def has(self, place: Place, kind: str, value: Tensor) -> bool:
        """Whether there is a store of these values: of the same tensor, unchanged, or of what was moved to `value`."""
        return kind in self.stores and place in self._seen and self._seen[place].has(value)

    def drop(self, unchanged: Mapping[str, object], *, close: bool) -> None:
        """Lets go of all stores but those `unchanged`. `close`: and closes those that `features` made."""
        for kind in self.stores.keys() - unchanged.keys():
            store = self.stores.pop(kind)
            if close and _is_x(kind) and self._make_x is not None:
                store.close()
        self._seen = {}

    def are_those_of(self, data: Data) -> bool:
        """Whether `data` has the attributes that it had, and none was changed in place."""
        now = values_of(data)
        return now.keys() == self._seen.keys() and all(self._seen[place].is_of(value) for place, value in now.items())

    def serve(self, data: Data) -> bool:
        """Whether mini-batches that are gathered from now on have what `data` has."""
        now = values_of(data)
        if now.keys() != self._seen.keys():
            return False
        for place, value in now.items():
            seen = self._seen[place]
            if seen.value is not value:
                return False
            if place in self._copied and not value.is_inference() and not seen.is_of(value):
                return False
        return True

    def data_of(self, sample: Subgraph | HeteroSubgraph, *, by_hop: bool = True) -> Any:
        """The `Data` or `HeteroData` of a mini-batch, as `torch_geometric.loader.NeighborLoader` gives it.

        Args:
            by_hop: whether its edges lie hop by hop, so that it has numbers of nodes and of edges per hop.
        """
        from torch_geometric.loader.utils import index_select

        data = copy.copy(self._data)
        for kind, rows in sample.rows.items():
            _put(data, self._places[kind], rows)
        for (where, name), kind, dim in self._parts:
            value, ids = _store(self._data, where)[name], sample.ids(kind)
            ids = ids.to(value.device if isinstance(value, Tensor) else "cpu")
            _put(data, (where, name), index_select(value, ids, dim))
        if isinstance(sample, HeteroSubgraph):
            for node_type, ids in sample.nodes.items():
                tree = None if sample.tree is None else sample.tree[node_type]
                self._set_nodes(data, node_type, ids, list(sample.num_nodes[node_type]) if by_hop else None, tree)
            for edge_type, pairs in sample.edges.items():
                edge_ids = None if sample.edge_ids is None else sample.edge_ids[edge_type]
                _set_edges(data, edge_type, pairs, edge_ids, list(sample.num_edges[edge_type]) if by_hop else None)
            return data
        self._set_nodes(data, None, sample.nodes, list(sample.num_nodes) if by_hop else None, sample.tree)
        _set_edges(data, None, sample.edge_index, sample.edge_ids, list(sample.num_edges) if by_hop else None)
        return data

    def _set_nodes(
        self, data: Any, where: Any, ids: Tensor, num_sampled: list[int] | None, tree: Tensor | None
    ) -> None:
        store = _store(data, where)
        if "num_nodes" in _store(self._data, where) or "x" not in store:
            store.num_nodes = ids.numel()
        if "n_id" not in store:  # else these are rows of the user's
            store.n_id = ids
        if num_sampled is not None or where is None:  # torch_geometric has a None without types alone
            store.num_sampled_nodes = num_sampled
        if tree is not None:
            store.batch = tree


def _set_edges(data: Any, where: Any, pairs: Tensor, ids: Tensor | None, num_sampled: list[int] | None) -> None:
    store = _store(data, where)
    if "adj_t" in store:
        del store["adj_t"]
    store.edge_index = pairs
    if ids is not None and "e_id" not in store:
        store.e_id = ids
    if num_sampled is not None or where is None:
        store.num_sampled_edges = num_sampled


def check_attributes(data: Any) -> None:
    """Looks at what mini-batches take from a `Data` or `HeteroData`.

    Raises:
        TypeError: an attribute of nodes or edges is a list, such as names, or an array of text or objects.
        ValueError: `x` has not one row per node, or `adj_t` holds weights, as `ToSparseTensor` puts them there.
    """
    for where, store in stores_of(data).items():
        if "edge_index" not in store and "adj_t" in store and _has_weights(store["adj_t"]):
            label = label_of((where, "adj_t"))
            owner = label.removesuffix(".adj_t")
            raise ValueError(
                f"{label} has values other than 1, which mini-batches would lose, as they have edge_index; give that: "
                f"index, {owner}.edge_weight = torch_geometric.utils.to_edge_index({label}); "
                f"{owner}.edge_index = index.flip(0); del {label}"
            )
    for place, value, kind in _levels(data):
        where, name = place
        level, label = kind.partition("/")[0], label_of(place)
        of_nodes = isinstance(where, str) or hasattr(data, "_store")
        if name == "x" and level != "node" and of_nodes and isinstance(value, Tensor):  # each would get a copy
            count = getattr(_store(data, where), "num_nodes", None)
            raise ValueError(f"{label} has shape {list(value.shape)}, data {count} nodes; give a row to each")
        if kind and not _has_rows(value):
            what = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else kind_of(value)
            owner = label.rpartition(".")[0]
            raise TypeError(
                f"{label} is {what}, a value per {level}, but mini-batches can have rows of tensors and arrays of "
                f"numbers only: keep it elsewhere ({name} = {label}; del {label}), and look it up by "
                f"{owner.replace('data', 'batch', 1)}.{'n_id' if level == 'node' else 'e_id'}"
            )


def _has_weights(adj_t: Any) -> bool:
    """Whether an adjacency matrix says more than which edges there are."""
    if isinstance(adj_t, Tensor):
        values = adj_t._values() if adj_t.layout == torch.sparse_coo else adj_t.values()
    else:
        values = adj_t.storage.value()  # a SparseTensor of torch_sparse
    return values is not None and bool((values != 1).any())


def stores_of(data: Any) -> dict[Any, Any]:
    """Node or edge type -> the part of the `HeteroData` with its attributes; None has those without a type, or all of a
    `Data`.
    """
    if hasattr(data, "_store"):
        return {None: data._store}
    return {None: data._global_store, **data._node_store_dict, **data._edge_store_dict}


def values_of(data: Any) -> dict[Place, Any]:
    """All attributes."""
    return {(where, name): value for where, store in stores_of(data).items() for name, value in store.items()}


def label_of(place: Place) -> str:
    """What messages call an attribute."""
    where, name = place
    return f"data.{name}" if where is None else f"data[{where!r}].{name}"


def _store(data: Any, where: Any) -> Any:
    return stores_of(data)[None] if where is None else data[where]


def _put(data: Any, place: Place, value: Any) -> None:
    _store(data, place[0])[place[1]] = value


def _cat_dim(data: Any, place: Place, value: Any) -> int:
    dim: int = data.__cat_dim__(place[1], value, _store(data, place[0]))
    return dim


def _is_x(kind: str) -> bool:
    return kind.startswith("node/") and kind.endswith("/x")


def _levels(data: Any) -> Iterator[tuple[Place, Any, str]]:
    """Place, value and level ("node", "edge" or none, with the type) of each attribute, as torch_geometric sees it: if
    a `Data` has as many edges as nodes, one whose name holds "edge" is of edges.
    """
    for where, store in stores_of(data).items():
        of_type = "" if where is None else f"/{where if isinstance(where, str) else '__'.join(where)}"
        bare = where is None and not hasattr(data, "_store")  # without a type
        for name, value in store.items():
            if name in ("edge_index", "adj_t", "num_nodes"):
                continue
            of_nodes = not bare and not isinstance(where, tuple) and store.is_node_attr(name)
            of_edges = not bare and not isinstance(where, str) and not of_nodes and store.is_edge_attr(name)
            yield (where, name), value, f"node{of_type}" if of_nodes else f"edge{of_type}" if of_edges else ""


def _has_rows(value: Any) -> bool:
    """Whether torch_geometric's `index_select` takes rows of it."""
    if isinstance(value, np.ndarray):
        try:
            torch.from_numpy(value[:0])
        except TypeError:
            return False
        return True
    return not isinstance(value, (list, tuple))


def _store_of(label: str, value: Tensor, device: torch.device, make: MakeStore | None) -> FeatureStore:
    tensor = value.as_subclass(Tensor).contiguous().detach()
    if make is not None:
        return open_store(make, tensor)
    if tensor.device.type != "cpu":
        if tensor.device != device:
            raise ValueError(
                f"{label} lies on {tensor.device} and mini-batches arrive on {device}; give "
                f"device='{tensor.device}', or data.cpu()"
            )
        return TensorRows(tensor)
    if device.type == "cpu":
        return HostFeatures(tensor)
    return _stores.get(value, version_of(value), device, lambda: auto_features(tensor, device))
