"""The law of picks by weight: tables hold the weights, and picks are successive ones. From fixed seeds."""

from __future__ import annotations

from decimal import Decimal, getcontext
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
import reference_picks
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from statistics_of_counts import LEVEL, p_expected

from loader import _core
from loader.graph import Graph
from loader.samplers import FusedSampler

LISTS = {
    "rising": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "even": [1.0] * 6,
    "one outweighs all": [1.0, 1.0, 300.0, 2.0, 1.0, 3.0],
    "two outweigh all": [0.001, 500.0, 0.002, 0.003, 400.0, 0.001],
    "with zeros": [0.0, 4.0, 0.0, 1.0, 2.0, 7.0, 0.0, 1.0],
    "seven of eight": [5.0, 1.0, 2.0, 0.5, 1.0, 3.0, 0.2, 9.0],
}


def many_times(weights: list[float], count: int) -> Graph:
    """A graph of that many nodes with this list."""
    degree = len(weights)
    indptr = torch.arange(count + 1) * degree
    values = torch.tensor(weights, dtype=torch.float64).repeat(count)
    return Graph(indptr, torch.arange(count * degree) % count, edge_weights=values)


def picks_of(graph: Graph, fanout: int, batches: int, **options: bool) -> NDArray[np.int64]:
    """`[batches * num_nodes, fanout]` picked places in each node's list."""
    sampler = FusedSampler([fanout], weights="edge_weights", edge_ids=True, num_threads=2, **options)
    begin = graph.indptr[:-1].numpy()[:, None]
    seeds = torch.arange(graph.num_nodes)
    found = [sampler.sample(graph, seeds, batch=i).blocks[0].edge_ids for i in range(batches)]
    return np.concatenate([ids.numpy().reshape(graph.num_nodes, fanout) - begin for ids in found])


def successive(weights: list[float], fanout: int) -> dict[tuple[int, ...], float]:
    """Probability of each subset: the sum over all orders in which its places may come, in fractions."""

    @cache
    def ways(left: tuple[int, ...], rest: Fraction) -> Fraction:
        if not left:
            return Fraction(1)
        total = Fraction(0)
        for i in left:
            w = Fraction(weights[i])
            total += w / rest * ways(tuple(j for j in left if j != i), rest - w)
        return total

    whole = sum(map(Fraction, weights), Fraction(0))
    places = [i for i, w in enumerate(weights) if w > 0]
    return {subset: float(ways(subset, whole)) for subset in combinations(places, fanout)}


@pytest.mark.parametrize("tables", [True, False])
@pytest.mark.parametrize("fanout", [1, 2, 3, 4])
@pytest.mark.parametrize("name", list(LISTS))
def test_all_subsets_come_with_their_probability(name, fanout, tables) -> None:
    weights = LISTS[name]
    probability = successive(weights, fanout)
    assert abs(sum(probability.values()) - 1) < 1e-9
    rows = picks_of(many_times(weights, 4000), fanout, 50, weight_tables=tables)
    assert_counts(rows, probability)


@pytest.mark.parametrize("tables", [True, False])
def test_seven_picks_of_eight_follow_the_law(tables) -> None:
    weights = LISTS["seven of eight"]
    rows = picks_of(many_times(weights, 4000), 7, 50, weight_tables=tables)
    assert_counts(rows, successive(weights, 7))


def test_exponentials_equal_those_by_the_logarithm() -> None:
    """Within 2**-26 of their size, for draws of all sizes."""
    getcontext().prec = 60
    draws = [2**i + j for i in range(64) for j in (-1, 0, 1) if i > 1] + [
        2**64 - 2**i - j for i in range(63) for j in (1, 2)
    ]
    draws += [i * 2**57 + 12345 for i in range(128)]
    for y in draws:
        exact = -((1 - Decimal(y) / 2**64).ln() / Decimal(2).ln()) * 2**57
        assert abs(reference_picks.exponential(y) - exact) <= 1 + exact / 2**26


