"""Races of lists that are too long for the plain reference: the fused sampler beside the hopwise one, which works out
every arrival and sorts them all."""

from __future__ import annotations

import pytest
import torch

from loader.graph import Graph
from loader.samplers import FusedSampler, HopwiseSampler

DEGREES = [3, 12, 31, 32, 33, 100, 255, 256, 257, 511, 1000, 5000]
SHAPES = ["even", "ties", "zeros", "nearly all zeros", "steep", "few outweigh all", "tiny", "huge", "float64"]


def star_of_lists(shape: str) -> Graph:
    """Lists of all `DEGREES`, twice each, the neighbors being nodes without lists."""
    g = torch.Generator().manual_seed(SHAPES.index(shape))
    degrees = torch.tensor(DEGREES * 2)
    count = int(degrees.sum())
    w = torch.rand(count, generator=g) + 0.01
    if shape == "ties":
        w = torch.randint(1, 3, (count,), generator=g).float() * 2.0**-140  # so late that many arrive at the end
    if shape == "zeros":
        w[torch.rand(count, generator=g) < 0.5] = 0
    if shape == "nearly all zeros":
        w[torch.rand(count, generator=g) < 0.98] = 0
    if shape == "steep":
        w = w**15
    if shape == "few outweigh all":
        w[torch.rand(count, generator=g) < 0.02] = 1e30
    if shape == "tiny":
        w = w * 1e-40
    if shape == "huge":
        w = w * 3e38
    if shape == "float64":
        w = torch.exp2(torch.rand(count, generator=g, dtype=torch.float64) * 2000 - 1000)
    num_nodes = len(degrees) + count
    indptr = torch.full((num_nodes + 1,), count)
    indptr[: len(degrees) + 1] = torch.nn.functional.pad(degrees.cumsum(0), (1, 0))
    return Graph(indptr, torch.arange(len(degrees), num_nodes), edge_weights=w)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fanout", [1, 10, 40, 500])
def test_winners_of_long_lists_are_all_arrivals_sorted(shape: str, fanout: int) -> None:
    graph = star_of_lists(shape)
    seeds = torch.arange(2 * len(DEGREES))
    options = {"weights": "edge_weights", "weight_tables": False, "edge_ids": True, "seed": 5}
    for batch in range(4):
        got = FusedSampler((fanout,), num_threads=1, **options).sample(graph, seeds, batch=batch)
        expected = HopwiseSampler((fanout,), num_threads=1, **options).sample(graph, seeds, batch=batch)
        assert got.nodes.equal(expected.nodes)
        for name in ("indptr", "indices", "edge_ids"):
            assert getattr(got.blocks[0], name).equal(getattr(expected.blocks[0], name))


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("options", [{"weight_tables": False}, {}, {"top_k": True}])
def test_subnormal_weights_count_in_flushing_threads(options: dict[str, bool], num_threads: int) -> None:
    picked = []
    for flush in (False, True):
        graph = star_of_lists("tiny")
        if not torch.set_flush_denormal(flush):
            pytest.skip("this processor has no such mode")
        try:
            sampler = FusedSampler((5,), weights="edge_weights", num_threads=num_threads, seed=2, **options)
            picked.append(sampler.sample(graph, torch.arange(2 * len(DEGREES))).nodes)
            assert torch.equal(torch.full((2,), 1e-40) * 0.5 == 0, torch.tensor([flush] * 2))  # still the caller's
        finally:
            torch.set_flush_denormal(False)
    assert torch.equal(*picked)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("at", [0, 7, 15, 16, 100, 298, 299])
def test_a_bad_weight_is_named_everywhere(bad: float, at: int) -> None:
    weights = torch.ones(300)
    graph = Graph(torch.tensor([0] + [300] * 301), torch.arange(300) + 1, edge_weights=weights)
    sampler = FusedSampler((5,), weights="edge_weights", weight_tables=False, num_threads=1)
    sampler.sample(graph, torch.tensor([0]))
    weights[at] = bad
    with pytest.raises(ValueError, match=rf"edge_weights\[{at}\] is {bad}"):
        sampler.sample(graph, torch.tensor([0]))
