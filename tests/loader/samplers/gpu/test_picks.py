"""Picks by weight, the heaviest and LABOR on a GPU: the bytes of the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import WIDTHS, messy_graph, widen
from marks import needs_gpu

from loader.graph import Graph
from loader.samplers import CudaSampler, FusedSampler

pytestmark = needs_gpu

KINDS: dict[str, dict[str, Any]] = {
    "weighted": {"weights": "edge_weights"},
    "weighted, replaced": {"weights": "edge_weights", "replace": True},
    "heaviest": {"weights": "edge_weights", "top_k": True},
    "labor": {"labor": True},
    "labor, all hops": {"labor": True, "layer_dependency": True},
    "labor, 5 mini-batches": {"labor": True, "batch_dependency": 5},
}
HOW = [
    ("auto", "auto"),
    ("cooperative", "bitmap"),
    ("cooperative", "hash"),
    ("hopwise", "bitmap"),
    ("hopwise", "hash"),
    ("fused-static", "bitmap"),
    ("persistent", "bitmap"),
]
ALLOWED = [(k, s, v) for k in KINDS for s, v in HOW if "labor" not in k or v == "auto" or v == "hash"]


def graph_of(width: str, steep: bool) -> Graph:
    plain = messy_graph(3000, 90_000, 4)
    weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(2))
    weights = weights**40 if steep else weights
    weights[::7] = 0
    return widen(Graph(plain.indptr, plain.indices, edge_weights=weights), width)


@pytest.mark.parametrize(("kind", "schedule", "vertex_set"), ALLOWED)
@pytest.mark.parametrize("fanouts", [[10, 10], [15, 10, 5], [40, 7], [-1, 3]])
def test_the_bytes_are_those_of_the_cpu(kind, schedule, vertex_set, fanouts) -> None:
    graph = graph_of("int32", steep=len(fanouts) == 3)
    on_gpu = graph.to("cuda")
    options = {"edge_ids": True, "seed": 7, **KINDS[kind]}
    ours = CudaSampler(fanouts, schedule=schedule, vertex_set=vertex_set, **options)
    oracle = FusedSampler(fanouts, **options)
    for batch, count in enumerate((1, 200, 1500, 200)):
        seeds = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(batch))[:count]
        got = ours.sample(on_gpu, seeds.to("cuda"), epoch=1, batch=batch)
        expected = oracle.sample(graph, seeds, epoch=1, batch=batch)
        assert got.frontier_sizes == expected.frontier_sizes
        assert got.to("cpu").digest() == expected.digest()
    ours.close()


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("pinned", [False, True])
def test_every_width_and_pinned_memory_give_equal_bytes(kind, width, pinned) -> None:
    graph = graph_of(width, steep=True)
    there = graph_of(width, steep=True)
    there = there.pin_memory() if pinned else there.to("cuda")
    options = {"edge_ids": True, **KINDS[kind]}
    ours, oracle = CudaSampler([12, 5], device="cuda", **options), FusedSampler([12, 5], **options)
    seeds = torch.arange(0, 3000, 3)
    got = ours.sample(there, seeds.to("cuda"), batch=3)
    assert got.to("cpu").digest() == oracle.sample(graph, seeds, batch=3).digest()
    ours.close()


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_hub_of_a_million_gives_equal_bytes(kind) -> None:
    degree = 1_000_000
    weights = torch.rand(degree, generator=torch.Generator().manual_seed(0))
    weights[::250_000] = 1e12
    graph = Graph(torch.tensor([0] + [degree] * degree), torch.arange(degree), edge_weights=weights)
    on_gpu, seeds = graph.to("cuda"), torch.tensor([0, 5, 999_999])
    ours = CudaSampler([10, 3], edge_ids=True, **KINDS[kind])
    got = ours.sample(on_gpu, seeds.to("cuda"))
    assert got.to("cpu").digest() == FusedSampler([10, 3], edge_ids=True, **KINDS[kind]).sample(graph, seeds).digest()
    ours.close()


def test_a_group_of_labor_equals_single_mini_batches() -> None:
    from loader.samplers import Request

    graph = graph_of("int32", steep=False)
    on_gpu = graph.to("cuda")
    options = {"labor": True, "batch_dependency": 3}
    session = CudaSampler([9, 9], batches_per_launch=8, **options).open(on_gpu)
    oracle = FusedSampler([9, 9], **options)
    requests = [Request(torch.arange(i, 3000, 11), 2, i) for i in range(11)]
    for ahead in (False, True):
        finishers = session.begin([Request(r.seeds.to("cuda"), r.epoch, r.batch) for r in requests], ahead=ahead)
        for finish, r in zip(finishers, requests, strict=True):
            assert finish().to("cpu").digest() == oracle.sample(graph, r.seeds, epoch=2, batch=r.batch).digest()
    session.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labor": True, "vertex_set": "bitmap"}, "vertex_set='bitmap' does not"),
        ({"labor": True, "schedule": "persistent"}, "schedule='persistent' does not"),
        ({"labor": True, "pad_to_capacity": True}, "pad_to_capacity needs an upper bound"),
        ({"weights": "edge_weights", "weight_tables": False}, "a GPU sampler needs tables"),
    ],
)
def test_options_a_gpu_sampler_lacks_are_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        CudaSampler([3], **options)
