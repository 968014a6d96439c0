"""torch_geometric's `NeighborLoader`, with our pipeline under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader.graph import Graph
from loader.items import Items, NodeItems
from loader.loader import Loader
from loader.pyg.attributes import Attributes, MakeStore
from loader.pyg.options import device_of, read_options, refuse
from loader.samplers import Sampler, SubgraphSampler

if TYPE_CHECKING:
    from torch_geometric.data import Data


class DataLoader:
    """Base of the loaders that give `torch_geometric.data.Data`: what a sampler gives, made into one.

    Attributes:
        data: the whole graph.
        loader: the `loader.loader.Loader` that samples and gathers: its statistics, its `max_bytes`.
        transform: called with each mini-batch, in the thread that iterates.
    """

    def __init__(self, data: Data, loader: Loader, transform: Callable[[Any], Any] | None, pin: bool) -> None:
        self.data, self.loader, self.transform, self._pin = data, loader, transform, pin

    def _finish(self, sample: Any) -> Data:
        """The `Data` of what the sampler gave."""
        raise NotImplementedError

    @property
    def batch_size(self) -> int:
        return self.loader.batch_size

    @property
    def device(self) -> torch.device:
        """Where the mini-batches arrive."""
        return self.loader.device

    @property
    def stats(self) -> Any:
        """Seconds and bytes of the stages, a `PipelineStats`."""
        return self.loader.stats

    def __len__(self) -> int:
        """Mini-batches of an epoch, on each rank."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """One epoch; see `loader.loader.Loader`."""
        for sample in self.loader:
            data = self._finish(sample)
            if self._pin:
                data = data.pin_memory()
            yield data if self.transform is None else self.transform(data)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next to be iterated over."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer stands; see `loader.loader.Loader`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state` was taken."""
        self.loader.load_state_dict(state)

    def close(self) -> None:
        """Ends the iterator that runs, and frees threads and workspaces; the next epoch makes them anew."""
        self.loader.release()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.loader!r})"


