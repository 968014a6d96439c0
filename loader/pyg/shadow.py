"""torch_geometric's `ShaDowKHopSampler` on our core."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import torch_geometric.loader.shadow as theirs
from torch import Tensor

from loader.items.items import as_nodes
from loader.loaders.options import are_distinct
from loader.loaders.torch_options import as_ids
from loader.machine.arguments import as_size, kind_of
from loader.pyg.edges_read import EdgesRead
from loader.pyg.neighbor_loader import graph_of, place_of
from loader.pyg.numbered_loader import Numbered, NumberedLoader, owner_of, rows_of, without_own
from loader.pyg.options import large_as_all
from loader.samplers.ego import EgoGraphs, EgoSampler

if TYPE_CHECKING:
    from torch_geometric.data import Batch, Data


class _Roots(list[int]):
    """The nodes that are asked for; of a mini-batch with its numbers."""

    def __getitems__(self, places: Any) -> Numbered:
        items = [self[i] for i in places]
        return Numbered.of(items, getattr(places, "epoch", 0), getattr(places, "number", 0))


class ShaDowKHopSampler(NumberedLoader, theirs.ShaDowKHopSampler):
    """`torch_geometric.loader.ShaDowKHopSampler`: mini-batches of the ego graphs of nodes, each with all its edges.

    A mini-batch is a `Batch` with an ego graph for each node: `batch` `[N]` and `ptr` say which nodes are whose,
    `root_n_id` where the nodes that were asked for are. It has the rows of the attributes of `data` by node and by
    edge, and of `y` those of the nodes that were asked for. Nodes of an ego graph ascend by id, edges by source and
    target. If `data` has `adj_t`, so has the mini-batch, with the same layout.

    Copies of a node in a tree of picks are expanded independently, as in torch_geometric. What is picked is a pure
    function of (seed, epoch, number of the mini-batch), with any number of workers, on the CPU and on a GPU.

    Args:
        data: the graph, of one type.
        depth: hops, 0 to 8.
        num_neighbors: picks per node and hop, 1 to 1024, or -1 for all. More are possible without replacement, if no
            node has more neighbors.
        node_idx: `[n]` nodes, or a mask `[num_nodes]`, or None for all.
        replace: pick with replacement, also from lists that are no longer than `num_neighbors`; torch_geometric takes
            these whole.
        device: where mini-batches are sampled and arrive: "cpu" or a GPU. By default the device of `data.x`. For a GPU
            there must be no workers.
        seed: of the order and of the picks; by default drawn from `generator`, or from torch's.
        options: of torch's DataLoader: `batch_size`, `shuffle`, `num_workers` and so on.

    Raises:
        TypeError, ValueError: an argument is not as said above.
        NoGpuError: a GPU was asked for and build or machine have none.
    """

    def __init__(
        self,
        data: Data,
        depth: int,
        num_neighbors: int,
        node_idx: Tensor | None = None,
        replace: bool = False,
        *,
        device: torch.device | str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        who = type(self).__name__
        place = place_of(data, device)
        if isinstance(data, tuple):
            raise TypeError(f"data is {kind_of(data)}; {who} takes a torch_geometric.data.Data")
        options = without_own(who, place, options)
        self.data, self.depth, self.num_neighbors, self.replace = copy.copy(data), depth, num_neighbors, replace
        self.device = place
        self.is_sparse_tensor = getattr(data, "edge_index", None) is None
        self._graph = graph_of(data, [num_neighbors], None, place, "device")
        self._read = EdgesRead(data, None, self._graph)
        num_nodes = self._graph.num_nodes
        picks = num_neighbors
        if as_size("num_neighbors", num_neighbors, least=-1) != -1:
            (picks,) = large_as_all("the graph", [num_neighbors], self._most, replace)
        if node_idx is None:
            node_idx = torch.arange(num_nodes)
        else:
            node_idx = as_ids("node_idx", node_idx)
            if node_idx.dtype == torch.bool:
                if node_idx.shape != (num_nodes,):
                    raise ValueError(f"node_idx is a mask of shape {list(node_idx.shape)}; it must be [{num_nodes}]")
                node_idx = node_idx.nonzero().view(-1)
            if node_idx.numel():
                node_idx = as_nodes("node_idx", node_idx)
                are_distinct("node_idx", node_idx, num_nodes)  # they need not be, but neither are they a mask
        self.node_idx = node_idx
        self._init_numbered(_Roots(node_idx.tolist()), seed, collate_fn=self.__collate__, **options)
        threads = 1 if options.get("num_workers") else None  # a worker is one of many
        self._sampler = EgoSampler(depth, picks, replace=replace, seed=self.seed, device=place, num_threads=threads)

    def _most(self) -> int:
        degrees = self._graph.in_degrees()
        return int(degrees.max()) if degrees.numel() else 0

    def __collate__(self, n_id: Any) -> Batch:
        """The mini-batch of the nodes `n_id`; in an epoch they know the numbers that decide the picks."""
        self._read.check(self.data, type(self).__name__, counted=True)  # for each mini-batch
        ids = torch.tensor(list(n_id), dtype=torch.int64)
        if isinstance(n_id, Numbered):
            epoch, number = n_id.epoch, n_id.number
        else:  # a mini-batch by itself
            epoch, number = int(torch.empty((), dtype=torch.int64).random_()), 0
        found = self._sampler.sample(self._graph, ids, epoch=epoch, batch=number)
        return self._batch_of(found)

    def _batch_of(self, found: EgoGraphs) -> Batch:
        from torch_geometric.data import Batch

        batch = Batch(batch=found.tree, ptr=found.ptr)
        batch.root_n_id = found.roots
        edge_ids, pairs = found.edge_ids.long(), found.edge_index
        if self.is_sparse_tensor:
            batch.adj_t = adjacency_like(self.data.adj_t, pairs, edge_ids, found.nodes.numel())
        else:
            order = torch.argsort(pairs[0], stable=True)  # within a source by target, as they come
            batch.edge_index, edge_ids = pairs[:, order], edge_ids[order]
        num_nodes, num_edges = self._graph.num_nodes, self._graph.num_edges
        for name, value in self.data:
            if name in ("edge_index", "adj_t", "num_nodes", "batch", "ptr"):
                continue
            owner = owner_of(name, value, num_nodes, num_edges)
            if owner == "node":
                batch[name] = rows_of(value, found.nodes[found.roots] if name == "y" else found.nodes)
            else:
                batch[name] = value if owner is None else rows_of(value, edge_ids)
        return batch


def adjacency_like(whole: Any, pairs: Tensor, edge_ids: Tensor, num_nodes: int) -> Any:
    """The transposed adjacency matrix of edges that ascend by target, of the kind that `whole` is.

    Args:
        pairs: `[2, E]` sources and targets.
        edge_ids: `[E]` places of the edges among the entries of `whole`.
    """
    if not isinstance(whole, Tensor):  # a SparseTensor of torch_sparse
        value = whole.storage.value()
        return type(whole)(
            row=pairs[1],
            col=pairs[0],
            value=None if value is None else rows_of(value, edge_ids),
            sparse_sizes=(num_nodes, num_nodes),
            is_sorted=True,
        )
    size = (num_nodes, num_nodes)
    if whole.layout == torch.sparse_coo:
        values = whole._values()[edge_ids]
        return torch.sparse_coo_tensor(pairs.flip(0), values, size, check_invariants=False)
    lengths = torch.bincount(pairs[1], minlength=num_nodes)
    indptr = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    values = whole.values()[edge_ids]
    return torch.sparse_csr_tensor(indptr, pairs[0], values, size, check_invariants=False)
