"""Walks by compiled functions are those by Python, byte for byte, and obey their laws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import WIDTHS, messy_graph, widen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from statistics_of_counts import LEVEL, p_expected, p_same
from walk_functions import NEXTS, by_python, by_weight, deepwalk, importance, node2vec, self_avoiding

import loader
from loader import Next
from loader.graph import Graph
from loader.samplers import NextError

pytestmark = pytest.mark.compiles


@pytest.fixture(autouse=True, scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOADER_KERNEL_CACHE", str(tmp_path_factory.mktemp("kept")))
        yield


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    nodes=st.integers(1, 30),
    edges=st.integers(0, 200),
    seed=st.integers(0, 2**64 - 1),
    length=st.integers(0, 12),
    walkers=st.integers(0, 150),
    which=st.sampled_from(NEXTS),
    threads=st.integers(1, 3),
)
def test_compiled_walks_are_those_of_python(
    nodes: int, edges: int, seed: int, length: int, walkers: int, which: object, threads: int
) -> None:
    graph = messy_graph(nodes, edges, seed=seed % 2**63)
    starts = torch.randint(nodes, (walkers,), generator=torch.Generator().manual_seed(1))
    assert_equal(graph, starts, length, which, seed=seed, num_threads=threads)


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_wide_graphs_give_the_walks_of_python(width: str) -> None:
    graph = widen(messy_graph(60, 500, seed=1), width)
    assert_equal(graph, torch.arange(60).repeat(3), 15, node2vec)
    weighted = Graph(graph.indptr, graph.indices, edge_weights=torch.arange(graph.num_edges).float() % 7)
    for step in (by_weight, importance):
        assert_equal(widen(weighted, width), torch.arange(60), 15, step, weights="edge_weights")


def assert_equal(graph: Graph, starts: torch.Tensor, length: int, function: object, **options: object) -> None:
    compiled, slow = (
        loader.random_walk(graph, starts, length, next=step, **options)
        for step in (Next(function), by_python(function))  # type: ignore[arg-type]
    )
    assert isinstance(compiled, torch.Tensor)
    assert isinstance(slow, torch.Tensor)
    assert compiled.dtype == graph.indices.dtype
    assert torch.equal(compiled, slow)


def test_node2vec_has_the_law_of_the_built_in() -> None:
    graph = messy_graph(12, 60, seed=3)
    starts = torch.full((200_000,), int(graph.indptr.diff().argmax()))
    own, built_in = (
        loader.random_walk(graph, starts, 3, **options)
        for options in ({"next": node2vec, "seed": 1}, {"p": 2, "q": 0.5, "seed": 2})
    )
    assert isinstance(own, torch.Tensor)
    assert isinstance(built_in, torch.Tensor)
    places = torch.tensor([12**3, 12**2, 12, 1])
    counts = [
        np.bincount(((walk + (walk < 0)) @ places.int()).clamp(min=0), minlength=12**4) for walk in (own, built_in)
    ]
    assert (counts[0] > 0).sum() > 50
    assert p_same(*counts) > LEVEL


def test_importance_has_the_law_of_the_weights() -> None:
    weights = torch.tensor([1.0, 0.0, 2.5, 4.0, 0.5])
    graph = Graph(torch.tensor([0, 5, 5, 5, 5, 5, 5]), torch.arange(1, 6), edge_weights=weights)
    starts = torch.zeros(100_000, dtype=torch.int64)
    for step in (importance, by_weight):
        walks = loader.random_walk(graph, starts, 1, next=step, weights="edge_weights")
        assert isinstance(walks, torch.Tensor)
        counts = np.bincount(walks[:, 1], minlength=6)[1:]
        assert counts[1] == 0
        drawn = weights.numpy() > 0
        assert p_expected(counts[drawn], weights.numpy()[drawn]) > LEVEL


def test_a_fault_is_the_first_of_the_rows() -> None:
    graph = messy_graph(1000, 9000, seed=1)
    text = "def next(walker, lists, draws):\n    return -5 if walker.start > 400 and walker.step > {} else walker.at"
    for late in (0, 30):
        for compiled in (True, False):
            step = Next(text.format(late), compiled=compiled)
            with pytest.raises(NextError, match=f"returned -5.* step {late + 1} of the walk in row 401"):
                loader.random_walk(graph, torch.arange(1000), 64, next=step, num_threads=3)


def test_functions_of_cplusplus_walk() -> None:
    graph = messy_graph(60, 500, seed=1)
    starts = torch.arange(60)
    line = "return lists.degree(walker.at) ? lists.neighbor(walker.at, draws.uniform(lists.degree(walker.at))) : -1;"
    assert torch.equal(
        loader.random_walk(graph, starts, 9, next=Next.cpp(line)), loader.random_walk(graph, starts, 9, next=deepwalk)
    )
    body = """
      const int64_t degree = lists.degree(walker.at);
      if (degree == 0) return -1;
      for (;;) {
        const int64_t x = lists.neighbor(walker.at, draws.uniform(degree));
        const int64_t coin = draws.word();
        if (coin < BACK || walker.previous < 0) return x;
        if (x != walker.previous && (coin < COMMON || !lists.has_edge(walker.previous, x))) return x;
      }"""
    step = Next.cpp(body, constants={"BACK": 2**30, "COMMON": 2**31})
    assert torch.equal(
        loader.random_walk(graph, starts, 9, next=step), loader.random_walk(graph, starts, 9, next=node2vec)
    )
    wrong = Next.cpp("return walker.memory[0]++ ? lists.neighbor(walker.at, 999) : walker.at;")
    with pytest.raises(NextError, match=r"next \(C\+\+\): it asks for the neighbor at place 999.* at step 1 .* row 0"):
        loader.random_walk(graph, starts, 9, next=wrong)
    with pytest.raises(RuntimeError, match=r"(?s)does not compile next \(C\+\+\).*nonsense"):
        loader.random_walk(graph, starts, 9, next=Next.cpp("return nonsense;"))
    with pytest.raises(RuntimeError, match="does not compile"):  # it would end without return
        loader.random_walk(graph, starts, 9, next=Next.cpp("int x = 3;"))


def test_other_integers_compile_nothing_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path))
    graph = messy_graph(60, 500, seed=1)
    for chance in (0.0, 0.5):
        limit = Next.chance(chance)

        def stays(walker, lists, draws):
            return walker.at if draws.accept(limit) else (walker.at + 1) % 60  # noqa: B023 - used at once

        walks = loader.random_walk(graph, torch.arange(60), 9, next=stays)
        assert isinstance(walks, torch.Tensor)
        assert bool((walks.diff() == 0).any()) == (chance > 0)
    assert len(list(tmp_path.glob("*.kernel"))) == 1


def test_the_gpus_compiler_takes_every_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from loader.kernels import NoCompilerError
    from loader.kernels.compiler import Wanted, make

    monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path))
    steps = [Next(function) for function in (*NEXTS, by_weight, importance, self_avoiding)]
    steps.append(Next.cpp("return lists.has_edge(0, 1) ? draws.by_weight(walker.at) : lists.weight(0, 0);"))
    name = "loader::walk_custom<loader::CustomLists<{}>, loader::Next, 16>"
    wanted = [
        Wanted(step.gpu_header(), name.format(types), 90)
        for step in steps
        for types in ("int32_t, int32_t", "int64_t, int32_t", "int64_t, int64_t")
    ]
    try:
        made = make(wanted, workers=2)
    except NoCompilerError as error:
        pytest.skip(str(error))
    assert all(one.compiled and one.entry.code.startswith(b"\x7fELF") for one in made)
