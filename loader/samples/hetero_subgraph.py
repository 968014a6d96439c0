"""A typed mini-batch as torch_geometric has it: nodes by type and edges by relation, each node sampled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from loader.machine.optional import import_optional
from loader.samples.base import Rows, Sample
from loader.samples.hetero_block import HeteroBlocks, by_relation, edge_index_dict, of_blocks
from loader.samples.lazy_rows import gathered
from loader.samples.segments import EdgeType, seed_type_of
from loader.samples.subgraph import Subgraph


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
        by_hop: whether edges lie hop by hop. Those of an induced subgraph do not, and `num_edges` has one number.
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
    by_hop: bool = True

    @property
    def wants(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kinds of rows: "node/TYPE" for each type, "seed", and "edge/SOURCE__NAME__TARGET" for each relation."""
        relations = ("edge/" + "__".join(edge_type) for edge_type in self.edges)
        return (*(f"node/{name}" for name in self.nodes), "seed", *relations)

    @property
    def num_seeds(self) -> dict[str, int]:
        """Node type -> number of seeds."""
        return {name: counts[0] for name, counts in self.num_nodes.items()}

    @property
    def batch_size(self) -> int:
        """Number of seeds."""
        return sum(self.num_seeds.values())

    @property
    def seed_type(self) -> str:
        """The type of the seeds.

        Raises:
            ValueError: they have several types, or there are none.
        """
        return seed_type_of(self.num_seeds)

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
        """`[n]` ids of the nodes of a type, of the seeds, or of the edges of a relation."""
        if kind == "seed":
            if self.seed_times is not None and self.positions is not None:
                return self.positions  # labels are those of items: a node may be a seed at several times
            return self.nodes[self.seed_type][: self.batch_size]
        where, _ = self.place_of(kind)
        if isinstance(where, str):
            return self.nodes[where]
        return super().ids(kind) if self.edge_ids is None else self.edge_ids[where]

    def has(self, kind: str) -> bool:
        return kind in self.rows

    def with_rows(self, rows: Mapping[str, Rows]) -> HeteroSubgraph:
        """A copy with more rows. Rows that a store left in its table are gathered."""
        found = {kind: gathered(row) for kind, row in rows.items()}
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

    def to_pyg(self) -> Any:
        """A `torch_geometric.data.HeteroData`, as torch_geometric's loaders yield it.

        All ids are int64. Each node type has `n_id`, ids within the type, and `num_nodes`; and `x`, if it was gathered.
        Types of seeds have `batch_size`, `input_id` (positions of the seeds in a loader's list, or their ids) and, if
        they were gathered, `y`, of the seeds only. Each relation has `edge_index`, places within the types, and, if
        the sampler returned edge ids, `e_id`; and `edge_attr`, if it was gathered. Other rows have the name that their
        kind ends with. If edges lie hop by hop, types have `num_sampled_nodes` (hops + 1 counts) and relations
        `num_sampled_edges` (a count per hop). Of trees, types have `batch`, the trees of their nodes, and those of
        seeds `seed_time`, if seeds have times.
        """
        HeteroData = import_optional("torch_geometric.data", "to_pyg()", "datasets").HeteroData

        data, first = HeteroData(), 0  # seeds lie type after type
        for name, ids in self.nodes.items():
            store, counts = data[name], self.num_nodes[name]
            store.n_id, store.num_nodes = ids, ids.numel()
            if self.by_hop:
                store.num_sampled_nodes = list(counts)
            if self.tree is not None:
                store.batch = self.tree[name]
            if counts[0]:
                self._put_seeds(store, ids[: counts[0]], slice(first, first + counts[0]))
            first += counts[0]
        for edge_type, pairs in self.edges.items():
            edges = data[edge_type]
            edges.edge_index = pairs
            if self.by_hop:
                edges.num_sampled_edges = list(self.num_edges[edge_type])
            if self.edge_ids is not None:
                edges.e_id = self.edge_ids[edge_type]
        for kind, rows in self.rows.items():
            if kind == "seed":
                data[self.seed_type].y = rows
                continue
            where, attribute = self.place_of(kind)
            data[where][attribute or ("x" if isinstance(where, str) else "edge_attr")] = rows
        return data

    def _put_seeds(self, store: Any, ids: Tensor, among: slice) -> None:
        """Gives the seeds of a type, those `among` all, to the part of a `HeteroData` that has the type."""
        store.batch_size = ids.numel()
        store.input_id = ids if self.positions is None else self.positions[among]
        if self.seed_times is not None:
            store.seed_time = self.seed_times[among]

    def __repr__(self) -> str:
        nodes = {name: ids.numel() for name, ids in self.nodes.items()}
        return f"HeteroSubgraph(epoch={self.epoch}, index={self.index}, num_nodes={nodes})"


def hetero_subgraph_of(batch: HeteroBlocks) -> HeteroSubgraph:
    """The subgraph of a mini-batch: each node keeps the picks of the hop after the one that first met it, which are
    all if it was sampled with expand="new". Nodes that only other picks lead to are left out.
    """
    batch = batch.first_picks()
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
        **batch.of_trees(),
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
