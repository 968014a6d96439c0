"""Picks by weight, the heaviest and LABOR on a GPU: the bytes of the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import WIDTHS, messy_graph, widen
from marks import needs_gpu

from loader.graph import Graph
from loader.samplers import CudaSampler, FusedSampler, Request

pytestmark = needs_gpu

KINDS: dict[str, dict[str, Any]] = {
    "weighted": {"weights": "edge_weights"},
    "weighted, replaced": {"weights": "edge_weights", "replace": True},
    "heaviest": {"weights": "edge_weights", "top_k": True},
    "raced": {"weights": "edge_weights", "weight_tables": False},
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
]
SCANNED = [k for k in KINDS if "labor" in k or k == "raced"]
ALLOWED = [(k, s, v) for k in KINDS for s, v in HOW if k not in SCANNED or v == "hash" or s in ("auto", "hopwise")]


def graph_of(width: str, steep: bool) -> Graph:
    plain = messy_graph(3000, 90_000, 4)
    weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(2))
    weights = weights**40 if steep else weights
    weights[::7] = 0
    return widen(Graph(plain.indptr, plain.indices, edge_weights=weights), width)


@pytest.mark.parametrize(("kind", "schedule", "node_set"), ALLOWED)
@pytest.mark.parametrize("fanouts", [[10, 10], [15, 10, 5], [40, 7], [-1, 3]])
def test_the_bytes_are_those_of_the_cpu(kind, schedule, node_set, fanouts) -> None:
    graph = graph_of("int32", steep=len(fanouts) == 3)
    on_gpu = graph.to("cuda")
    options = {"edge_ids": True, "seed": 7, **KINDS[kind]}
    ours = CudaSampler(fanouts, schedule=schedule, node_set=node_set, **options)
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
    oracle = FusedSampler([10, 3], edge_ids=True, **KINDS[kind]).sample(graph, seeds)
    how = [("cooperative", "auto")]
    if kind in SCANNED:
        how += [("hopwise", "bitmap"), ("hopwise", "hash")]
    for schedule, node_set in how:
        options = {"schedule": schedule, "node_set": node_set, **KINDS[kind]}
        ours = CudaSampler([10, 3], edge_ids=True, **options)
        assert ours.sample(on_gpu, seeds.to("cuda")).to("cpu").digest() == oracle.digest(), options
        ours.close()


@pytest.mark.parametrize("node_set", ["bitmap", "hash"])
def test_weights_of_doubles_race_as_on_the_cpu(node_set) -> None:
    graph = graph_of("int32", steep=True)
    graph.edge_weights = graph.edge_weights.double()
    options = {"edge_ids": True, **KINDS["raced"]}
    ours = CudaSampler([100, 7], schedule="hopwise", node_set=node_set, **options)
    oracle = FusedSampler([100, 7], **options)
    seeds = torch.arange(0, 3000, 30)
    got = ours.sample(graph.to("cuda"), seeds.to("cuda"), batch=3)
    assert got.to("cpu").digest() == oracle.sample(graph, seeds, batch=3).digest()
    ours.close()


@pytest.mark.parametrize("kind", SCANNED)
def test_wide_fanouts_scan_lists_as_on_the_cpu(kind) -> None:
    graph = graph_of("int32", steep=True)
    options = {"edge_ids": True, **KINDS[kind]}
    ours, oracle = (
        CudaSampler([500, 12, 5], schedule="cooperative", **options),
        FusedSampler([500, 12, 5], **options),
    )
    seeds = torch.arange(0, 3000, 30)
    got = ours.sample(graph.to("cuda"), seeds.to("cuda"), batch=3)
    assert got.to("cpu").digest() == oracle.sample(graph, seeds, batch=3).digest()
    ours.close()


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("schedule", ["cooperative", "hopwise"])
@pytest.mark.parametrize("edge", [0, 60_000])
def test_a_bad_weight_is_named_and_forgotten(bad, schedule, edge) -> None:
    graph = graph_of("int32", steep=False)
    on_gpu = graph.to("cuda")
    assert on_gpu.edge_weights is not None
    seeds = torch.arange(0, 3000, 7, device="cuda")
    ours = CudaSampler([10, 10], schedule=schedule, edge_ids=True, **KINDS["raced"])
    held = float(on_gpu.edge_weights[edge])
    on_gpu.edge_weights[edge] = bad
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"edge_weights\[{edge}\] is .*; a weight must be finite"):
            ours.sample(on_gpu, seeds)
    on_gpu.edge_weights[edge] = held
    oracle = FusedSampler([10, 10], edge_ids=True, **KINDS["raced"]).sample(graph, seeds.cpu())
    assert ours.sample(on_gpu, seeds).to("cpu").digest() == oracle.digest()
    ours.close()


def test_a_race_of_doubles_sees_weights_that_change() -> None:
    graph = graph_of("int32", steep=False)
    assert graph.edge_weights is not None
    graph.edge_weights = graph.edge_weights.double()
    on_gpu, seeds = graph.to("cuda"), torch.arange(0, 3000, 9)
    ours, oracle = CudaSampler([10, 10], **KINDS["raced"]), FusedSampler([10, 10], **KINDS["raced"])
    for _ in range(2):
        got = ours.sample(on_gpu, seeds.to("cuda"))
        assert got.to("cpu").digest() == oracle.sample(graph, seeds).digest()
        graph.edge_weights.pow_(30)
        assert on_gpu.edge_weights is not None
        on_gpu.edge_weights.copy_(graph.edge_weights)
    ours.close()


def test_padded_races_tell_of_bad_weights_later() -> None:
    graph = graph_of("int32", steep=False).to("cuda")
    assert graph.edge_weights is not None
    seeds = torch.arange(0, 3000, 9, device="cuda")
    session = CudaSampler([10, 10], pad_to_capacity=True, **KINDS["raced"]).open(graph)
    session.begin([Request(seeds, 0, 0)])[0]()
    torch.cuda.synchronize()
    session.check()
    listed = graph.indptr[1:] > graph.indptr[:-1]
    first = int(listed.nonzero()[0])  # whose list begins with edge 0
    graph.edge_weights[0] = -1
    session.begin([Request(torch.tensor([first], device="cuda"), 0, 1)])[0]()
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match=r"edge_weights\[0\] is -1.0"):
        session.check()
    session.close()


def test_a_group_of_labor_equals_single_mini_batches() -> None:
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
        ({"labor": True, "node_set": "bitmap", "schedule": "cooperative"}, "node_set='bitmap' takes a launch per"),
        ({"labor": True, "pad_to_capacity": True}, "pad_to_capacity needs an upper bound"),
    ],
)
def test_options_a_gpu_sampler_lacks_are_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        CudaSampler([3], **options)
