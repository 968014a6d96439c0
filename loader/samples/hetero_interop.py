"""Converts a `HeteroMiniBatch` to DGL's blocks and to PyG's `HeteroData`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.machine.optional import import_dgl
from loader.samples.hetero_block import HeteroBlocks, by_relation, of_blocks
from loader.samples.hetero_subgraph import hetero_subgraph_of


def to_dgl(batch: HeteroBlocks) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
    """`(input_nodes, output_nodes, blocks)` of a `HeteroMiniBatch`, as `dgl.dataloading.DataLoader` yields them.

    Ids are those within the types. Blocks hold the ids of their nodes in `srcnodes[TYPE].data[dgl.NID]` and
    `dstnodes[TYPE].data[dgl.NID]`, and those of their edges in `edges[RELATION].data[dgl.EID]`, if the sampler returned
    them. Gathered features are in `blocks[0].srcnodes[TYPE].data["feat"]`, features of edges in
    `edges[RELATION].data["feat"]` of each block, gathered labels in `blocks[-1].dstnodes[TYPE].data["label"]`. Blocks
    have the id type of the mini-batch.

    Raises:
        ImportError: DGL is not installed; the message says what to install.
        ValueError: the mini-batch was sampled with expand="new", so its blocks do not follow on each other.
    """
    dgl = import_dgl("to_dgl()")
    if len(batch.blocks) > 1 and batch.batch_size and not batch.expands_all:
        raise ValueError(
            "to_dgl() needs blocks that follow on each other, and this mini-batch was sampled with expand='new'; make "
            "its sampler with expand='all'"
        )
    seg, hops = batch.segments, batch.blocks[::-1]
    n_id, edge_rows = batch.n_id, {}
    found = by_relation(hops, seg)
    counts = found.counts()
    for r, (edge_type, of_hop) in enumerate(zip(batch.edge_types, counts, strict=True)):
        rows = batch.rows.get("edge/" + "__".join(edge_type))
        if rows is not None:
            edge_rows[r] = rows.split(of_hop)
    within = seg.within(batch.nodes.device).to(batch.nodes.dtype)
    sources = within.index_select(0, of_blocks([block.indices for block in hops], found))
    ids = [block.edge_ids for block in hops if block.edge_ids is not None]
    edge_ids = of_blocks(ids, found) if len(ids) == len(hops) else None
    edge = [0]  # where the edges of each relation and hop begin
    for of_hop in counts:
        for count in of_hop:
            edge.append(edge[-1] + count)
    made = []
    for h, block in enumerate(hops):
        num_src = {name: seg.count(t, block.num_src) for t, name in enumerate(seg.names)}
        num_dst = {name: seg.count(t, block.num_dst) for t, name in enumerate(seg.names)}
        arrays, data = {}, {}
        for r, (edge_type, bounds) in enumerate(zip(batch.edge_types, found.bounds, strict=True)):
            begin, end = edge[r * len(hops) + h], edge[r * len(hops) + h + 1]
            indptr = found.indptr[bounds[h] : bounds[h + 1] + 1] - begin
            if indptr.numel() <= num_dst[edge_type[2]]:  # the block has no row of this type
                indptr = indptr.new_zeros(num_dst[edge_type[2]] + 1)
            order = torch.arange(end - begin, dtype=sources.dtype, device=sources.device)
            arrays[edge_type] = "csc", (indptr.to(sources.dtype), sources[begin:end], order)
            data[edge_type] = (begin, end, edge_rows[r][h] if r in edge_rows else None)
        graph = dgl.create_block(arrays, num_src, num_dst)
        for name, of_type in n_id.items():
            graph.srcnodes[name].data[dgl.NID] = of_type[: num_src[name]]
            graph.dstnodes[name].data[dgl.NID] = of_type[: num_dst[name]]
        for edge_type, (begin, end, rows) in data.items():
            if edge_ids is not None:
                graph.edges[edge_type].data[dgl.EID] = edge_ids[begin:end]
            if rows is not None:
                graph.edges[edge_type].data["feat"] = rows
        made.append(graph)
    blocks = made[::-1]
    for name, rows in (batch.x or {}).items():
        blocks[0].srcnodes[name].data["feat"] = rows
    if batch.y is not None:
        blocks[-1].dstnodes[batch.seed_type].data["label"] = batch.y
    seeds = {name: n_id[name][:size] for name, size in zip(seg.names, batch.sizes[0], strict=True)}
    return n_id, seeds, blocks


def to_pyg(batch: HeteroBlocks) -> Any:
    """A `torch_geometric.data.HeteroData` of a `HeteroMiniBatch`, as `torch_geometric.loader.NeighborLoader` yields it.

    If the mini-batch was sampled with expand="all", only PyG's part of it is in the result, see `hetero_subgraph_of`.

    A mini-batch does not know the positions of its seeds in a loader's list, unless it is of trees. So `input_id` has
    their ids, which is what NeighborLoader gives for all nodes of a type or a mask. See `HeteroSubgraph.to_pyg`.
    """
    found = hetero_subgraph_of(batch)
    return (found if batch.y is None else found.with_rows({"seed": batch.y})).to_pyg()
