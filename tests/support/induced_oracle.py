"""Induced subgraphs in plain Python, and questions to compare them by."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from loader.graph import Graph


def expected_edges(
    rows: list[list[int]], nodes: list[int], sets: list[int] | None = None, asked: list[int] | None = None
) -> list[tuple[int, int, int]]:
    """(place of the source, list, place of the edge), by looking at each pair of an entry and a node.

    Args:
        rows: the sources in each list.
        asked: numbers of lists; None: those of the nodes.
    """
    first = [0]
    for row in rows:
        first.append(first[-1] + len(row))
    found = []
    for i, row in enumerate(nodes if asked is None else asked):
        for k, source in enumerate(rows[row]):
            for place, node in enumerate(nodes):
                if node == source and (sets is None or sets[place] == sets[i]):
                    found.append((place, i, first[row] + k))
    return found


def rows_of(graph: Graph) -> list[list[int]]:
    """The sources in each list of a graph."""
    ends, sources = graph.indptr.tolist(), graph.indices.tolist()
    return [sources[a:b] for a, b in pairwise(ends)]


@st.composite
def small_graphs(draw: Any) -> Graph:
    """With loops, parallel edges, nodes without edges and, now and then, one list that is long."""
    n = draw(st.integers(1, 30))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    count = draw(st.integers(0, 150))
    src, dst = torch.randint(n, (2, count), generator=g)
    if draw(st.booleans()):
        src, dst = (
            torch.cat([src, torch.randint(n, (300,), generator=g)]),
            torch.cat([dst, dst.new_full((300,), n // 2)]),
        )
    graph = Graph.from_edges(src, dst, n)
    wide_edges, wide_nodes = draw(st.sampled_from([(False, False), (True, False), (True, True)]))
    graph.indptr = graph.indptr.to(torch.int64 if wide_edges else torch.int32)
    graph.indices = graph.indices.to(torch.int64 if wide_nodes else torch.int32)
    return graph


@st.composite
def node_sets(draw: Any, num_nodes: int) -> tuple[Tensor, Tensor, int]:
    """Distinct nodes of several sets, in any order, and the set of each."""
    count = draw(st.integers(1, 4))
    found = [(v, s) for s in range(count) for v in draw(st.lists(st.integers(0, num_nodes - 1), unique=True))]
    found = draw(st.permutations(found))
    return torch.tensor([v for v, _ in found]).long(), torch.tensor([s for _, s in found], dtype=torch.int32), count
