"""LABOR: how often an edge is picked, what lists have in common, and what hops and mini-batches share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import equal_degrees
from numpy.typing import NDArray
from scipy import stats
from statistics_of_counts import LEVEL, p_equal, p_expected

from loader.graph import Graph
from loader.samplers import FusedSampler


def picked(graph: Graph, fanout: int, batch: int = 0, **options: int) -> NDArray[np.bool_]:
    """`[num_edges]`: whether each edge of the graph is picked."""
    sampler = FusedSampler([fanout], labor=True, edge_ids=True, num_threads=2, **options)
    found = np.zeros(graph.num_edges, dtype=bool)
    found[sampler.sample(graph, torch.arange(graph.num_nodes), batch=batch).blocks[0].edge_ids.numpy()] = True
    return found


def bipartite_in_one(num_lists: int, degree: int) -> Graph:
    """Each of the first nodes has `degree` in-neighbors that nobody else has."""
    num_nodes = num_lists * (degree + 1)
    indptr = torch.arange(num_nodes + 1).clamp_(max=num_lists) * degree
    return Graph(indptr, num_lists + torch.arange(num_lists * degree))


@pytest.mark.parametrize(("degree", "fanout"), [(2, 1), (11, 10), (20, 3), (100, 10), (1000, 10)])
def test_edges_are_picked_with_probability_fanout_by_degree(degree, fanout) -> None:
    """With sources that no two lists share, all edges are independent: the number of a list's is binomial."""
    lists = 40_000 // degree + 400
    graph = bipartite_in_one(lists, degree)
    p = fanout / degree
    rows = np.concatenate([picked(graph, fanout, batch).reshape(lists, degree) for batch in range(10)])
    numbers = np.bincount(rows.sum(1), minlength=degree + 1)
    expected = stats.binom.pmf(np.arange(degree + 1), degree, p)
    usual = expected * len(rows) > 10
    assert (
        p_expected(
            np.append(numbers[usual], numbers[~usual].sum()), np.append(expected[usual], 1 - expected[usual].sum())
        )
        > LEVEL
    )
    by_place = rows.sum(0)
    statistic = ((by_place - len(rows) * p) ** 2 / (len(rows) * p * (1 - p))).sum()
    assert stats.chi2.sf(statistic, degree) > LEVEL


def test_lists_of_one_degree_share_their_picks() -> None:
    graph = equal_degrees(3000, 30)
    found = picked(graph, 4)
    chosen = np.zeros(3000, dtype=bool)
    sources = graph.indices.numpy()
    chosen[sources[found]] = True
    assert (chosen[sources] == found).all()  # who picks a source at all, all do
    assert 0.10 < chosen.mean() < 0.17


def test_a_shorter_list_repeats_a_longer_ones_picks() -> None:
    """Lists of 40 and 20 of the same sources: what 4 of 40 picks, 4 of 20 picks, too."""
    sources = torch.arange(40)
    graph = Graph(torch.tensor([0, 40, 60] + [60] * 60), torch.cat([sources, sources[::2]]) + 2)
    times = 0
    for batch in range(200):
        found = picked(graph, 4, batch)
        long, short = found[:40][::2], found[40:60]
        assert (short | ~long).all()
        times += int(short.sum())
    assert 650 < times < 950  # 800 on average


def test_parallel_edges_are_picked_together() -> None:
    graph = Graph(torch.tensor([0, 40] + [40] * 20), torch.arange(1, 21).repeat_interleave(2))
    for batch in range(50):
        found = picked(graph, 7, batch).reshape(20, 2)
        assert (found[:, 0] == found[:, 1]).all()


def test_hops_share_random_numbers_only_if_told() -> None:
    graph = equal_degrees(2000, 50)
    seeds = torch.arange(2000)
    for layer_dependency in (False, True):
        sampler = FusedSampler([5, 5], labor=True, layer_dependency=layer_dependency, edge_ids=True)
        outer, inner = (set(block.edge_ids.tolist()) for block in sampler.sample(graph, seeds).blocks)
        if layer_dependency:
            assert outer == inner
        else:
            assert len(outer & inner) < 0.2 * len(inner)


def test_mini_batches_share_numbers_that_are_not_renewed() -> None:
    """Of 8 mini-batches each source has a new number in one: 7/8 of the numbers are those of the mini-batch before."""
    graph = bipartite_in_one(40, 1000)
    fanout, count = 200, 25
    found = np.stack([picked(graph, fanout, batch, batch_dependency=8) for batch in range(count)])
    assert (np.abs(found.mean(1) - 0.2) < 0.012).all()
    changed = (found[1:] != found[:-1]).mean(1)
    expected = 1 / 8 * 2 * 0.2 * 0.8  # a new number, and one of the two is picked
    assert (np.abs(changed - expected) < 0.006).all()
    assert not (found[0] == found[9]).all()
    # After 8 mini-batches all numbers are new: independent.
    joint = np.bincount(2 * found[3] + found[11], minlength=4)
    assert p_expected(joint, np.array([0.64, 0.16, 0.16, 0.04])) > LEVEL
    turns = np.array([(found[i + 1] != found[i]).sum() for i in range(8)])
    assert p_equal(turns) > LEVEL


def test_layers_sampled_by_labor_have_fewer_nodes() -> None:
    generator = torch.Generator().manual_seed(1)
    src, dst = (torch.randint(5000, (400_000,), generator=generator) for _ in range(2))
    graph = Graph.from_edges(src, dst, 5000)
    seeds = torch.arange(0, 5000, 10)

    def sizes(**options: bool) -> NDArray[np.float64]:
        sampler = FusedSampler([5, 5], **options)
        return np.mean([sampler.sample(graph, seeds, batch=i).frontier_sizes for i in range(5)], axis=0)

    even, labor = sizes(), sizes(labor=True)
    assert labor[-1] < 0.8 * even[-1]
    assert sizes(labor=True, layer_dependency=True)[-1] < labor[-1]
