"""torch_geometric's `LastNeighborLoader`, on our trees by time: the latest neighbors of nodes, on the CPU or a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.graph import HeteroGraph
from loader.graph.checks import check_integers
from loader.machine.arguments import as_size, kind_of
from loader.samplers import TreeSampler

_EDGES = ("node", "to", "node")


class LastNeighborLoader:
    """The last neighbors of nodes before an event of a `TemporalData`, as in torch_geometric's TGN.

    For example::

        neighbors = LastNeighborLoader(data, size=10, device="cuda")
        for batch in TemporalDataLoader(data[:train_end], batch_size=200):
            n_id, edge_index, e_id = neighbors(batch.n_id)
            ...
            neighbors.insert(batch.src, batch.dst)

    torch_geometric's class takes `num_nodes`; this one takes `data`, all events at once. The results are the same. A
    call returns neighbors from the first `cur_e_id` events, and `insert` raises `cur_e_id` by the number of its events.
    So a node never sees an event of its own mini-batch, even one of equal time. `cur_e_id` is the whole state: to
    resume a run, set it.

    Args:
        data: the events in their order, with `src` and `dst`, `[num_events]` integers; a neighbor is at either end.
        size: the most neighbors of a node, 1 to 1,024.
        device: where neighbors are looked for and returned.

    Attributes:
        cur_e_id: how many events are known.

    Raises:
        TypeError, ValueError: `data` has no such events, or `size` or `device` is out of range.
        RuntimeError: a GPU was asked for and build or machine have none.
    """

    def __init__(self, data: Any, size: int, device: torch.device | str = "cpu") -> None:
        src, dst = getattr(data, "src", None), getattr(data, "dst", None)
        if not isinstance(src, Tensor) or not isinstance(dst, Tensor) or src.dim() != 1 or src.shape != dst.shape:
            raise TypeError(f"data is {kind_of(data)}; it must be a TemporalData with vectors src and dst")
        for name, ends in (("data.src", src), ("data.dst", dst)):
            check_integers(name, ends, ": give the nodes numbers")
        self.size, self.cur_e_id, self.num_events = as_size("size", size), 0, src.numel()
        self._sampler = TreeSampler([self.size], times="edge", rule="<", last=True, edge_ids=True, device=device)
        self._ends = torch.stack([src, dst]).long().cpu()
        num_nodes = int(self._ends.max()) + 1 if self.num_events else 0
        both = torch.cat([self._ends, self._ends.flip(0)], 1)
        times = torch.arange(self.num_events).repeat(2)  # equal times are in the order of the events
        graph = HeteroGraph.from_edges({_EDGES: both}, {"node": num_nodes}, edge_times={_EDGES: times})
        self._graph = graph.to(self._sampler.device)

    def __call__(self, n_id: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Neighbors of some nodes.

        Args:
            n_id: `[n]` nodes.

        Returns:
            `[m]` int64, the nodes and their neighbors, distinct and ascending; `[2, num_edges]` int64, places of
            neighbors and of nodes among these, the latest neighbor of a node first; `[num_edges]` int64, numbers of the
            events.

        Raises:
            ValueError: an id is negative, or above the highest id in the events. A node in no event has no neighbors.
        """
        device = self._sampler.device
        nodes = n_id.to(device)
        known = torch.full((nodes.numel(),), self.cur_e_id, device=device)
        batch = self._sampler.sample(self._graph, nodes, known)
        (block,) = batch.blocks
        count = block.indptr.diff().long()
        row = torch.arange(nodes.numel(), device=device).repeat_interleave(count)
        begin = block.indptr[:-1].long()[row]
        latest_first = 2 * begin + count[row] - 1 - torch.arange(row.numel(), device=device)
        assert block.edge_ids is not None
        found = batch.nodes[block.indices[latest_first].long()].long()
        every, place = torch.cat([nodes.long(), found]).unique(return_inverse=True)
        of_nodes, of_found = place[: nodes.numel()], place[nodes.numel() :]
        e_id = block.edge_ids[latest_first].long() % max(self.num_events, 1)
        return every, torch.stack([of_found, of_nodes[row]]), e_id

    def insert(self, src: Tensor, dst: Tensor) -> None:
        """Makes the next events known.

        Raises:
            ValueError: they are not those of the data.
        """
        until = self.cur_e_id + src.numel()
        if not torch.equal(torch.stack([src, dst]).long().cpu(), self._ends[:, self.cur_e_id : until]):
            raise ValueError(
                f"the {src.numel()} events are not those of the data from event {self.cur_e_id} on; insert them in "
                "order, or call reset_state() before the first"
            )
        self.cur_e_id = until

    def reset_state(self) -> None:
        """Makes all events unknown."""
        self.cur_e_id = 0
