"""What a graph refuses: arrays of every integer type against a slow check in Python's integers, weights and types."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from loader.graph import Graph

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


def t(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def is_csc(indptr: list[int], num_edges: int, indices: list[int]) -> bool:
    rises = all(a <= b for a, b in itertools.pairwise(indptr))
    return rises and indptr[0] == 0 and indptr[-1] == num_edges and all(0 <= u < len(indptr) - 1 for u in indices)


@st.composite
def arrays(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Mostly nearly good ones: a rising `indptr` that wraps in its type, or a value exchanged for any of the type."""
    kind, info = (lambda name: (name, np.iinfo(name)))(draw(st.sampled_from(INTEGERS)))
    degrees = draw(st.lists(st.integers(0, 90), max_size=6))
    values = [0, *np.cumsum(degrees).tolist()]
    num_edges = int(values[-1])
    if draw(st.booleans()):
        at = draw(st.integers(0, len(values) - 1))
        values[at] = draw(st.integers(int(info.min), int(info.max)))
    indptr = np.array([v % 2**info.bits for v in values], dtype=f"uint{info.bits}").view(kind)
    indices = np.zeros(num_edges, dtype=draw(st.sampled_from(INTEGERS)))
    if num_edges and draw(st.booleans()):
        limits = np.iinfo(indices.dtype)
        indices[draw(st.integers(0, num_edges - 1))] = draw(st.integers(int(limits.min), int(limits.max)))
    return indptr, indices


@given(arrays())
@example((np.array([0, 200, 144], np.uint8), np.zeros(400, np.int32)))
@example((np.array([0, 100, -56], np.int8), np.zeros(200, np.int32)))
@example((np.array([0, 2**31 - 1, -(2**31), 2], np.int32), np.zeros(2, np.int32)))
@example((np.array([0, 2**62, -(2**63), 2], np.int64), np.zeros(2, np.int64)))
@example((np.array([0, 2**64 - 1, 2], np.uint64), np.zeros(2, np.uint64)))
def test_a_broken_csc_is_refused_in_every_type(drawn: tuple[np.ndarray, np.ndarray]) -> None:
    indptr, indices = drawn
    good = is_csc(indptr.tolist(), indices.size, indices.tolist())
    try:
        graph = Graph(torch.from_numpy(indptr), torch.from_numpy(indices))
    except ValueError:
        assert not good
    else:
        assert good
        assert (graph.indptr.tolist(), graph.indices.tolist()) == (indptr.tolist(), indices.tolist())


