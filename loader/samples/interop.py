"""Converts a `MiniBatch` to DGL's blocks and to PyG's `Data`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.machine.optional import import_dgl, import_optional
from loader.samples.block import Block
from loader.samples.subgraph import subgraph_of


def to_dgl(batch: Any) -> tuple[Tensor, Tensor, list[Any]]:
    """`(input_nodes, output_nodes, blocks)` of a `MiniBatch`, as `dgl.dataloading.DataLoader` yields them.

    Blocks hold the ids of their nodes in `srcdata[dgl.NID]` and `dstdata[dgl.NID]`. They hold the ids of their edges
    in `edata[dgl.EID]`, if the sampler returned them. Gathered features are in `blocks[0].srcdata["feat"]`, features of
    edges in `edata["feat"]` of each block, gathered labels in `blocks[-1].dstdata["label"]`. The blocks have the id
    type of the mini-batch, or int64 if its `indptr` is wider than its `indices`. If the two have one type, they are
    shared, not copied. Their types have DGL's default names.

    Raises:
        ImportError: DGL is not installed; the message says what to install.
    """
    dgl = import_dgl("to_dgl()")
    blocks = [dgl_block(dgl, block, batch.nodes) for block in batch.blocks]
    if batch.x is not None:
        blocks[0].srcdata["feat"] = batch.x
    if batch.y is not None:
        blocks[-1].dstdata["label"] = batch.y
    return batch.input_nodes, batch.output_nodes, blocks


def to_pyg(batch: Any) -> Any:
    """A `torch_geometric.data.Data` of a `MiniBatch`, as `torch_geometric.loader.NeighborLoader` yields it.

    PyG samples the neighbors of each node once, at the hop after the one that first met it, and a model applies all
    edges at every layer. Our blocks, like DGL's, sample a node again at every later hop. The `Data` has only PyG's
    part of them: from the seeds outward, each node keeps the neighbors picked for it at the hop after the one that
    first met it. Nodes that only later picks lead to are left out. The result has the distribution of
    NeighborLoader's samples, and every edge counts once. So a model of L layers is applied to it as to those, with or
    without `torch_geometric.utils.trim_to_layer`. If all neighbors are sampled, it is the same subgraph.

    The result has these attributes; ids are int64: `edge_index` `[2, E]`, local ids, a row of sources and a row of
    destinations, hop by hop from the seeds; `n_id` `[N]`, global ids, the seeds first, then hop by hop, ascending
    within a hop; `num_sampled_nodes` (hops + 1 counts) and `num_sampled_edges` (one count per hop), as lists;
    `batch_size`; `e_id` `[E]`, if the sampler returned edge ids. If they were gathered: features `x` `[N, F]`, features
    of edges `edge_attr` `[E, D]`, and labels `y`.

    `y` has only the labels of the seeds. NeighborLoader's `y` has those of all nodes, so `y[:batch_size]` is the
    same for both. There is no `input_id` (positions in NeighborLoader's list of seeds).
    """
    Data = import_optional("torch_geometric.data", "to_pyg()", "datasets").Data

    subgraph, nodes, positions = subgraph_of(batch)
    data = Data(
        x=batch.x[nodes] if batch.x is not None else None,
        edge_index=subgraph.edge_index,
        y=batch.y,
        n_id=subgraph.nodes,
        batch_size=batch.batch_size,
        num_sampled_nodes=list(subgraph.num_nodes),
        num_sampled_edges=list(subgraph.num_edges),
    )
    data.num_nodes = subgraph.nodes.numel()
    if subgraph.edge_ids is not None:
        data.e_id = subgraph.edge_ids
    if batch.blocks[0].edge_features is not None:
        pairs = zip(reversed(batch.blocks), positions, strict=True)
        data.edge_attr = torch.cat([block.edge_features[places] for block, places in pairs])
    return data


def dgl_block(dgl: Any, block: Block, nodes: Tensor, etype: tuple[str, str, str] = ("_N", "_E", "_N")) -> Any:
    """DGL's form of a block, with the ids of its nodes and edges.

    Args:
        nodes: those of the mini-batch.
        etype: types of the sources, of the edges and of the destinations; by default those of a graph without names.
    """
    indptr, indices = block.indptr, block.indices
    if indptr.dtype != indices.dtype:
        indptr, indices = indptr.long(), indices.long()
    # Edges lie in the order of the CSC, which an empty array says, too; but DGL's kernels for CPUs read the array.
    order = torch.arange(indices.numel(), dtype=indices.dtype, device=indices.device)
    sizes = {etype[0]: block.num_src}, {etype[2]: block.num_dst}
    made = dgl.create_block({etype: ("csc", (indptr, indices, order))}, *sizes)
    made.srcdata[dgl.NID] = nodes[: block.num_src]
    made.dstdata[dgl.NID] = nodes[: block.num_dst]
    if block.edge_ids is not None:
        made.edata[dgl.EID] = block.edge_ids
    if block.edge_features is not None:
        made.edata["feat"] = block.edge_features
    return made
