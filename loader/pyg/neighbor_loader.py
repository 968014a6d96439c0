"""torch_geometric's `NeighborLoader` on our pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader.graph import Graph
from loader.graph.interop import way_to_data
from loader.items import Items, NodeItems
from loader.items.items import as_vertices
from loader.loaders.base import Loader
from loader.loaders.options import check_distinct, check_graph_memory
from loader.loaders.torch_options import DataLoaderOptions, as_fanouts, as_ids, device_of, read_options, refuse
from loader.machine.arguments import kind_of, shown
from loader.machine.kept import Kept, Seen, version_of
from loader.pyg.attributes import Attributes, MakeStore
from loader.samplers import Sampler, SubgraphSampler
from loader.stores.base import check_store_factory

if TYPE_CHECKING:
    from torch_geometric.data import Data

THEIRS = (
    "torch_geometric's own loader: `import loader.pyg` lets it sample on our core, which says by itself what it cannot"
)

_graphs = Kept()  # loaders of one edge_index share the graph


class DataLoader:
    """Base of the loaders that convert samples to `torch_geometric.data.Data`.

    The attributes of `data` are read when an epoch begins. Between epochs they may be added, changed, replaced or
    deleted. The edges, and the weights by which neighbours are picked, are read when the loader is made. If they are
    others when an epoch begins, an error says so.

    Attributes:
        data: the whole graph.
        transform: called with each mini-batch, in the thread that iterates.
        device: where the mini-batches arrive.
    """

    def __init__(
        self,
        data: Data,
        items: Items,
        sampler: Sampler,
        batch_size: int,
        *,
        weight_attr: str | None,
        features: MakeStore | None,
        graph: str,
        device: torch.device,
        transform: Callable[[Any], Any] | None,
        options: DataLoaderOptions,
    ) -> None:
        check_graph_memory(graph)
        if graph == "pinned" and device.type == "cpu":
            raise ValueError(
                "graph is 'pinned', for a GPU to read, but mini-batches are sampled on the CPU; leave it out"
            )
        if transform is not None and not callable(transform):
            raise TypeError(f"transform is {shown(transform)}; it must be a function of a mini-batch, or None")
        if features is not None:
            check_store_factory(features)
        self.data, self.transform, self.device = data, transform, device
        self._pin = options.pin
        self._attributes: Attributes | None = None
        self._features = features
        self._weight_attr = weight_attr
        self._num_nodes, self._read = data.num_nodes, self._read_once()
        made = _graph_of(data, weight_attr, device, pinned=graph == "pinned")
        given = {"seed": options.seed, "device": device, **options.loader}
        self._make = partial(Loader, made, items, sampler, batch_size, **given)
        self._loader: Loader | None = None
        self._begin: dict[str, Any] | None = None  # where a copy begins
        self._length = len(self._make(stores={}))  # says at once what is wrong
        self._items, self.batch_size = items, batch_size

    def _finish(self, attributes: Attributes, sample: Any) -> Data:
        """The `Data` of what the sampler gave."""
        raise NotImplementedError

    @property
    def loader(self) -> Loader:
        """The `loader.loaders.Loader` that samples and gathers, with its statistics and `max_bytes`."""
        if self._loader is None:
            self._attributes = Attributes(self.data, self.device, self._features)
            self._loader = self._make(stores=self._attributes.stores)
            if self._begin is not None:
                self._loader.load_state_dict(self._begin)
        return self._loader

    def __getstate__(self) -> dict[str, Any]:
        """A copy (`pickle`, `copy`) goes on where this one is, with the attributes of its own `data`."""
        begin = self._begin if self._loader is None else self._loader.state_dict()
        read = None if self._differs(self._read_once()) is None else self._read  # None: what the copy finds
        return self.__dict__ | {"_attributes": None, "_loader": None, "_begin": begin, "_read": read}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._read is None:
            self._read = self._read_once()

    def _differs(self, now: dict[str, Seen]) -> str | None:
        """What the sampler read and is another `now`; None if all is as it was."""
        read = self._read
        return next((name for name, seen in now.items() if name not in read or not read[name].has(seen.value)), None)

    def _read_once(self) -> dict[str, Seen]:
        """What the sampler read, of what `data` has now."""
        names = ("edge_index", "adj_t", self._weight_attr)
        return {name: Seen.of(self.data[name]) for name in names if name is not None and name in self.data}

    def _current(self) -> tuple[Loader, Attributes]:
        """The loader, with the attributes that `data` has now.

        Raises:
            ValueError: `data` has other edges or vertices, or other weights to pick by, than when this was made.
        """
        now = self._read_once()
        if (name := self._differs(now)) is not None:
            raise ValueError(
                f"data.{name} is another than when this {type(self).__name__} was made, which read it then; make a "
                "new loader"
            )
        said = "num_nodes" in self.data._store or isinstance(self.data.get("x"), Tensor)  # else it is a guess
        if said and self.data.num_nodes != self._num_nodes:
            raise ValueError(
                f"data has {self.data.num_nodes} vertices now and had {self._num_nodes} when this "
                f"{type(self).__name__} was made; make a new loader"
            )
        self._read |= now
        loader = self.loader
        assert self._attributes is not None
        if not self._attributes.are_those_of(self.data):
            before = self._attributes
            self._attributes = Attributes(
                self.data, self.device, self._features, before, lambda: loader.gather_from({})
            )
            if loader.stores != self._attributes.stores:
                loader.gather_from(self._attributes.stores)
        return loader, self._attributes

    @property
    def stats(self) -> Any:
        """Seconds and bytes of the stages, a `PipelineStats`."""
        return self.loader.stats

    @property
    def dataset(self) -> range:
        """The numbers of the items of an epoch, an attribute of torch's DataLoader."""
        return range(len(self._items))

    def __len__(self) -> int:
        """Mini-batches of an epoch, on each rank."""
        return self._length

    def __iter__(self) -> Iterator[Any]:
        """One epoch; see `loader.loaders.Loader`."""
        loader, attributes = self._current()
        for sample in loader:
            data = self._finish(attributes, sample)
            if self._pin:
                data = data.pin_memory()
            yield data if self.transform is None else self.transform(data)

    @property
    def batch_sampler(self) -> Any:
        """Where Lightning looks for `set_epoch`, as in torch's loaders."""
        return self.loader.batch_sampler

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next epoch."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The position of the consumer; see `loader.loaders.Loader`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken."""
        self.loader.load_state_dict(state)

    def close(self) -> None:
        """Ends the running iterator, and frees threads and workspaces. The next epoch makes new ones."""
        if self._loader is not None:
            self._loader.release()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(items={len(self._items)}, batch_size={self.batch_size}, batches={len(self)}, "
            f"device='{self.device}')"
        )