def assert_counts(rows: NDArray[np.int64], probability: dict[tuple[int, ...], float]) -> None:
    number = {subset: i for i, subset in enumerate(probability)}
    found = np.bincount([number[tuple(row)] for row in rows.tolist()], minlength=len(number))
    expected = np.array(list(probability.values()))
    rare = expected * len(rows) < 10
    if rare.any():
        found = np.append(found[~rare], found[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        if expected[-1] * len(rows) < 5:
            assert found[-1] < 30
            found, expected = found[:-1], expected[:-1]
    assert found.size < 2 or p_expected(found, expected) > LEVEL


@pytest.mark.parametrize("name", list(LISTS))
def test_with_replacement_picks_are_independent(name) -> None:
    weights = np.array(LISTS[name])
    rows = picks_of(many_times(LISTS[name], 4000), 3, 30, replace=True)
    share = weights / weights.sum()
    positive = share > 0
    assert p_expected(np.bincount(rows.ravel(), minlength=share.size)[positive], share[positive]) > LEVEL
    heavy = int(share.argmax())
    times = np.bincount((rows == heavy).sum(1), minlength=4)
    p = share[heavy]
    binomial = np.array([(1 - p) ** 3, 3 * p * (1 - p) ** 2, 3 * p**2 * (1 - p), p**3])
    kept = binomial * len(rows) > 10
    assert p_expected(times[kept], binomial[kept]) > LEVEL


@pytest.mark.parametrize(("degree", "fanout", "heavy"), [(1000, 10, 5), (1000, 40, 30), (100_000, 10, 9)])
def test_the_remaining_entries_are_shared_by_weight(degree, fanout, heavy) -> None:
    """A few entries are picked always. The others come from the ends of the masses, or are drawn again and again."""
    weights = np.where(np.arange(degree) % 3 == 0, 2.0, 1.0)
    weights[np.linspace(0, degree - 1, heavy).astype(int)] = 1e9
    rows = picks_of(many_times(weights.tolist(), max(200, 200_000 // degree) if degree < 10_000 else 20), fanout, 40)
    assert (np.isin(rows, np.flatnonzero(weights > 2)).sum(1) == heavy).all()
    others = rows[~np.isin(rows, np.flatnonzero(weights > 2))]
    light = np.where(weights > 2, 0, weights)
    cells = np.arange(degree) * 50 // degree * 2 + (weights == 2)
    share = np.bincount(cells, weights=light, minlength=100)
    assert p_expected(np.bincount(cells[others], minlength=100)[share > 0], share[share > 0]) > LEVEL


def tables_of(weights: torch.Tensor, indptr: list[int]) -> tuple[torch.Tensor, NDArray[np.uint64]]:
    cells, ends = (torch.empty(weights.numel(), dtype=torch.int64) for _ in range(2))
    _core.make_weight_tables(torch.tensor(indptr), weights, cells, ends, 2)
    return cells, ends.numpy().view(np.uint64)


@settings(max_examples=60, deadline=None)
@given(
    lists=st.lists(st.lists(st.floats(5e-324, 1.7e308), max_size=40), max_size=6),
    narrow=st.booleans(),
)
@example([[5e-324], [1.7e308, 5e-324], [1.7e308] * 40, [1.0] * 7], False)
def test_tables_hold_the_masses_exactly(lists, narrow) -> None:
    """Every entry has what the formula says: in the ends, and dealt out to the cells. So it has at least 1."""
    dtype = torch.float32 if narrow else torch.float64
    values = torch.tensor([w for own in lists for w in own], dtype=torch.float64)
    if narrow:
        values = values.clamp(1e-40, 3e38)
    values = values.to(dtype)
    indptr = np.cumsum([0, *map(len, lists)]).tolist()
    cells, ends = tables_of(values, indptr)
    for begin, end in pairwise(indptr):
        degree = end - begin
        if degree == 0:
            continue
        expected = reference_picks.masses(values[begin:end].tolist())
        assert [int(x) for x in ends[begin:end]] == np.cumsum(np.array(expected, dtype=object)).tolist()
        assert sum(expected) == degree * 2**32
        assert min(expected) >= 1
        dealt = [0] * degree
        for i, cell in enumerate(cells[begin:end].tolist()):
            threshold, alias = cell % 2**32, (cell >> 32) % 2**32
            dealt[i] += threshold
            dealt[alias] += 2**32 - threshold
        assert dealt == expected


@pytest.mark.parametrize("degree", [1, 2, 100, 10_000])
@pytest.mark.parametrize("steepness", [0, 3, 30])
def test_masses_deviate_within_the_stated_bound(degree, steepness) -> None:
    weights = torch.rand(degree, generator=torch.Generator().manual_seed(degree), dtype=torch.float64) + 1e-9
    weights **= steepness
    _, ends = tables_of(weights, [0, degree])
    mass = np.diff(ends, prepend=np.uint64(0)).tolist()
    whole = sum(map(Fraction, weights.tolist()))
    for m, w in zip(mass, map(Fraction, weights.tolist()), strict=True):
        share = w / whole
        bound = (Fraction(1, 2**31) + Fraction(degree, 2**61)) * max(1, 1 / (share * degree))
        assert abs(Fraction(m, degree * 2**32) / share - 1) <= bound


def test_the_heaviest_and_first_are_picked() -> None:
    weights = [3.0, 1.0, 3.0, 0.0, 2.0, 3.0, 2.0]
    graph = many_times(weights, 5)
    for fanout, places in ((1, [0]), (2, [0, 2]), (3, [0, 2, 5]), (4, [0, 2, 4, 5]), (5, [0, 2, 4, 5, 6])):
        assert (picks_of(graph, fanout, 1, top_k=True) == places).all()
