"""Nodes are drawn by weight."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from statistics_of_counts import LEVEL, p_expected

from loader.graph import Graph
from loader.samplers import FusedSampler, LinkSampler, Negatives
from loader.samplers.node_weights import NodeWeights


def test_each_number_is_a_node() -> None:
    weights = torch.tensor([0.0, 1.0, 3.0, 0.0, 1e-30, 4.0, 0.0])
    made = NodeWeights("w", weights)
    assert made.total <= 2**32 - 1
    ends = [0, *made._ends.tolist()]
    shares = torch.tensor(ends, dtype=torch.float64).diff() / made.total
    assert torch.allclose(shares, weights.double() / 8, atol=1e-8)
    assert ends[5] - ends[4] == 1  # a tiny weight is drawn, too
    for node, (first, last) in enumerate(pairwise(ends)):
        if first < last:
            assert made.nodes(torch.tensor([first, last - 1])).tolist() == [node, node]
        assert (first == last) == (float(weights[node]) == 0)
    large = torch.tensor([1e308, 1e308, 0.0], dtype=torch.float64)  # whose sum is infinite
    assert NodeWeights("w", large) == NodeWeights("w", torch.tensor([1, 1, 0]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_subnormal_weights_count_in_flushing_threads(dtype: torch.dtype) -> None:
    least = torch.finfo(dtype).smallest_normal / 8
    all_weights = [torch.tensor(w, dtype=dtype) for w in ([0, least, 3 * least], [0, least, 1.0])]
    expected = [NodeWeights("w", weights) for weights in all_weights]
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        assert [NodeWeights("w", weights) for weights in all_weights] == expected
        assert not torch.full((), 5e-324, dtype=torch.float64) > 0  # the mode is what it was
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_negatives_are_drawn_by_weight(mode: str) -> None:
    weights = torch.tensor([1, 0, 2, 4, 1])
    graph = Graph.from_edges(torch.arange(4), torch.arange(1, 5), 5)
    drawn = Negatives(mode, 100, target_weights=weights)
    assert "NodeWeights(5 nodes)" in repr(drawn)
    sampler = LinkSampler(FusedSampler([1]), drawn, seed=4)
    counts = torch.zeros(5)
    for batch in range(10):
        links = sampler.sample(graph, torch.tensor([[0, 1], [1, 2]]), batch=batch)
        counts += torch.bincount(links.nodes[links.negative_targets.reshape(-1)], minlength=5)
    assert counts[1] == 0
    kept = weights > 0
    assert p_expected(counts[kept].numpy(), weights[kept].double().numpy()) > LEVEL


def test_other_weights_make_another_spec() -> None:
    specs = [
        LinkSampler(FusedSampler([1]), Negatives(target_weights=torch.tensor(w))).spec()
        for w in ([1.0, 2.0], [2.0, 4.0], [2.0, 1.0])
    ]
    assert specs[0] == specs[1] != specs[2]


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([1.0], TypeError, "w is a list; it must be a tensor of numbers, a weight per node"),
        (torch.ones(2, 2), ValueError, r"w has shape \[2, 2\]; it must have 1 dimension"),
        (torch.tensor([1.0, -2.0]), ValueError, r"w\[1\] is -2.0; a weight must be finite and at least 0"),
        (torch.tensor([float("nan"), 1.0]), ValueError, r"w\[0\] is nan"),
        (torch.zeros(3), ValueError, "w are all 0; at least one node must have a positive weight"),
        (torch.ones(3) > 0, TypeError, "it must be a tensor of numbers"),
    ],
)
def test_bad_weights_are_refused(weights, error, message) -> None:
    with pytest.raises(error, match=message):
        NodeWeights("w", weights)


def test_weights_that_nobody_reads_are_refused() -> None:
    with pytest.raises(ValueError, match="source_weights is given, but triplets have the sources of their links"):
        Negatives("triplet", 1, source_weights=torch.ones(3))
