"""Typed mini-batches of a GPU are those of the CPU, byte for byte, and the oracle's."""

from __future__ import annotations

from typing import Any

import hetero_cases
import pytest
import torch
from hetero_graphs import WHOLE_LISTS, with_hubs
from marks import needs_gpu
from torch import Tensor

from loader.graph import HeteroGraph
from loader.samplers import CudaSampler, FusedSampler, Request

pytestmark = needs_gpu


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_mini_batches_are_the_oracles(first: int) -> None:
    makers = hetero_cases.makers_of("cuda")
    found = [hetero_cases.check(number, makers) for number in range(first, first + 50)]
    assert [what for what in found if what] == []


def large() -> HeteroGraph:
    g = torch.Generator().manual_seed(0)

    def edges(a: int, b: int, count: int) -> Tensor:
        skewed = (a * torch.rand(count, generator=g) ** 3).long()
        return torch.stack([skewed, torch.randint(b, (count,), generator=g)])

    relations = {
        ("a", "w", "p"): edges(200_000, 100_000, 900_000),
        ("p", "rev_w", "a"): edges(100_000, 200_000, 900_000),
        ("p", "c", "p"): edges(100_000, 100_000, 1_500_000),
        ("f", "t", "p"): edges(30, 100_000, 500_000),
        ("p", "rev_t", "f"): edges(100_000, 30, 500_000),
    }
    weights = {key: torch.rand(pairs.shape[1], generator=g).sub(0.1).relu() for key, pairs in relations.items()}
    return HeteroGraph.from_edges(relations, {"a": 200_000, "p": 100_000, "f": 30}, edge_weights=weights)


@pytest.mark.parametrize("node_set", ["bitmap", "hash"])
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("fanouts", [[10, 10], [15, 10, 5], [-1, 3], [40, 2]])
def test_large_mini_batches_in_groups_are_the_cpus(fanouts: list[int], expand: str, node_set: str) -> None:
    are_the_cpus(fanouts, node_set, expand=expand)


@pytest.mark.parametrize("picking", WHOLE_LISTS)
@pytest.mark.parametrize("expand", ["all", "new"])
@pytest.mark.parametrize("fanouts", [[10, 10], [15, 10, 5], [-1, 3], [40, 2]])
def test_picks_that_scan_lists_are_the_cpus(fanouts: list[int], expand: str, picking: dict[str, Any]) -> None:
    are_the_cpus(fanouts, "auto", expand=expand, **picking)


def are_the_cpus(fanouts: list[int], node_set: str, **picking: Any) -> None:
    graph = large()
    options: dict[str, Any] = {"seed": 5, "edge_ids": True, **picking}
    on = graph.to("cuda")
    session = CudaSampler(fanouts, node_set=node_set, batches_per_launch=4, **options).open(on)
    oracle = FusedSampler(fanouts, **options)
    g = torch.Generator().manual_seed(1)
    seeds = [200_000 + torch.randperm(100_000, generator=g)[:n] for n in (300, 1, 0, 200)]
    group = [Request(ids.cuda(), 1, i) for i, ids in enumerate(seeds)]
    for finish, request, ids in zip(session.begin(group), group, seeds, strict=True):
        assert finish().digest() == oracle.sample(graph, ids, epoch=1, batch=request.batch).digest()
    session.close()


@pytest.mark.parametrize("picking", [{}, *WHOLE_LISTS])
def test_a_graph_in_pinned_memory_is_sampled_alike(picking: dict[str, Any]) -> None:
    graph = large()
    seeds = torch.arange(200_000, 200_500)
    found = CudaSampler([5, 5], **picking).sample(graph.pin_memory(), seeds.cuda())
    assert found.digest() == FusedSampler([5, 5], **picking).sample(graph, seeds).digest()


@pytest.mark.parametrize("picking", WHOLE_LISTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hubs_of_a_million_are_scanned(dtype: torch.dtype, picking: dict[str, Any]) -> None:
    graph = with_hubs(1_000_000, dtype)
    fanouts = {("a", "w", "p"): [20, 3], ("p", "c", "p"): [-1, 0], ("a", "t", "a"): [5, 1024]}
    fanouts["p", "rev_w", "a"] = [0, 4]
    seeds = torch.cat([torch.arange(5), torch.arange(1_000_000, 1_000_004)])
    session = CudaSampler(fanouts, **picking).open(graph.to("cuda"))
    on_cpu = FusedSampler(fanouts, **picking).open(graph)
    for batch in range(3):
        found = session.begin([Request(seeds.int().cuda(), 0, batch)])[0]()
        assert found.digest() == on_cpu.begin([Request(seeds.int(), 0, batch)])[0]().digest()
    session.close()


def test_bad_weights_are_named() -> None:
    graph = with_hubs(5000)
    assert graph.lists.edge_weights is not None
    place = int(graph.lists.indptr[2 * 5000]) + 5  # in the list of the first node of type p
    on = graph.to("cuda")
    assert on.lists.edge_weights is not None
    on.lists.edge_weights[place] = -1.0
    session = CudaSampler([4, 3], weights="edge_weights", weight_tables=False).open(on)
    with pytest.raises(ValueError, match=rf"edge_weights\[{place}\] is -1.0; a weight must be finite"):
        session.begin([Request(torch.tensor([5000], dtype=torch.int32).cuda(), 0, 0)])[0]()
    session.close()