class NeighborLoader(DataLoader):
    """Mini-batches of a `Data` around vertices: `torch_geometric.loader.NeighborLoader` (Hamilton et al., 2017).

    All loaders of one `edge_index` share one sorted graph. Graph and features are copied to the GPU if mini-batches
    arrive there. The mini-batches of an epoch depend only on the arguments and on its number, and are the same on the
    CPU and on a GPU. Each `for` is a new epoch. Threads of this process, or the GPU, prepare mini-batches ahead.

    A mini-batch is a `Data` with `edge_index` `[2, E]`, `n_id` `[N]` (the seeds first), `e_id` `[E]`, `input_id`
    `[batch_size]`, `batch_size`, `num_sampled_nodes`, `num_sampled_edges`, and the attributes of `data`: the
    mini-batch's rows of those that have one per vertex or edge (`x`, `y`, masks, `edge_attr`), and the others whole.

    Args:
        data: the graph, of one type.
        num_neighbors: picks per vertex and hop, 1 to 1024, or -1 for all neighbours.
        input_nodes: `[n]` distinct vertices, or a mask `[num_nodes]`, or None for all vertices.
        replace: pick with replacement.
        transform: called with each mini-batch, in the thread that iterates.
        device: where mini-batches are sampled and arrive: "cpu" or a GPU. By default the device of `data.x`.
        features: a function that makes the store of `x`, such as a class of `loader.stores`. By default `HostFeatures`
            on the CPU, and on a GPU the fastest store that there is room for, see `loader.stores.auto_features`.
        graph: where the graph lies for a GPU: "device", in GPU memory, or "pinned", in page-locked host memory.
        input_id: `[n]`, numbers of the input nodes, for `input_id` of a mini-batch; by default positions in
            `input_nodes`.
        seed: of the order and of the picks; by default drawn from `generator`, or from torch's.
        is_sorted, filter_per_worker: options of torch_geometric without effect here: edges are always sorted once, and
            there are no workers.
        options: of torch's DataLoader: `batch_size`, `shuffle`, `drop_last`, `generator`, and `pin_memory` for
            mini-batches on the CPU. `num_workers` is the number of threads that sample on the CPU (0: one per
            processor), `prefetch_factor` the number of mini-batches held ready. `persistent_workers` has no effect,
            because threads stay. A note in the log says this once. Of `loader.loaders.Loader`: `prefetch`, `rank`,
            `world_size`.
        weight_attr: name of the edge weights in `data`, float32 or float64, by which neighbours are picked, see
            `weights` of `loader.samplers.base.PickOptions`. Edges of weight 0 are never picked.
        input_time: an option of torch_geometric that must have its default, like `subgraph_type`, `disjoint`,
            `temporal_strategy`, `time_attr`, `transform_sampler_output`, `neighbor_sampler` and `directed`.

    Raises:
        NotImplementedError: an option of torch_geometric is not supported.
        TypeError, ValueError: an argument is not as said above.
        NoGpuError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        data: Data,
        num_neighbors: Sequence[int],
        input_nodes: Tensor | Sequence[int] | None = None,
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
        **options: Any,
    ) -> None:
        refuse(
            type(self).__name__,
            THEIRS,
            {
                "input_time": (input_time, None),
                "subgraph_type": (subgraph_type, "directional"),
                "disjoint": (disjoint, False),
                "temporal_strategy": (temporal_strategy, "uniform"),
                "time_attr": (time_attr, None),
                "transform_sampler_output": (transform_sampler_output, None),
                "neighbor_sampler": (neighbor_sampler, None),
                "directed": (directed, True),
            },
        )
        place = place_of(data, device)
        meaning = read_options(type(self).__name__, place, **options)
        items, input_id = _inputs(data, input_nodes, input_id)
        self._positions: Tensor | None = None
        if input_nodes is not None:
            self._positions = torch.empty(data.num_nodes, dtype=torch.int64, device=place)
            shown = torch.arange(len(items)) if input_id is None else input_id
            self._positions[items.ids.to(place).long()] = shown.to(place)
        super().__init__(
            data,
            items,
            subgraph_sampler(num_neighbors, replace, weight_attr, place, meaning),
            batch_size,
            weight_attr=weight_attr,
            features=features,
            graph=graph,
            device=place,
            transform=transform,
            options=meaning,
        )

    def _finish(self, attributes: Attributes, sample: Any) -> Data:
        data = attributes.data_of(sample)
        seeds = sample.nodes[: sample.batch_size]
        data.input_id = seeds if self._positions is None else self._positions[seeds]
        data.batch_size = sample.batch_size
        return data


def place_of(data: Data, device: torch.device | str | None) -> torch.device:
    """Where mini-batches arrive: `device`, or by default the device of `data.x`."""
    if not hasattr(data, "num_nodes") or not hasattr(data, "edge_index"):
        raise TypeError(
            f"data is {kind_of(data)}; it must be a torch_geometric.data.Data of one type{way_to_data(data)}"
        )
    x = getattr(data, "x", None)
    return device_of(x.device if device is None and isinstance(x, Tensor) else device)


def subgraph_sampler(
    num_neighbors: Sequence[int],
    replace: bool,
    weight_attr: str | None,
    device: torch.device,
    options: DataLoaderOptions,
) -> SubgraphSampler:
    """The sampler of neighbourhoods in torch_geometric's form."""
    return SubgraphSampler(
        as_fanouts("num_neighbors", num_neighbors),
        device=device,
        num_threads=options.num_threads,
        replace=replace,
        edge_ids=True,
        seed=options.seed,
        weights=None if weight_attr is None else "edge_weights",
    )


