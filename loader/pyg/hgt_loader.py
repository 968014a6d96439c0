"""torch_geometric's `HGTLoader` on our pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch_geometric.loader.hgt_loader as theirs
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NodeSamplerInput

from loader.items import NodeItems
from loader.loaders.options import check_distinct
from loader.machine.arguments import as_flag, kind_of
from loader.pyg.attributes import Attributes, MakeStore
from loader.pyg.data_loader import DataLoader, Sampled
from loader.pyg.hetero import hetero_graph_of, hetero_place_of, inputs_by_type
from loader.pyg.neighbor_loader import inputs_of, numbers_by_node
from loader.pyg.options import read_torchs
from loader.samplers.hgt import HGTSampler


class HGTLoader(DataLoader, theirs.HGTLoader):
    """Mini-batches of a `HeteroData` by the law of the heterogeneous graph transformer (Hu et al., WWW 2020):
    `torch_geometric.loader.HGTLoader`.

    Each hop draws nodes of each type, see `loader.samplers.HGTSampler`. A mini-batch has all edges among its nodes.
    Whole lists count; torch_geometric looks at 50 random entries of a longer list.

    A mini-batch is a `HeteroData`. Each node type has `n_id` `[N]`, the seeds first, and each edge type `edge_index`
    `[2, E]` and `e_id` `[E]`. The type of the seeds has `input_id` `[batch_size]` and `batch_size`. Attributes of
    `data` are there as `loader.pyg.NeighborLoader` has them. The mini-batches of an epoch depend only on the arguments
    and on its number, and are the same on the CPU and on a GPU. Threads of this process prepare them ahead.

    Args:
        data: the graph, with several types.
        num_samples: numbers of nodes that each hop draws, in hop order, from 0: one list for every node type, or a dict
            with a list per node type, all with the same number of hops.
        input_nodes: the name of a node type, or `("paper", ids or mask)`; None in place of the ids means all nodes.
            Nodes must be distinct.
        is_sorted: an option of torch_geometric without effect here: edges are always sorted once.
        transform: called with each mini-batch, in the thread that iterates.
        transform_sampler_output, filter_per_worker: as in torch_geometric. The first one goes the plain path, see
            `DataLoader`; the other one says whether `collate_fn` calls `filter_fn` there.
        device: where mini-batches are sampled and arrive: "cpu" or a GPU. By default the device of the first `x`.
        features, input_id, seed, options: see `loader.pyg.NeighborLoader`.

    Raises:
        TypeError, ValueError: an argument is not as said above.
        NoGpuError: a GPU was asked for, and there is none.
    """

    _hooks = theirs.HGTLoader
    _role, _method = "node_sampler", "sample_from_nodes"

    def __init__(
        self,
        data: HeteroData,
        num_samples: Sequence[int] | Mapping[str, Sequence[int]],
        input_nodes: str | tuple[str, Tensor | None],
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        *,
        device: torch.device | str | None = None,
        batch_size: int = 1,
        features: MakeStore | None = None,
        input_id: Tensor | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        who = type(self).__name__
        if not isinstance(data, HeteroData):
            raise TypeError(f"data is {kind_of(data)}; {who} takes a torch_geometric.data.HeteroData")
        place = hetero_place_of(data, device)
        drawn, meaning = read_torchs(who, place, {**options, "seed": seed})
        threads = meaning.num_threads if place.type == "cpu" else None
        sampler = HGTSampler(num_samples, edge_ids=True, seed=meaning.seed, device=place, num_threads=threads)
        graph = hetero_graph_of(data, None, None, place, False)
        sampler.counts_of(graph)  # says what is wrong
        self._type, ids, given = inputs_by_type(graph, input_nodes)
        seeds, numbers = inputs_of(False, len(ids), given, input_id)
        check_distinct("input_nodes", seeds, len(ids))
        self.num_samples, self.is_sorted = sampler.num_samples, as_flag("is_sorted", is_sorted)
        self.input_nodes, self.input_time, self.input_id, self.seed = input_nodes, None, input_id, meaning.seed
        self.features = features
        self.input_data = NodeSamplerInput(input_id=numbers, node=seeds, time=None, input_type=self._type)
        self._positions = None if given is None else numbers_by_node(seeds, numbers, len(ids), place)
        super().__init__(
            data,
            Sampled(
                NodeItems(seeds.long() + ids.start, first=ids.start) if seeds.numel() else None,
                sampler,
                graph,
                num_neighbors=None,
                by_hop=False,
                weight_attr=None,
            ),
            batch_size,
            features=features,
            device=place,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=None,
            drawn=drawn,
            options=meaning,
        )

    def _finish(self, attributes: Attributes, sample: Any) -> Any:
        data = attributes.data_of(sample, by_hop=False)
        seeds, store = sample.nodes[self._type][: sample.batch_size], data[self._type]
        store.batch_size = sample.batch_size
        store.input_id = seeds if self._positions is None else self._positions[seeds]
        return data
