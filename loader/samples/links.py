"""A sample of links, positive and negative, with the neighborhood of their ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from loader.samples.base import Rows, Sample
from loader.samples.block import Block
from loader.samples.minibatch import MiniBatch
from loader.samples.segments import EdgeType
from loader.samples.subgraph import Subgraph

_NAMES = ("sources", "targets", "negative_sources", "negative_targets", "places", "labels", "times", "link_of_tree")


@dataclass(eq=False)
class Links(Sample):
    """A batch of links, and the neighborhood that a model needs to embed their ends.

    Positive links have the order in which they were given; a repeated link is repeated. Ids are local: they are numbers
    of seeds of `around`, and thus of rows of a model's output. The seeds are the ends of all links, each once, in
    ascending order. With types, an id is a position among the seeds of its node type.

    Around a `TreeSampler` each end of each link is a seed of its own. The sources come first, then the sources of the
    negatives, the targets, and the targets of the negatives. If the graph has the destination type before the source
    type, the two kinds of targets come first. Negatives `[P, k]` are in the order of their columns: the first negative
    of each link, then the second one of each link, and so on.

    Attributes:
        around: the sampled neighborhood of the ends, a `MiniBatch` or a `Subgraph`; with types a `HeteroMiniBatch` or
            a `HeteroSubgraph`; in trees a `TreeMiniBatch`.
        sources, targets: `[P]` int64, of the positive links.
        negative_targets: `[N]` int64, or `[P, k]`: the k negatives of each positive link; None without negatives.
        negative_sources: `[N]` int64; None if negatives have the sources of the positive links.
        places: `[P]` int64, positions of the positive links in the list of items, or None.
        labels: `[P, ...]` rows of the positive links, once gathered.
        epoch, index, repeats: see `Sample`.
        edge_type: the relation of the links; None with one type.
        times: `[P]` int64, of the positive links, or None.
        link_of_tree: `[trees]` int64, the number of the positive link that each tree belongs to, also those of its
            negatives; None if the ends share one sample.
    """

    around: Any
    sources: Tensor
    targets: Tensor
    negative_sources: Tensor | None = None
    negative_targets: Tensor | None = None
    places: Tensor | None = None
    labels: Tensor | None = None
    epoch: int = 0
    index: int = 0
    repeats: bool = False
    edge_type: EdgeType | None = None
    times: Tensor | None = None
    link_of_tree: Tensor | None = None

    @property
    def wants(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kinds of rows: those of `around` without "seed", and "pair" for labels of the positive links."""
        return (*(kind for kind in self.around.wants if kind != "seed"), "pair")

    @property
    def nodes(self) -> Any:
        """The nodes of `around`, which are the ends of the links first; of a `HeteroSubgraph` by type."""
        return self.around.nodes

    @property
    def batch_size(self) -> int:
        """Number of positive links."""
        return self.sources.numel()

    def pairs(self) -> tuple[Tensor, Tensor]:
        """All links as `[2, P + number of negatives]` local ids, positive ones first; and float32, 1 for a positive
        link, else 0.
        """
        ends = torch.stack([self.sources, self.targets])
        if self.negative_targets is not None:
            tails = self.negative_targets.reshape(-1)
            heads = self.negative_sources
            if heads is None:
                heads = self.sources.repeat_interleave(tails.numel() // max(self.sources.numel(), 1))
            ends = torch.cat([ends, torch.stack([heads, tails])], 1)
        truth = torch.zeros(ends.shape[1], dtype=torch.float32, device=ends.device)
        truth[: self.sources.numel()] = 1
        return ends, truth

    def ids(self, kind: str) -> Tensor:
        """For "pair", `[P]` positions of the positive links in the list of items; for other kinds, the ids of
        `around`.
        """
        if kind != "pair":
            ids: Tensor = self.around.ids(kind)
            return ids
        return super().ids(kind) if self.places is None else self.places

    def prepare(self, kinds: Collection[str]) -> None:
        self.around.prepare(kinds)

    def has(self, kind: str) -> bool:
        return self.labels is not None if kind == "pair" else bool(self.around.has(kind))

    def with_rows(self, rows: Mapping[str, Rows]) -> Links:
        """A copy with labels ("pair"), and with the other rows in `around`."""
        rest = {kind: found for kind, found in rows.items() if kind != "pair"}
        changes: dict[str, Any] = {"around": self.around.with_rows(rest)} if rest else {}
        if "pair" in rows:
            changes["labels"] = rows["pair"]
        return self.replace(**changes)

    def tensors(self) -> list[Tensor]:
        """The tensors of `around`, then sources, targets, negatives, places, labels, times and trees."""
        return [*self.around.tensors(), *self._own()]

    def map(self, f: Callable[[Tensor], Tensor]) -> Links:
        own = {name: getattr(self, name) for name in _NAMES}
        return self.replace(around=self.around.map(f), **{k: None if t is None else f(t) for k, t in own.items()})

    def memory(self) -> list[Tensor]:
        found = [*self.around.memory(), *self._own()]
        return list({t.untyped_storage().data_ptr(): t for t in found}.values())

    def record_stream(self, stream: Any) -> None:
        self.around.record_stream(stream)
        super().record_stream(stream)

    def __repr__(self) -> str:
        negatives = 0 if self.negative_targets is None else self.negative_targets.numel()
        return f"Links(positives={self.sources.numel()}, negatives={negatives}, around={self.around!r})"

    def _own(self) -> list[Tensor]:
        return [t for t in (getattr(self, name) for name in _NAMES) if t is not None]


# Which of some edges, given as numbers, are to go.
Among = Callable[[Tensor], Tensor]


def without_links(sample: Any, sources: Tensor, targets: Tensor, *, reverse: bool) -> Any:
    """A copy of a mini-batch or subgraph without the edges between some pairs of its seeds.

    All parallel edges of a pair are left out. All nodes stay: both ends of such an edge are seeds.

    Args:
        sample: a `MiniBatch` or a `Subgraph` whose first seeds are the ends of the pairs.
        sources, targets: `[n]` int64, local ids of the ends, which are seeds.
        reverse: also leave out the edges from targets to sources.
    """
    seeds = sample.batch_size
    keys = targets * seeds + sources
    if reverse:
        keys = torch.cat([keys, sources * seeds + targets])
    if keys.numel() == 0:
        return sample
    among = members(keys)
    if isinstance(sample, Subgraph):
        pairs, ids, counts = edges_without(sample.edge_index, sample.edge_ids, sample.num_edges, seeds, among)
        return sample.replace(edge_index=pairs, edge_ids=ids, num_edges=counts)
    if not isinstance(sample, MiniBatch):
        raise TypeError(f"links are left out of a MiniBatch or a Subgraph, not of a {type(sample).__name__}")
    return sample.replace(blocks=tuple(_block_without(block, seeds, among) for block in sample.blocks))


def members(keys: Tensor) -> Among:
    """A function that tells of numbers whether they are among `keys`, of which there is at least one."""
    keys = torch.unique(keys)

    def among(edges: Tensor) -> Tensor:
        return keys[torch.searchsorted(keys, edges).clamp(max=keys.numel() - 1)] == edges

    return among


def gone_of(block: Any, rows: int, seeds: int, among: Among) -> tuple[int, Tensor]:
    """The number of edges of a block's first rows, and the positions of those that are to go.

    Args:
        block: with `indptr` and `indices`.
        rows: those of the seeds.
        seeds: places of seeds are below; few edges come from them.
        among: is asked for row * seeds + source.
    """
    starts = block.indptr[: rows + 1]
    first = int(starts[-1])
    near = (block.indices[:first] < seeds).nonzero().view(-1)
    row = torch.searchsorted(starts, near.to(starts.dtype), right=True) - 1
    return first, near[among(row * seeds + block.indices[near].long())]


def lists_without(indptr: Tensor, rows: int, gone: Tensor) -> Tensor:
    """The `indptr` of lists without the edges at these positions, ascending, which are of the first `rows` lists."""
    starts = indptr[: rows + 1]
    before = torch.searchsorted(gone, starts.long()).to(starts.dtype)
    return torch.cat([starts - before, indptr[rows + 1 :] - gone.numel()])


def rows_without(rows: Tensor, gone: Tensor, first: int) -> Tensor:
    """The rows without those that are gone, which are among the first."""
    stays = torch.ones(first, dtype=torch.bool, device=rows.device)
    stays[gone] = False
    return torch.cat([rows[:first][stays], rows[first:]])


def edges_without(
    pairs: Tensor, ids: Tensor | None, counts: tuple[int, ...], seeds: int, among: Among
) -> tuple[Tensor, Tensor | None, tuple[int, ...]]:
    """The edges of a subgraph, their ids, and their numbers per hop, without those that are to go.

    Args:
        pairs: `[2, E]` places of sources and destinations, hop by hop.
        seeds: places of sources that are seeds are below.
        among: is asked for destination * seeds + source, of edges to seeds.
    """
    first = counts[0] if counts else 0  # the edges to the seeds
    src, dst = pairs[:, :first]
    near = (src < seeds).nonzero().view(-1)
    gone = near[among(dst[near] * seeds + src[near])]
    if gone.numel() == 0:
        return pairs, ids, counts
    left = torch.stack([rows_without(ends, gone, first) for ends in pairs])
    ids = None if ids is None else rows_without(ids, gone, first)
    return left, ids, (first - gone.numel(), *counts[1:])


def _block_without(block: Block, seeds: int, among: Among) -> Block:
    first, gone = gone_of(block, seeds, seeds, among)
    if gone.numel() == 0:
        return block

    def rows(t: Tensor | None) -> Tensor | None:
        return None if t is None else rows_without(t, gone, first)

    return Block(
        lists_without(block.indptr, seeds, gone),
        rows_without(block.indices, gone, first),
        num_src=block.num_src,
        num_dst=block.num_dst,
        edge_ids=rows(block.edge_ids),
        edge_features=rows(block.edge_features),
    )
