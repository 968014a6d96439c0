"""What a GPU sampler needs at most: no mini-batch, and no workspace for one, is larger."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import _core
from loader.graph import Graph
from loader.machine.gpu import counted_bytes
from loader.samplers import FusedSampler
from loader.samplers.gpu.memory_needs import SamplerNeeds, _engine, graph_of_sizes
from loader.samplers.gpu.sizes import GpuOptions, Sizes


def options_of(fanouts: list[int], together: int = 1, **options: Any) -> GpuOptions:
    sampler = GpuOptions(fanouts, **options)
    sampler.batches_per_launch = together
    return sampler


def meta_graph(num_nodes: int, num_edges: int, dtype: torch.dtype = torch.int32) -> Graph:
    indptr = torch.empty(num_nodes + 1, dtype=dtype, device="meta")
    graph = Graph(indptr, torch.empty(num_edges, dtype=torch.int32, device="meta"), validate=False)
    graph.indptr = indptr
    return graph


def workspace_bytes(sizes: Sizes, sampler: GpuOptions, num_seeds: int) -> int:
    plan = sizes.new_plan(num_seeds, ahead=True)
    arrays = _engine(sampler, sizes.graph, sizes.reads).plan(**sizes.asked(plan, num_seeds))
    return sum(counted_bytes(length * getattr(torch, dtype).itemsize) for _, dtype, length, _ in arrays)


@given(
    seed=st.integers(0, 1000),
    fanouts=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    size=st.integers(1, 60),
    together=st.sampled_from([1, 8]),
    reads=st.sampled_from(["naive", "sectors"]),
    replace=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_needs_bound_whatever_is_learned(
    seed: int, fanouts: list[int], size: int, together: int, reads: str, replace: bool
) -> None:
    g = torch.Generator().manual_seed(seed)
    graph = Graph.from_edges(*torch.randint(300, (2, 4000), generator=g), 300)
    sampler = options_of(fanouts, together, replace=replace)
    needs = SamplerNeeds.of(sampler, graph, [size])
    sizes = Sizes(sampler, graph_of_sizes(graph), reads, cached=False, multiprocessors=132)
    before = workspace_bytes(sizes, sampler, size)
    sampled = FusedSampler(fanouts, replace=replace, num_threads=1).sample(graph, torch.arange(size))
    edges = [block.num_edges for block in reversed(sampled.blocks)]
    assert len(sampled.nodes) <= needs.nodes
    sizes._largest, sizes._most_lines, sizes.slots = (list(sampled.frontier_sizes), edges), 10**9, together
    plan = sizes.new_plan(size, ahead=True)
    assert plan.frontiers[-1] <= needs.nodes
    assert counted_bytes(plan.layout.length * 4) <= needs.batch
    assert max(before, workspace_bytes(sizes, sampler, size)) <= needs.workspace


@given(size=st.integers(1, 500), more=st.integers(0, 500), nodes=st.integers(600, 10**8))
@settings(max_examples=40, deadline=None)
def test_more_seeds_need_no_less(size: int, more: int, nodes: int) -> None:
    graph, sampler = meta_graph(nodes, 2**31 - 1), options_of([4, 3], 8)
    fewer, needs = SamplerNeeds.of(sampler, graph, [size]), SamplerNeeds.of(sampler, graph, [size, size + more])
    assert all(a <= b for a, b in zip(fewer, needs, strict=True))


def test_a_smaller_mini_batch_may_be_hashed() -> None:
    graph, sampler = meta_graph(40_000_000, 2**31 - 1), options_of([15, 10, 5], 8)
    sizes = Sizes(sampler, graph, "sectors", cached=True, multiprocessors=132)
    first = sizes.new_plan(1024, ahead=False)
    sizes._largest, sizes.slots = ([1024, 10_000, 100_000, 400_000], [15_000, 100_000, 500_000]), 8
    second = sizes.new_plan(1024, ahead=False)
    assert (first.node_set, second.node_set) == ("bitmap", "hash")
    assert SamplerNeeds.of(sampler, graph, [1024]).workspace >= workspace_bytes(sizes, sampler, 1024)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_the_extension_tells_sizes_without_a_gpu(dtype: torch.dtype) -> None:
    graph = meta_graph(1000, 5000, dtype)
    engine = _engine(options_of([3]), graph, "naive")
    with pytest.raises(RuntimeError, match="a sampler of device -1 only tells sizes"):
        engine.launch([], 0, 0)
    kind = type(engine)
    with pytest.raises(ValueError, match="indptr lies on cpu; it must lie on meta"):
        kind(
            torch.zeros(3, dtype=dtype), graph.indices, fanouts=[3], replace=False, edge_ids=False, pad=False, device=-1
        )
    assert kind.__name__ in dir(_core)


@pytest.mark.parametrize(
    ("fanouts", "options", "message"),
    [
        ([3, -1], {}, "memory needs an upper bound of the sizes, but fanout -1 has none; leave one of them out"),
        ([3], {"labor": True}, "memory needs an upper bound of the sizes, but labor=True has none"),
        ([3], {"weights": "edge_weights"}, "memory counts no tables of weights; leave one of memory and weights out"),
    ],
)
def test_what_is_not_counted_is_refused(fanouts: list[int], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplerNeeds.of(options_of(fanouts, **options), meta_graph(100, 100), [5])
