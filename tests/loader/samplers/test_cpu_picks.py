"""Picks by weight, the heaviest and LABOR: fused and hopwise give the same bytes, those of the laws in plain Python."""

from __future__ import annotations

from typing import Any

import pytest
import reference_picks
import reference_sampler
import torch
from graphs import WIDTHS, messy_graph, widen
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loader.graph import Graph
from loader.samplers import FusedSampler, HopwiseSampler

KINDS: dict[str, dict[str, Any]] = {
    "weighted": {"weights": "edge_weights"},
    "weighted, replaced": {"weights": "edge_weights", "replace": True},
    "raced": {"weights": "edge_weights", "weight_tables": False},
    "heaviest": {"weights": "edge_weights", "top_k": True},
    "labor": {"labor": True},
    "labor, all hops": {"labor": True, "layer_dependency": True},
    "labor, 5 mini-batches": {"labor": True, "batch_dependency": 5},
    "labor, all hops, 3 mini-batches": {"labor": True, "layer_dependency": True, "batch_dependency": 3},
}
SHAPES = ("even", "zeros", "steep", "one outweighs all", "all of one weight", "float64")


def weights_of(shape: str, count: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    w = torch.rand(count, generator=g) + 0.01
    if shape == "zeros":
        w[torch.rand(count, generator=g) < 0.5] = 0
    if shape == "steep":
        w = w**20
    if shape == "one outweighs all":
        w[:: max(count // 40, 1)] = 1e30
    if shape == "all of one weight":
        w[:] = 7
    if shape == "float64":
        return torch.exp2(torch.rand(count, generator=g, dtype=torch.float64) * 2000 - 1000)
    return w


def weigh(graph: Graph, weights: torch.Tensor) -> Graph:
    return Graph(graph.indptr, graph.indices, edge_ids=graph.edge_ids, edge_weights=weights)


def expected_of(graph: Graph, seeds: torch.Tensor, fanouts: list[int], kind: str, **at: int) -> Any:
    options = KINDS[kind]
    if options.get("top_k"):
        choose = reference_picks.heaviest(graph)
    elif not options.get("weight_tables", True):
        choose = reference_picks.race(graph, **at)
    elif options.get("labor"):
        dependency = {name: value for name, value in options.items() if name != "labor"}
        choose = reference_picks.labor(graph, **at, **dependency)
    else:
        choose = reference_picks.weighted(graph, options.get("replace", False), **at)
    return reference_sampler.sample(graph, seeds.tolist(), fanouts, edge_ids=True, choose=choose, **at)


@settings(max_examples=60, deadline=None)
@given(
    num_nodes=st.integers(1, 30),
    num_edges=st.integers(0, 200),
    rng=st.integers(0, 2**31),
    width=st.sampled_from(WIDTHS),
    shape=st.sampled_from(SHAPES),
    kind=st.sampled_from(list(KINDS)),
    num_seeds=st.integers(0, 10),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 3, 5, 20]), min_size=1, max_size=3),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
    batch=st.integers(0, 2**64 - 1),
)
@example(1, 40, 0, "int32", "steep", "weighted", 1, [20, 20], 0, 0, 0)
@example(2, 200, 3, "int64", "one outweighs all", "weighted", 2, [5, 5], 2**64 - 1, 2**64 - 1, 2**64 - 1)
@example(2, 200, 3, "wide edges", "float64", "weighted", 2, [20, 5], 0, 0, 1)
def test_hopwise_equals_the_laws_in_python(
    num_nodes, num_edges, rng, width, shape, kind, num_seeds, fanouts, seed, epoch, batch
) -> None:
    plain = messy_graph(num_nodes, num_edges, rng)
    graph = widen(weigh(plain, weights_of(shape, plain.num_edges, rng)), width)
    seeds = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(rng))[:num_seeds]
    sampler = HopwiseSampler(fanouts, edge_ids=True, seed=seed, num_threads=2, **KINDS[kind])
    got = sampler.sample(graph, seeds, epoch=epoch, batch=batch)
    expected = expected_of(graph, seeds, fanouts, kind, seed=seed, epoch=epoch, batch=batch)
    assert got.digest() == expected.digest()


