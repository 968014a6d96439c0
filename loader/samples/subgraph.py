"""A sampled neighborhood as one graph, in which the neighbors of each node were picked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from loader.samples.base import Rows, Sample
from loader.samples.block import Blocks
from loader.samples.lazy_rows import gathered


@dataclass(eq=False)
class Subgraph(Sample):
    """The neighborhood of a batch of seeds in torch_geometric's form: a model applies all edges at every layer.

    Each node has the neighbors that are picked for it at the hop after the one that first met it.

    Attributes:
        nodes: `[N]` int64 global ids: the seeds, then hop by hop, ascending within a hop.
        edge_index: `[2, E]` int64, local ids, a row of sources and a row of destinations, hop by hop.
        edge_ids: `[E]` int64 ids of the edges in the graph, or None.
        num_nodes: numbers of nodes: the seeds, then the new nodes of each hop.
        num_edges: numbers of edges of each hop.
        epoch, index, repeats: see `Sample`.
        rows: kind -> gathered rows. A kind is "node" or "edge", followed by a name if there are several: "node/x".
        tree: `[N]` int64, the tree of each node, or None: each seed has a tree of its own, or all share one subgraph.
        seed_times: `[batch_size]` int64, the times of the seeds, or None.
        positions: `[batch_size]` int64, of the seeds in the list of items, or None if nobody asks for them.
    """

    nodes: Tensor
    edge_index: Tensor
    edge_ids: Tensor | None
    num_nodes: tuple[int, ...]
    num_edges: tuple[int, ...]
    epoch: int = 0
    index: int = 0
    repeats: bool = False
    rows: Mapping[str, Tensor] = field(default_factory=dict)
    tree: Tensor | None = None
    seed_times: Tensor | None = None
    positions: Tensor | None = None

    wants = ("node", "edge")

    @property
    def batch_size(self) -> int:
        """Number of seeds."""
        return self.num_nodes[0]

    def ids(self, kind: str) -> Tensor:
        """`[n]` ids of the nodes ("node") or edges ("edge")."""
        what = kind.partition("/")[0]
        if what == "node":
            return self.nodes
        if what == "edge" and self.edge_ids is not None:
            return self.edge_ids
        return super().ids(kind)

    def has(self, kind: str) -> bool:
        return kind in self.rows

    def with_rows(self, rows: Mapping[str, Rows]) -> Subgraph:
        """A copy with more rows. Rows that a store left in its table are gathered."""
        found = {kind: gathered(row) for kind, row in rows.items()}
        return self.replace(rows={**self.rows, **found})

    def tensors(self) -> list[Tensor]:
        """Nodes, edge_index, edge ids, the rows by name of their kind, then trees and seed times."""
        found = [self.nodes, self.edge_index, self.edge_ids, *(self.rows[kind] for kind in sorted(self.rows))]
        return [t for t in (*found, self.tree, self.seed_times, self.positions) if t is not None]

    def map(self, f: Callable[[Tensor], Tensor]) -> Subgraph:
        return self.replace(
            nodes=f(self.nodes),
            edge_index=f(self.edge_index),
            edge_ids=None if self.edge_ids is None else f(self.edge_ids),
            rows={kind: f(rows) for kind, rows in self.rows.items()},
            tree=None if self.tree is None else f(self.tree),
            seed_times=None if self.seed_times is None else f(self.seed_times),
            positions=None if self.positions is None else f(self.positions),
        )

    def numbers(self) -> tuple[Any, ...]:
        return self.num_nodes, self.num_edges, self.epoch, self.index

    def __repr__(self) -> str:
        return (
            f"Subgraph(epoch={self.epoch}, index={self.index}, num_nodes={self.num_nodes}, "
            f"num_edges={self.num_edges}, device='{self.nodes.device}')"
        )


def bidirectional(sample: Subgraph) -> Subgraph:
    """The subgraph with the reverse of each of its edges, and each pair of ends once, as torch_geometric's
    `to_bidirectional`: ascending by destination and source. An edge has the lowest id of those that it stands for.

    Numbers of edges per hop have no meaning for it; it has one number, of all.
    """
    most = max(sample.nodes.numel(), 1)
    sources, targets = sample.edge_index
    keys, of = torch.unique(torch.cat([targets * most + sources, sources * most + targets]), return_inverse=True)
    ids = sample.edge_ids
    if ids is not None:
        lowest = torch.full_like(keys, torch.iinfo(torch.int64).max)
        ids = lowest.scatter_reduce_(0, of, ids.repeat(2), "amin")
    ends = torch.stack([keys % most, keys // most])
    return sample.replace(edge_index=ends, edge_ids=ids, num_edges=(keys.numel(),))


def subgraph_of(batch: Blocks) -> tuple[Subgraph, Tensor, list[Tensor]]:
    """The subgraph of a mini-batch: each node keeps the picks of the hop after the one that first met it.

    Nodes that only other picks lead to are left out.

    Returns:
        The subgraph, without rows; `[N]`, the place of each of its nodes in `batch.nodes`; and for each hop, from
        the seeds outward, the places of its edges in the hop's block.
    """
    device, first = batch.nodes.device, batch.batch_size
    first_met = [torch.arange(first, device=device)]  # places of the nodes that each hop met first
    local = torch.full_like(batch.nodes, -1, dtype=torch.int64)  # place in the subgraph, by place in batch.nodes
    local[:first] = first_met[0]
    num_nodes = first
    sources, targets, edge_ids, positions = [], [], [], []
    for block in reversed(batch.blocks):
        rows = first_met[-1]
        places, degrees = edges_of(block, rows)
        src = block.indices[places].long()
        new = torch.unique(src[local[src] < 0])
        new = new[torch.argsort(batch.nodes[new])]  # picks that are left out may have led to some of them earlier
        local[new] = torch.arange(num_nodes, num_nodes + new.numel(), device=device)
        num_nodes += new.numel()
        first_met.append(new)
        sources.append(local[src])
        targets.append(local[rows].repeat_interleave(degrees))
        positions.append(places)
        if block.edge_ids is not None:
            edge_ids.append(block.edge_ids[places].long())
    nodes = torch.cat(first_met)
    subgraph = Subgraph(
        nodes=batch.nodes[nodes].long(),
        edge_index=torch.stack([torch.cat(sources), torch.cat(targets)]),
        edge_ids=torch.cat(edge_ids) if edge_ids else None,
        num_nodes=tuple(part.numel() for part in first_met),
        num_edges=tuple(part.numel() for part in sources),
        epoch=batch.epoch,
        index=batch.index,
        repeats=batch.repeats,
    )
    return subgraph, nodes, positions


def edges_of(block: Any, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Positions in `block.indices` of the edges of `rows`, row after row, and each row's number of edges."""
    begin = block.indptr[rows].long()
    degrees = block.indptr[rows + 1].long() - begin
    return ranges(begin, degrees), degrees


def ranges(begin: Tensor, counts: Tensor) -> Tensor:
    """The numbers from `begin[i]` to `begin[i] + counts[i]`, one range after the other."""
    offsets = torch.cumsum(counts, 0) - counts  # where each range begins in the result
    shift = (begin - offsets).repeat_interleave(counts)
    return torch.arange(shift.numel(), device=shift.device) + shift
