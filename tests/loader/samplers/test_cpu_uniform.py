"""Law 1: picks are uniform over all subsets, and independent of each other. From fixed seeds, so it cannot flake."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from graphs import equal_degrees
from numpy.typing import NDArray
from statistics_of_counts import LEVEL, p_equal, p_equal_subsets, p_expected, p_same

from loader.graph import Graph
from loader.samplers import FusedSampler


def positions(
    graph: Graph, fanout: int, *, batches: int = 1, seed: int = 0, replace: bool = False, vary: str = "batch"
) -> NDArray[np.int64]:
    """`[batches * num_nodes, fanout]` picked places in each node's list; `vary` names what differs a batch."""
    seeds = torch.arange(graph.num_nodes)
    begin = graph.indptr[:-1].numpy()[:, None]
    found, samplers = [], {}  # one sampler per seed: to open a graph takes longer than to sample it
    for i in range(batches):
        place = {"epoch": 0, "batch": 0, "seed": seed}
        place[vary] += i
        own = place.pop("seed")
        if own not in samplers:
            samplers[own] = FusedSampler([fanout], replace=replace, edge_ids=True, seed=own, num_threads=2)
        block = samplers[own].sample(graph, seeds, **place).blocks[0]
        found.append(block.edge_ids.numpy().reshape(graph.num_nodes, fanout) - begin)
    return np.concatenate(found).astype(np.int64)


def counts_of(picks: NDArray[np.int64], degree: int) -> NDArray[np.int64]:
    return np.bincount(picks.ravel(), minlength=degree)


@pytest.mark.parametrize("vary", ["batch", "epoch", "seed"])
@pytest.mark.parametrize("fanout", [1, 2, 3, 10, 16, 31, 32, 40, 64, 256])
def test_each_place_is_left_out_equally_often(fanout, vary) -> None:
    degree = fanout + 1
    picks = positions(equal_degrees(1000, degree), fanout, batches=20, vary=vary)
    left_out = degree * (degree - 1) // 2 - picks.sum(1)  # the one position that is missing from 0..fanout
    assert p_equal(np.bincount(left_out, minlength=degree)) > LEVEL


@pytest.mark.parametrize("degree", [2, 3, 7, 64, 65, 300, 1024, 2000])
def test_fanout_one_picks_each_place_equally_often(degree) -> None:
    picks = positions(equal_degrees(2500, degree), 1, batches=16)
    assert p_equal(counts_of(picks, degree)) > LEVEL


@pytest.mark.parametrize(("degree", "fanout"), [(5, 2), (6, 3), (7, 5), (9, 2), (70, 2), (11, 10), (12, 4)])
def test_all_subsets_are_equally_probable(degree, fanout) -> None:
    picks = positions(equal_degrees(4000, degree), fanout, batches=25)
    places = {subset: i for i, subset in enumerate(combinations(range(degree), fanout))}
    cells = np.array([places[tuple(row)] for row in picks])
    assert p_equal(np.bincount(cells, minlength=len(places))) > LEVEL


@pytest.mark.parametrize("degree", [300, 1024, 5000])
def test_pairs_from_long_lists_are_equally_probable(degree) -> None:
    """Cells are pairs of tenths of the list: of `degree * (degree - 1) / 2` pairs each has a share that is counted."""
    tenth = np.arange(degree) * 10 // degree
    first, second = np.triu_indices(degree, k=1)
    probability = np.bincount(tenth[first] * 10 + tenth[second], minlength=100) / first.size
    picks = positions(equal_degrees(5001, degree), 2, batches=20)
    found = np.bincount(tenth[picks[:, 0]] * 10 + tenth[picks[:, 1]], minlength=100)
    possible = probability > 0
    assert found[~possible].sum() == 0
    assert p_expected(found[possible], probability[possible]) > LEVEL


