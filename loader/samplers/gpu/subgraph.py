"""Subgraphs of mini-batches on a GPU."""

from __future__ import annotations

import itertools

import torch

from loader import _core
from loader.machine.gpu import current_stream_handle, made_current
from loader.samples import MiniBatch, Subgraph, subgraph_of

_MOST = 2**31 - 1  # nodes or edges that the kernels can number


def subgraph_on_gpu(batch: MiniBatch) -> Subgraph:
    """`loader.samples.subgraph_of` of a mini-batch on a GPU, which is waited for once (csrc/sampler/cuda/subgraph.h).

    The result has the same bytes.
    """
    blocks = batch.blocks[::-1]
    most_nodes, edges = batch.nodes.numel(), sum(block.indices.numel() for block in blocks)
    if not blocks or max(most_nodes, edges) > _MOST or type(batch) is not MiniBatch:
        return subgraph_of(batch)[0]
    device, first = batch.nodes.device, blocks[0]
    ids = first.edge_ids
    hops = [(block.indptr, block.indices, block.edge_ids, block.num_src) for block in blocks]
    with made_current(device):
        scratch = torch.empty(_core.subgraph_scratch(most_nodes, edges), dtype=torch.int32, device=device)
        sizes = torch.empty((2, len(blocks) + 1), dtype=torch.int64, device=device)
        nodes = torch.empty(most_nodes, dtype=torch.int64, device=device)
        ends = torch.empty(2 * edges, dtype=torch.int64, device=device)
        edge_ids = None if ids is None else torch.empty(edges, dtype=torch.int64, device=device)
        _core.cuda_find_subgraph(
            hops,
            batch.batch_size,
            batch.nodes,
            scratch,
            sizes,
            nodes,
            ends,
            edge_ids,
            device.index,
            current_stream_handle(device.index),
        )
        nodes_after, edges_after = sizes.tolist()
    all_edges = edges_after[-1]
    return Subgraph(
        nodes=nodes[: nodes_after[-1]],
        edge_index=ends[: 2 * all_edges].view(2, all_edges),
        edge_ids=None if edge_ids is None else edge_ids[:all_edges],
        num_nodes=(nodes_after[0], *(b - a for a, b in itertools.pairwise(nodes_after))),
        num_edges=tuple(b - a for a, b in itertools.pairwise(edges_after)),
        epoch=batch.epoch,
        index=batch.index,
        repeats=batch.repeats,
    )
