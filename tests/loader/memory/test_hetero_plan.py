"""A plan for a graph with types: the sum of its parts is at most the budget, and its card says what lies where."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.graph import Graph, HeteroGraph
from loader.memory.hetero_plan import HeteroPlan
from loader.memory.hetero_reads import HeteroReads
from loader.memory.plan import MemoryNeeds

NEEDS = MemoryNeeds(1000, 2000, 3000, 4000)


def graph_of(sizes: dict[str, int], num_edges: int) -> HeteroGraph:
    """All edges lead to the first node, from it."""
    name, nodes = next(iter(sizes)), sum(sizes.values())
    rows = sizes[name]
    indptr = torch.full((rows + 1,), num_edges)
    indptr[0] = 0
    lists = Graph(indptr, torch.zeros(num_edges, dtype=torch.int32), num_src=nodes, validate=False)
    return HeteroGraph(lists, sizes, [(name, "to", name)])


def reads_of(sizes: dict[str, int], seed: int) -> HeteroReads:
    g = torch.Generator().manual_seed(seed)
    rows = {name: torch.rand(n, generator=g, dtype=torch.float64) ** 3 for name, n in sizes.items()}
    return HeteroReads(10, float(torch.rand(1, generator=g)) * 10**6, rows, {})


@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=5),
    widths=st.lists(st.integers(0, 400), min_size=5, max_size=5),
    num_edges=st.integers(0, 600_000),
    shares=st.lists(st.floats(0, 1.3), min_size=2, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_parts_sum_up_to_at_most_the_budget(
    seed: int, sizes: list[int], widths: list[int], num_edges: int, shares: list[float]
) -> None:
    nodes = {f"t{i}": n + (i == 0) for i, n in enumerate(sizes)}
    graph, reads = graph_of(nodes, num_edges), reads_of(nodes, seed)
    rows = {name: 4 * width for name, width in zip(nodes, widths, strict=False)}
    most = HeteroPlan.make(2**40, NEEDS, graph, rows, reads)
    budgets = sorted(NEEDS.total + int(share * (most.nbytes - NEEDS.total)) for share in shares)
    plans = [HeteroPlan.make(budget, NEEDS, graph, rows, reads) for budget in budgets]
    for plan in plans:
        parts = [plan.needs.total, plan.split.list_bytes, *plan.split.row_bytes.values()]
        assert sum(parts) <= plan.nbytes + 2 * 2**20 * (1 + len(rows))
        assert plan.nbytes <= plan.budget
        assert set(plan.rows.values()) <= {"device", "cached", "pinned"}
    assert all(a.split.bus >= b.split.bus - 1e-6 for a, b in pairwise(plans))
    assert (most.lists, set(most.rows.values()), most.split.bus) == ("device", {"device"}, 0)


def test_a_card_says_what_lies_where() -> None:
    sizes = {"a": 1000, "b": 4}
    graph, rows = graph_of(sizes, 100_000), {"a": 256, "b": 12}
    reads = HeteroReads(
        1, 10.0, {"a": torch.arange(1000, dtype=torch.float64), "b": torch.ones(4, dtype=torch.float64)}, {}
    )
    plan = HeteroPlan.make(NEEDS.total + 100_000, NEEDS, graph, rows, reads)
    card = plan.card()
    assert card["graph"] == "pinned"
    assert card["features"] == {"a": "cached", "b": "pinned"}
    assert card["share_of_rows"]["a"] == pytest.approx((100_000 - 4096 - 512) // 256 / 1000)
    assert card["needed_bytes"] == NEEDS.total
    assert card["expected_bytes"] == plan.nbytes <= card["budget_bytes"]
    text = str(plan)
    assert f"the places of the lists, {plan.shares['a']:.1%} of the rows of a, 0.0% of the rows of b lie in GPU" in text
    assert "\n" not in text


def test_a_budget_below_the_needs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"memory is 9.765 KiB, less than the 9.766 KiB that training needs: 1000 B"):
        HeteroPlan.make(9999, NEEDS, graph_of({"a": 2}, 5), {"a": 8}, reads_of({"a": 2}, 0))
