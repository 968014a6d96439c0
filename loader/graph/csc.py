"""The graph: compressed sparse columns (CSC), and where each of its arrays lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from loader.graph.checks import (
    MAX_NODES,
    check_csc,
    check_edge_types,
    check_length,
    check_range,
    check_room,
    check_weights,
    integer_vector,
    type_ranges,
    weight_vector,
)
from loader.graph.interop import check_pyg_edges, dgl_graph_edges, pyg_edges
from loader.graph.list_cache import ListCache, check_lists, hottest_lists
from loader.graph.pandas_edges import pandas_edges
from loader.graph.placement import Placement
from loader.machine.arguments import as_flag, as_size
from loader.machine.devices import as_device
from loader.machine.gpu import cuda_device
from loader.machine.mapped import whole
from loader.machine.pinning import PinnedTensor
from loader.machine.renamed_arguments import renamed_arguments

_INT32_MAX = 2**31 - 1
_ARRAYS = ("indptr", "indices", "edge_ids", "edge_weights", "edge_times", "edge_types", "node_times")


class Graph:
    """A directed graph in CSC form: the in-neighbors of `v` are `indices[indptr[v]:indptr[v + 1]]`.

    A list belongs to a destination and holds sources. Both are the same nodes unless `num_src` is given.

    Args:
        indptr: `[num_dst + 1]`, integer, monotone, from 0 to `len(indices)`.
        indices: `[num_edges]`, integer, source nodes in `[0, num_src)`.
        num_src: number of source nodes of a bipartite graph, whose sources are not its destinations. None: sources
            and destinations are the same `num_nodes` nodes (a square graph).
        edge_ids: `[num_edges]`, integer, your id of the edge at each position of `indices`. By default an edge's id is
            its position.
        edge_weights: `[num_edges]`, float32 or float64, finite and at least 0.
        edge_times: `[num_edges]`, integer, stored as int64, in any unit.
        edge_types: `[num_edges]`, integer, from 0 on, stored as int32.
        node_times: `[num_src]`, integer, of the source nodes, stored as int64, in any unit.
        node_types: name -> number of nodes, or name -> (begin, end): the source nodes of a type are a range of
            ids, and the ranges follow each other from 0 to `num_src`.
        validate: check the arrays, in one pass over each. Turn this off only for arrays that were checked before.

    `indices` is stored as int32 if the numbers of nodes are less than 2**31, else as int64. `indptr` is stored as int32
    if the number of edges is less than 2**31 too, else as int64. Edge ids of 8 and 16 bits are stored as int32, wider
    signed ones keep their dtype. If the graph has no edge ids, sampled ids have the dtype of `indptr`. Arrays that
    already have the right dtype are not copied.

    Do not write to the arrays of a graph through NumPy or DLPack, which torch does not see, nor while somebody samples:
    what was made of them before is used on (tables of weights, sorted lists, the answers of `sssp`), and an id that is
    no node ends the process. Other changes in place are seen: `indptr` and `indices` are checked again before the
    next mini-batch, and all else is read again by the next call of a sampler and the next epoch of a loader.

    A pickled or deep-copied graph has copies of all arrays, in ordinary memory, also of those that were page-locked or
    in a file. It has no cached lists.

    Attributes:
        node_types: name -> `range` of ids, in ascending order, or None.
        list_cache: the lists that are also in GPU memory, see `cache_lists`, or None.

    Raises:
        TypeError: an array is no tensor, or of another kind of numbers.
        ValueError: an array contradicts the above; the message names the first offending value.
    """

    _times_set = 0  # arrays so far: the next one may have the `id` of one that is gone
    _of_two_types = False  # as many sources as destinations, which are other nodes all the same

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        *,
        num_src: int | None = None,
        edge_ids: Tensor | None = None,
        edge_weights: Tensor | None = None,
        edge_times: Tensor | None = None,
        edge_types: Tensor | None = None,
        node_times: Tensor | None = None,
        node_types: Mapping[str, int | range | Sequence[int]] | None = None,
        validate: bool = True,
    ) -> None:
        device = indptr.device if isinstance(indptr, Tensor) else torch.device("cpu")
        indptr = integer_vector("indptr", indptr, device)
        indices = integer_vector("indices", indices, device)
        if indptr.numel() == 0:
            raise ValueError("indptr is empty; it needs num_nodes + 1 entries (a single 0 for no nodes)")
        num_dst, num_edges = indptr.numel() - 1, indices.numel()
        self._num_src = num_dst if num_src is None else as_size("num_src", num_src, 0, MAX_NODES)

        def optional(name: str, array: Tensor | None, length: int, what: str) -> Tensor | None:
            if array is not None:
                array = weight_vector(array, device) if name == "edge_weights" else integer_vector(name, array, device)
                check_length(name, array, length, what)
            return array

        per_edge = f"indices has {num_edges}"
        edge_ids = optional("edge_ids", edge_ids, num_edges, per_edge)
        edge_weights = optional("edge_weights", edge_weights, num_edges, per_edge)
        edge_times = optional("edge_times", edge_times, num_edges, per_edge)
        edge_types = optional("edge_types", edge_types, num_edges, per_edge)
        node_times = optional(
            "node_times",
            node_times,
            self._num_src,
            f"the graph has {self._num_src} source nodes; it needs one of each",
        )
        self.node_types = None if node_types is None else type_ranges(node_types, self._num_src)
        if as_flag("validate", validate):
            check_csc(indptr, indices, self._num_src)
            if edge_weights is not None:
                check_weights(edge_weights, indices, indptr)
            if edge_types is not None:
                check_edge_types(edge_types)
        wide_edges = num_edges > _INT32_MAX
        wide_nodes = max(num_dst, self._num_src) > _INT32_MAX
        self.indptr = indptr.to(torch.int64 if wide_edges or wide_nodes else torch.int32).contiguous()
        self.indices = indices.to(torch.int64 if wide_nodes else torch.int32).contiguous()
        if edge_ids is not None and edge_ids.element_size() < 4:
            edge_ids = edge_ids.int()  # stores gather rows by int32 and int64
        self.edge_ids = None if edge_ids is None else edge_ids.contiguous()
        if edge_weights is not None and edge_weights.requires_grad:  # weights decide the picks, and get no gradient
            edge_weights = edge_weights.detach()
        self.edge_weights = None if edge_weights is None else edge_weights.contiguous()
        self.edge_times = None if edge_times is None else edge_times.to(torch.int64).contiguous()
        self.edge_types = None if edge_types is None else edge_types.to(torch.int32).contiguous()
        self.node_times = None if node_times is None else node_times.to(torch.int64).contiguous()
        self.list_cache: ListCache | None = None
        self._locks: dict[str, PinnedTensor] = {}  # of the arrays that `place` locked, while this object lives
        self._sound: tuple[int, ...] | None = self._state()  # in which the lists were sound; None: not known

    @classmethod
    def from_edges(
        cls,
        src: Tensor,
        dst: Tensor,
        num_nodes: int,
        *,
        num_src: int | None = None,
        keep_edge_ids: bool = False,
        edge_weights: Tensor | None = None,
        edge_times: Tensor | None = None,
        edge_types: Tensor | None = None,
        node_times: Tensor | None = None,
        node_types: Mapping[str, int | range | Sequence[int]] | None = None,
    ) -> Graph:
        """Builds the CSC of the edges `src[i] -> dst[i]`; neighbor lists are sorted by source id.

        Parallel edges and self loops are kept; parallel edges keep their order.

        Args:
            src: `[num_edges]`, integer, in `[0, num_src)`.
            dst: `[num_edges]`, integer, in `[0, num_nodes)`.
            num_nodes: number of nodes; of a bipartite graph the number of destinations.
            num_src: number of sources of a bipartite graph.
            keep_edge_ids: keep each edge's position in `src` as its id, which samplers return.
            edge_weights, edge_times, edge_types: `[num_edges]`, in the order of `src`; see `Graph`.
            node_times, node_types: see `Graph`.
        """
        device = src.device if isinstance(src, Tensor) else torch.device("cpu")
        src, dst = integer_vector("src", src, device), integer_vector("dst", dst, device)
        if src.numel() != dst.numel():
            raise ValueError(f"src has {src.numel()} entries, dst has {dst.numel()}; they must be equal")
        num_nodes = as_size("num_nodes", num_nodes, 0, MAX_NODES)
        columns = num_nodes if num_src is None else as_size("num_src", num_src, 0, MAX_NODES)
        check_room(f"num_nodes is {num_nodes}", num_nodes)
        check_range("src", src, columns)
        check_range("dst", dst, num_nodes)
        order = list_order(src, dst, columns, num_nodes)
        indptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
        torch.cumsum(torch.bincount(dst.long(), minlength=num_nodes), 0, out=indptr[1:])

        def sorted_like_src(name: str, array: Tensor | None) -> Tensor | None:
            if array is None:
                return None
            array = weight_vector(array, device) if name == "edge_weights" else integer_vector(name, array, device)
            check_length(name, array, src.numel(), f"src has {src.numel()}")
            if name == "edge_weights":
                check_weights(array, src, dst=dst)  # names the edge by its place in src
            return array[order]

        return cls(
            indptr,
            src[order],
            num_src=num_src,
            edge_ids=order if as_flag("keep_edge_ids", keep_edge_ids) else None,
            edge_weights=sorted_like_src("edge_weights", edge_weights),
            edge_times=sorted_like_src("edge_times", edge_times),
            edge_types=sorted_like_src("edge_types", edge_types),
            node_times=node_times,
            node_types=node_types,
        )

    @classmethod
    def from_pyg(cls, data: Any, *, weight_attr: str | None = None, time_attr: str | None = None) -> Graph:
        """The graph of a `torch_geometric.data.Data`; an edge's id is its place in `data.edge_index`.

        Args:
            data: has `edge_index` `[2, num_edges]`, or `adj_t` (then ids are places of its entries), and `num_nodes`.
            weight_attr: name of its edge weights, `[num_edges]`.
            time_attr: name of its times, of edges `[num_edges]` or of nodes `[num_nodes]`. If there are as many
                edges as nodes, they are of edges if "edge" is in the name, as in torch_geometric. Those of a
                `TemporalData` are always of edges.

        Raises:
            TypeError: `data` has several types, or an attribute is no tensor.
            ValueError: an attribute is missing; and as `from_edges`.
        """
        given = pyg_edges(data, weight_attr, time_attr)
        try:
            return cls.from_edges(**given, keep_edge_ids=True)
        except (TypeError, ValueError) as error:
            refused = error
        check_pyg_edges(data)  # a message that names what the caller gave, not `src`
        raise refused

    @classmethod
    def from_pandas(
        cls,
        edges: Any,
        nodes: Any = None,
        *,
        source: Any = None,
        target: Any = None,
        id: Any = None,
        weight: Any = None,
        time: Any = None,
    ) -> Graph:
        """The graph of a table of edges; an edge's id is its row. Ids of nodes may be any values.

        With `nodes`, a node's number is its row there. Else nodes are numbered in the order in which they occur among
        the sources, then among the targets: `pandas.unique(pandas.concat([edges[source], edges[target]]))` has the id
        of each number. Edges stay as they are: no reverse is added, and repeated ones are kept.

        Args:
            edges: a `pandas.DataFrame` with a row per edge.
            nodes: a `pandas.DataFrame` with a row per node, or None.
            source, target: columns of `edges`, by default the first and the second one.
            id: column of `nodes`, by default the first one.
            weight: column of `edges` with numbers, stored as float64.
            time: column of `edges` with integers or dates, stored as int64. Dates become seconds since 1970. A date
                with a fraction of a second raises ValueError.

        Raises:
            TypeError: `edges` or `nodes` is no table.
            ValueError: a column or a value is missing, an id is there twice, or an edge names no node; and as
                `from_edges`.
        """
        columns = {"source": source, "target": target, "id": id, "weight": weight, "time": time}
        return cls.from_edges(**pandas_edges(edges, nodes, columns), keep_edge_ids=True)

    @classmethod
    def from_dgl(cls, g: Any, *, weight_attr: str | None = None) -> Graph:
        """The graph of a `dgl.DGLGraph` of one type; an edge's id is DGL's.

        Args:
            g: homogeneous.
            weight_attr: name of the edge weights in `g.edata`, `[num_edges]`, or of a mask: weights of 1 and 0.

        Raises:
            TypeError: `g` has several types.
            ValueError: an attribute is missing; and as `from_edges`.
        """
        return cls.from_edges(**dgl_graph_edges(g, weight_attr), keep_edge_ids=True)

    @property
    def num_dst(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_src(self) -> int:
        return self._num_src

    @property
    def num_nodes(self) -> int:
        """Number of nodes of a square graph.

        Raises:
            ValueError: sources and destinations are different nodes.
        """
        if not self.is_square:
            raise ValueError(
                f"the graph has {self.num_dst} destinations and {self._num_src} sources, so it has no num_nodes; ask "
                "num_dst or num_src"
            )
        return self._num_src

    @property
    def is_square(self) -> bool:
        """Whether sources and destinations are the same nodes."""
        return self._num_src == self.num_dst and not self._of_two_types

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    @property
    def device(self) -> torch.device:
        """The device of `indices`; `placement` says it of each array."""
        return self.indices.device

    @property
    def placement(self) -> dict[str, Placement]:
        """Where each array of the graph lies, by name."""
        return {name: Placement.of(array) for name, array in self._arrays().items()}

    def require_sound(self) -> None:
        """Checks `indptr` and `indices` again, if they were written to or replaced since they were checked, and the
        sizes of all arrays. Sessions ask this for each mini-batch.

        Torch counts what is written to a tensor, but not what is written through NumPy or DLPack, or to a tensor of
        inference mode.

        Raises:
            ValueError: they are no lists of the graph's nodes any more, or the cached lists are those of before.
        """
        state = self._state()
        if state != self._sound:
            check_csc(self.indptr, self.indices, self._num_src)
            self._check_others()
            if self.list_cache is not None:
                self.list_cache.require_lists_of(self)
            self._sound = state

    def _check_others(self) -> None:
        """Raises TypeError or ValueError unless the other arrays, of which one may be new, fit the lists."""
        for name, array in self._arrays().items():
            if name in ("indptr", "indices"):
                continue
            if name == "edge_weights":
                weight_vector(array, array.device)
            else:
                integer_vector(name, array, array.device)
            if name == "node_times":
                check_length(name, array, self._num_src, f"the graph has {self._num_src} source nodes")
            else:
                check_length(name, array, self.num_edges, f"indices has {self.num_edges}")

    def state(self) -> tuple[int, ...]:
        """Numbers that change when torch sees that an array was written to, or when another one takes its place."""
        return self._times_set, *_versions(*self._arrays().values())

    def in_degrees(self) -> Tensor:
        """`[num_dst]`, dtype of `indptr`."""
        return self.indptr[1:] - self.indptr[:-1]

    def place(
        self, where: Placement | torch.device | str | None = None, /, **arrays: Placement | torch.device | str
    ) -> Graph:
        """The same graph with its arrays at other places: `graph.place("pinned", indptr="cuda")`.

        Memory is page-locked in place if the system allows it. Then this graph and the new one share the memory. It
        stays locked until the new graph, and all graphs that were made of it, are gone.

        Args:
            where: place of all arrays that are not named; None leaves them where they are.
            arrays: name of an array -> its place, see `Placement`: "cpu", "pinned", "cuda:0", "disk:FILE.npy".

        Raises:
            TypeError, ValueError: the graph has no such array, or a placement is none.
            NoGpuError: build or machine have no GPU.
            RuntimeError: the system does not lock that much memory.
        """
        here = self._arrays()
        if unknown := [name for name in arrays if name not in here]:
            raise ValueError(f"the graph has no array {unknown[0]!r} to place; it has {', '.join(here)}")
        if isinstance(where, str) and where.startswith("disk:"):
            raise ValueError(f"placement '{where}' would be the file of every array; name them: indices='{where}'")
        wanted = {name: arrays.get(name, where) for name in here}
        goals = {name: Placement.parse(to) for name, to in wanted.items() if to is not None}
        files = [goal.file for goal in goals.values() if goal.file is not None]
        if twice := [file for file in files if files.count(file) > 1]:
            raise ValueError(f"{twice[0]} is the file of two arrays; each needs a file of its own")
        moved, locks = dict(here), dict(self._locks)
        for name, goal in goals.items():
            moved[name], lock = goal.take(name, here[name])
            if lock is not None:
                locks[name] = lock
            elif moved[name] is not here[name]:
                locks.pop(name, None)
        return self._with(moved, locks)

    def to(self, device: torch.device | str) -> Graph:
        """The same graph on `device`, or this one if all of it lies there. Pinned memory and files count as the CPU."""
        goal = as_device(device)
        kind = goal.type
        if all(array.device == goal for array in self._arrays().values()):
            return self
        away = [name for name, array in self._arrays().items() if kind != "cpu" or array.device.type != "cpu"]
        return self.place(**dict.fromkeys(away, device))

    def reverse(self) -> Graph:
        """The graph with every edge turned round: its lists are the out-neighbors of this one's nodes.

        Edges keep their ids, weights, times and types. If this graph has no edge ids, an edge's id is its position in
        this graph's `indices`. Nodes keep their times and types if the graph is square. Lists are sorted.
        """
        with whole(*self._arrays().values()):
            return self._reversed()

    def _reversed(self) -> Graph:
        rows = torch.arange(self.num_dst, device=self.indices.device).repeat_interleave(self.in_degrees().long())
        square = self.is_square
        turned = Graph.from_edges(
            rows,
            self.indices,
            self.num_src,
            num_src=self.num_dst,
            keep_edge_ids=True,
            edge_weights=self.edge_weights,
            edge_times=self.edge_times,
            edge_types=self.edge_types,
            node_times=self.node_times if square else None,
            node_types={name: (ids.start, ids.stop) for name, ids in self.node_types.items()}
            if square and self.node_types is not None
            else None,
        )
        turned._of_two_types = self._of_two_types
        assert turned.edge_ids is not None
        if self.edge_ids is None:
            turned.edge_ids = turned.edge_ids.to(self.indptr.dtype)
        else:
            turned.edge_ids = self.edge_ids[turned.edge_ids]
        return turned

    @renamed_arguments({"vertices": "nodes"})
    def cache_lists(
        self,
        device: torch.device | str = "cuda",
        *,
        fraction: float | None = None,
        budget_gib: float | None = None,
        hotness: str | Tensor | None = None,
        nodes: Tensor | None = None,
    ) -> Graph:
        """The same graph, with copies of its hottest lists in GPU memory, from which samplers on that GPU read them.

        What is sampled does not depend on it. The other lists stay in pinned memory.

        Args:
            device: the GPU.
            fraction: share of the edges to copy, in [0, 1].
            budget_gib: GPU memory for the copies and for the table of their places, in GiB. Give this or `fraction`.
            hotness: `"degree"`, the default, copies the longest lists; a tensor `[num_dst]` of scores those with the
                highest scores, see `loader.samplers.list_hotness`.
            nodes: `[n]`, integer, distinct: copy exactly their lists. Give this in place of the three above.

        Weights and ids of edges are not copied.

        Raises:
            TypeError, ValueError: `indices` is not in pinned memory; both or none of `fraction` and `budget_gib` are
                given, or the one given is out of range or leaves no room for the table of places; `hotness` is none of
                the above or does not fit the graph; `nodes` is given with them, or names no node or one twice.
            NoGpuError: build or machine have no GPU.
        """
        others = {"fraction": fraction, "budget_gib": budget_gib, "hotness": hotness}
        if nodes is None:
            nodes = hottest_lists(self, fraction, budget_gib, "degree" if hotness is None else hotness)
        elif given := [name for name, value in others.items() if value is not None]:
            raise ValueError(f"nodes and {' and '.join(given)} are given; give nodes, or the others")
        else:
            nodes = check_lists(self, nodes)
        if Placement.of(self.indices).kind != "pinned":
            raise ValueError(
                f"indices lies on {Placement.of(self.indices)}; lists are cached of a graph in pinned memory "
                "(graph.pin_memory())"
            )
        self.require_sound()
        other = self._with(self._arrays(), self._locks)
        other.list_cache = ListCache(self, nodes, cuda_device(device))
        return other

    def pin_memory(self) -> Graph:
        """The same graph in page-locked host memory, where a GPU reads it without a copy (zero-copy); see `place`."""
        return self.place("pinned")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _ARRAYS:
            self.__dict__["_times_set"] = self._times_set + 1
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        # Who sends a tensor to another process may move its memory, which must not happen to locked pages.
        copies = {name: a.clone() for name, a in self._arrays().items() if a.device.type == "cpu" and a.is_pinned()}
        return {**self.__dict__, **copies, "_locks": {}, "list_cache": None, "_sound": self._sound == self._state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._sound = self._state() if state.get("_sound") else None

    def __copy__(self) -> Graph:
        return self._with(self._arrays(), self._locks)

    def __repr__(self) -> str:
        if self.is_square:
            parts = [f"num_nodes={self.num_dst}"]
        else:
            parts = [f"num_dst={self.num_dst}", f"num_src={self._num_src}"]
        parts.append(f"num_edges={self.num_edges}")
        more = [name for name in self._arrays() if name not in ("indptr", "indices")]
        if self.node_types is not None:
            more.append("node_types")
        if more:
            parts.append(f"with={more}")
        devices = {str(array.device) for array in self._arrays().values()}
        parts.append(f"device='{self.device}'" if len(devices) == 1 else f"devices={sorted(devices)}")
        return f"Graph({', '.join(parts)})"

    def _arrays(self) -> dict[str, Tensor]:
        found = {name: getattr(self, name) for name in _ARRAYS}
        return {name: array for name, array in found.items() if array is not None}

    def _with(self, arrays: dict[str, Tensor], locks: dict[str, PinnedTensor]) -> Graph:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **arrays, _locks=dict(locks))
        other._sound = other._state() if self._sound == self._state() else None
        return other

    def _state(self) -> tuple[int, ...]:
        """Changes when torch sees that the lists were written to, or when others take their place."""
        return self._times_set, *_versions(self.indptr, self.indices)


def _versions(*arrays: Tensor) -> tuple[int, ...]:
    """Of each array which one it is, and how often torch saw it written to; torch does not count in inference mode."""
    try:  # of each mini-batch
        return tuple([n for a in arrays for n in (id(a), a._version)])
    except RuntimeError:
        return tuple([n for a in arrays for n in (id(a), 0 if a.is_inference() else a._version)])


def list_order(src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> Tensor:
    """`[num_edges]` int64: an order of the edges by destination, then by source; parallel edges keep theirs."""
    if num_dst * num_src < 2**63:
        return torch.argsort(dst.long() * max(num_src, 1) + src.long(), stable=True)
    order = torch.argsort(src, stable=True)  # by two keys, as one would not fit 64 bits
    return order[torch.argsort(dst[order], stable=True)]


def require_square(graph: Graph, who: str) -> None:
    """Raises ValueError unless sources and destinations of the graph are the same nodes.

    Args:
        who: who asks, as in "FusedSampler".
    """
    if not graph.is_square:
        raise ValueError(
            f"{who} wants a graph of one set of nodes, this one has {graph.num_dst} destinations and "
            f"{graph.num_src} sources. Number both sets in one "
            "range of ids (node_types names the ranges) and make a square graph of that"
        )
