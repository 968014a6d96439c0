from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.synthetic.planted import PlantedGraph, class_sizes


def degrees_of(plan: PlantedGraph, keys: np.ndarray) -> np.ndarray:
    low, high = np.divmod(keys, plan.num_nodes)
    return np.bincount(low, minlength=plan.num_nodes) + np.bincount(high, minlength=plan.num_nodes)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(200, 800),
    st.integers(2, 9),
    st.floats(0, 0.8),
    st.floats(0.6, 0.9),
    st.floats(2, 12),
    st.integers(0, 100),
)
def test_edges_are_distinct_and_have_the_asked_number(n, classes, skew, homophily, mean_degree, seed):
    plan = PlantedGraph(class_sizes(n, classes, 0.0), round(n * mean_degree / 2), skew, None, homophily)
    keys = plan.draw(np.random.default_rng(seed))
    assert keys.size == plan.num_pairs
    assert (np.diff(keys) > 0).all()
    low, high = np.divmod(keys, n)
    assert (low < high).all()
    np.testing.assert_array_equal(keys, plan.draw(np.random.default_rng(seed)))


@settings(max_examples=30, deadline=None)
@given(st.integers(60, 250), st.integers(0, 100))
def test_the_largest_degree_is_exact(max_degree, seed):
    plan = PlantedGraph(class_sizes(2000, 4, 0.3), 10_000, 0.5, max_degree, 0.7)
    keys = plan.draw(np.random.default_rng(seed))
    degrees = degrees_of(plan, keys)
    assert degrees.max() == max_degree
    assert keys.size == plan.num_pairs
    assert (np.diff(keys) > 0).all()


@pytest.mark.parametrize("homophily", [0.4, 0.65, 0.9])
def test_homophily_is_the_share_within_classes(homophily):
    plan = PlantedGraph(class_sizes(5000, 6, 0.5), 30_000, 0.4, None, homophily)
    low, high = np.divmod(plan.draw(np.random.default_rng(1)), plan.num_nodes)
    planted = np.repeat(np.arange(6), plan.sizes)
    assert abs((planted[low] == planted[high]).mean() - homophily) < 0.02


def test_more_skew_has_a_heavier_tail():
    shares = []
    for skew in (0.0, 0.3, 0.6):
        plan = PlantedGraph(class_sizes(20_000, 4, 0.0), 100_000, skew, None, 0.65)
        degrees = np.sort(degrees_of(plan, plan.draw(np.random.default_rng(2))))[::-1]
        shares.append(degrees[:200].sum() / degrees.sum())  # of the top 1 %
    assert shares[0] < 0.03 < shares[1] < 0.08 < shares[2]


def test_degrees_follow_the_rank():
    plan = PlantedGraph(np.array([20_000]), 200_000, 0.5, None, 1.0)
    degrees = degrees_of(plan, plan.draw(np.random.default_rng(3))).astype(float)
    # Expected degrees fall as rank ** -0.5: between ranks 100 and 10,000 by a factor of 10.
    ratio = degrees[80:120].mean() / degrees[9_000:11_000].mean()
    assert 8.5 < ratio < 11.5


def test_class_sizes_sum_up_and_none_is_empty():
    sizes = class_sizes(1000, 47, 2.0)
    assert sizes.sum() == 1000
    assert sizes.min() >= 1
    assert (np.diff(sizes) <= 0).all()
    assert class_sizes(100, 4, 0.0).tolist() == [25, 25, 25, 25]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"skew": 1.0}, "skew is 1.0; it must be at least 0 and below 1"),
        ({"num_pairs": 4000}, "a mean degree of 80.0 on 100 nodes; at most 49.5"),
        ({"homophily": 0.2}, r"homophily is 0.2; .* it must be 0.5000 \(what chance gives\) to 1"),
        ({"homophily": 1.2}, "homophily is 1.2"),
        ({"max_degree": 100}, "max_degree is 100; with skew 0.5 it can be"),
        ({"max_degree": 2}, "max_degree is 2; with skew 0.5 it can be 6 to"),
    ],
)
def test_impossible_plans_are_refused(changes, message):
    parts = {"sizes": np.array([50, 50]), "num_pairs": 300, "skew": 0.5, "max_degree": None, "homophily": 0.7}
    with pytest.raises(ValueError, match=message):
        PlantedGraph(**{**parts, **changes})


def test_classes_too_small_for_their_edges_are_refused():
    sizes = np.array([2] * 50)
    plan = PlantedGraph(sizes, 1000, 0.0, None, 1.0)
    with pytest.raises(ValueError, match=r"only \d+ of 1000 distinct edges could be drawn"):
        plan.draw(np.random.default_rng(0))


@given(st.integers(1, 400), st.integers(0, 2000), st.floats(0, 2))
def test_classes_of_few_nodes_have_one_each(classes: int, more: int, skew: float) -> None:
    sizes = class_sizes(classes + more, classes, skew)
    assert sizes.sum() == classes + more
    assert sizes.min() >= 1
    assert sizes[0] == sizes.max()
