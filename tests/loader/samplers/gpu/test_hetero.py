"""Typed mini-batches of a GPU are those of the CPU, byte for byte, and the oracle's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import typed_cases
from marks import needs_gpu
from torch import Tensor

from loader.graph import HeteroGraph
from loader.samplers import CudaSampler, FusedSampler, Request

pytestmark = needs_gpu


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_mini_batches_are_the_oracles(first: int) -> None:
    makers = typed_cases.makers_of("cuda")
    found = [typed_cases.check(number, makers) for number in range(first, first + 50)]
    assert [what for what in found if what] == []


def large() -> HeteroGraph:
    g = torch.Generator().manual_seed(0)

    def edges(a: int, b: int, count: int) -> Tensor:
        skewed = (a * torch.rand(count, generator=g) ** 3).long()
        return torch.stack([skewed, torch.randint(b, (count,), generator=g)])

    return HeteroGraph.from_edges(
        {
            ("a", "w", "p"): edges(200_000, 100_000, 900_000),
            ("p", "rev_w", "a"): edges(100_000, 200_000, 900_000),
            ("p", "c", "p"): edges(100_000, 100_000, 1_500_000),
            ("f", "t", "p"): edges(30, 100_000, 500_000),
            ("p", "rev_t", "f"): edges(100_000, 30, 500_000),
        },
        {"a": 200_000, "p": 100_000, "f": 30},
    )


@pytest.mark.parametrize("node_set", ["bitmap", "hash"])
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("fanouts", [[10, 10], [15, 10, 5], [-1, 3], [40, 2]])
def test_large_mini_batches_in_groups_are_the_cpus(fanouts: list[int], expand: str, node_set: str) -> None:
    graph = large()
    options: dict[str, Any] = {"seed": 5, "edge_ids": True, "expand": expand}
    on = graph.to("cuda")
    session = CudaSampler(fanouts, node_set=node_set, batches_per_launch=4, **options).open(on)
    oracle = FusedSampler(fanouts, **options)
    g = torch.Generator().manual_seed(1)
    seeds = [200_000 + torch.randperm(100_000, generator=g)[:n] for n in (300, 1, 0, 200)]
    group = [Request(ids.cuda(), 1, i) for i, ids in enumerate(seeds)]
    for finish, request, ids in zip(session.begin(group), group, seeds, strict=True):
        assert finish().digest() == oracle.sample(graph, ids, epoch=1, batch=request.batch).digest()
    session.close()


def test_a_graph_in_pinned_memory_is_sampled_alike() -> None:
    graph = large()
    seeds = torch.arange(200_000, 200_500)
    found = CudaSampler([5, 5]).sample(graph.pin_memory(), seeds.cuda())
    assert found.digest() == FusedSampler([5, 5]).sample(graph, seeds).digest()
