"""The sampled neighborhood of seeds in a graph with several types of nodes and edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from loader.samples.base import Rows, Sample

EdgeType = tuple[str, str, str]


@dataclass(eq=False)
class HeteroBlock:
    """One hop of a typed mini-batch, CSC: a row per destination node and relation into its type.

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

    @property
    def num_edges(self) -> int:
        return self.indices.numel()


@dataclass(eq=False)
class HeteroMiniBatch(Sample):
    """The sampled neighborhood of a batch of seeds in a `HeteroGraph`.

    Attributes:
        nodes: `[num_nodes]` ids of the graph's one range: the seeds, then hop by hop the new nodes, ascending, so that
            those of a type lie together.
        sizes: numbers of new nodes, `[hops + 1][node types]`; entry 0 counts the seeds.
        blocks: a block per hop in the order a model applies them, as in `MiniBatch`: `blocks[-1]` writes the seeds.
        node_types: node type -> `range` of ids, as the graph's.
        edge_types: the graph's relations, in their order.
        epoch, index: which mini-batch of which epoch this is.
        x: node type -> features of the nodes of that type, or None.
        y: labels of the seeds, or None.
        repeats: see `Sample`.
    """

    nodes: Tensor
    sizes: tuple[tuple[int, ...], ...]
    blocks: tuple[HeteroBlock, ...]
    node_types: Mapping[str, range]
    edge_types: tuple[EdgeType, ...]
    epoch: int = 0
    index: int = 0
    x: dict[str, Tensor] | None = None
    y: Tensor | None = None
    repeats: bool = False

    def tensors(self) -> list[Tensor]:
        raise NotImplementedError

    def map(self, f: Callable[[Tensor], Tensor]) -> HeteroMiniBatch:
        raise NotImplementedError

    def with_rows(self, rows: Mapping[str, Rows]) -> HeteroMiniBatch:
        raise NotImplementedError

    def to_pyg(self) -> Any:
        raise NotImplementedError
