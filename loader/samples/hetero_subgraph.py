"""A typed mini-batch as torch_geometric has it: nodes by type and edges by relation, each node sampled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from loader.samples.base import Rows, Sample
from loader.samples.hetero import HeteroBlock, HeteroMiniBatch, by_relation, edge_index_dict, of_blocks
from loader.samples.lazy_rows import LazyRows
from loader.samples.segments import EdgeType
from loader.samples.subgraph import Subgraph, edges_of, ranges
from loader.samples.trees import TreeMiniBatch


@dataclass(eq=False)
class HeteroSubgraph(Sample):
    """The neighborhood of a batch of seeds in a `HeteroGraph`, in torch_geometric's form: a model applies all edges at
    every layer.

    Each node has the neighbors that are picked for it at the hop after the one that first met it.

    Attributes:
        nodes: node type -> `[N]` int64 ids within the type: the seeds, then hop by hop, ascending within a hop.
        edges: edge type -> `[2, E]` int64 places of sources and destinations among the nodes of their types, hop by
            hop.
        edge_ids: edge type -> `[E]` int64 ids of the edges, or None.
        num_nodes: node type -> numbers of nodes: the seeds, then the new nodes of each hop.
        num_edges: edge type -> numbers of edges of each hop.
        epoch, index, repeats: see `Sample`.
        rows: kind -> gathered rows, see `HeteroMiniBatch`.
        tree: node type -> `[N]` int64, the tree of each node, or None: each seed has a tree of its own, or all seeds
            share one subgraph.
        seed_times: `[batch_size]` int64, the times of the seeds, or None.
        positions: `[batch_size]` int64, of the seeds in the list of items, or None if nobody asks for them.
    """

    nodes: dict[str, Tensor]
    edges: dict[EdgeType, Tensor]
    edge_ids: dict[EdgeType, Tensor] | None
    num_nodes: Mapping[str, tuple[int, ...]]
    num_edges: Mapping[EdgeType, tuple[int, ...]]
    epoch: int = 0
    index: int = 0
    repeats: bool = False
    rows: Mapping[str, Tensor] = field(default_factory=dict)
    tree: dict[str, Tensor] | None = None
    seed_times: Tensor | None = None
    positions: Tensor | None = None

    @property
    def wants(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kinds of rows: "node/TYPE" for each type, and "edge/SOURCE__NAME__TARGET" for each relation."""
        relations = ("edge/" + "__".join(edge_type) for edge_type in self.edges)
        return (*(f"node/{name}" for name in self.nodes), *relations)

    @property
    def num_seeds(self) -> dict[str, int]:
        """Node type -> number of seeds."""
        return {name: counts[0] for name, counts in self.num_nodes.items()}

    @property
    def batch_size(self) -> int:
        """Number of seeds."""
        return sum(self.num_seeds.values())

    def place_of(self, kind: str) -> tuple[str | EdgeType, str]:
        """The node type or edge type of a kind of rows, and the name at its end, or "".

        Raises:
            KeyError: there is no such kind.
        """
        what, _, name = kind.partition("/")
        known: dict[str, Any] = {n: n for n in self.nodes} if what == "node" else {}
        if what == "edge":
            known = {"__".join(edge_type): edge_type for edge_type in self.edges}
        first, _, last = name.rpartition("/")
        if name in known:
            return known[name], ""
        if first in known:
            return known[first], last
        raise KeyError(f"{type(self).__name__} wants rows of {list(self.wants)}, not of {kind!r}")

    def ids(self, kind: str) -> Tensor:
        """`[n]` ids of the nodes of a type, or of the edges of a relation."""
        where, _ = self.place_of(kind)
        if isinstance(where, str):
            return self.nodes[where]
        return super().ids(kind) if self.edge_ids is None else self.edge_ids[where]

    def has(self, kind: str) -> bool:
        return kind in self.rows

    def with_rows(self, rows: Mapping[str, Rows]) -> HeteroSubgraph:
        """A copy with more rows. Rows that a store left in its table are gathered."""
        found = {kind: row.gather() if isinstance(row, LazyRows) else row for kind, row in rows.items()}
        return self.replace(rows={**self.rows, **found})

    def tensors(self) -> list[Tensor]:
        """Nodes by type, edges and edge ids by relation, the rows by name of their kind, then trees and seed times."""
        found = [*self.nodes.values(), *self.edges.values(), *(self.edge_ids or {}).values()]
        found += [*(self.rows[kind] for kind in sorted(self.rows)), *(self.tree or {}).values()]
        return [*found, *(t for t in (self.seed_times, self.positions) if t is not None)]

    def map(self, f: Callable[[Tensor], Tensor]) -> HeteroSubgraph:
        def each(arrays: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
            return {key: f(array) for key, array in arrays.items()}

        return self.replace(
            nodes=each(self.nodes),
            edges=each(self.edges),
            edge_ids=None if self.edge_ids is None else each(self.edge_ids),
            rows=each(self.rows),
            tree=None if self.tree is None else each(self.tree),
            seed_times=None if self.seed_times is None else f(self.seed_times),
            positions=None if self.positions is None else f(self.positions),
        )

    def numbers(self) -> tuple[Any, ...]:
        return self.num_nodes, self.num_edges, self.epoch, self.index

    def __repr__(self) -> str:
        nodes = {name: ids.numel() for name, ids in self.nodes.items()}
        return f"HeteroSubgraph(epoch={self.epoch}, index={self.index}, num_nodes={nodes})"


def hetero_subgraph_of(batch: HeteroMiniBatch) -> HeteroSubgraph:
    """The subgraph of a mini-batch: each node keeps the picks of the hop after the one that first met it, which are
    all if it was sampled with expand="new". Nodes that only other picks lead to are left out.
    """
    batch = once(batch)
    seg, hops = batch.segments, batch.blocks[::-1]
    edge_ids, counts = None, list[list[int]]([] for _ in seg.edge_types)
    edges = {edge_type: batch.nodes.new_empty((2, 0), dtype=torch.int64) for edge_type in seg.edge_types}
    if hops:
        found = by_relation(hops, seg)
        counts = found.counts()
        edges = edge_index_dict(hops, seg, found, counts)
        if all(block.edge_ids is not None for block in hops):
            every = of_blocks([block.edge_ids for block in hops if block.edge_ids is not None], found).long()
            split = every.split([sum(of_hop) for of_hop in counts])
            edge_ids = dict(zip(seg.edge_types, split, strict=True))
    return HeteroSubgraph(
        nodes={name: ids.long() for name, ids in batch.n_id.items()},
        edges=edges,
        edge_ids=edge_ids,
        num_nodes={name: tuple(of_hop[t] for of_hop in batch.sizes) for t, name in enumerate(seg.names)},
        num_edges={key: tuple(of_hop) for key, of_hop in zip(seg.edge_types, counts, strict=True)},
        epoch=batch.epoch,
        index=batch.index,
        repeats=batch.repeats,
        rows={**{f"node/{name}": rows for name, rows in (batch.x or {}).items()}, **batch.rows},
        **_of_trees(batch),
    )


def subgraph_of_one(sample: HeteroSubgraph) -> Subgraph:
    """The subgraph of a graph with one type of nodes and one of edges, as `Subgraph`."""
    ((name, nodes),), ((key, edges),) = sample.nodes.items(), sample.edges.items()
    return Subgraph(
        nodes,
        edges,
        None if sample.edge_ids is None else sample.edge_ids[key],
        sample.num_nodes[name],
        sample.num_edges[key],
        sample.epoch,
        sample.index,
        sample.repeats,
        tree=None if sample.tree is None else sample.tree[name],
        seed_times=sample.seed_times,
        positions=sample.positions,
    )


def _of_trees(batch: HeteroMiniBatch) -> dict[str, Any]:
    if not isinstance(batch, TreeMiniBatch):
        return {}
    tree = {name: batch.tree_of(name).long() for name in batch.segments.names}
    return {"tree": tree, "seed_times": batch.seed_times}


def once(batch: HeteroMiniBatch) -> HeteroMiniBatch:
    """The part of a mini-batch that expand="new" gives: each node has the picks of the hop after the one that first
    met it, and nodes that only other picks lead to are left out. One that was sampled so is returned as it is.
    """
    if not batch.expands_all:
        return batch
    seg, device = batch.segments, batch.nodes.device
    slots = [len(into) for into in seg.into]
    num_rows = seg.spread([slots] * len(batch.sizes), device)
    first_row = num_rows.cumsum(0) - num_rows
    starts = torch.tensor([batch.node_types[name].start for name in seg.names], device=device)
    first_met = [torch.arange(batch.batch_size, device=device)]  # places of the nodes that each hop met first
    local = torch.full((batch.nodes.numel(),), -1, device=device)
    local[: batch.batch_size] = first_met[0]
    sizes, blocks, places, num_nodes, edges = [batch.sizes[0]], [], [], batch.batch_size, 0
    for block in reversed(batch.blocks):
        rows = ranges(first_row[first_met[-1]], num_rows[first_met[-1]])
        chosen, degree = edges_of(block, rows)
        sources = block.indices[chosen].long()
        new = torch.unique(sources[local[sources] < 0])
        new = new[torch.argsort(batch.nodes[new])]  # picks that are left out may have led to some of them earlier
        first_dst = num_nodes - first_met[-1].numel()
        num_dst = first_met[-1].numel()
        local[new] = torch.arange(num_nodes, num_nodes + new.numel(), device=device)
        num_nodes += new.numel()
        first_met.append(new)
        types = torch.searchsorted(starts, batch.nodes[new].long(), right=True) - 1
        sizes.append(tuple(torch.bincount(types, minlength=len(slots)).tolist()))
        indptr = torch.zeros(rows.numel() + 1, dtype=block.indptr.dtype, device=device)
        torch.cumsum(degree, 0, out=indptr[1:])
        ids = None if block.edge_ids is None else block.edge_ids[chosen]
        blocks.append(HeteroBlock(indptr, local[sources].to(block.indices.dtype), first_dst, num_dst, num_nodes, ids))
        places.append(chosen + edges)
        edges += block.num_edges
    every = torch.cat(first_met)
    part = HeteroMiniBatch(
        batch.nodes[every],
        tuple(sizes),
        tuple(reversed(blocks)),
        batch.node_types,
        batch.edge_types,
        batch.epoch,
        batch.index,
        y=batch.y,
        repeats=batch.repeats,
    )
    return _with_rows_of(batch, part, every, torch.cat(places))


def _with_rows_of(batch: HeteroMiniBatch, part: HeteroMiniBatch, nodes: Tensor, edges: Tensor) -> HeteroMiniBatch:
    """`part` with the rows of `batch` that are its own.

    Args:
        nodes: `[num_nodes]` places of the part's nodes in `batch.nodes`.
        edges: `[num_edges]` places of the part's edges in the arrays of the blocks, from the seeds outward.
    """
    within = batch.segments.within(nodes.device)[nodes]
    rows: dict[str, Tensor] = {}
    x = None
    if batch.x is not None:
        chosen = {name: part.segments.of_type(within, part.segments.type_of(name)) for name in batch.x}
        x = {name: found[chosen[name]] for name, found in batch.x.items()}
    for kind, found in batch.rows.items():
        what, _, name = kind.partition("/")
        if what == "node":
            name = name if name in batch.node_types else name.rpartition("/")[0]
            rows[kind] = found[part.segments.of_type(within, part.segments.type_of(name))]
            continue
        name = name if name in map("__".join, batch.edge_types) else name.rpartition("/")[0]
        relation = [batch.segments.relation_of(name)]
        theirs = by_relation(batch.blocks[::-1], batch.segments, relation).places
        place = torch.empty(batch.num_edges, dtype=torch.int64, device=nodes.device)
        place[theirs] = torch.arange(theirs.numel(), device=nodes.device)
        rows[kind] = found[place[edges[by_relation(part.blocks[::-1], part.segments, relation).places]]]
    return part.replace(x=x, rows=rows)
