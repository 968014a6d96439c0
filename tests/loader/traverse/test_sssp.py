"""Shortest paths on the CPU."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import reference_traverse as reference
import torch
from graphs import WIDTHS, chain, messy_graph, widen
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import Graph
from loader.traverse import bfs, sssp

TYPES = (torch.float32, torch.float64, torch.int32, torch.int64)


def some_weights(graph: Graph, dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.rand(graph.num_edges, generator=generator, dtype=torch.float64).to(dtype) + 0.01
    return torch.randint(1, 1000, (graph.num_edges,), generator=generator).to(dtype)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_subnormal_lengths_count_in_flushing_threads(num_threads: int) -> None:
    graph = Graph.from_edges(*torch.randint(3000, (2, 60_000), generator=torch.Generator().manual_seed(4)), 3000)
    weights = some_weights(graph, torch.float64, 5).float() * 1e-41
    expected = sssp(graph, 0, weights, num_threads=num_threads)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        found = sssp(graph, 0, weights, num_threads=num_threads)
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(found, expected)


@settings(deadline=None, max_examples=60)
@given(reference.graphs(), st.data())
def test_lengths_equal_scipy_exactly(graph: Graph, data: st.DataObject) -> None:
    source = data.draw(st.integers(0, graph.num_nodes - 1))
    seed = data.draw(st.integers(0, 100))
    delta = data.draw(st.sampled_from([None, 0.1, 3, 1e9]))
    for dtype in (torch.float64, torch.int32, torch.int64):
        weights = some_weights(graph, dtype, seed)
        expected = reference.lengths(graph, source, weights)
        found = sssp(graph, source, weights, delta=delta, num_threads=data.draw(st.integers(1, 3)))
        assert found.dtype == dtype
        if not dtype.is_floating_point:
            expected[np.isinf(expected)] = -1
        assert np.array_equal(found.numpy(), expected)


def test_float32_lengths_are_sums_from_left_to_right() -> None:
    graph = chain(400)  # from 399 down to 0
    weights = some_weights(graph, torch.float32, seed=2)
    expected = [np.float32(0)]
    for weight in weights.numpy()[::-1]:
        expected.append(np.float32(expected[-1] + weight))
    assert sssp(graph, 399, weights).tolist() == [float(x) for x in expected[::-1]]


def test_edges_of_weight_0_cost_nothing() -> None:
    graph = messy_graph(60, 200, seed=5)
    lengths = sssp(graph, 3, torch.zeros(graph.num_edges))
    assert torch.equal(torch.isinf(lengths), bfs(graph, 3) < 0)
    assert set(lengths.tolist()) <= {0.0, float("inf")}


def test_weights_of_the_graph_are_the_default() -> None:
    src, dst = torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2])
    graph = Graph.from_edges(src, dst, 3, edge_weights=torch.tensor([1.0, 5.0, 2.0]))
    assert sssp(graph, 0).tolist() == [0, 1, 3]
    assert sssp(graph, [0, 1]).tolist() == [0, 0, 2]


def test_weights_that_differ_by_direction_count() -> None:
    both = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 2)
    weights = torch.tensor([7, 3])  # of 1 -> 0 and of 0 -> 1
    assert sssp(both, 0, weights).tolist() == [0, 3]
    assert sssp(both, 1, weights).tolist() == [7, 0]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_threads_and_widths_change_no_length(width: str, dtype: torch.dtype) -> None:
    graph = reference.power_law_graph(2000, 12_000, seed=4)
    weights = some_weights(graph, dtype, seed=9)
    expected = sssp(graph, 17, weights, num_threads=1)
    wide = widen(copy.copy(graph), width)
    assert torch.equal(sssp(wide, 17, weights, num_threads=4, delta=50), expected)
    if dtype == torch.float64:
        assert np.array_equal(reference.lengths(graph, 17, weights), expected.numpy())


def test_too_long_integer_paths_are_an_error() -> None:
    graph = chain(4)
    weights = torch.full((3,), 2**30, dtype=torch.int32)
    with pytest.raises(OverflowError, match=r"longer than 2147483645, the largest length of torch\.int32"):
        sssp(graph, 3, weights)
    assert sssp(graph, 3, weights.long()).tolist() == [3 * 2**30, 2**31, 2**30, 0]
    assert sssp(graph, 1, weights).tolist() == [2**30, 0, -1, -1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_too_long_float_paths_are_an_error(dtype: torch.dtype) -> None:
    weights = torch.full((3,), torch.finfo(dtype).max / 2, dtype=dtype)
    with pytest.raises(OverflowError, match=r"longer than .*e\+\d+, the largest length of torch\.float"):
        sssp(chain(4), 3, weights)
    assert sssp(chain(4), 2, weights).tolist() == [2 * float(weights[0]), float(weights[0]), 0, math.inf]


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (None, ValueError, "the graph has no edge_weights; give weights, or use bfs"),
        ([1.0, 1.0, 1.0], TypeError, "weights is a list"),
        (torch.ones(3, dtype=torch.float16), TypeError, "weights has dtype torch.float16"),
        (torch.ones(3, 1), ValueError, "weights has 2 dimensions"),
        (torch.ones(4), ValueError, "weights has 4 entries, the graph has 3 edges"),
        (torch.tensor([1.0, -2.0, 1.0]), ValueError, r"weights\[1\] is -2.0"),
        (torch.tensor([1.0, 1.0, float("nan")]), ValueError, r"weights\[2\] is nan"),
        (torch.tensor([float("inf"), 1.0, 1.0]), ValueError, r"weights\[0\] is inf"),
        (torch.tensor([1, 1, -5]), ValueError, r"weights\[2\] is -5"),
    ],
)
def test_bad_weights_are_refused(weights: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sssp(chain(4), 3, weights)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [0, -1, float("inf"), float("nan")])
def test_delta_must_be_above_0(delta: float) -> None:
    with pytest.raises(ValueError, match="it must be finite and above 0"):
        sssp(chain(4), 3, torch.ones(3), delta=delta)


@pytest.mark.parametrize("symmetric", [None, False])
def test_no_answer_of_a_graph_that_is_gone(symmetric: bool | None) -> None:
    weights = torch.tensor([1.0, 5, 2, 7, 3, 4])
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):  # graphs whose arrays come to lie where those before them lay
        graph = Graph.from_edges(*torch.randint(5, (2, 6), generator=generator), 5)
        assert torch.equal(
            sssp(graph, 0, weights, symmetric=symmetric), sssp(graph, 0, weights.clone(), symmetric=symmetric)
        )


def test_weights_changed_in_inference_mode_count() -> None:
    with torch.inference_mode():
        graph, weights = chain(4), torch.ones(3)
        before = sssp(graph, 3, weights)
        assert torch.equal(sssp(graph, 3, weights.mul_(2)), before * 2)
