"""Typed mini-batches around seeds of which some are given several times, as torch_geometric's samplers take them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from loader.graph import HeteroGraph
from loader.samplers import Sampler
from loader.samples import HeteroBlock, HeteroMiniBatch
from loader.samples.subgraph import edges_of, ranges


def sample_from(
    sampler: Sampler, graph: HeteroGraph, seeds: Mapping[str, Tensor], epoch: int, batch: int
) -> HeteroMiniBatch:
    """The mini-batch around these seeds.

    Args:
        sampler: with expand="new".
        seeds: node type -> ids within the type, any of them several times.
    """
    distinct, places, count = {}, [], 0
    for name in graph.node_types:
        if name in seeds:
            distinct[name], inverse = torch.unique(seeds[name], return_inverse=True)
            if distinct[name].numel() == inverse.numel():  # in the order they were given
                distinct[name], inverse = seeds[name], torch.arange(inverse.numel(), device=inverse.device)
            places.append(inverse + count)
            count += distinct[name].numel()
    # A type that the graph does not have is refused there.
    sampled = sampler.sample(graph, {**seeds, **distinct}, epoch=epoch, batch=batch)
    where = torch.cat(places)
    return sampled if where.numel() == count else repeated(sampled, where)


def repeated(batch: HeteroMiniBatch, places: Tensor) -> HeteroMiniBatch:
    """A mini-batch without rows, sampled with expand="new", in which seeds come several times, each with edges of its
    own, which are those of the others. Other nodes have them as neighbors by their first copy.

    Args:
        places: `[n]` of the new seeds among the mini-batch's, type after type; each of these at least once.
    """
    seg, device, seeds, count = batch.segments, batch.nodes.device, batch.batch_size, places.numel()
    more = count - seeds
    local = torch.arange(batch.nodes.numel(), device=device) + more
    local[:seeds] = count
    local.scatter_reduce_(0, places, torch.arange(count, device=device), "amin")
    types = torch.arange(len(seg.names), device=device).repeat_interleave(torch.tensor(batch.sizes[0], device=device))
    sizes = tuple(torch.bincount(types[places], minlength=len(seg.names)).tolist()), *batch.sizes[1:]
    slots = torch.tensor([len(into) for into in seg.into], device=device)[types]
    blocks = []
    for h, block in enumerate(batch.blocks[::-1]):
        indptr, indices, ids = block.indptr, block.indices, block.edge_ids
        first_dst, num_dst = block.first_dst + more, block.num_dst
        if h == 0:
            rows = ranges((slots.cumsum(0) - slots)[places], slots[places])
            chosen, degrees = edges_of(block, rows)
            indptr = torch.cat([indptr.new_zeros(1), degrees.cumsum(0).to(indptr.dtype)])
            indices, ids = indices[chosen], None if ids is None else ids[chosen]
            first_dst, num_dst = 0, count
        made = local[indices.long()].to(indices.dtype)
        blocks.append(HeteroBlock(indptr, made, first_dst, num_dst, block.num_src + more, ids))
    nodes = torch.cat([batch.nodes[:seeds][places], batch.nodes[seeds:]])
    return HeteroMiniBatch(
        nodes, sizes, tuple(blocks[::-1]), batch.node_types, batch.edge_types, batch.epoch, batch.index
    )
