"""Scores of lists, beside counts of the lines that picks fall into."""

from __future__ import annotations

from itertools import pairwise
from math import comb

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loader.graph import Graph
from loader.samplers import FusedSampler, list_hotness
from loader.samplers.list_hotness import lines_read

LINE = 32  # entries of int32


@given(degree=st.integers(0, 2000), fanout=st.sampled_from([-1, 1, 2, 5, 10, 40]))
def test_lines_are_those_that_picks_reach(degree: int, fanout: int) -> None:
    picks = degree if fanout == -1 else min(degree, fanout)
    expected = 0.0  # of a list that begins at each place of a line, by the chance that no pick falls into a line
    for begin in range(LINE):
        ends = [*range(LINE - begin, degree, LINE), degree]
        for entries in (b - a for a, b in pairwise([0, *ends])):
            expected += (1 - comb(degree - entries, picks) / comb(degree, picks)) / LINE
    got = float(lines_read(torch.tensor([float(degree)]), fanout, 4))
    assert got == pytest.approx(expected, rel=0.15, abs=0.05)


def test_scores_are_lines_saved_per_byte() -> None:
    g = torch.Generator().manual_seed(0)
    graph = Graph.from_edges(*torch.randint(50, (2, 3000), generator=g), 51)  # the last has no neighbors
    sampler = FusedSampler([3, 2], num_threads=1)
    batches = [sampler.sample(graph, torch.arange(4 * i, 4 * i + 4), batch=i) for i in range(5)]
    scores = list_hotness(graph, batches, [3, 2])
    degrees = graph.in_degrees().double()
    expected = torch.zeros(51, dtype=torch.float64)
    for batch in batches:
        for hop, fanout in enumerate((3, 2)):
            visited = batch.nodes[: batch.frontier_sizes[hop]].long()
            expected[visited] += lines_read(degrees[visited], fanout, 4) / (4 * degrees[visited]).clamp(min=1)
    assert torch.allclose(scores, expected)
    assert scores[50] == 0


def test_other_numbers_of_hops_are_refused() -> None:
    graph = Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 2)
    batch = FusedSampler([3], num_threads=1).sample(graph, torch.tensor([1]))
    with pytest.raises(ValueError, match="a mini-batch has 1 hops; there are 2 fanouts"):
        list_hotness(graph, [batch], [3, 2])
    with pytest.raises(TypeError, match="batches is 3; it must be mini-batches, e"):
        list_hotness(graph, 3, [3, 2])  # type: ignore[arg-type]