@settings(max_examples=60, deadline=None)
@given(
    num_nodes=st.integers(1, 120),
    num_edges=st.integers(0, 3000),
    rng=st.integers(0, 2**31),
    width=st.sampled_from(WIDTHS),
    shape=st.sampled_from(SHAPES),
    kind=st.sampled_from(list(KINDS)),
    num_seeds=st.integers(0, 120),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 3, 10, 16, 17, 33, 200, 1024]), min_size=1, max_size=5),
    edge_ids=st.booleans(),
    batch=st.integers(0, 2**40),
    threads=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_fused_equals_hopwise_byte_for_byte(
    num_nodes, num_edges, rng, width, shape, kind, num_seeds, fanouts, edge_ids, batch, threads
) -> None:
    plain = messy_graph(num_nodes, num_edges, rng)
    graph = widen(weigh(plain, weights_of(shape, plain.num_edges, rng)), width)
    seeds = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(rng))[:num_seeds]
    hopwise = HopwiseSampler(fanouts, edge_ids=edge_ids, num_threads=threads[0], **KINDS[kind])
    fused = FusedSampler(fanouts, edge_ids=edge_ids, num_threads=threads[1], **KINDS[kind])
    expected = hopwise.sample(graph, seeds, batch=batch)
    for _ in range(2):  # the second call finds the workspace of the first
        got = fused.sample(graph, seeds, batch=batch)
        assert got.frontier_sizes == expected.frontier_sizes
        assert got.digest() == expected.digest()


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_hub_of_a_million_follows_the_law(kind) -> None:
    """Its list is shared by all threads where it has to be scanned, and is searched where few entries weigh most."""
    degree = 1_000_000
    weights = torch.rand(degree, generator=torch.Generator().manual_seed(0))
    weights[::250_000] = 1e12
    graph = Graph(torch.tensor([0] + [degree] * degree), torch.arange(degree), edge_weights=weights)
    made = []
    for threads in (1, 4):
        batch = FusedSampler([10, 3], edge_ids=True, num_threads=threads, **KINDS[kind]).sample(
            graph, torch.tensor([0])
        )
        made.append(batch.digest())
    assert made[0] == made[1]
    assert made[0] == HopwiseSampler([10, 3], edge_ids=True, **KINDS[kind]).sample(graph, torch.tensor([0])).digest()
    heavy = set(range(0, degree, 250_000))
    picked = batch.blocks[-1].edge_ids.tolist()
    if kind == "raced":
        assert heavy <= set(picked)
    if "weighted" in kind:
        assert heavy <= set(picked) if kind == "weighted" else set(picked) <= heavy
    assert len(picked) == 10 or "labor" in kind


@pytest.mark.parametrize("kind", ["weighted", "weighted, replaced", "heaviest", "raced"])
def test_edges_of_weight_zero_are_not_there(kind) -> None:
    plain = messy_graph(200, 4000, 5)
    weights = weights_of("zeros", plain.num_edges, 5)
    weights[plain.indptr[3] : plain.indptr[9]] = 0  # whole lists
    for ids in (None, torch.arange(plain.num_edges) * 3 + 2**40):
        graph = Graph(plain.indptr, plain.indices, edge_ids=ids, edge_weights=weights)
        for fanouts in ([-1], [1], [5], [1000]):
            batch = FusedSampler(fanouts, edge_ids=True, **KINDS[kind]).sample(graph, torch.arange(200))
            (block,) = batch.blocks
            places = block.edge_ids if ids is None else (block.edge_ids - 2**40) // 3
            assert block.edge_ids.dtype == (plain.indptr.dtype if ids is None else torch.int64)
            assert bool((weights[places.long()] > 0).all())
            assert torch.equal(batch.nodes[block.indices.long()], plain.indices[places.long()])
            positive = torch.zeros(200).index_add_(
                0, torch.repeat_interleave(torch.arange(200), plain.in_degrees().long()), (weights > 0).float()
            )
            rows = block.indptr.diff()
            (k,) = fanouts
            if k == -1:
                assert torch.equal(rows, positive.to(rows.dtype))
            elif "replaced" in kind:
                assert torch.equal(rows, ((positive > 0) * k).to(rows.dtype))
            else:
                assert torch.equal(rows, positive.clamp(max=k).to(rows.dtype))


@pytest.mark.parametrize("kind", ["labor", "labor, all hops"])
def test_groups_and_single_mini_batches_of_labor_agree(kind) -> None:
    from loader.samplers import Request

    graph = messy_graph(500, 9000, 2)
    sampler = FusedSampler([7, 7], edge_ids=True, num_threads=4, **KINDS[kind])
    session = sampler.open(graph)
    requests = [Request(torch.arange(i, 500, 9), 1, i) for i in range(9)]
    grouped = [finish().digest() for finish in session.begin(requests)]
    assert grouped == [sampler.sample(graph, r.seeds, epoch=1, batch=r.batch).digest() for r in requests]
    session.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_race_sees_weights_that_change(dtype) -> None:
    plain = messy_graph(300, 6000, 8)
    graph = weigh(plain, torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(1)).to(dtype))
    sampler = FusedSampler([5, 5], edge_ids=True, num_threads=3, **KINDS["raced"])
    seeds = torch.arange(0, 300, 7)
    first = sampler.sample(graph, seeds)
    assert graph.edge_weights is not None
    picked = torch.cat([block.edge_ids for block in first.blocks]).long()
    graph.edge_weights[picked] = 0
    second = sampler.sample(graph, seeds)
    assert not torch.isin(torch.cat([block.edge_ids for block in second.blocks]).long(), picked).any()
    expected = expected_of(graph, seeds, [5, 5], "raced", seed=0, epoch=0, batch=0)
    assert second.digest() == expected.digest()


@pytest.mark.parametrize("make", [FusedSampler, HopwiseSampler])
@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_race_works_after_refusing_bad_weights(make, bad) -> None:
    plain = messy_graph(300, 6000, 8)
    graph = weigh(plain, torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(1)))
    sampler = make([5, 5], num_threads=3, **KINDS["raced"])
    seeds = torch.arange(0, 300, 7)
    expected = sampler.sample(graph, seeds).digest()
    v = int(seeds[graph.in_degrees()[seeds].argmax()])
    at = int(graph.indptr[v]) + 1
    assert graph.edge_weights is not None
    before = float(graph.edge_weights[at])
    graph.edge_weights[at] = bad
    with pytest.raises(ValueError, match=rf"edge_weights\[{at}\] is .*; a weight must be finite and at least 0"):
        sampler.sample(graph, seeds)
    graph.edge_weights[at] = before
    assert sampler.sample(graph, seeds).digest() == expected
