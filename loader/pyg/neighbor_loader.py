"""torch_geometric's `NeighborLoader` on our pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.sampler import NodeSamplerInput

from loader.graph import EdgeType, Graph, HeteroGraph
from loader.graph.checks import check_range
from loader.graph.interop import has_events, way_to_data
from loader.graph.times import as_times, seed_times
from loader.items import NodeItems
from loader.items.items import as_nodes
from loader.loaders.options import are_distinct, check_distinct
from loader.loaders.torch_options import as_ids, device_of
from loader.machine.arguments import kind_of
from loader.machine.memo import Memo
from loader.pyg.attributes import Attributes, MakeStore
from loader.pyg.data_loader import DataLoader, Sampled
from loader.pyg.edges_read import state_of
from loader.pyg.hetero import (
    counted_times,
    edge_types_of,
    hetero_graph_of,
    hetero_place_of,
    inputs_by_type,
    is_pinned,
    placed,
    shape_of_types,
    tell_untimed,
)
from loader.pyg.options import (
    TimeOptions,
    hops_by_type,
    hops_of,
    large_as_all_of,
    picks_by,
    read_torchs,
    sampler_of,
    subgraph_type_of,
    tree_sampler_of,
)
from loader.samplers.tree_subgraph import EDGES

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

_graphs = Memo()  # loaders of one edge_index share the graph


class NeighborLoader(DataLoader, torch_geometric.loader.NeighborLoader):
    """Mini-batches of a `Data` or `HeteroData` around nodes: `torch_geometric.loader.NeighborLoader` (Hamilton et
    al., 2017).

    All loaders of one `edge_index` share one sorted graph. Graph and features are copied to the GPU if mini-batches
    arrive there. The mini-batches of an epoch depend only on the arguments and on its number, and are the same on the
    CPU and on a GPU. Each `for` is a new epoch. Threads of this process, or the GPU, prepare mini-batches ahead.

    A mini-batch is a `Data` with `edge_index` `[2, E]`, `n_id` `[N]` (the seeds first), `e_id` `[E]`, `input_id`
    `[batch_size]`, `batch_size`, `num_sampled_nodes`, `num_sampled_edges`, and the attributes of `data`: the
    mini-batch's rows of those that have one per node or edge (`x`, `y`, masks, `edge_attr`), and the others whole. Of
    a `HeteroData` it is a `HeteroData`, which has these by node type and edge type.

    Args:
        data: the graph; or `(feature_store, graph_store)`, which takes the plain path. On the plain path the
            thread that iterates makes each mini-batch when it is asked for. The mini-batches are the same, but the
            loader is slower.
        num_neighbors: picks per node and hop, 1 to 1024, or -1 for all neighbors. On the CPU see also
            `SubgraphSampler`. Of several types a list holds for all edge types, or a dict has one for each, from 0;
            above 1024 without replacement, if no node has more neighbors than that.
        input_nodes: `[n]` nodes, or a mask `[num_nodes]`, or None for all nodes. Of several types the name of a
            node type, or `("paper", ids or mask)`. On the CPU a node may be given more than once; each such seed
            picks by itself.
        replace: pick with replacement.
        transform: called with each mini-batch, in the thread that iterates.
        device: where mini-batches are sampled and arrive: "cpu" or a GPU. By default the device of `data.x`.
        features: a function that makes the store of `x`, such as a class of `loader.stores`. By default `HostFeatures`
            on the CPU, and on a GPU the fastest store that there is room for, see `loader.stores.auto_features`.
        graph: where the graph lies for a GPU: "device", in GPU memory, or "pinned", in page-locked host memory.
        input_id: `[n]`, integer, a number for each input node, which a mini-batch has as its `input_id`. It needs
            `input_nodes`. By default the number is the position in `input_nodes`; for a mask, or None, the node's id.
        seed: of the order and of the picks; by default drawn from `generator`, or from torch's.
        subgraph_type: "directional": the picked edges; "bidirectional": and their reverses; "induced": all edges
            among the nodes. The last two have no numbers of nodes and edges per hop. Of several types
            "bidirectional" goes the plain path.
        directed: False is an older way to say "induced".
        is_sorted: an option of torch_geometric without effect here: edges are always sorted once.
        transform_sampler_output, neighbor_sampler, filter_per_worker: as in torch_geometric. The first two go the plain
            path, see `DataLoader`; the last one says whether `collate_fn` calls `filter_fn` there.
        options: of torch's DataLoader: `batch_size`, `shuffle`, `drop_last`, `generator`, and `pin_memory` for
            mini-batches on the CPU. `num_workers` is the number of threads that sample on the CPU (0: one per
            processor), `prefetch_factor` the number of mini-batches held ready. A note in the log says this once.
            `worker_init_fn` is called in the thread that iterates, for each of `num_workers` when an epoch begins, or
            with `persistent_workers` the first one; see `loader.loaders.workers.WorkerInit`. `sampler` and
            `batch_sampler` go the plain path; the picks of ranks that share a `DistributedSampler` are those of one
            sequence. Of `loader.loaders.Loader`: `prefetch`, `rank`, `world_size`.
        weight_attr: name of the edge weights in `data`, integers, float32 or float64, by which neighbors are picked,
            see `weights` of `loader.samplers.base.PickOptions`. Edges of weight 0 are never picked, unless all fanouts
            are -1: then weights decide nothing.
        disjoint: each input node has a tree of its own, up to 8 hops; `batch` of a mini-batch says which tree a node is
            in. An input node may come several times, also on a GPU.
        time_attr: name of the times in `data`, of nodes or of edges: integers, or floats that are whole numbers. Each
            input node has a tree, in which nothing is later than its time. An edge counts as late as its source, or as
            late as it is itself. A type without times is always visible. In a type with times, none may be missing.
        input_time: `[n]`, times of the input nodes, needed for times of edges; by default those of the nodes. A
            mini-batch has them as `seed_time`.
        temporal_strategy: of the neighbors that an input node may know, "uniform" picks any, "last" the latest.
        window: an integer of at least 1, in the unit of the times: only what is later than an input node's time minus
            this. None: no limit.

    Raises:
        NotImplementedError: an option of torch_geometric is not supported.
        TypeError, ValueError: an argument is not as said above.
        NoGpuError: a GPU was asked for and build or machine have none.
    """

    _hooks = torch_geometric.loader.NeighborLoader
    _role, _method = "node_sampler", "sample_from_nodes"

    def __init__(
        self,
        data: Data | HeteroData,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        device: torch.device | str | None = None,
        batch_size: int = 1,
        features: MakeStore | None = None,
        graph: str = "device",
        input_id: Tensor | None = None,
        seed: int | None = None,
        window: int | None = None,
        **options: Any,
    ) -> None:
        who, edge_types = type(self).__name__, edge_types_of(data)
        hetero = edge_types is not None
        of_times = TimeOptions.of(time_attr, input_time, temporal_strategy, disjoint, window)
        place = hetero_place_of(data, device) if hetero else place_of(data, device)
        drawn, meaning = read_torchs(who, place, {**options, "seed": seed})
        shape = subgraph_type_of(subgraph_type, directed)
        hops: Any = hops_of(num_neighbors) if edge_types is None else hops_by_type(num_neighbors, edge_types)
        made: Graph | HeteroGraph
        if hetero:
            made = hetero_graph_of(data, weight_attr, time_attr, place, is_pinned(graph, place))
        else:
            made = graph_of(data, hops, weight_attr, place, graph, time_attr)
        if hetero or of_times.disjoint:
            hops = large_as_all_of(made, hops, replace)
        if of_times.disjoint:
            if shape == "induced":
                raise ValueError("subgraph_type is 'induced', which has no trees; take 'directional'")
            counted, fanouts = counted_times(made, time_attr), hops if hetero else {EDGES: hops or [0]}
            picks = picks_by(weight_attr, hops)
            if temporal_strategy == "last":
                tell_untimed(made, fanouts, counted)
            sampler: Any = tree_sampler_of(fanouts, shape, place, meaning, picks, replace, of_times, counted)
        else:
            sampler = sampler_of(hops, shape_of_types(shape) if hetero else shape, place, meaning, weight_attr, replace)
            if not hetero:
                sampler.check_graph(made)
        self._type, ids, given = inputs_by_type(made, input_nodes)
        seeds, numbers = inputs_of(not hetero and isinstance(data, tuple), len(ids), given, input_id)
        times = None
        if time_attr is not None:
            times = _times_of(made, self._type, seeds, input_time, time_attr)
        self.repeated = not of_times.disjoint and _are_repeated(seeds, len(ids), place)
        self.replace, self.subgraph_type, self.weight_attr, self.graph = replace, shape, weight_attr, graph
        self.input_nodes, self.input_time, self.input_id, self.seed = input_nodes, input_time, input_id, meaning.seed
        self.features, self.is_sorted, self.window = features, is_sorted, window
        self.time_attr, self.temporal_strategy, self.disjoint = time_attr, temporal_strategy, of_times.disjoint
        self.input_data = NodeSamplerInput(input_id=numbers, node=seeds, time=times, input_type=self._type)
        self._positions: Tensor | None = None
        self._numbers = None if numbers is None else numbers.to(place)
        if given is not None and not self.repeated and not of_times.disjoint:
            self._positions = numbers_by_node(seeds, numbers, len(ids), place)
        super().__init__(
            data,
            Sampled(
                _items(seeds.long() + ids.start, ids.start, times, of_times.disjoint) if seeds.numel() else None,
                sampler,
                made,
                hops,
                shape == "directional",
                weight_attr,
                time_attr,
            ),
            batch_size,
            features=features,
            device=place,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=neighbor_sampler,
            drawn=drawn,
            options=meaning,
        )

    def _why_plain(self) -> str | None:
        why = super()._why_plain() or ("nodes that input_nodes holds more than once" if self.repeated else None)
        if why is None and self._type is not None and self.subgraph_type == "bidirectional":
            return "subgraph_type='bidirectional' of several types"
        return why

    def _finish(self, attributes: Attributes, sample: Any) -> Any:
        data = attributes.data_of(sample, by_hop=self._sampled.by_hop)
        nodes = sample.nodes if self._type is None else sample.nodes[self._type]
        seeds, store = nodes[: sample.batch_size], data if self._type is None else data[self._type]
        store.batch_size = sample.batch_size
        if sample.positions is not None:  # of trees, where a node may be a seed several times
            store.input_id = sample.positions if self._numbers is None else self._numbers[sample.positions]
            if sample.seed_times is not None:
                store.seed_time = sample.seed_times
        else:
            store.input_id = seeds if self._positions is None else self._positions[seeds]
        return data


def place_of(data: Any, device: torch.device | str | None) -> torch.device:
    """Where mini-batches arrive: `device`, or by default the device of `data.x`.

    Raises:
        TypeError: `data` is neither a `Data` nor a feature store and a graph store.
    """
    if isinstance(data, tuple) and len(data) == 2 and hasattr(data[0], "get_tensor") and hasattr(data[1], "csc"):
        return device_of(device)
    if not hasattr(data, "num_nodes") or not hasattr(data, "edge_index") or has_events(data):
        raise TypeError(
            f"data is {kind_of(data)}; it must be a torch_geometric.data.Data of one type{way_to_data(data)}"
        )
    x = getattr(data, "x", None)
    return device_of(x.device if device is None and isinstance(x, Tensor) else device)


def graph_of(
    data: Any, hops: Any, weight_attr: str | None, device: torch.device, memory: str, time_attr: str | None = None
) -> Graph:
    """The graph of `data` on `device`; made once, if it has no weights and times.

    Args:
        hops: picks per hop.
        memory: "device" or "pinned".
    """
    pinned = is_pinned(memory, device)
    if isinstance(data, tuple):
        if time_attr is not None:
            raise NotImplementedError(
                f"time_attr is {time_attr!r}, and a feature store of one type does not say whose times these are; give "
                "a Data"
            )
        return placed(_graph_of_store(data[1], weight_attr), device, pinned)
    if not hops and data.num_nodes is not None and "edge_index" not in data and "adj_t" not in data:
        none = torch.empty(0, dtype=torch.int64)  # nobody walks along edges
        return placed(Graph.from_edges(none, none, data.num_nodes), device, pinned)
    owner = data.edge_index if "edge_index" in data else data.get("adj_t")
    if not isinstance(owner, Tensor) or weight_attr is not None or time_attr is not None:
        return placed(Graph.from_pyg(data, weight_attr=weight_attr, time_attr=time_attr), device, pinned)
    state = state_of(owner), data.num_nodes
    made = _graphs.get(owner, state, "graph", lambda: Graph.from_pyg(data).to("cpu"))
    return _graphs.get(owner, state, (device, pinned), lambda: placed(made, device, pinned))


def _graph_of_store(store: Any, weight_attr: str | None) -> Graph:
    """The graph of a `GraphStore` of torch_geometric with one type of edges; an edge's id is its place there."""
    edges = store.get_all_edge_attrs()
    if len(edges) != 1 or edges[0].edge_type is not None:
        types = [attr.edge_type for attr in edges]
        raise TypeError(
            f"the graph store has edges of the types {types}; it must have edges of one type, which is None"
        )
    if weight_attr is not None:
        raise NotImplementedError(f"weight_attr is {weight_attr!r}, but a graph store has no weights; leave it out")
    rows, indptr, places = store.csc()
    size = edges[0].size
    most = indptr.numel() - 1 if size is None else max(n for n in size if n is not None)
    ends = torch.arange(indptr.numel() - 1).repeat_interleave(indptr.diff().cpu())
    pairs = torch.stack([rows.cpu().long(), ends])
    if places is not None:
        pairs = torch.empty_like(pairs).index_copy_(1, places.cpu().long(), pairs)
    return Graph.from_edges(pairs[0], pairs[1], most, keep_edge_ids=True)


