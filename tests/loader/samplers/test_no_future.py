"""No row of the future: a million picks on tables with keys and times, whatever their times and the order of lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from relational import graph_of, needs_data

from loader.graph import HeteroGraph
from loader.samplers import TreeSampler

pytestmark = needs_data

MISSING = -(2**63)
Times = NDArray[np.int64]
WAYS: list[tuple[str, bool, str]] = [
    ("unique", False, "<="),
    ("paths", False, "<="),
    ("unique", True, "<="),
    ("unique", False, "<"),
]


@pytest.mark.parametrize("name", ["rel-f1", "lahman"])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda times: times, id="as they are"),
        pytest.param(np.negative, id="in reverse"),
        pytest.param(lambda times: times - 2**40, id="negative"),
        pytest.param(lambda times: times + 2**60, id="beyond 2^53"),
    ],
)
def test_no_pick_is_of_the_future(name: str, change: Callable[[Times], Times]) -> None:
    tables, random = graph_of(name), np.random.default_rng(0)
    times = {key: np.where(of == MISSING, MISSING, change(of)) for key, of in tables.node_times.items()}
    edges = {}
    for key, ends in tables.edges.items():  # in no order, so that lists have to be sorted
        order = random.permutation(len(ends[0]))
        edges[key] = torch.stack([torch.as_tensor(end[order]) for end in ends]).long()
    node_times = {key: torch.as_tensor(of) for key, of in times.items()}
    graph = HeteroGraph.from_edges(edges, dict(tables.num_nodes), node_times=node_times)
    every = np.full(sum(tables.num_nodes.values()), MISSING)
    for key, ids in graph.node_types.items():
        every[ids.start : ids.stop] = times.get(key, MISSING)
    known = {key: found for key, of in times.items() if len(found := np.flatnonzero(of != MISSING))}
    picks = ties = 0
    for trees, last, rule in WAYS:
        sampler = TreeSampler([24, 12], times="node", trees=trees, last=last, rule=rule, seed=3, missing_times="always")
        of_way = batches = 0
        while of_way < 250_000:
            key = [*known][batches % len(known)]
            seeds = random.choice(known[key], 512)
            now = times[key][seeds]
            batch = sampler.sample(graph, {key: torch.as_tensor(seeds)}, torch.as_tensor(now), batch=batches)
            bound, found = now[batch.tree.numpy()[512:]], every[batch.nodes.numpy()[512:]]
            late = (found > bound) if rule == "<=" else (found >= bound)
            assert not (late & (found != MISSING)).any()
            of_way += len(found)
            ties += int((found == bound).sum())
            batches += 1
        picks += of_way
    assert picks >= 1_000_000
    assert ties > 100_000
