from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader.datasets.transforms import (
    edges_to_csc,
    edges_to_csc_with,
    induced_subgraph,
    l1_normalize,
    largest_component,
)


@st.composite
def edge_lists(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int]:
    n = draw(st.integers(1, 12))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    array = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1], n


def edges_of(indptr: np.ndarray, indices: np.ndarray) -> Counter[tuple[int, int]]:
    dst = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    return Counter(zip(indices.tolist(), dst.tolist(), strict=True))


@given(edge_lists(), st.booleans(), st.sampled_from(["keep", "remove", "add"]), st.sampled_from(["keep", "remove"]))
def test_csc_holds_the_edges_its_options_ask_for(edges, undirected, self_loops, parallel_edges):
    src, dst, n = edges
    expected = Counter(zip(src.tolist(), dst.tolist(), strict=True))
    if self_loops != "keep":
        expected = Counter({e: c for e, c in expected.items() if e[0] != e[1]})
    if undirected:
        expected += Counter({(b, a): c for (a, b), c in expected.items() if a != b})
    if self_loops == "add":
        expected += Counter((v, v) for v in range(n))
    if parallel_edges == "remove":
        expected = Counter(set(expected))
    indptr, indices = edges_to_csc(
        src, dst, n, undirected=undirected, self_loops=self_loops, parallel_edges=parallel_edges
    )
    assert edges_of(indptr, indices) == expected
    assert indptr.dtype == indices.dtype == np.int32
    for v in range(n):
        row = indices[indptr[v] : indptr[v + 1]]
        assert (np.diff(row) >= 0).all()


@given(edge_lists(), st.booleans(), st.sampled_from(["keep", "remove"]))
def test_values_stay_with_their_edges(edges, undirected, self_loops):
    src, dst, n = edges
    values = np.arange(src.size)
    options = {"undirected": undirected, "self_loops": self_loops}
    indptr, indices, carried = edges_to_csc_with(src, dst, n, {"value": values}, **options)
    for without, with_values in zip(edges_to_csc(src, dst, n, **options), (indptr, indices), strict=True):
        np.testing.assert_array_equal(without, with_values)
    into = np.repeat(np.arange(n), np.diff(indptr)).tolist()
    found = list(zip(indices.tolist(), into, carried["value"].tolist(), strict=True))
    expected = Counter(zip(src.tolist(), dst.tolist(), values.tolist(), strict=True))
    if undirected:
        expected += Counter((b, a, value) for a, b, value in expected if a != b)
    if self_loops == "remove":
        expected = Counter(edge for edge in expected if edge[0] != edge[1])
    assert Counter(found) == expected
    for earlier, later in itertools.pairwise(found):
        if earlier[:2] == later[:2]:
            assert undirected or earlier[2] < later[2]  # parallel edges keep their order


def test_parallel_edges_of_one_value_are_one_edge():
    src, dst = np.array([0, 1, 0]), np.array([1, 0, 1])
    options = {"undirected": True, "parallel_edges": "remove"}
    _, indices, carried = edges_to_csc_with(src, dst, 2, {"edge_weights": np.full(3, 0.5)}, **options)
    assert (indices.tolist(), carried["edge_weights"].tolist()) == ([1, 0], [0.5, 0.5])
    with pytest.raises(ValueError, match=r"parallel edges 1 -> 0 have the edge_times 2 and 1, .*parallel_edges=keep"):
        edges_to_csc_with(src, dst, 2, {"edge_times": np.array([1, 2, 1])}, **options)


def test_added_self_loops_have_no_values():
    with pytest.raises(ValueError, match=r"self_loops is 'add', but such edges have no edge_times; give 'keep' or"):
        edges_to_csc_with(np.array([0]), np.array([1]), 2, {"edge_times": np.array([3])}, self_loops="add")


@given(edge_lists())
def test_undirected_is_symmetric_and_idempotent(edges):
    src, dst, n = edges
    options = {"undirected": True, "self_loops": "remove", "parallel_edges": "remove"}
    indptr, indices = edges_to_csc(src, dst, n, **options)
    again = edges_to_csc(indices, np.repeat(np.arange(n), np.diff(indptr)), n, **options)
    np.testing.assert_array_equal(indptr, again[0])
    np.testing.assert_array_equal(indices, again[1])
    assert all((b, a) in edges_of(indptr, indices) for a, b in edges_of(indptr, indices))


@given(edge_lists())
def test_the_largest_component_is_connected_and_largest(edges):
    src, dst, n = edges
    indptr, indices = edges_to_csc(src, dst, n)
    component = list(range(n))  # by repeated relabelling, unlike the code under test
    for _ in range(n):
        for a, b in zip(src.tolist(), dst.tolist(), strict=True):
            component[a] = component[b] = min(component[a], component[b])
    largest = Counter(component).most_common(1)[0][1]
    nodes = largest_component(indptr, indices)
    assert nodes.size == largest
    assert len({component[v] for v in nodes.tolist()}) == 1

    kept = edges_of(*induced_subgraph(indptr, indices, nodes))
    inside = set(nodes.tolist())
    renumbered = Counter((int(nodes[a]), int(nodes[b])) for a, b in kept.elements())
    assert renumbered == Counter(e for e in edges_of(indptr, indices).elements() if set(e) <= inside)


@pytest.mark.parametrize(
    ("src", "message"), [([0, 7], "src holds node 7; valid ids are 0 to 2"), ([0, -1], "src holds node -1")]
)
def test_ids_out_of_range_are_named(src, message):
    with pytest.raises(ValueError, match=message):
        edges_to_csc(np.array(src), np.array([0, 1]), 3)


@pytest.mark.parametrize(("option", "value"), [("self_loops", "drop"), ("parallel_edges", "add")])
def test_unknown_edge_options_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} is '{value}'; it must be one of keep, remove"):
        edges_to_csc(np.array([0]), np.array([0]), 1, **{option: value})


def test_l1_normalize_leaves_empty_rows():
    rows = np.array([[1, -3], [0, 0]], dtype=np.float32)
    normalized = l1_normalize(rows)
    np.testing.assert_array_equal(normalized, np.array([[0.25, -0.75], [0, 0]], dtype=np.float32))
    assert normalized.dtype == np.float32
