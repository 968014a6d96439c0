"""Walks by a function that Python runs: its laws, and what is said where it goes wrong. Nothing is compiled here."""

from __future__ import annotations

import itertools

import pytest
import torch
from graphs import WIDTHS, messy_graph, widen
from walk_functions import by_python, by_weight, deepwalk, importance, node2vec, odd, self_avoiding, stopping

import loader
from loader.graph import Graph
from loader.samplers import NextError

STARTS = torch.arange(40)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return messy_graph(40, 300, seed=1)


@pytest.fixture(scope="module")
def weighted(graph: Graph) -> Graph:
    weights = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(0))
    weights[::5] = 0
    return Graph(graph.indptr, graph.indices, edge_weights=weights)


@pytest.mark.parametrize("width", WIDTHS)
def test_drawing_alike_gives_the_built_in_walks(width: str) -> None:
    graph = widen(messy_graph(40, 300, seed=1), width)
    for length in (0, 1, 9):
        own = loader.random_walk(graph, STARTS, length, next=by_python(deepwalk), seed=3, walks_per_node=2)
        assert torch.equal(own, loader.random_walk(graph, STARTS, length, seed=3, walks_per_node=2))
    own = loader.random_walk(graph, STARTS, 9, next=by_python(stopping))
    assert torch.equal(own, loader.random_walk(graph, STARTS, 9, stop=2**-3))


def test_draws_by_weight_give_the_weighted_walks(weighted: Graph) -> None:
    own = loader.random_walk(weighted, STARTS, 9, next=by_python(by_weight), weights="edge_weights")
    assert torch.equal(own, loader.random_walk(weighted, STARTS, 9, weights="edge_weights"))


def test_importance_never_follows_edges_without_weight(weighted: Graph) -> None:
    assert weighted.edge_weights is not None
    walks = loader.random_walk(weighted, STARTS, 9, next=by_python(importance), weights="edge_weights").tolist()
    ends = torch.searchsorted(weighted.indptr, torch.arange(weighted.num_edges), right=True) - 1
    real = weighted.edge_weights > 0
    pairs = set(zip(ends[real].tolist(), weighted.indices[real].tolist(), strict=True))
    assert all(b == -1 or (a, b) in pairs for walk in walks for a, b in itertools.pairwise(walk))


def test_a_walk_with_memory_avoids_what_it_knows(graph: Graph) -> None:
    walks = loader.random_walk(graph, STARTS, 12, next=by_python(self_avoiding)).tolist()
    seen = [set(filter(lambda v: v >= 0, walk[i : i + 5])) for walk in walks for i in range(8) if walk[i + 4] >= 0]
    assert len(seen) > 50
    assert all(len(five) == 5 for five in seen)


def test_walks_follow_seed_and_position(graph: Graph) -> None:
    sampler = loader.WalkSampler(9, next=by_python(node2vec), seed=2**64 - 1)
    first = sampler.sample(graph, STARTS, epoch=3, batch=2**40).nodes
    assert torch.equal(first, sampler.sample(graph, STARTS, epoch=3, batch=2**40).nodes)
    assert not torch.equal(first, sampler.sample(graph, STARTS, epoch=4, batch=2**40).nodes)
    assert int(loader.random_walk(graph, STARTS, 5, next=by_python(odd)).max()) < 40


FAULTS = {
    "asks for node -1; nodes are 0 to 39": "lists.degree(walker.previous)",
    "asks for the neighbor at place 900": "lists.neighbor(walker.at, 900)",
    r"draws.uniform\(0\) has nothing to draw": "draws.uniform(walker.step)",
    "divides 5 by 0": "5 // walker.step",
    "divides 6 by 0": "6 % walker.step",
    "shifts by -2 bits": "1 << (walker.step - 2)",
    r"asks for walker.memory\[8\]; there are 0 to 7": "walker.memory[walker.step + 8]",
    "returned 40; it must return a node, 0 to 39": "lists.num_nodes",
    "returned -2": "-2",
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_goes_wrong_is_named(graph: Graph, what: str) -> None:
    text = f"def next(walker, lists, draws):\n    if walker.start < 7:\n        return 0\n    return {FAULTS[what]}"
    step = loader.Next(text, compiled=False)
    with pytest.raises(NextError, match=f"<next>:4: it {what}|<next>:4: {what}") as raised:
        loader.random_walk(graph, STARTS, 3, next=step)
    assert "step 0 of the walk in row 7" in str(raised.value)


def test_loops_without_end_are_stopped(graph: Graph) -> None:
    for head in ("while True:", "while walker.at >= 0:", "for i in range(101):"):
        text = f"def next(walker, lists, draws):\n    {head}\n        pass\n    return 0"
        text = text.replace("\n    return 0", "") if "True" in head else text
        step = loader.Next(text, compiled=False, turns=100)
        with pytest.raises(NextError, match=r"<next>:2: its loops took more than 100 turns in one step"):
            loader.random_walk(graph, STARTS, 3, next=step)
    enough = loader.Next(
        "def next(w, l, d):\n    for i in range(100):\n        pass\n    return 0", turns=100, compiled=False
    )
    assert loader.random_walk(graph, STARTS, 3, next=enough)[:, 1:].eq(0).all()


def test_arithmetic_is_that_of_64_bits(graph: Graph) -> None:
    def value(expression: str) -> int:
        lines = (
            "def next(walker, lists, draws):",
            f"x = {expression}",
            "return (x >> walker.step * 4 & 15) + 16 * (x < 0)",
        )
        step = loader.Next("\n    ".join(lines), compiled=False)
        digits = loader.random_walk(graph, torch.tensor([0]), 16, next=step)[0, 1:].tolist()
        unsigned = sum((d & 15) << 4 * i for i, d in enumerate(digits))
        return unsigned - 2**64 * (digits[0] >> 4)

    top = "9223372036854775807"
    expected: dict[str, int] = {
        f"{top} + 1": -(2**63), f"-{top} - 2": 2**63 - 1, f"{top} * 3": 2**63 - 3, "1 << 64": 0, "-5 >> 70": -1,
        f"(-{top} - 1) // -1": -(2**63), f"(-{top} - 1) % -1": 0, f"abs(-{top} - 1)": -(2**63), "-7 // 2": -4,
        "-7 % 3": 2, "7 % -3": -2, "~5": -6, "min(3, -2, 9)": -2, "(4 > 2) + True": 2, "0 or 5": 5, "3 and 0": 0,
    }  # fmt: skip
    assert {text: value(text) for text in expected} == expected


def test_the_gpu_refuses_what_python_runs(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    from loader.samplers.gpu.walked_graph import CudaWalkedGraph

    with pytest.raises(ValueError, match="Python runs on the CPU: use device='cpu'"):
        CudaWalkedGraph.prepare(CudaWalkedGraph.__new__(CudaWalkedGraph), by_python(deepwalk))
