"""Scores of neighbor lists for a cache: bytes over the bus that a list in GPU memory saves, for each of its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from loader.graph import Graph
from loader.machine.arguments import shown
from loader.samplers.base import resolve_fanouts
from loader.samples import MiniBatch

_LINE_BYTES = 128  # of a request to pinned memory


def list_hotness(graph: Graph, batches: Iterable[MiniBatch], fanouts: Sequence[int]) -> Tensor:
    """`[num_nodes]` float64 on the CPU: lines of pinned memory that mini-batches read of each list, per byte of it.

    To put first what saves most per byte is the idea of DUCATI (Zhang et al., "DUCATI: A Dual-Cache Training System for
    Graph Neural Networks on Giant Graphs with GPUs", SIGMOD 2023). A node that a hop picks for is counted as a visit.
    How many lines a visit reads is estimated from the degree and the fanout. Lines that two lists share are counted for
    both. Mini-batches are a pure function of the loader's arguments, so sampling some here does not change the run.

    Args:
        graph: square.
        batches: for example those of an epoch, or some of them.
        fanouts: those of the sampler, in hop order.

    Raises:
        ValueError: a mini-batch has another number of hops.
    """
    visits = hop_visits(graph, batches, fanouts)
    return lines_of_visits(graph, visits, fanouts) / (graph.in_degrees().cpu().double() * graph.indices.itemsize).clamp(
        min=1
    )


def hop_visits(graph: Graph, batches: Iterable[MiniBatch], fanouts: Sequence[int]) -> Tensor:
    """`[hops, num_nodes]` int64 on the CPU: how often each hop picked for each node; see `list_hotness`."""
    num_hops = len(resolve_fanouts(fanouts))
    visits = torch.zeros(num_hops, graph.num_nodes, dtype=torch.int64)
    if not isinstance(batches, Iterable):
        raise TypeError(f"batches is {shown(batches)}; it must be mini-batches, e.g. a NodeLoader")
    for batch in batches:
        if len(batch.blocks) != num_hops:
            raise ValueError(f"a mini-batch has {len(batch.blocks)} hops; there are {num_hops} fanouts")
        visits = visits.to(batch.nodes.device)
        for hop in range(num_hops):
            # The nodes of a mini-batch are distinct.
            visits[hop, batch.nodes[: batch.frontier_sizes[hop]].long()] += 1
    return visits.cpu()


def lines_of_visits(graph: Graph, visits: Iterable[Tensor], fanouts: Sequence[int]) -> Tensor:
    """`[num_nodes]` float64 on the CPU: lines of pinned memory that these visits read of each list.

    Args:
        graph: square.
        visits: of each hop, `[num_nodes]` on the CPU.
        fanouts: those of the sampler, in hop order.
    """
    degrees = graph.in_degrees().cpu().double()
    lines = torch.zeros(graph.num_nodes, dtype=torch.float64)
    for fanout, of_hop in zip(resolve_fanouts(fanouts), visits, strict=True):
        lines += of_hop * lines_read(degrees, fanout, graph.indices.itemsize)
    return lines


def lines_read(degrees: Tensor, fanout: int, itemsize: int) -> Tensor:
    """Lines that the picks of a list fall into, on average; float64, as `degrees`.

    A list that begins anywhere lies in `1 + (degree - 1) / entries of a line` lines on average, and the picks are taken
    to fall into each with equal chance.
    """
    lines = 1 + (degrees - 1).clamp(min=0) * itemsize / _LINE_BYTES
    picks = degrees if fanout == -1 else degrees.clamp(max=fanout)
    reached = lines * (1 - (1 - 1 / lines) ** picks)
    return torch.where(picks >= degrees, lines, reached) * (degrees > 0)
