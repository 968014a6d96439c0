"""The nodes that exist at a time, in the order of their times."""

from __future__ import annotations

import pytest
import torch

from loader import _core
from loader.graph.checks import MISSING_TIME
from loader.samplers.existing_nodes import ExistingNodes
from loader.samplers.node_weights import NodeWeights

TIMES = torch.tensor([5, -3, 5, MISSING_TIME, 2**60])


@pytest.mark.parametrize(
    ("rule", "missing", "at", "counts"),
    [
        ("<=", "always", [-4, -3, 5, 2**60], [1, 2, 4, 5]),
        ("<", "always", [-3, 5, 6, 2**60], [1, 2, 4, 4]),
        ("<=", "never", [-3, 5, 2**62], [1, 3, 4]),
    ],
)
def test_counts_are_those_of_nodes_that_exist(rule: str, missing: str, at: list[int], counts: list[int]) -> None:
    nodes = ExistingNodes("nodes", TIMES, rule, missing)
    assert nodes.counts(torch.tensor(at)).tolist() == counts
    assert nodes.order.tolist() == ([3] if missing == "always" else []) + [1, 0, 2, 4]


def test_weights_count_in_units_of_those_that_exist() -> None:
    weights = NodeWeights("target_weights", torch.tensor([1.0, 0.0, 2.0, 1.0, 4.0]))
    nodes = ExistingNodes("nodes", TIMES, "<=", "always", weights)
    low, high = nodes.counts(torch.tensor([-3, 5])).tolist()
    assert (low, high) == (int(weights.units[3]), int(weights.units[[0, 2, 3]].sum()))
    assert nodes.order is None
    drawn = torch.tensor([0, low - 1, low, high - 1])
    assert nodes.nodes(drawn).tolist() == [3, 3, 0, 2]
    with pytest.raises(
        ValueError, match="1 of 2 negatives have no end: all items with a positive weight are not earlier"
    ):
        ExistingNodes("items", TIMES, "<", "never", weights).counts(torch.tensor([7, 0]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target_counts": [0, 1]}, "target_counts holds 0; 1 to 3 nodes may exist"),
        ({"target_counts": [1, 4]}, "target_counts holds 4; 1 to 3 nodes may exist"),
        ({"target_counts": [1]}, "target_counts has 1 elements; it must have 2"),
        ({"target_order": [0, 1, 2, 2]}, "target_order has 4 elements; there are 3 nodes"),
        ({"target_order": [3, 3, 3]}, "target_order holds node 3; valid ids are 0 to 2"),
        ({"target_order": []}, "target_counts holds 0; 1 to 0 nodes may exist"),
        ({"source_order": [-1, -1, -1]}, "source_order holds node -1; valid ids are 0 to 2"),
    ],
)
def test_the_core_refuses_what_is_no_order(given: dict[str, list[int]], message: str) -> None:
    arrays = {name: torch.tensor(of, dtype=torch.int64) for name, of in given.items()}
    ends = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        _core.negatives(3, 3, True, 1, 0, 0, None, *ends, None, None, False, **arrays)
