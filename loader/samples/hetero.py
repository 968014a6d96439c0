"""The sampled neighborhood of seeds in a graph with several types of nodes and edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader.samples.base import Rows, Sample
from loader.samples.hetero_block import HeteroBlock, by_relation, of_blocks
from loader.samples.hetero_interop import to_dgl, to_pyg
from loader.samples.lazy_rows import LazyFeatures, gathered
from loader.samples.segments import EdgeType, Segments, seed_type_of
from loader.samples.subgraph import edges_of, ranges

_PYG_NAMES = ("x_dict", "edge_index_dict", "num_sampled_nodes", "num_sampled_edges", "input_id")


@dataclass(eq=False)
class HeteroMiniBatch(Sample):
    """The sampled neighborhood of a batch of seeds in a `HeteroGraph`.

    Immutable by convention: change a copy (`replace`). Of a graph with one type and one relation it has the arrays of
    a `MiniBatch`.

    A loader gathers rows of the kinds "node/paper" (features of the nodes of a type), "seed" (labels), and
    "edge/author__writes__paper" (features of the edges of a relation, by edge id). Kinds with one more name,
    "node/paper/year", are for whoever has several arrays of a type.

    Attributes:
        nodes: `[num_nodes]` ids of the graph's one range: the seeds, then hop by hop the new nodes, ascending, so that
            those of a type lie together.
        sizes: numbers of new nodes, `[hops + 1][node types]`; entry 0 counts the seeds.
        blocks: a block per hop in the order a model applies them, as in `MiniBatch`: `blocks[-1]` writes the seeds.
        node_types: node type -> `range` of ids, as the graph's.
        edge_types: the graph's relations, in their order.
        epoch, index: which mini-batch of which epoch this is.
        x: node type -> features of the nodes of that type, in the order of `n_id`; None if there are none. Those that
            a store left in its table are gathered when they are asked for.
        y: labels of the seeds, or None.
        rows: kind -> other rows that were gathered. Rows of the edges of a relation lie hop by hop from the seeds
            outward, as in torch_geometric.
        repeats: see `Sample`.
    """

    nodes: Tensor
    sizes: tuple[tuple[int, ...], ...]
    blocks: tuple[HeteroBlock, ...]
    if TYPE_CHECKING:
        node_types: Mapping[str, range]
        edge_types: tuple[EdgeType, ...]
    else:  # no fields, for tools that go through all fields and what is in them, as Lightning's precision plugins do
        node_types: InitVar[Mapping[str, range]]
        edge_types: InitVar[tuple[EdgeType, ...]]
    epoch: int = 0
    index: int = 0
    x: Mapping[str, Tensor] | None = None
    y: Tensor | None = None
    repeats: bool = False
    rows: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self, *types: Any) -> None:
        self.node_types, self.edge_types = types
        self.segments = Segments(self.node_types, self.edge_types, self.sizes)
        for block in self.blocks:
            block.segments = self.segments

    if not TYPE_CHECKING:  # a type checker would then take every name

        def __getattr__(self, name: str) -> Any:
            """Names of torch_geometric, which readers who come from there try."""
            way = "; batch.to_pyg() has it" if name in _PYG_NAMES else ""
            raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}{way}", name=name, obj=self)

    @property
    def wants(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kinds of rows: "node/TYPE" for each type, "seed", and "edge/SOURCE__NAME__TARGET" for each relation."""
        relations = ("edge/" + "__".join(edge_type) for edge_type in self.edge_types)
        return (*(f"node/{name}" for name in self.node_types), "seed", *relations)

    def ids(self, kind: str) -> Tensor:
        """`[n]` ids within their type of nodes ("node/TYPE"), of the seeds ("seed"), or of the edges of a relation
        ("edge/SOURCE__NAME__TARGET"), hop by hop from the seeds outward.

        Raises:
            KeyError: there is no such kind.
            ValueError: the seeds have several types, or there are no edge ids.
        """
        what, _, name = kind.partition("/")
        if what == "seed":
            return self.nodes[: self.batch_size] - self.node_types[self.seed_type].start
        if what == "node" and (node_type := self._type_of(kind)) in self.node_types:
            return self._ids_to_gather([node_type])[0]
        if what == "edge":
            hops = self.blocks[::-1]
            ids = [block.edge_ids for block in hops if block.edge_ids is not None]
            if len(ids) < len(hops):
                raise ValueError("the mini-batch has no edge ids; make its sampler with edge_ids=True")
            if name not in map("__".join, self.edge_types):
                name = name.rpartition("/")[0]
            return of_blocks(ids, by_relation(hops, self.segments, [self.segments.relation_of(name)]))
        return super().ids(kind)

    def _type_of(self, kind: str) -> str:
        """The type of a kind of rows of nodes, "node/TYPE" or "node/TYPE/NAME"."""
        name = kind.partition("/")[2]
        return name if name in self.node_types else name.rpartition("/")[0]

    def ids_of(self, kinds: Sequence[str]) -> list[Tensor]:
        """`ids` of each of these kinds; those of nodes of several types together."""
        names = {kind: self._type_of(kind) for kind in kinds if kind.startswith("node/")}
        known = [name for name in dict.fromkeys(names.values()) if name in self.node_types]
        if len(known) < 2:
            return super().ids_of(kinds)
        ids = dict(zip(known, self._ids_to_gather(known), strict=True))
        return [ids[names[kind]] if names.get(kind) in ids else self.ids(kind) for kind in kinds]

    def _ids_to_gather(self, names: Sequence[str]) -> list[Tensor]:
        return self._ids_within(names)

    def has(self, kind: str) -> bool:
        what, _, name = kind.partition("/")
        if what == "seed":
            return self.y is not None
        return kind in self.rows or (what == "node" and self.x is not None and name in self.x)

    def with_rows(self, rows: Mapping[str, Rows]) -> HeteroMiniBatch:
        """A copy with features `x`, labels `y`, or other `rows`. Those that a store left in its table are gathered, but
        for features, which wait until they are asked for.
        """
        changes: dict[str, Any] = {}
        x, more = dict[str, Rows](), dict[str, Tensor]()
        for kind, left in rows.items():
            what, _, name = kind.partition("/")
            if what == "node" and name in self.node_types:
                x[name] = left
                continue
            found = gathered(left)
            if what == "seed":
                changes["y"] = found
            elif what in ("node", "edge"):
                more[kind] = found
            else:
                return super().with_rows(rows)
        if x:
            before = self.x if isinstance(self.x, LazyFeatures) else LazyFeatures(self.x or {})
            changes["x"] = before.with_rows(x).if_lazy()
        if more:
            changes["rows"] = {**self.rows, **more}
        return self.replace(**changes)

    @property
    def n_id(self) -> dict[str, Tensor]:
        """Node type -> ids within the type of the mini-batch's nodes of that type, in the order of `nodes`."""
        return dict(zip(self.node_types, self._ids_within(list(self.node_types)), strict=True))

    def _ids_within(self, names: Sequence[str]) -> list[Tensor]:
        """Ids within the type of the mini-batch's nodes of each of these types."""
        if len(self.node_types) == 1:
            return [self.nodes for _ in names]
        types = [self.segments.type_of(name) for name in names]
        ids = self.segments.of_types(self.nodes, types)
        self.segments.within_types(ids, types)
        return ids

    def num_nodes_of(self, node_type: str) -> int:
        """Number of the mini-batch's nodes of a type."""
        return self.segments.count(self.segments.type_of(node_type))

    @property
    def seed_type(self) -> str:
        """The type of the seeds.

        Raises:
            ValueError: they have several types, or there are none.
        """
        return seed_type_of(self.num_seeds)

    @property
    def num_seeds(self) -> dict[str, int]:
        """Node type -> number of seeds."""
        return dict(zip(self.node_types, self.sizes[0], strict=True))

    @property
    def batch_size(self) -> int:
        """Number of seeds."""
        return sum(self.sizes[0])

    @property
    def num_edges(self) -> int:
        """Sampled edges of all hops together."""
        return sum(block.num_edges for block in self.blocks)

    @property
    def input_nodes(self) -> Tensor:
        """`[num_nodes]` ids of the one range of the nodes whose features the model reads."""
        return self.nodes

    @property
    def output_nodes(self) -> Tensor:
        """`[batch_size]` ids of the one range of the seeds, in the order they were given."""
        return self.nodes[: self.batch_size]

    @property
    def expands_all(self) -> bool:
        """Whether each hop samples all nodes so far again, and not only those that the hop before found."""
        return len(self.blocks) > 1 and self.batch_size > 0 and self.blocks[0].first_dst == 0

    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order: nodes, each block's indptr, indices and edge ids, then `x` by type, `y`, and
        the other rows by kind.
        """
        found: list[Tensor | None] = [self.nodes]
        for block in self.blocks:
            found += [block.indptr, block.indices, block.edge_ids]
        x: Mapping[str, Any] = self.x or {}
        if isinstance(self.x, LazyFeatures):  # of which there are the ids
            x = {**self.x.made, **{name: left.nodes for name, left in self.x.lazy.items()}}
        found += [*(x[name] for name in sorted(x)), self.y, *(self.rows[kind] for kind in sorted(self.rows))]
        return [t for t in found if t is not None]

    def numbers(self) -> tuple[Any, ...]:
        return self.sizes, *super().numbers()

    def digest(self) -> str:
        """Returns the digest of all arrays, see `Sample.digest`, with all features gathered."""
        if isinstance(self.x, LazyFeatures):
            return self.replace(x=dict(self.x)).digest()
        return super().digest()

    def record_stream(self, stream: Any) -> None:
        super().record_stream(stream)
        if isinstance(self.x, LazyFeatures):
            for left in self.x.lazy.values():
                left.record_stream(stream)

    def map(self, f: Callable[[Tensor], Tensor]) -> HeteroMiniBatch:
        blocks = []
        for b in self.blocks:
            ids = None if b.edge_ids is None else f(b.edge_ids)
            blocks.append(HeteroBlock(f(b.indptr), f(b.indices), b.first_dst, b.num_dst, b.num_src, ids))
            blocks[-1].segments = self.segments
        return self.replace(
            nodes=f(self.nodes),
            blocks=tuple(blocks),
            x=None if self.x is None else _mapped(self.x, f),
            y=None if self.y is None else f(self.y),
            rows={kind: f(rows) for kind, rows in self.rows.items()},
        )

    def first_picks(self) -> HeteroMiniBatch:
        """The part that expand="new" gives: each node has the picks of the hop after the one that first met it, and
        nodes that only other picks lead to are left out. One that was sampled so is returned as it is.
        """
        if not self.expands_all:
            return self
        seg, device = self.segments, self.nodes.device
        slots = [len(into) for into in seg.into]
        num_rows = seg.spread([slots] * len(self.sizes), device)
        first_row = num_rows.cumsum(0) - num_rows
        starts = torch.tensor([self.node_types[name].start for name in seg.names], device=device)
        first_met = [torch.arange(self.batch_size, device=device)]  # places of the nodes that each hop met first
        local = torch.full((self.nodes.numel(),), -1, device=device)
        local[: self.batch_size] = first_met[0]
        sizes, blocks, places, num_nodes, edges = [self.sizes[0]], [], [], self.batch_size, 0
        for block in reversed(self.blocks):
            rows = ranges(first_row[first_met[-1]], num_rows[first_met[-1]])
            chosen, degree = edges_of(block, rows)
            sources = block.indices[chosen].long()
            new = torch.unique(sources[local[sources] < 0])
            new = new[torch.argsort(self.nodes[new])]  # picks that are left out may have led to some of them earlier
            first_dst = num_nodes - first_met[-1].numel()
            num_dst = first_met[-1].numel()
            local[new] = torch.arange(num_nodes, num_nodes + new.numel(), device=device)
            num_nodes += new.numel()
            first_met.append(new)
            types = torch.searchsorted(starts, self.nodes[new].long(), right=True) - 1
            sizes.append(tuple(torch.bincount(types, minlength=len(slots)).tolist()))
            indptr = torch.zeros(rows.numel() + 1, dtype=block.indptr.dtype, device=device)
            torch.cumsum(degree, 0, out=indptr[1:])
            ids = None if block.edge_ids is None else block.edge_ids[chosen]
            blocks.append(
                HeteroBlock(indptr, local[sources].to(block.indices.dtype), first_dst, num_dst, num_nodes, ids)
            )
            places.append(chosen + edges)
            edges += block.num_edges
        every = torch.cat(first_met)
        part = HeteroMiniBatch(
            self.nodes[every],
            tuple(sizes),
            tuple(reversed(blocks)),
            self.node_types,
            self.edge_types,
            self.epoch,
            self.index,
            y=self.y,
            repeats=self.repeats,
        )
        return _with_rows_of(self, part, every, torch.cat(places))

    def of_trees(self) -> dict[str, Any]:
        """What a subgraph also has if each seed has a tree of its own: "tree", "seed_times" and "positions"."""
        return {}

    def to_dgl(self) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
        """`(input_nodes, output_nodes, blocks)` as `dgl.dataloading.DataLoader` yields them for a heterograph."""
        return to_dgl(self)

    def to_pyg(self) -> Any:
        """A `torch_geometric.data.HeteroData` as `torch_geometric.loader.NeighborLoader` yields it."""
        return to_pyg(self)

    def __repr__(self) -> str:
        nodes = {name: self.num_nodes_of(name) for name in self.node_types}
        return (
            f"HeteroMiniBatch(epoch={self.epoch}, index={self.index}, num_nodes={nodes}, num_edges={self.num_edges}, "
            f"device='{self.nodes.device}')"
        )


def _mapped(x: Mapping[str, Tensor], f: Callable[[Tensor], Tensor]) -> Mapping[str, Tensor]:
    if not isinstance(x, LazyFeatures):
        return {name: f(rows) for name, rows in x.items()}
    ids = {name: f(left.nodes) for name, left in x.lazy.items()}
    if any(moved.device != x.lazy[name].device for name, moved in ids.items()):  # a table is not copied
        return {name: f(rows) for name, rows in x.items()}
    return LazyFeatures(
        {name: f(rows) for name, rows in x.made.items() if name not in ids},
        {name: x.lazy[name].of(moved) for name, moved in ids.items()},
    )


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
