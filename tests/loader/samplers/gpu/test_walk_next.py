"""Walks on a GPU by a function of one's own are those of the CPU, byte for byte."""

from __future__ import annotations

import pytest
import torch
from graphs import WIDTHS, messy_graph, widen
from marks import needs_gpu
from walk_functions import NEXTS, by_weight, deepwalk, importance, node2vec

import loader
from loader import Next
from loader.graph import Graph
from loader.samplers import NextError

pytestmark = needs_gpu


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("function", NEXTS, ids=lambda function: function.__name__)
def test_every_function_gives_the_walks_of_the_cpu(function: object, width: str) -> None:
    graph = widen(messy_graph(3000, 40_000, seed=1), width)
    starts = torch.randint(3000, (5000,), generator=torch.Generator().manual_seed(0))
    for length in (0, 1, 17, 80):
        options = {"next": function, "seed": 2**63 + 1, "epoch": 2**33, "batch": 5}
        expected = loader.random_walk(graph, starts, length, **options)
        got = loader.random_walk(graph.to("cuda"), starts.cuda(), length, **options)
        assert isinstance(expected, torch.Tensor)
        assert isinstance(got, torch.Tensor)
        assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("function", [by_weight, importance])
def test_weighted_functions_give_the_walks_of_the_cpu(function: object) -> None:
    plain = messy_graph(3000, 40_000, seed=1)
    weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(0)) + 0.1
    weights[::5] = 0
    graph = Graph(plain.indptr, plain.indices, edge_weights=weights)
    sampler = loader.WalkSampler(33, next=function, weights="edge_weights")  # type: ignore[arg-type]
    moved = loader.WalkSampler(33, next=function, weights="edge_weights", device="cuda")  # type: ignore[arg-type]
    expected = sampler.sample(graph, torch.arange(3000))
    assert moved.sample(graph.to("cuda"), torch.arange(3000)).digest() == expected.digest()


def test_functions_of_cplusplus_walk() -> None:
    graph = messy_graph(3000, 40_000, seed=1).to("cuda")
    line = "const auto n = lists.degree(walker.at); return n ? lists.neighbor(walker.at, draws.uniform(n)) : -1;"
    own, built_in = (
        loader.random_walk(graph, torch.arange(3000), 30, **options) for options in ({"next": Next.cpp(line)}, {})
    )
    assert isinstance(own, torch.Tensor)
    assert isinstance(built_in, torch.Tensor)
    assert torch.equal(own, built_in)


def test_a_fault_is_told_and_forgotten() -> None:
    graph = messy_graph(3000, 40_000, seed=1).to("cuda")
    starts = torch.arange(3000)
    wrong = Next("def next(walker, lists, draws):\n    return -5 if walker.start == 40 else walker.at")
    endless = Next("def next(walker, lists, draws):\n    while True:\n        pass", turns=1000)
    for step, what in ((wrong, "<next>:2: it returned -5.* step 0 .* row 40"), (endless, "more than 1000 turns")):
        with pytest.raises(NextError, match=what):
            loader.random_walk(graph, starts, 9, next=step)
        assert isinstance(loader.random_walk(graph, starts, 9, next=deepwalk), torch.Tensor)
    with pytest.raises(ValueError, match="use device='cpu'"):
        loader.random_walk(graph, starts, 9, next=Next(node2vec, compiled=False))
