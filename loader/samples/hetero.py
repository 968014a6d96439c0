"""The sampled neighborhood of seeds in a graph with several types of nodes and edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from loader.samples.base import Rows, Sample
from loader.samples.lazy_rows import LazyFeatures, LazyRows
from loader.samples.minibatch import Block
from loader.samples.segments import EdgeType, Segments

_PYG_NAMES = ("x_dict", "edge_index_dict", "num_sampled_nodes", "num_sampled_edges", "input_id")


@dataclass(eq=False)
class HeteroBlock:
    """One hop of a typed mini-batch, CSC: a row per destination node and relation into its type.

    Immutable by convention. A `HeteroMiniBatch` says which rows are of which relation, so `relation` and
    `edge_index_dict` are for the blocks of one.

    Attributes:
        indptr: `[num_rows + 1]`. The rows are those of the destinations in their order; a node has one for each
            relation into its type, in the order of the graph's relations.
        indices: `[num_edges]` places of the sources in the mini-batch's `nodes`.
        first_dst, num_dst: the destinations are `nodes[first_dst : first_dst + num_dst]`.
        num_src: sources lie in `nodes[:num_src]`.
        edge_ids: `[num_edges]` ids of the edges, or None if they were not asked for.
    """

    indptr: Tensor
    indices: Tensor
    first_dst: int
    num_dst: int
    num_src: int
    edge_ids: Tensor | None = None

    if TYPE_CHECKING:
        segments: Segments = field(
            init=False
        )  # of the mini-batch, which sets it; no field, for tools that go through all fields

    @property
    def num_edges(self) -> int:
        return self.indices.numel()

    def relation(self, edge_type: EdgeType | str) -> Block:
        """The edges of one relation, with places within the types: row `i` is of the destination `i` of those that the
        block has of this type, and `indices` are places among the nodes of the source type (`n_id`).

        Raises:
            KeyError: the graph has no such relation.
        """
        seg = self.segments
        relation = seg.relation_of(edge_type)
        source, target = seg.ends_of(relation)
        num_src, num_dst = seg.count(source, self.num_src), self._count_dst(target)
        if len(seg.names) == len(seg.edge_types) == 1:
            return Block(self.indptr, self.indices, num_src, num_dst, self.edge_ids)
        found = by_relation([self], seg, [relation])
        within = seg.within(self.indices.device)
        return Block(
            found.indptr.to(self.indptr.dtype),
            within.index_select(0, of_blocks([self.indices], found)).to(self.indices.dtype),
            num_src,
            num_dst,
            None if self.edge_ids is None else of_blocks([self.edge_ids], found),
        )

    @property
    def edge_index_dict(self) -> dict[EdgeType, Tensor]:
        """Relation -> `[2, num_edges]` int64: places of the sources and of the destinations among the nodes of their
        types, as torch_geometric's heterogeneous layers take them. Relations without edges here are there, too.
        """
        found = by_relation([self], self.segments)
        return edge_index_dict([self], self.segments, found, found.counts())

    def _count_dst(self, node_type: int) -> int:
        return sum(part.size for t, part, _ in self.segments.rows(self.first_dst, self.num_dst) if t == node_type)

    def memory(self) -> list[Tensor]:
        """Tensors whose memory holds the arrays, see `Block.memory`."""
        return [t for t in (self.indptr, self.indices, self.edge_ids) if t is not None]


class ByRelation(NamedTuple):
    """The edges of some blocks, relation after relation, and within a relation block after block.

    Attributes:
        places: `[E]` of the edges in the arrays of the blocks, one block after the other.
        row_of: `[E]` numbers of the edges' rows.
        indptr: `[rows + 1]`, where the edges of each row begin.
        rows: `[rows]` places of the rows' destinations in the mini-batch's `nodes`.
        bounds: `[relations][blocks + 1]`, where the rows of a relation and block begin.
    """

    places: Tensor
    row_of: Tensor
    indptr: Tensor
    rows: Tensor
    bounds: list[list[int]]

    def counts(self) -> list[list[int]]:
        """Numbers of edges, `[relations][blocks]`. The host waits for the device."""
        rows = [row for bounds in self.bounds for row in bounds]
        flat = torch.tensor(rows, dtype=torch.int64, device=self.indptr.device)
        ends = iter(self.indptr[flat].tolist())
        return [[b - a for a, b in pairwise([next(ends) for _ in bounds])] for bounds in self.bounds]


def by_relation(
    blocks: Sequence[HeteroBlock], segments: Segments, relations: Sequence[int] | None = None
) -> ByRelation:
    """The edges of these relations, by default of all."""
    device = blocks[0].indices.device
    layouts = [segments.rows(block.first_dst, block.num_dst) for block in blocks]
    arange = torch.arange(max(max(block.num_src, block.indptr.numel()) for block in blocks) + 1, device=device)
    order, rows, bounds, count = [], [], [], 0
    for r in range(len(segments.edge_types)) if relations is None else relations:
        _, target = segments.ends_of(r)
        slots = segments.into[target]
        bounds.append([count])
        before = 0
        for block, layout in zip(blocks, layouts, strict=True):
            for t, part, row in layout:
                if t == target:
                    mine = arange[row : row + part.size * len(slots)].view(part.size, -1)[:, slots.index(r)]
                    order.append(mine + before if before else mine)
                    rows.append(arange[part.begin : part.begin + part.size])
                    count += part.size
            before += block.indptr.numel() - 1
            bounds[-1].append(count)
    begins, degrees, edges = [], [], 0
    for block in blocks:
        begin = block.indptr.long()
        degrees.append(begin.diff())
        begins.append(begin[:-1] + edges if edges else begin[:-1])
        edges += block.num_edges
    if not order:
        none = arange[:0]
        return ByRelation(none, none, arange[:1], none, bounds)
    chosen = torch.cat(order)
    degree = torch.cat(degrees).index_select(0, chosen)  # faster than an index in brackets
    indptr = torch.cat([arange[:1], degree.cumsum(0)])
    total = edges if relations is None else int(indptr[-1])
    row_of = torch.repeat_interleave(degree, output_size=total)
    shift = torch.cat(begins).index_select(0, chosen) - indptr[:-1]
    places = shift.index_select(0, row_of).add_(torch.arange(total, device=device))
    return ByRelation(places, row_of, indptr, torch.cat(rows), bounds)


def edge_index_dict(
    blocks: Sequence[HeteroBlock], segments: Segments, found: ByRelation, counts: list[list[int]]
) -> dict[EdgeType, Tensor]:
    """Relation -> `[2, E]` int64, places within the types, of all edges of the blocks."""
    within = segments.within(found.places.device)
    pairs = within.new_empty((2, found.places.numel()))
    torch.index_select(within, 0, of_blocks([block.indices for block in blocks], found), out=pairs[0])
    torch.index_select(within.index_select(0, found.rows), 0, found.row_of, out=pairs[1])
    return dict(zip(segments.edge_types, pairs.split([sum(of_block) for of_block in counts], 1), strict=True))


def of_blocks(arrays: Sequence[Tensor], found: ByRelation) -> Tensor:
    """The entries of the edges that were found, of arrays of the blocks."""
    return torch.cat(list(arrays)).index_select(0, found.places)


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
            return self._ids_to_gather(node_type)
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

    def _ids_to_gather(self, name: str) -> Tensor:
        return self._ids_of(name)

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
            found = left.gather() if isinstance(left, LazyRows) else left
            if what == "seed":
                changes["y"] = found
            elif what in ("node", "edge"):
                more[kind] = found
            else:
                return super().with_rows(rows)
        if x:
            before = self.x if isinstance(self.x, LazyFeatures) else LazyFeatures(self.x or {})
            both = before.with_rows(x)
            changes["x"] = both if both.lazy else both.made
        if more:
            changes["rows"] = {**self.rows, **more}
        return self.replace(**changes)

    @property
    def n_id(self) -> dict[str, Tensor]:
        """Node type -> ids within the type of the mini-batch's nodes of that type, in the order of `nodes`."""
        return {name: self._ids_of(name) for name in self.node_types}

    def _ids_of(self, name: str) -> Tensor:
        ids = self.segments.of_type(self.nodes, self.segments.type_of(name))
        start = self.node_types[name].start
        return ids - start if start else ids

    def num_nodes_of(self, node_type: str) -> int:
        """Number of the mini-batch's nodes of a type."""
        return self.segments.count(self.segments.type_of(node_type))

    @property
    def seed_type(self) -> str:
        """The type of the seeds.

        Raises:
            ValueError: they have several types, or there are none.
        """
        names = [name for name, size in zip(self.node_types, self.sizes[0], strict=True) if size]
        if len(names) != 1:
            raise ValueError(f"the seeds of the mini-batch have {len(names)} types {names}; one is needed here")
        return names[0]

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

    def to_dgl(self) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
        """`(input_nodes, output_nodes, blocks)` as `dgl.dataloading.DataLoader` yields them for a heterograph."""
        from loader.samples.hetero_interop import to_dgl  # which knows the class

        return to_dgl(self)

    def to_pyg(self) -> Any:
        """A `torch_geometric.data.HeteroData` as `torch_geometric.loader.NeighborLoader` yields it."""
        from loader.samples.hetero_interop import to_pyg

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
