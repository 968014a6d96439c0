"""Leaves edges between seeds out of samples with several types of nodes and edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.samples.hetero import HeteroBlock, HeteroMiniBatch
from loader.samples.hetero_subgraph import HeteroSubgraph
from loader.samples.links import Among, edges_without, gone_of, lists_without, members, rows_without
from loader.samples.segments import EdgeType


def without_hetero_links(
    sample: Any, sources: Tensor, targets: Tensor, *, edge_type: EdgeType, reverse: EdgeType | None
) -> Any:
    """A copy of a sample without the edges of one relation, or two, between some pairs of its seeds.

    All parallel edges of a pair are left out. All nodes stay: both ends of such an edge are seeds.

    Args:
        sample: a `HeteroMiniBatch` or a `HeteroSubgraph`, without rows of edges, whose seeds are the ends of the pairs.
        sources, targets: `[n]` int64, places among the seeds of their types.
        edge_type: the relation whose edges from sources to targets are left out.
        reverse: another one, or the same, whose edges from targets to sources are left out; or None.
    """
    if sources.numel() == 0:
        return sample
    ways = [(edge_type, sources, targets)]
    if reverse is not None:
        ways.append((reverse, targets, sources))
    if isinstance(sample, HeteroMiniBatch):
        among = members(torch.cat([_keys(sample, *way) for way in ways]))
        return sample.replace(blocks=tuple(_block_without(sample, block, among) for block in sample.blocks))
    if not isinstance(sample, HeteroSubgraph):
        raise TypeError(
            f"links of a relation are left out of a HeteroMiniBatch or HeteroSubgraph, not of a {type(sample).__name__}"
        )
    for relation, src, dst in ways:
        sample = _subgraph_without(sample, relation, src, dst)
    return sample


def _keys(sample: HeteroMiniBatch, edge_type: EdgeType, sources: Tensor, targets: Tensor) -> Tensor:
    """Numbers of the edges of a relation between seeds: row * seeds + place of the source."""
    seg = sample.segments
    relation = seg.relation_of(edge_type)
    source, target = seg.ends_of(relation)
    begin = {t: (part.begin, row) for t, part, row in seg.rows(0, sample.batch_size)}
    slots = seg.into[target]
    rows = begin[target][1] + targets * len(slots) + slots.index(relation)
    return rows * sample.batch_size + begin[source][0] + sources


def _block_without(sample: HeteroMiniBatch, block: HeteroBlock, among: Among) -> HeteroBlock:
    if block.first_dst:  # its destinations are no seeds
        return block
    seeds = sample.batch_size
    rows = sum(part.size * len(sample.segments.into[t]) for t, part, _ in sample.segments.rows(0, seeds))
    first, gone = gone_of(block, rows, seeds, among)
    if gone.numel() == 0:
        return block
    return hetero_block_without(block, gone, rows, first)


def hetero_block_without(
    block: HeteroBlock, gone: Tensor, rows: int | None = None, edges: int | None = None
) -> HeteroBlock:
    """The block without the edges at these positions, ascending, which are of the first `rows` rows and among the first
    `edges` edges; by default anywhere.
    """
    rows = block.indptr.numel() - 1 if rows is None else rows
    edges = block.num_edges if edges is None else edges
    left = HeteroBlock(
        lists_without(block.indptr, rows, gone),
        rows_without(block.indices, gone, edges),
        block.first_dst,
        block.num_dst,
        block.num_src,
        None if block.edge_ids is None else rows_without(block.edge_ids, gone, edges),
    )
    left.segments = block.segments
    return left


def _subgraph_without(sample: HeteroSubgraph, edge_type: EdgeType, sources: Tensor, targets: Tensor) -> HeteroSubgraph:
    seeds = sample.num_nodes[edge_type[0]][0]
    counts = sample.num_edges[edge_type]
    ids = None if sample.edge_ids is None else sample.edge_ids[edge_type]
    among = members(targets * seeds + sources)
    pairs, ids, counts = edges_without(sample.edges[edge_type], ids, counts, seeds, among)
    return sample.replace(
        edges={**sample.edges, edge_type: pairs},
        edge_ids=None if ids is None else {**(sample.edge_ids or {}), edge_type: ids},
        num_edges={**sample.num_edges, edge_type: counts},
    )
