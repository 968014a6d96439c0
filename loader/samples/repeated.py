"""Induced subgraphs with types around seeds of which some are given several times."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from loader.samples.hetero_subgraph import HeteroSubgraph
from loader.samples.subgraph import ranges


def with_distinct_seeds(sample: HeteroSubgraph) -> tuple[HeteroSubgraph, dict[str, Tensor]]:
    """A subgraph whose seeds are there once, without its edges, and what `repeated` needs to undo that.

    Returns:
        The subgraph, and node type -> `[n]` of the seeds among those that are left, of types where some come twice.
    """
    nodes, num_nodes, places = dict(sample.nodes), dict(sample.num_nodes), {}
    for name, ids in sample.nodes.items():
        count = sample.num_nodes[name][0]
        unique, inverse = torch.unique(ids[:count], return_inverse=True)
        if unique.numel() < count:
            nodes[name], places[name] = torch.cat([unique, ids[count:]]), inverse
            num_nodes[name] = unique.numel(), *sample.num_nodes[name][1:]
    return sample.replace(nodes=nodes, num_nodes=num_nodes), places


def repeated(sample: HeteroSubgraph, places: Mapping[str, Tensor]) -> HeteroSubgraph:
    """A subgraph without rows, in which seeds come several times, each with edges of its own.

    Other nodes have the first of them as a neighbor.

    Args:
        places: node type -> `[n]` of the new seeds among the seeds of that type; each of these at least once.
    """
    nodes, num_nodes = dict(sample.nodes), dict(sample.num_nodes)
    local: dict[str, Tensor] = {}  # where each node is now
    for name, of in places.items():
        seeds, count = sample.num_nodes[name][0], of.numel()
        moved = torch.arange(nodes[name].numel()) + count - seeds
        moved[:seeds] = count
        local[name] = moved.scatter_reduce_(0, of, torch.arange(count), "amin")
        nodes[name] = torch.cat([nodes[name][of], nodes[name][seeds:]])
        num_nodes[name] = count, *sample.num_nodes[name][1:]
    edges, edge_ids, num_edges = dict(sample.edges), dict(sample.edge_ids or {}), dict(sample.num_edges)
    for edge_type, pairs in sample.edges.items():
        source, _, target = edge_type
        if target in places and num_edges[edge_type]:
            of_seeds, *later = num_edges[edge_type]
            # Of an induced subgraph there is one number, of edges to all nodes.
            first = int((pairs[1] < sample.num_nodes[target][0]).sum())
            degrees = torch.bincount(pairs[1, :first], minlength=sample.num_nodes[target][0])  # rows ascend
            begins = degrees.cumsum(0) - degrees
            copies = ranges(begins[places[target]], degrees[places[target]])
            chosen = torch.cat([copies, torch.arange(first, pairs.shape[1])])
            ends = torch.arange(places[target].numel()).repeat_interleave(degrees[places[target]])
            pairs = torch.stack([pairs[0, chosen], torch.cat([ends, local[target][pairs[1, first:]]])])
            num_edges[edge_type] = of_seeds - first + copies.numel(), *later
            if sample.edge_ids is not None:
                edge_ids[edge_type] = sample.edge_ids[edge_type][chosen]
        if source in local:
            pairs = torch.stack([local[source][pairs[0]], pairs[1]])
        edges[edge_type] = pairs
    ids = None if sample.edge_ids is None else edge_ids
    return sample.replace(nodes=nodes, edges=edges, edge_ids=ids, num_nodes=num_nodes, num_edges=num_edges)
