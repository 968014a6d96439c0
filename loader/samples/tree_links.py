"""Leaves the edges that links are themselves out of the trees of these links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from loader.graph.edge_ends import EdgeEnds
from loader.samples.hetero_block import HeteroBlock
from loader.samples.hetero_links import hetero_block_without
from loader.samples.segments import EdgeType
from loader.samples.subgraph import edges_of
from loader.samples.trees import TreeMiniBatch


class EdgesAt(NamedTuple):
    """Which edges belong to links that are edges themselves, by their times.

    Attributes:
        are_edges: `[P]` bool, which links are edges; the others have none.
        times: `[P]` int64, the time of each link's own edge. None: an edge of any time belongs to the link.
        of: the relation's edges, whose times these are.
    """

    are_edges: Tensor
    times: Tensor | None
    of: EdgeEnds | None


class OwnEdges(NamedTuple):
    """Edges of one relation that the trees of links must not have.

    Attributes:
        edge_type: the relation.
        sources, targets: `[P]` ids of the one range, between which the edges of each link lie.
        ids: `[P]` ids of the edges, one for each link or -1 for none; None: all edges between the two ends.
        at: without `ids` the time that these edges have, or None: any.
    """

    edge_type: EdgeType
    sources: Tensor
    targets: Tensor
    ids: Tensor | None
    at: EdgesAt | None = None


def without_own_edges(sample: TreeMiniBatch, link: Tensor, own: Sequence[OwnEdges]) -> TreeMiniBatch:
    """A copy of trees, without rows of edges, in which no tree has an edge of its own link. All nodes stay.

    Args:
        link: `[trees]` int64, the number of the link that each tree belongs to.
        own: the edges.
    """
    if link.numel() == 0:
        return sample
    blocks = []
    for block in sample.blocks:
        gone = torch.cat([_own_of(sample, block, link, way) for way in own])
        if len(own) > 1:
            gone = torch.unique(gone)
        blocks.append(hetero_block_without(block, gone) if gone.numel() else block)
    return sample.replace(blocks=tuple(blocks))


def _own_of(sample: TreeMiniBatch, block: HeteroBlock, link: Tensor, own: OwnEdges) -> Tensor:
    """Positions in a block, ascending, of the edges that are of the links' own."""
    seg, nodes = sample.segments, sample.nodes
    relation = seg.relation_of(own.edge_type)
    _, target = seg.ends_of(relation)
    slots = seg.into[target]
    found = [torch.empty(0, dtype=torch.int64, device=nodes.device)]
    for t, part, first_row in seg.rows(block.first_dst, block.num_dst):
        if t != target:
            continue
        these = slice(part.begin, part.begin + part.size)
        its = link[sample.tree[these].long()]
        mine = (nodes[these] == own.targets[its]).nonzero().view(-1)
        edges, degrees = edges_of(block, first_row + mine * len(slots) + slots.index(relation))
        its = its[mine].repeat_interleave(degrees)
        if own.ids is None:
            same = nodes[block.indices[edges].long()] == own.sources[its]
            if own.at is not None:
                same &= own.at.are_edges[its]
                if own.at.times is not None and own.at.of is not None:
                    assert block.edge_ids is not None
                    assert own.at.of.times is not None
                    same &= own.at.of.times[own.at.of.rows(block.edge_ids[edges])] == own.at.times[its]
        else:
            assert block.edge_ids is not None
            same = block.edge_ids[edges] == own.ids[its]
        found.append(edges[same])
    return torch.cat(found)