class NeighborLoader(DataLoader):
    """Mini-batches of a `Data` around vertices: `torch_geometric.loader.NeighborLoader` (Hamilton et al., 2017).

    The graph is sorted once, when the loader is made; graph and features go to the GPU if mini-batches arrive there.
    What an epoch holds is a function of the arguments and of its number, the same on the CPU and on a GPU. Each `for`
    is an epoch of its own. Mini-batches are made ahead, by threads of this process or by the GPU.

    A mini-batch is a `Data` with `edge_index` `[2, E]`, `n_id` `[N]` (the seeds first), `e_id` `[E]`, `input_id`
    `[batch_size]`, `batch_size`, `num_sampled_nodes`, `num_sampled_edges`, and the attributes of `data`: rows of those
    that have one per vertex or edge (`x`, `y`, masks, `edge_attr`), all of the others.

    Args:
        data: the graph, of one type, on the CPU or where mini-batches arrive.
        num_neighbors: picks per vertex and hop, 1 to 1024, or -1 for all neighbours.
        input_nodes: `[n]` distinct vertices, or a mask `[num_nodes]`, or None for all vertices.
        replace: pick with replacement.
        transform: called with each mini-batch, in the thread that iterates.
        device: where mini-batches arrive, and where they are sampled: "cpu" (None) or a GPU.
        features: makes the store of `x`, as `loader.stores` has them; by default rows of the tensor on the CPU, and on
            a GPU the fastest store that there is room for, see `loader.stores.auto_features`.
        graph: where a GPU reads the graph: "device" in its memory, "pinned" in host memory, page-locked.
        input_id: `[n]`, what `input_id` of a mini-batch shows instead of positions in `input_nodes`.
        seed: of the order and of the picks; by default drawn from `generator`, or from torch's.
        options: of torch's DataLoader: `batch_size`, `shuffle`, `drop_last`, `generator`, `pin_memory` for mini-batches
            on the CPU. `num_workers` is the number of threads that sample on the CPU (0: one per processor), and
            `prefetch_factor` the mini-batches held ready; `persistent_workers` changes nothing, threads stay. A note
            in the log of `loader.pyg` says so once. Of `loader.loader.Loader`: `prefetch`, `rank`, `world_size`.
        input_time, subgraph_type, disjoint, temporal_strategy, time_attr, weight_attr, transform_sampler_output,
            neighbor_sampler, directed: of torch_geometric; must have their defaults.

    Raises:
        NotImplementedError: an option of torch_geometric that there is not.
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
            {
                "input_time": (input_time, None),
                "subgraph_type": (subgraph_type, "directional"),
                "disjoint": (disjoint, False),
                "temporal_strategy": (temporal_strategy, "uniform"),
                "time_attr": (time_attr, None),
                "weight_attr": (weight_attr, None),
                "transform_sampler_output": (transform_sampler_output, None),
                "neighbor_sampler": (neighbor_sampler, None),
                "directed": (directed, True),
            },
        )
        place = device_of(device)
        meaning = read_options(type(self).__name__, place, **options)
        items, input_id = _inputs(data, input_nodes, input_id)
        sampler = SubgraphSampler(
            list(num_neighbors),
            device=place,
            num_threads=meaning.num_threads,
            replace=replace,
            edge_ids=True,
            seed=meaning.seed,
        )
        self._attributes = Attributes(data, place, features)
        self._positions: Tensor | None = None
        if input_nodes is not None:
            self._positions = torch.empty(data.num_nodes, dtype=torch.int64, device=place)
            shown = torch.arange(len(items)) if input_id is None else input_id
            self._positions[items.ids.to(place).long()] = shown.to(place)
        loader = make_loader(data, items, sampler, batch_size, self._attributes, graph, place, meaning)
        super().__init__(data, loader, transform, meaning.pin)

    def _finish(self, sample: Any) -> Data:
        data = self._attributes.data_of(sample)
        seeds = sample.nodes[: sample.batch_size]
        data.input_id = seeds if self._positions is None else self._positions[seeds]
        data.batch_size = sample.batch_size
        return data


def make_loader(
    data: Data,
    items: Items,
    sampler: Sampler,
    batch_size: int,
    attributes: Attributes,
    graph: str,
    device: torch.device,
    meaning: Any,
) -> Loader:
    """The loader under one of torch_geometric's form.

    Raises:
        ValueError: `graph` is neither "device" nor "pinned".
    """
    if graph not in ("device", "pinned"):
        raise ValueError(f"graph is {graph!r}; it must be 'device' or 'pinned'")
    made = Graph.from_pyg(data)
    return Loader(
        made.pin_memory() if device.type == "cuda" and graph == "pinned" else made.to(device),
        items,
        sampler,
        batch_size,
        stores=attributes.stores,
        seed=meaning.seed,
        device=device,
        **meaning.options,
    )


def _inputs(data: Data, input_nodes: Any, input_id: Tensor | None) -> tuple[NodeItems, Tensor | None]:
    """The seeds, and what is shown of each as its id, or None for its position."""
    num_nodes = data.num_nodes
    if num_nodes is None:
        raise ValueError("data does not say how many vertices it has; set num_nodes")
    if input_nodes is None:
        if input_id is not None:
            raise ValueError("input_id needs input_nodes, whose ids it gives")
        return NodeItems(torch.arange(num_nodes)), None
    seeds = input_nodes if isinstance(input_nodes, Tensor) else torch.as_tensor(input_nodes)
    if seeds.dtype == torch.bool:
        if seeds.shape != (num_nodes,):
            raise ValueError(f"input_nodes is a mask of shape {list(seeds.shape)}; it must be [{num_nodes}]")
        seeds = seeds.nonzero().view(-1)
        input_id = seeds if input_id is None else input_id
    if input_id is not None and input_id.shape != seeds.shape:
        raise ValueError(f"input_id has shape {list(input_id.shape)}, input_nodes {list(seeds.shape)}; they are equal")
    items = NodeItems(seeds.cpu())
    low, high = (int(x) for x in torch.aminmax(items.ids))
    if low < 0 or high >= num_nodes:
        raise ValueError(f"input_nodes holds vertex {low if low < 0 else high}; valid ids are 0 to {num_nodes - 1}")
    values, counts = items.ids.unique(return_counts=True)
    if values.numel() != len(items):
        raise ValueError(
            f"input_nodes holds vertex {int(values[counts > 1][0])} more than once; take input_nodes.unique(), or "
            "torch_geometric's own loader"
        )
    return items, input_id