def test_a_wrapped_type_is_named_by_its_values() -> None:
    with pytest.raises(ValueError, match=r"not monotone: indptr\[1\] = 200 > 144"):
        Graph(torch.tensor([0, 200, 144], dtype=torch.uint8), torch.zeros(400, dtype=torch.int32))
    with pytest.raises(ValueError, match=rf"indices\[1\] is {2**64 - 1}; it must fit int64"):
        Graph(t(0, 2), torch.from_numpy(np.array([0, 2**64 - 1], np.uint64)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -1e-30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_edge_of_a_bad_weight_is_named(value: float, dtype: torch.dtype) -> None:
    weights = torch.tensor([0.0, 1.0, value], dtype=dtype)
    with pytest.raises(ValueError, match=r"edge_weights\[2\], of the edge 1 -> 3, is .*finite and at least 0: leave"):
        Graph(t(0, 2, 2, 2, 3), t(0, 2, 1), edge_weights=weights)
    with pytest.raises(ValueError, match=r"edge_weights\[2\], of the edge 1 -> 0, is"):
        Graph.from_edges(t(3, 2, 1), t(1, 1, 0), 4, edge_weights=weights)
    assert Graph(t(0, 3), t(0, 0, 0), edge_weights=weights, validate=False).edge_weights is not None


@pytest.mark.parametrize(
    ("given_arrays", "error", "message"),
    [
        ({"edge_weights": t(1, 1)}, TypeError, r"edge_weights has dtype torch\.int64; .*edge_weights\.float\(\)"),
        ({"edge_weights": torch.ones(2).half()}, TypeError, r"torch\.float16; it must be float32 or float64"),
        (
            {"edge_weights": torch.ones(3)},
            ValueError,
            "edge_weights has 3 entries, indices has 2; the numbers must be equal",
        ),
        (
            {"edge_times": torch.ones(2)},
            TypeError,
            r"edge_times has dtype torch\.float32; .*type: edge_times\.long\(\)",
        ),
        ({"edge_weights": torch.ones(2, 1)}, ValueError, r"edge_weights has 2 dimensions; .*edge_weights\.view\(-1\)"),
        ({"edge_times": t(1)}, ValueError, "edge_times has 1 entries, indices has 2"),
        ({"edge_types": t(0, -3)}, ValueError, r"edge_types\[1\] is -3; a type is a number from 0"),
        ({"edge_types": t(2**31, 0)}, ValueError, rf"edge_types\[0\] is {2**31}"),
        ({"edge_types": t(0, 1).view(1, 2)}, ValueError, "edge_types has 2 dimensions"),
        ({"node_times": t(1, 2, 3)}, ValueError, "node_times has 3 entries, the graph has 2 source nodes"),
        ({"node_times": [1, 2]}, TypeError, "node_times is a list; it must be a torch tensor"),
        ({"node_types": ["a"]}, TypeError, "node_types is .*; it must be a dict: name -> number of nodes"),
        ({"node_types": {"a": 1}}, ValueError, "node_types ends at 1; the types must cover all 2 nodes"),
        ({"node_types": {"a": 3}}, ValueError, "node_types ends at 3"),
        ({"node_types": {"a": -1}}, ValueError, r"node_types\['a'\] is -1; it must be at least 0"),
        ({"node_types": {"a": 1.5}}, TypeError, r"node_types\['a'\] is 1.5; it must be an integer"),
        ({"node_types": {"a": "2"}}, TypeError, r"node_types\['a'\] is '2'; it must be an integer"),
        ({"node_types": {"a": (0, 1, 2)}}, TypeError, r"it must be a size, or \(begin, end\)"),
        ({"node_types": {"a": range(0, 2, 2)}}, TypeError, r"it must be a size, or \(begin, end\)"),
        ({"node_types": {"a": (0, 1), "b": (0, 2)}}, ValueError, r"\['b'\] is 0 to 2; .* it must begin at 1"),
        ({"node_types": {"a": (0, 2), "b": (2, 1)}}, ValueError, "not end before it"),
        ({"node_types": {7: 2}}, TypeError, "the key 7; the name of a type must be a string"),
    ],
)
def test_arrays_that_contradict_the_edges_are_refused(given_arrays, error, message) -> None:
    with pytest.raises(error, match=message):
        Graph(t(0, 1, 2), t(1, 0), **given_arrays)


def test_edges_in_one_tensor_are_told_apart() -> None:
    edge_index = torch.stack([t(0, 1), t(1, 0)])
    with pytest.raises(ValueError, match=r"src has 2 dimensions; .* src is edge_index\[0\] and dst edge_index\[1\]"):
        Graph.from_edges(edge_index, None, 2)  # type: ignore[arg-type]  # as a user may call it
    with pytest.raises(ValueError, match=r"of pairs \[num_edges, 2\], src is pairs\[:, 0\] and dst pairs\[:, 1\]"):
        Graph.from_edges(torch.zeros(5, 2, dtype=torch.int64), None, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="src lies on meta, where tensors have no numbers"):
        Graph.from_edges(*edge_index.to("meta"), 2)


def test_types_are_sizes_or_bounds() -> None:
    ranges = {"a": range(0, 1), "b": range(1, 1), "c": range(1, 2)}
    for given_types in ({"a": 1, "b": 0, "c": np.int64(1)}, {"a": (0, 1), "b": [1, 1], "c": (1, 2)}, ranges):
        assert Graph(t(0, 1, 2), t(1, 0), node_types=given_types).node_types == ranges
