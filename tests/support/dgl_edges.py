"""The edges of DGL's blocks by the ids of the whole graph, to compare blocks of different orders."""

from __future__ import annotations

from typing import Any


def edges_by_ids(block: Any) -> list[tuple[int, int, int]]:
    """Source, destination and id of each edge, ascending."""
    import dgl

    src, dst = block.edges()
    ends = block.srcdata[dgl.NID][src.long()].tolist(), block.dstdata[dgl.NID][dst.long()].tolist()
    return sorted(zip(*ends, block.edata[dgl.EID].tolist(), strict=True))


def edge_ids(made: Any) -> list[int]:
    """The ids that the edges of a graph have in the whole graph, ascending."""
    import dgl

    return sorted(made.edata[dgl.EID].tolist())