def _graph_of(data: Data, weight_attr: str | None, device: torch.device, *, pinned: bool) -> Graph:
    """The graph of `data` on `device`; made once, if it has no weights."""
    owner = data.edge_index if "edge_index" in data else data.get("adj_t")
    if not isinstance(owner, Tensor) or weight_attr is not None:
        return _placed(Graph.from_pyg(data, weight_attr=weight_attr), device, pinned)
    state = version_of(owner), data.num_nodes
    made = _graphs.get(owner, state, "graph", lambda: Graph.from_pyg(data).to("cpu"))
    return _graphs.get(owner, state, (device, pinned), lambda: _placed(made, device, pinned))


def _placed(graph: Graph, device: torch.device, pinned: bool) -> Graph:
    return graph.pin_memory() if device.type == "cuda" and pinned else graph.to(device)


def _inputs(data: Data, input_nodes: Any, input_id: Tensor | None) -> tuple[NodeItems, Tensor | None]:
    """The seeds, and what is shown of each as its id, or None for its position."""
    num_nodes = data.num_nodes
    if num_nodes is None:
        raise ValueError("data does not say how many vertices it has; set num_nodes")
    if input_nodes is None:
        if input_id is not None:
            raise ValueError("input_id needs input_nodes; give both, or leave input_id out")
        return NodeItems(torch.arange(num_nodes)), None
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
    items = NodeItems(as_vertices("input_nodes", seeds).cpu())
    check_distinct("input_nodes", items.ids, num_nodes, f", or take {THEIRS}")
    return items, input_id