def inputs_of(stores: bool, num_nodes: int, input_nodes: Any, input_id: Any) -> tuple[Tensor, Tensor | None]:
    """The seeds, and what is shown of each as its id, or None for its position."""
    if input_nodes is None:
        if input_id is not None:
            raise ValueError("input_id needs input_nodes; give both, or leave input_id out")
        if stores:
            raise ValueError("input_nodes is None, and stores do not say which nodes there are; give input_nodes")
        return torch.arange(num_nodes), None
    seeds = as_ids("input_nodes", input_nodes)
    if seeds.dtype == torch.bool:
        if seeds.shape != (num_nodes,):
            way = ": take one column, mask[:, 0]" if seeds.dim() == 2 else ""
            raise ValueError(f"input_nodes is a mask of shape {list(seeds.shape)}; it must be [{num_nodes}]{way}")
        seeds = seeds.nonzero().view(-1)
        input_id = seeds if input_id is None else input_id
    input_id = None if input_id is None else as_ids("input_id", input_id)
    if input_id is not None and input_id.shape != seeds.shape:
        raise ValueError(
            f"input_id has shape {list(input_id.shape)}, input_nodes {list(seeds.shape)}; they must be equal"
        )
    if input_id is not None and (input_id.is_floating_point() or input_id.is_complex()):
        raise TypeError(f"input_id has dtype {input_id.dtype}; it must be integers, [{seeds.numel()}]")
    if seeds.numel():
        seeds = as_nodes("input_nodes", seeds).cpu()
        check_range("input_nodes", seeds, num_nodes)
    return seeds, input_id


