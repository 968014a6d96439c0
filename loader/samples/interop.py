"""`MiniBatch` as the two common libraries know it: DGL blocks, PyG `Data`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from loader.machine.optional import import_dgl, import_optional
from loader.samples.block import Block


def to_dgl(batch: Any) -> tuple[Tensor, Tensor, list[Any]]:
    """`(input_nodes, output_nodes, blocks)` as `dgl.dataloading.DataLoader` yields them, of a `MiniBatch`.

    Blocks hold the ids of their vertices in `srcdata[dgl.NID]` and `dstdata[dgl.NID]`, and those of their edges in
    `edata[dgl.EID]` when the sampler returned them. Gathered features are `blocks[0].srcdata["feat"]`, those of edges
    each block's `edata["feat"]`, gathered labels `blocks[-1].dstdata["label"]`. The blocks have the id type of the
    mini-batch; where its `indptr` is wider than its `indices`, both are int64. CSC arrays of one type are shared, not
    copied.

    Raises:
        ImportError: DGL is not installed; the message says what to install.
    """
    dgl = import_dgl("to_dgl()")
    blocks = [_dgl_block(dgl, block, batch.nodes) for block in batch.blocks]
    if batch.x is not None:
        blocks[0].srcdata["feat"] = batch.x
    if batch.y is not None:
        blocks[-1].dstdata["label"] = batch.y
    return batch.input_nodes, batch.output_nodes, blocks


def to_pyg(batch: Any) -> Any:
    """A `torch_geometric.data.Data` as `torch_geometric.loader.NeighborLoader` yields it, of a `MiniBatch`.

    PyG samples the neighbours of each vertex once, at the hop after the one that first met it, and a model applies
    all edges at every layer; our blocks (like DGL's) sample a vertex again at every hop that it takes part in. So the
    `Data` follows PyG's walk through our picks: from the seeds outward, each vertex keeps the neighbours picked for it
    at the hop after the one that first met it, and vertices that only later picks lead to are left out. What remains
    is distributed as NeighborLoader's samples are, every edge counts once, and an L-layer model over it is meaningful,
    with or without `torch_geometric.utils.trim_to_layer`. With all neighbours sampled it is the same subgraph.

    Attributes of the result, ids being int64: `edge_index` `[2, E]`, local ids, source over destination, hop by hop
    from the seeds; `n_id` `[N]` global ids, the seeds first, then hop by hop, ascending within a hop;
    `num_sampled_nodes` (hops + 1 counts) and `num_sampled_edges` (one count a hop), as lists; `batch_size`; `e_id`
    `[E]` when the sampler returned edge ids. When gathered: `x` `[N, F]` features, `edge_attr` `[E, D]`, and `y`
    labels of the seeds (of them alone: `y[:batch_size]` means the same as for NeighborLoader, whose `y` covers all
    vertices). NeighborLoader's `input_id` (positions in its own list of seeds) has no counterpart.
    """
    Data = import_optional("torch_geometric.data", "to_pyg()", "datasets").Data

    hop_nodes = [torch.arange(batch.batch_size, device=batch.nodes.device)]
    sources, targets, edge_ids, edge_attr = [], [], [], []
    local = torch.full_like(batch.nodes, -1, dtype=torch.int64)  # place in n_id, by place in batch.nodes
    local[: batch.batch_size] = hop_nodes[0]
    num_nodes = batch.batch_size
    for block in reversed(batch.blocks):
        frontier = hop_nodes[-1]
        positions, degrees = _edges_of(block, frontier)
        src = block.indices[positions].long()
        new = torch.unique(src[local[src] < 0])
        local[new] = torch.arange(num_nodes, num_nodes + new.numel(), device=new.device)
        num_nodes += new.numel()
        hop_nodes.append(new)
        sources.append(local[src])
        targets.append(local[frontier].repeat_interleave(degrees))
        if block.edge_ids is not None:
            edge_ids.append(block.edge_ids[positions].long())
        if block.edge_features is not None:
            edge_attr.append(block.edge_features[positions])
    kept = torch.cat(hop_nodes)
    data = Data(
        x=batch.x[kept] if batch.x is not None else None,
        edge_index=torch.stack([torch.cat(sources), torch.cat(targets)]),
        y=batch.y,
        n_id=batch.nodes[kept].long(),
        batch_size=batch.batch_size,
        num_sampled_nodes=[nodes.numel() for nodes in hop_nodes],
        num_sampled_edges=[src.numel() for src in sources],
    )
    data.num_nodes = num_nodes
    if edge_ids:
        data.e_id = torch.cat(edge_ids)
    if edge_attr:
        data.edge_attr = torch.cat(edge_attr)
    return data


def _dgl_block(dgl: Any, block: Block, nodes: Tensor) -> Any:
    indptr, indices = block.indptr, block.indices
    if indptr.dtype != indices.dtype:
        indptr, indices = indptr.long(), indices.long()
    order = torch.empty(0, dtype=indices.dtype, device=indices.device)  # edges lie in the order of the CSC
    made = dgl.create_block(("csc", (indptr, indices, order)), block.num_src, block.num_dst)
    made.srcdata[dgl.NID] = nodes[: block.num_src]
    made.dstdata[dgl.NID] = nodes[: block.num_dst]
    if block.edge_ids is not None:
        made.edata[dgl.EID] = block.edge_ids
    if block.edge_features is not None:
        made.edata["feat"] = block.edge_features
    return made


def _edges_of(block: Block, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Positions in `block.indices` of the edges of `rows`, row after row, and each row's number of edges."""
    begin = block.indptr[rows].long()
    degrees = block.indptr[rows + 1].long() - begin
    offsets = torch.cumsum(degrees, 0) - degrees  # where each row's edges begin in the result
    shift = (begin - offsets).repeat_interleave(degrees)
    return torch.arange(shift.numel(), device=shift.device) + shift, degrees
