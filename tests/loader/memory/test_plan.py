"""A plan of GPU memory: it never takes more than the budget, more memory never reads more, and nothing is better."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest
import torch
from function_stage import FunctionStage
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import _core
from loader.graph import Graph
from loader.machine.gpu import counted_bytes
from loader.memory.plan import MemoryNeeds, MemoryPlan, as_memory, outstanding_batches
from loader.memory.split import Reads
from loader.pipeline import Pipeline
from loader.samplers.gpu.sizes import GpuOptions

NODES, ROW = 60, 384
NEEDS = MemoryNeeds(1000, 2000, 3000, 4000)


def graph_of(seed: int, edges: int = 3000) -> Graph:
    src, dst = torch.randint(NODES, (2, edges), generator=torch.Generator().manual_seed(seed))
    return Graph.from_edges(src, dst * dst // NODES, NODES)


def reads_of(graph: Graph, seed: int) -> Reads:
    g = torch.Generator().manual_seed(seed)
    lists = torch.rand(NODES, generator=g, dtype=torch.float64) * 1000 * (graph.in_degrees() > 0)
    return Reads(10, lists, torch.rand(NODES, generator=g, dtype=torch.float64), NODES)


def everything(graph: Graph) -> int:
    return NEEDS.total + graph.indptr.nbytes + graph.indices.nbytes + NODES * ROW


@given(seed=st.integers(0, 1000), shares=st.lists(st.floats(0, 1.3), min_size=2, max_size=4))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("lookahead", [0, 8])
def test_plans_fit_and_more_memory_reads_no_more(lookahead: int, seed: int, shares: list[float]) -> None:
    graph = graph_of(seed)
    reads, most = reads_of(graph, seed), everything(graph)
    budgets = sorted(NEEDS.total + int(share * (most - NEEDS.total)) for share in shares)
    plans = [MemoryPlan.make(budget, NEEDS, graph, ROW, reads, lookahead) for budget in budgets]
    for plan in plans:
        assert plan.nbytes <= plan.budget
        assert 0 <= plan.split.bus <= plan.split.bus_without + 1e-6
        assert plan.lookahead == (lookahead if plan.rows == "cached" else 0)
    assert all(a.split.bus >= b.split.bus - 1e-6 for a, b in pairwise(plans))


@given(seed=st.integers(0, 1000), rooms=st.lists(st.integers(0, 10 * 2**20), min_size=2, max_size=2))
@settings(max_examples=20, deadline=None)
def test_arrays_of_mebibytes_fit_too(seed: int, rooms: list[int]) -> None:
    degree = 2**13
    graph = Graph(torch.arange(NODES + 1) * degree, torch.zeros(NODES * degree, dtype=torch.int32), validate=False)
    reads, row = reads_of(graph, seed), 2**16
    few, many = (MemoryPlan.make(NEEDS.total + r, NEEDS, graph, row, reads) for r in sorted(rooms))
    assert few.nbytes <= few.budget
    assert many.nbytes <= many.budget
    assert few.split.bus >= many.split.bus - 1e-6


@given(seed=st.integers(0, 1000), room=st.integers(0, 5000))
@settings(max_examples=40, deadline=None)
def test_no_choice_reads_less(seed: int, room: int) -> None:
    """Of lists and rows of one size the best are the best per byte, so that all choices can be tried."""
    nodes, degree = 4, 64
    row = degree * 4
    graph = Graph(torch.arange(nodes + 1) * degree, torch.arange(nodes * degree) % nodes)
    g = torch.Generator().manual_seed(seed)
    lists, rows = (torch.rand(nodes, generator=g, dtype=torch.float64) for _ in range(2))
    reads = Reads(1, lists * 1000, rows, nodes)
    plan = MemoryPlan.make(NEEDS.total + room, NEEDS, graph, row, reads)
    saved = [*reads.lists.tolist(), *(rows * row).tolist()]
    left, least = room - 4 * 512, plan.split.bus_without
    for count in range(2 * nodes + 1):
        for kept in combinations(range(2 * nodes), count):
            of_lists = sum(i < nodes for i in kept)
            of_rows = count - of_lists
            taken = count * row
            taken += graph.indptr.nbytes if 0 < of_lists < nodes else 0
            taken += 4 * nodes if 0 < of_rows < nodes else 0
            if taken <= left:
                least = min(least, plan.split.bus_without - sum(saved[i] for i in kept))
    assert plan.split.bus == pytest.approx(least, abs=1e-6)


def test_a_cache_that_is_renewed_has_fewer_rows() -> None:
    graph = Graph.from_edges(torch.zeros(1, dtype=torch.int64), torch.ones(1, dtype=torch.int64), 1000)
    reads = Reads(10, torch.zeros(1000, dtype=torch.float64), torch.ones(1000, dtype=torch.float64), 1000)
    room = 2**17
    plain, renewed = (MemoryPlan.make(NEEDS.total + room, NEEDS, graph, ROW, reads, n) for n in (0, 8))
    assert plain.share_of_rows * 1000 == (room - 4 * 512 - 4 * 1000) // ROW
    # Per row its owner and its place in two lists; and for each node, the gather that reads it next.
    assert renewed.share_of_rows * 1000 == (room - 8 * 512 - 5 * 1000) // (ROW + 12)
    assert str(renewed).endswith("less what a lookahead of 8 saves")
    assert _core.renewal_tally_bytes <= 512  # which the plan counts


def test_a_budget_of_the_needs_keeps_nothing() -> None:
    graph = graph_of(1)
    plan = MemoryPlan.make(NEEDS.total, NEEDS, graph, ROW, reads_of(graph, 1))
    assert (plan.lists, plan.rows) == ("pinned", "pinned")
    assert plan.nbytes == plan.budget
    assert plan.split.bus == plan.split.bus_without


def test_a_large_budget_keeps_all() -> None:
    graph = graph_of(1)
    plan = MemoryPlan.make(2**40, NEEDS, graph, ROW, reads_of(graph, 1))
    assert (plan.lists, plan.rows, plan.split.bus) == ("device", "device", 0)
    assert plan.card()["graph"] == "device"
    assert str(plan).startswith("memory 1,024.00 GiB: 100.0% of the edges and 100.0% of the feature rows lie in GPU")


def test_a_budget_below_the_needs_is_refused() -> None:
    graph = graph_of(1)
    with pytest.raises(
        ValueError, match=r"memory is 9.765 KiB, less than the 9.766 KiB that training needs: 1000 B for"
    ):
        MemoryPlan.make(9999, NEEDS, graph, ROW, reads_of(graph, 1))


def of_fifty(count: int) -> int:
    """Rows of this many mini-batches of 50 each."""
    return 50 * count


def test_needs_count_each_part() -> None:
    graph, sampler = graph_of(2), GpuOptions([3, 2])
    labels = torch.zeros(NODES, dtype=torch.int64)
    needs = MemoryNeeds.of([(sampler, [16])], graph, labels, [30, 10], prefetch=2)
    more = MemoryNeeds.of([(sampler, [16, 32])], graph, labels, [30, 10, 10**6], prefetch=5)
    assert needs.workspace <= more.workspace
    assert needs.tables < more.tables
    assert needs.outstanding < more.outstanding
    ids = Graph(graph.indptr, graph.indices, edge_ids=torch.arange(graph.num_edges))
    with_ids = MemoryNeeds.of([(GpuOptions([3, 2], edge_ids=True), [16])], ids, labels, [30, 10], prefetch=2)
    assert with_ids.tables - needs.tables >= graph.num_edges * 8
    rows = needs.with_rows(of_fifty, 100, 2).outstanding_rows
    assert rows >= outstanding_batches(2, 1)[1] * 50 * 100
    assert needs.with_rows(of_fifty, 100, 2).host_part == 0
    helped = needs.with_rows(of_fifty, 100, 2, host_part=lambda ids: 7 * ids)
    each = rows // outstanding_batches(2, 1)[1]
    assert (helped.outstanding_rows, helped.host_part) == (rows + 2 * each, 7 * 50)  # each loader begins one more
    assert helped.total == needs.total + rows + 2 * each + 7 * 50
    assert "350 B for the host's part of a gather" in str(helped)
    # A byte per row of two groups of four, of each loader; and a bit per row of each gather.
    announced = needs.with_rows(of_fifty, 100, 2, announced=4).outstanding_rows
    assert announced == rows + 2 * 2 * counted_bytes(4 * 50) + outstanding_batches(2, 1)[1] * counted_bytes(7)
    together = GpuOptions([3, 2])
    together.batches_per_launch = 8  # which are in flight in any case
    found = [
        MemoryNeeds.of([(together, [16])], graph, labels, [30, 10], 2, lookahead=n).outstanding for n in (0, 8, 16)
    ]
    assert found[0] == found[1] < found[2]


def test_one_loader_needs_less_than_two() -> None:
    graph, sampler, labels = graph_of(2), GpuOptions([3, 2]), torch.zeros(NODES, dtype=torch.int64)
    one, two = (MemoryNeeds.of([(sampler, [16])], graph, labels, [30], 2, 0, loaders) for loaders in (1, 2))
    assert one.outstanding < two.outstanding
    assert one[:2] == two[:2]
    # The consumer, two before it, and two ready; the same of each loader.
    assert outstanding_batches(2, 1, 0, 1)[1] == 5
    assert (
        2 * one.with_rows(of_fifty, 100, 2, 1).outstanding_rows == one.with_rows(of_fifty, 100, 2, 2).outstanding_rows
    )


def test_labels_count_as_they_are_kept() -> None:
    graph, sampler, labels = graph_of(2), GpuOptions([3, 2]), torch.arange(256).repeat(1000)
    few, many = (MemoryNeeds.of([(sampler, [16])], graph, labels * by, [30], 2) for by in (1, 10**10))
    assert many.tables - few.tables == counted_bytes(8 * 256_000) - counted_bytes(256_000)


@pytest.mark.parametrize("prefetch", [0, 1, 2, 7])
@pytest.mark.parametrize("begun", [0, 1])
@pytest.mark.parametrize("loaders", [1, 2])
def test_outstanding_batches_cover_the_loaders(prefetch: int, begun: int, loaders: int) -> None:
    stages = [FunctionStage(name, int) for name in ("sample", "request", "gather")]
    stages[0].together, stages[1].depth = 8, 1
    most = Pipeline(stages if begun else [stages[0], stages[2]], prefetch).max_items
    batches, with_rows = outstanding_batches(prefetch, 8, begun, loaders)
    # What the pipelines may have, and what their consumers may not be done with: `Pipeline.max_consumed`.
    assert batches == (loaders * (most + 1 + prefetch) if prefetch else loaders + 1)
    assert 2 * prefetch + 1 <= with_rows <= batches


@pytest.mark.parametrize(("value", "known"), [(None, None), ("auto", "auto"), (2, 2**31), (0.5, 2**29), (0, 0)])
def test_memory_is_auto_or_gib(value: Any, known: Any) -> None:
    assert as_memory(value) == known


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (-1, ValueError, "memory is -1; it must be 'auto', or a finite number of GiB from 0 on"),
        (float("nan"), ValueError, "memory is nan; it must be 'auto', or a finite number of GiB from 0 on"),
        (float("inf"), ValueError, "memory is inf"),
        ("much", ValueError, "memory is 'much'; it must be 'auto', or a number of GiB"),
        (True, TypeError, "memory is True; it must be a number"),
        ([1], TypeError, r"memory is \[1\]; it must be a number"),
    ],
)
def test_other_memory_is_refused(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_memory(value)