def numbers_by_node(seeds: Tensor, numbers: Tensor | None, num_nodes: int, device: torch.device) -> Tensor:
    """`[num_nodes]` int64 on `device`: what is shown of each seed as its id, by default its position."""
    found = torch.empty(num_nodes, dtype=torch.int64, device=device)
    shown = torch.arange(seeds.numel()) if numbers is None else numbers
    found[seeds.to(device).long()] = shown.to(device)
    return found


def _items(ids: Tensor, first: int, times: Tensor | None, disjoint: bool) -> NodeItems:
    return NodeItems(ids, first=first, times=times, numbered=disjoint)


def _times_of(
    graph: Graph | HeteroGraph, node_type: str | None, seeds: Tensor, input_time: Any, time_attr: str
) -> Tensor:
    """`[n]` int64, the times of the seeds: those given, or by default those of their nodes."""
    if input_time is not None:
        given = as_times("input_time", input_time)
        if given.shape != seeds.shape:
            raise ValueError(
                f"input_time has shape {list(given.shape)}, input_nodes {list(seeds.shape)}; they must be equal"
            )
        return seed_times(given, "input_time").cpu()
    if isinstance(graph, HeteroGraph):
        assert node_type is not None
        times = None
        if node_type in graph.timed_types and graph.lists.node_times is not None:
            ids = graph.node_types[node_type]
            times = graph.lists.node_times[ids.start : ids.stop]
    else:
        times = graph.node_times
    if times is None:
        raise ValueError(f"time_attr is {time_attr!r}, which the input nodes do not have; give input_time")
    return seed_times(times.cpu()[seeds.long()], f"data.{time_attr} of the input nodes")


def _are_repeated(seeds: Tensor, num_nodes: int, device: torch.device) -> bool:
    """Whether a seed is there more than once.

    Raises:
        ValueError: it is, and a GPU samples; or they are all 0 or 1, like a mask.
    """
    if are_distinct("input_nodes", seeds, num_nodes):
        return False
    if device.type == "cuda":
        check_distinct("input_nodes", seeds, num_nodes, ", or take device='cpu'")
    return True
