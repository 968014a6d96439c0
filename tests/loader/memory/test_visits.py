"""Visits to expect from counted ones: what a sum, a law and other mini-batches say of them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from loader.graph import Graph
from loader.memory import visits
from loader.memory.visits import Classes, classes_of


def poisson(rates: Tensor, seed: int) -> Tensor:
    return torch.poisson(rates, generator=torch.Generator().manual_seed(seed)).long()


def skewed(nodes: int, seed: int = 0) -> Tensor:
    """Degrees."""
    return torch.randn(nodes, generator=torch.Generator().manual_seed(seed)).mul_(1.1).exp_().mul_(8).long()


@given(degrees=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=50), data=st.data())
@settings(max_examples=60)
def test_the_sum_stays(degrees: list[int], data: st.DataObject) -> None:
    counts = torch.tensor(data.draw(st.lists(st.integers(0, 1000), min_size=len(degrees), max_size=len(degrees))))
    classes = Classes.by_degree(torch.tensor(degrees))
    expected = classes.expected(counts)
    assert float(expected.sum()) == pytest.approx(int(counts.sum()))
    assert bool((expected >= 0).all())
    for number in classes.of.unique():
        of = classes.of == number
        # Within a class more visits are expected where more were counted, and none are moved between classes.
        assert float(expected[of].sum()) == pytest.approx(int(counts[of].sum()))
        order = counts[of].argsort(stable=True)
        assert bool((expected[of][order].diff() >= -1e-9).all())


def test_classes_are_ranges_of_degrees() -> None:
    of = Classes.by_degree(torch.arange(5000)).of
    assert of[:17].unique().numel() == 17
    assert bool((of.diff() >= 0).all())
    assert of[1024:2048].unique().numel() == 8


def test_equal_rates_of_a_degree_are_found() -> None:
    degrees = skewed(20_000)
    rates = degrees / 50
    expected = Classes.by_degree(degrees).expected(poisson(rates, 1))
    often = degrees > 4
    assert float((expected - rates)[often].abs().mean()) < 0.2 * float((poisson(rates, 1) - rates)[often].abs().mean())


def test_rates_that_degrees_do_not_tell_stay() -> None:
    rates = skewed(20_000, 1).double()
    counts = poisson(rates, 2)
    expected = Classes.by_degree(skewed(20_000, 2)).expected(counts)
    assert float((expected - counts).abs().mean()) < 0.2 * float(rates.mean())
    assert float((expected - rates).square().mean()) < float((counts - rates).square().mean())


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("counted_edges", [1 << 28, 10_000])
def test_the_better_degree_is_taken(directed: bool, counted_edges: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "_COUNTED_EDGES", counted_edges)
    degrees = skewed(4000)
    dst = torch.arange(4000).repeat_interleave(degrees)
    src = dst[torch.randperm(dst.numel(), generator=torch.Generator().manual_seed(3))]
    if directed:
        src = torch.randperm(4000, generator=torch.Generator().manual_seed(4))[src]
    graph = Graph.from_edges(src, dst, 4000)
    counts = poisson(torch.bincount(src, minlength=4000) / 20, 5)
    chosen, by_in_degree = classes_of(graph, counts), Classes.by_degree(graph.in_degrees())
    if directed:
        assert not torch.equal(chosen.of, by_in_degree.of)
        assert chosen.explained(counts) > 1.5 * by_in_degree.explained(counts)
    else:  # equal ones are exact, and out-degrees may be those of a part
        assert chosen.explained(counts) >= by_in_degree.explained(counts)


def test_a_graph_without_edges_has_one_class() -> None:
    graph = Graph(torch.zeros(4, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))
    counts = torch.tensor([2, 0, 1])
    assert classes_of(graph, counts).expected(counts).tolist() == [1.0, 1.0, 1.0]


def test_no_visits_expect_no_visits() -> None:
    expected = Classes.by_degree(torch.tensor([0, 3, 3, 9])).expected(torch.zeros(4, dtype=torch.int64))
    assert expected.dtype == torch.float64
    assert expected.tolist() == [0.0] * 4