@pytest.mark.parametrize(
    ("degree", "fanout"), [(20, 10), (64, 20), (65, 20), (200, 15), (257, 32), (1000, 33), (1100, 1024), (3000, 300)]
)
def test_every_place_is_picked_equally_often(degree, fanout) -> None:
    picks = positions(equal_degrees(3001, degree), fanout, batches=max(1, 3000 // fanout // 10))
    assert p_equal_subsets(counts_of(picks, degree), fanout) > LEVEL


@pytest.mark.parametrize(("fanout", "batches"), [(1, 1500), (10, 400), (32, 150), (1000, 12)])
def test_hubs_of_degree_100_000_are_uniform(fanout, batches) -> None:
    hubs, degree = 20, 100_000
    indptr = torch.arange(hubs + 1) * degree
    graph = Graph(indptr, torch.arange(hubs * degree) % hubs)
    picks = positions(graph, fanout, batches=batches)
    assert p_equal(counts_of(picks * 100 // degree, 100)) > LEVEL  # by hundredths of the list
    assert p_equal(counts_of(picks % 97, 97)) > LEVEL  # and by residue
    assert (np.diff(picks, axis=1) > 0).all()


@pytest.mark.parametrize(("degree", "fanout"), [(2, 1), (2, 8), (5, 5), (10, 3), (3, 40), (1000, 2)])
def test_with_replacement_picks_are_independent_and_uniform(degree, fanout) -> None:
    picks = positions(equal_degrees(3001, degree), fanout, batches=20, replace=True)
    assert p_equal(counts_of(picks, degree)) > LEVEL
    # Rows come sorted. The number of picks in the lower half is binomial only if picks are independent.
    low = degree // 2
    in_low = np.bincount((picks < low).sum(1), minlength=fanout + 1)
    rng = np.random.default_rng(0)
    simulated = np.bincount(rng.binomial(fanout, low / degree, 500_000), minlength=fanout + 1)
    assert p_same(*merge_rare(in_low, simulated)) > LEVEL


def merge_rare(a: NDArray[np.int64], b: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    rare = (a + b) < 50
    return (np.append(a[~rare], a[rare].sum()), np.append(b[~rare], b[rare].sum()))


def joint(a: NDArray[np.int64], b: NDArray[np.int64], degree: int) -> NDArray[np.int64]:
    return np.bincount(a * degree + b, minlength=degree * degree)


@pytest.mark.parametrize("vary", ["batch", "epoch", "seed"])
@pytest.mark.parametrize("degree", [2, 4, 11])
def test_picks_in_two_mini_batches_are_independent(degree, vary) -> None:
    n = 20_000
    picks = positions(equal_degrees(n, degree), 1, batches=4, vary=vary)[:, 0].reshape(4, n)
    for i, j in combinations(range(4), 2):
        assert p_equal(joint(picks[i], picks[j], degree)) > LEVEL


@pytest.mark.parametrize("degree", [2, 4, 11])
def test_picks_of_neighboring_nodes_are_independent(degree) -> None:
    picks = positions(equal_degrees(20_000, degree), 1, batches=3)[:, 0]
    for distance in (1, 2, 256, 4096):
        assert p_equal(joint(picks[:-distance], picks[distance:], degree)) > LEVEL


@pytest.mark.parametrize("degree", [2, 4, 11])
def test_picks_at_two_hops_are_independent(degree) -> None:
    graph = equal_degrees(20_000, degree)
    begin = graph.indptr[:-1].numpy()
    sampler = FusedSampler(1, 4, edge_ids=True, num_threads=2)
    for batch in range(3):
        blocks = sampler.sample(graph, torch.arange(graph.num_nodes), batch=batch).blocks
        picks = [block.edge_ids.numpy().astype(np.int64) - begin for block in blocks]
        for i, j in combinations(range(4), 2):
            assert p_equal(joint(picks[i], picks[j], degree)) > LEVEL


def test_statistics_refuse_known_mistakes() -> None:
    """The tests above can fail: samplers with the mistakes that others made are refused at these sample sizes."""
    rng = np.random.default_rng(0)
    n, degree, fanout = 20_000, 11, 10
    # `random % j` instead of `% (j + 1)`: the last place always replaces another, so it never is left out.
    left_out = rng.integers(0, degree - 1, n)
    assert p_equal(np.bincount(left_out, minlength=degree)) < LEVEL
    assert p_equal(np.bincount(np.zeros(n, dtype=np.int64), minlength=2)) < LEVEL  # degree 2, fanout 1
    # Floyd's method that puts the draw in place of the last: collisions always fall on one place.
    draws = np.stack([rng.integers(0, degree - fanout + i + 1, n) for i in range(2)], 1)
    draws[draws[:, 0] == draws[:, 1], 1] = 0
    assert p_equal_subsets(counts_of(draws, degree), 2) < LEVEL
    modulo = rng.integers(0, 4, 80_000) % 3  # a remainder of too few bits
    assert p_equal(np.bincount(modulo, minlength=3)) < LEVEL
    same = rng.integers(0, 4, n)  # one key for two hops
    assert p_equal(joint(same, same, 4)) < LEVEL
    fair = np.stack([rng.permutation(degree)[:fanout] for _ in range(n)])
    assert p_equal_subsets(counts_of(fair, degree), fanout) > 1e-3
