"""The sampled neighborhood of a batch of seeds: a block per hop, and the nodes of the blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loader.samples.base import Rows, Sample
from loader.samples.block import Block
from loader.samples.interop import to_dgl, to_pyg
from loader.samples.lazy_rows import LazyRows

_PYG_NAMES = ("edge_index", "n_id", "num_sampled_nodes", "num_sampled_edges")


@dataclass(eq=False)
class MiniBatch(Sample):
    """The sampled neighborhood of a batch of seeds, ready for a model.

    Immutable by convention: change a copy (`replace`).

    Each frontier is a prefix of the next one, so one array names the nodes of every hop:
    `nodes[:frontier_sizes[h]]` are the nodes reached within `h` hops, the seeds first.

    The arrays of a mini-batch that a GPU sampled lie in one piece of memory, which stays as long as any of them. So
    clone an array that you keep.

    Attributes:
        nodes: `[num_input]` global ids of the input nodes, the output nodes (seeds) first.
        frontier_sizes: `L + 1` sizes, from the seeds outward.
        blocks: `L` blocks in the order a model applies them: `blocks[0]` reads the input nodes, `blocks[-1]`
            writes the output nodes. Hop `h` (counted from the seeds, from 1) is `blocks[L - h]`.
        epoch, index: which epoch and which mini-batch of it this is.
        x: `[num_input, F]` features of the input nodes, or None if they were not gathered.
        y: `[num_output]` or `[num_output, C]` labels of the output nodes, or None if they were not gathered. The labels
            of mini-batches that were sampled together lie in one piece of memory, which stays as long as any of them.
            So clone labels that you keep.
        rows: in place of `x`, if a store leaves the features in its table; see `gathered`.
        repeats: see `Sample`.
    """

    nodes: Tensor
    frontier_sizes: tuple[int, ...]
    blocks: tuple[Block, ...]
    epoch: int = 0
    index: int = 0
    x: Tensor | None = None
    y: Tensor | None = None
    rows: LazyRows | None = None
    repeats: bool = False

    wants = ("node", "seed", "edge")

    if not TYPE_CHECKING:  # a type checker would then take every name

        def __getattr__(self, name: str) -> Any:
            """Names of torch_geometric, which readers who come from there try."""
            way = "; batch.to_pyg() has it" if name in _PYG_NAMES else ""
            raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}{way}", name=name, obj=self)

    def ids(self, kind: str) -> Tensor:
        """`[n]` ids of the input nodes ("node"), the output nodes ("seed") or the edges of all blocks ("edge")."""
        if kind == "node":
            return self.nodes
        if kind == "seed":
            return self.output_nodes
        if kind == "edge":
            # One gather for all hops: few large ones cost less than many small ones.
            ids = [block.edge_ids for block in self.blocks if block.edge_ids is not None]
            if len(ids) < len(self.blocks):
                raise ValueError("the mini-batch has no edge ids; make its sampler with edge_ids=True")
            return torch.cat(ids)
        return super().ids(kind)

    def has(self, kind: str) -> bool:
        if kind == "node":
            return self.x is not None or self.rows is not None
        return self.y is not None if kind == "seed" else self.blocks[0].edge_features is not None

    def with_rows(self, rows: Mapping[str, Rows]) -> MiniBatch:
        """A copy with features (`x`, or `rows` if they stay in their table), labels `y` or features of the edges."""
        changes: dict[str, Any] = {}
        for kind, found in rows.items():
            if kind == "node":
                changes["rows" if isinstance(found, LazyRows) else "x"] = found
            elif kind == "seed":
                changes["y"] = found
            elif kind == "edge":
                assert isinstance(found, Tensor)
                parts = found.split([block.num_edges for block in self.blocks])
                pairs = zip(self.blocks, parts, strict=True)
                changes["blocks"] = tuple(dataclasses.replace(block, edge_features=part) for block, part in pairs)
            else:
                return super().with_rows(rows)
        return self.replace(**changes)

    @property
    def features(self) -> Tensor | LazyRows | None:
        """`x`, or `rows` if there is no `x`; `models.sage.GraphSAGE` takes either."""
        return self.rows if self.x is None else self.x

    def gathered(self) -> MiniBatch:
        """This mini-batch, or a copy with `x` in place of `rows` if it has `rows`."""
        return self if self.rows is None else self.replace(x=self.rows.gather(), rows=None)

    @property
    def input_nodes(self) -> Tensor:
        """`[num_input]` global ids of the nodes whose features the model reads."""
        return self.nodes

    @property
    def output_nodes(self) -> Tensor:
        """`[batch_size]` global ids of the seeds, in the order they were given."""
        return self.nodes[: self.frontier_sizes[0]]

    @property
    def batch_size(self) -> int:
        """Number of seeds."""
        return self.frontier_sizes[0]

    @property
    def num_edges(self) -> int:
        """Sampled edges of all hops together."""
        return sum(block.num_edges for block in self.blocks)

    def tensors(self) -> list[Tensor]:
        """All tensors, in a fixed order: nodes, each block's indptr, indices, edge ids and features, then x and y."""
        found: list[Tensor | None] = [self.nodes]
        for block in self.blocks:
            found += [block.indptr, block.indices, block.edge_ids, block.edge_features]
        found += [self.x, self.y]
        return [t for t in found if t is not None]

    def numbers(self) -> tuple[Any, ...]:
        return self.frontier_sizes, *super().numbers()

    def digest(self) -> str:
        """Returns the digest of all arrays, see `Sample.digest`.

        If there are `rows`, the digest is that with `x` in their place.
        """
        return super().digest() if self.rows is None else self.gathered().digest()

    def record_stream(self, stream: Any) -> None:
        super().record_stream(stream)
        if self.rows is not None:
            self.rows.record_stream(stream)

    def to_dgl(self) -> tuple[Tensor, Tensor, list[Any]]:
        """`(input_nodes, output_nodes, blocks)` as `dgl.dataloading.DataLoader` yields them."""
        return to_dgl(self.gathered())

    def to_pyg(self) -> Any:
        """A `torch_geometric.data.Data` as `torch_geometric.loader.NeighborLoader` yields it."""
        return to_pyg(self.gathered())

    def memory(self) -> list[Tensor]:
        """Lists the pieces of memory of the mini-batch.

        See `Sample.memory`. Override it together with `tensors`: `record_stream` and `held_bytes` use it.
        """
        found: list[Tensor | None] = [self.nodes, self.x, self.y]
        for block in self.blocks:
            found += block.memory()
        return list({t.untyped_storage().data_ptr(): t for t in found if t is not None}.values())

    def map(self, f: Callable[[Tensor], Tensor]) -> MiniBatch:
        def opt(t: Tensor | None) -> Tensor | None:
            return None if t is None else f(t)

        blocks = tuple(
            Block(f(b.indptr), f(b.indices), b.num_src, b.num_dst, opt(b.edge_ids), opt(b.edge_features))
            for b in self.blocks
        )
        nodes, x, rows = f(self.nodes), opt(self.x), self.rows
        if rows is not None:
            ids = f(rows.nodes)
            stays = ids.device == rows.device  # a table is not copied
            x, rows = (x, rows.of(ids)) if stays else (f(rows.gather()), None)
        return self.replace(nodes=nodes, blocks=blocks, x=x, rows=rows, y=opt(self.y))

    def __repr__(self) -> str:
        return (
            f"MiniBatch(epoch={self.epoch}, index={self.index}, frontier_sizes={self.frontier_sizes}, "
            f"num_edges={self.num_edges}, device='{self.nodes.device}')"
        )
